//! Current and desired conditions.

use jiff::Timestamp;
use serde_json::{Value, json};
use translate::Condition;
use translate::status::{INSECURE_FRONTEND, OVERLAPPING_TLS};

/// Our own types, beside those of the Gateway API.
const OWN_PREFIX: &str = "varnish-software.com/";

/// Those of the Gateway API that are there only while they are true.
const GOES_AWAY: [&str; 2] = [INSECURE_FRONTEND, OVERLAPPING_TLS];

/// Something that an Event should say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) good: bool,
    pub(super) reason: String,
    pub(super) note: String,
}

/// Status and generation of a current condition.
pub(super) fn find(observed: Option<&Value>, kind: &str) -> Option<(bool, i64)> {
    let condition = get(observed, kind)?;
    Some((
        status(condition)?,
        condition.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default(),
    ))
}

/// Are the current conditions as desired, without any other condition of ours?
pub(super) fn same(wanted: &[Condition], observed: Option<&Value>) -> bool {
    let all = wanted.iter().all(|wanted| {
        get(observed, &wanted.kind).is_some_and(|there| {
            let text = |field| there.get(field).and_then(Value::as_str);
            status(there) == Some(wanted.status)
                && text("reason") == Some(&wanted.reason)
                && text("message") == Some(&wanted.message)
                && there.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default()
                    == wanted.observed_generation
        })
    });
    let stale = list(observed).iter().filter_map(|one| one.get("type")?.as_str()).any(|kind| {
        (kind.starts_with(OWN_PREFIX) || GOES_AWAY.contains(&kind))
            && !wanted.iter().any(|wanted| wanted.kind == kind)
    });
    all && !stale
}

/// The desired conditions with the time of their last change, and what changed.
pub(super) fn merge(wanted: &[Condition], observed: Option<&Value>) -> (Vec<Value>, Vec<News>) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut news = Vec::new();
    let merged = wanted
        .iter()
        .map(|wanted| {
            let there = get(observed, &wanted.kind);
            let before = there.and_then(status);
            let kept = there.filter(|_| before == Some(wanted.status));
            let since = kept.and_then(|there| there.get("lastTransitionTime")).cloned();
            let reason_before = there.and_then(|there| there.get("reason")).and_then(Value::as_str);
            let bad = if wanted.kind == "Conflicted"
                || wanted.kind == INSECURE_FRONTEND
                || wanted.kind.starts_with(OWN_PREFIX)
            {
                // These are good or bad by their own rules; the message has the details.
                wanted.status != wanted.kind.ends_with("Valid")
            } else {
                !wanted.status
            };
            let changed = before != Some(wanted.status) || reason_before != Some(&wanted.reason);
            // A condition that is good from the start causes no Event, except `Programmed` of a Gateway.
            let waits = wanted.reason == "Pending";
            let better = !bad && (before == Some(false) || (wanted.kind == "Programmed" && before.is_none()));
            if changed && !waits && (bad || better) {
                let note = format!("{}: {}", wanted.kind, wanted.message);
                news.push(News { good: !bad, reason: wanted.reason.clone(), note });
            }
            json!({
                "type": wanted.kind,
                "status": if wanted.status { "True" } else { "False" },
                "reason": wanted.reason,
                "message": wanted.message,
                "observedGeneration": wanted.observed_generation,
                "lastTransitionTime": since.unwrap_or_else(|| Value::String(now.clone())),
            })
        })
        .collect();
    (merged, news)
}

fn list(observed: Option<&Value>) -> &[Value] {
    observed.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn get<'a>(observed: Option<&'a Value>, kind: &str) -> Option<&'a Value> {
    list(observed).iter().find(|one| one.get("type").and_then(Value::as_str) == Some(kind))
}

/// `None` for Unknown.
fn status(condition: &Value) -> Option<bool> {
    match condition.get("status")?.as_str()? {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(status: bool) -> Condition {
        Condition::new("Accepted", status, if status { "Accepted" } else { "Bad" }, "m", 1)
    }

    #[test]
    fn the_time_of_the_last_change_is_kept_while_the_status_is() {
        let (first, _) = merge(&[wanted(true)], None);
        let mut old = Value::Array(first);
        old[0]["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
        assert!(same(&[wanted(true)], Some(&old)));
        let newer = Condition::new("Accepted", true, "Accepted", "other", 2);
        assert!(!same(std::slice::from_ref(&newer), Some(&old)));
        assert_eq!(merge(&[newer], Some(&old)).0[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_ne!(merge(&[wanted(false)], Some(&old)).0[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    }

    #[test]
    fn an_event_tells_of_trouble_and_of_its_end() {
        assert_eq!(merge(&[wanted(true)], None).1, []);
        let (bad, news) = merge(&[wanted(false)], None);
        assert_eq!(news.len(), 1);
        assert!(!news[0].good);
        let bad = Value::Array(bad);
        assert_eq!(merge(&[wanted(false)], Some(&bad)).1, []);
        assert!(merge(&[wanted(true)], Some(&bad)).1[0].good);
    }

    #[test]
    fn what_is_ours_and_no_longer_wanted_goes() {
        let stale = json!([{"type": "varnish-software.com/UnsupportedFields", "status": "True"}]);
        assert!(!same(&[], Some(&stale)));
        assert!(same(&[], Some(&json!([{"type": "example.com/Theirs", "status": "True"}]))));
    }
}
