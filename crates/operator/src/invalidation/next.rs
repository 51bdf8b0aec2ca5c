//! Decides the next step for one VarnishCacheInvalidation. Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{InvalidationPhase, PodResult, VarnishCacheInvalidation, VarnishCacheInvalidationStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use source::kubernetes::Unread;
use translate::invalidation::ttl;

/// A Gateway that is made together with its invalidation may be seen a moment later.
const FOR_A_GATEWAY: Duration = Duration::from_secs(3);
/// A pod that has not reported by then counts as failed.
const FOR_PODS: Duration = Duration::from_secs(30);
/// A Gateway that is not ours may belong to another installation, which has this long to act first.
const FOR_OTHERS: Duration = Duration::from_secs(35);
/// Names in a message.
const NAMED: usize = 3;

/// The target of `spec.gatewayRef`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Ours,
    /// Of a class that is not ours.
    Others,
    Missing,
}

/// A pod of the Gateway that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pod {
    Ready,
    NotReady,
    /// The pod is being deleted, but may still report.
    Going,
    /// Its containers have exited and will not restart.
    Over,
}

#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Nothing,
    Wait(Duration),
    /// All of the status but the pods' own results.
    Write(VarnishCacheInvalidationStatus),
    Delete,
}

pub(super) fn next(
    one: &VarnishCacheInvalidation,
    target: Target,
    pods: &BTreeMap<String, Pod>,
    now: Timestamp,
) -> Next {
    if one.metadata.deletion_timestamp.is_some() {
        return Next::Nothing;
    }
    let created = one.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let status = one.status.clone().unwrap_or_default();
    let started = status.started_at.as_ref().map_or(created, |time| time.0);
    match status.phase {
        Some(phase) if phase.is_final() => {
            let end = status.completed_at.as_ref().map_or(started, |time| time.0);
            match left(end, ttl(&one.spec), now) {
                Some(time) => Next::Wait(time),
                None => Next::Delete,
            }
        }
        Some(InvalidationPhase::InProgress) => match left(started, FOR_OTHERS, now) {
            Some(time) if target != Target::Ours => Next::Wait(time),
            _ => in_progress(&status, started, pods, now),
        },
        _ => begin(one, &status, target, pods, created, now),
    }
}

/// The end of one that cannot be read: nothing is carried out, and its status says why. `None`: it has ended already, or is not
/// ours. The API server holds no such object unless its definition is of another release.
pub(super) fn unreadable(
    unread: &Unread,
    target: Target,
    now: Timestamp,
) -> Option<VarnishCacheInvalidationStatus> {
    let text = |pointer: &str| unread.raw.pointer(pointer).and_then(Value::as_str);
    let is_over = matches!(text("/status/phase"), Some("Complete" | "Failed"));
    if is_over || target == Target::Others || text("/metadata/deletionTimestamp").is_some() {
        return None;
    }
    Some(VarnishCacheInvalidationStatus {
        phase: Some(InvalidationPhase::Failed),
        message: Some(format!(
            "It was not carried out: {}; then create another invalidation",
            unread.reason()
        )),
        completed_at: Some(Time(now)),
        ..VarnishCacheInvalidationStatus::default()
    })
}

fn begin(
    one: &VarnishCacheInvalidation,
    status: &VarnishCacheInvalidationStatus,
    target: Target,
    pods: &BTreeMap<String, Pod>,
    created: Timestamp,
    now: Timestamp,
) -> Next {
    let gateway = &one.spec.gateway_ref.name;
    let namespace = one.metadata.namespace.as_deref().unwrap_or_default();
    let why = match target {
        Target::Ours => {
            let ready: Vec<String> =
                pods.iter().filter(|(_, pod)| **pod == Pod::Ready).map(|(name, _)| name.clone()).collect();
            if ready.is_empty() {
                let message = "No pod of the Gateway was ready: there is no cache to remove anything from";
                return ended(status, InvalidationPhase::Complete, message.to_owned(), now);
            }
            return Next::Write(VarnishCacheInvalidationStatus {
                phase: Some(InvalidationPhase::InProgress),
                message: Some(format!("Waiting for {}", count(ready.len(), "pod"))),
                started_at: Some(Time(now)),
                pods: Some(ready),
                ..VarnishCacheInvalidationStatus::default()
            });
        }
        Target::Missing => format!(
            "spec.gatewayRef names Gateway {namespace}/{gateway}, which does not exist: create another invalidation, in the \
             namespace of the Gateway and with its name"
        ),
        Target::Others => format!(
            "Gateway {namespace}/{gateway} is of a GatewayClass of another controller: only Gateways of this one have a \
             cache"
        ),
    };
    let patience = if target == Target::Others { FOR_OTHERS } else { FOR_A_GATEWAY };
    match left(created, patience, now) {
        Some(time) if status.phase == Some(InvalidationPhase::Pending) => Next::Wait(time),
        Some(_) => Next::Write(VarnishCacheInvalidationStatus {
            phase: Some(InvalidationPhase::Pending),
            message: Some(why),
            ..VarnishCacheInvalidationStatus::default()
        }),
        None => ended(status, InvalidationPhase::Failed, why, now),
    }
}

fn in_progress(
    status: &VarnishCacheInvalidationStatus,
    started: Timestamp,
    pods: &BTreeMap<String, Pod>,
    now: Timestamp,
) -> Next {
    let counted: Vec<&str> = status.pods.iter().flatten().map(String::as_str).collect();
    let result_of = |pod: &str| status.pod_results.iter().flatten().find(|result| result.pod_name == pod);
    let (silent, gone): (Vec<&str>, Vec<&str>) = counted
        .iter()
        .copied()
        .filter(|pod| result_of(pod).is_none())
        .partition(|pod| pods.get(*pod).is_some_and(|pod| *pod != Pod::Over));
    let late = match left(started, FOR_PODS, now) {
        Some(time) if !silent.is_empty() => return Next::Wait(time),
        _ => silent,
    };
    let (late, going): (Vec<&str>, Vec<&str>) =
        late.into_iter().partition(|pod| pods.get(*pod) != Some(&Pod::Going));
    let results: Vec<&PodResult> = counted.iter().filter_map(|pod| result_of(pod)).collect();
    let bad: Vec<&&PodResult> = results.iter().filter(|result| !result.success).collect();
    let mut message = format!("{} of {}", results.len() - bad.len(), count(counted.len(), "pod"));
    if let Some(first) = bad.first() {
        message.push_str(&format!(
            "; {} failed, {} with: {}",
            count(bad.len(), "pod"),
            first.pod_name,
            first.message.as_deref().unwrap_or("no reason")
        ));
    }
    if !late.is_empty() {
        message.push_str(&format!(
            "; no report for {} s: {}: look at their logs, and create another invalidation",
            FOR_PODS.as_secs(),
            named(&late)
        ));
    }
    let gone: Vec<&str> = gone.into_iter().chain(going).collect();
    if !gone.is_empty() {
        message.push_str(&format!("; gone meanwhile, and their caches with them: {}", named(&gone)));
    }
    let good = bad.is_empty() && late.is_empty();
    let phase = if good { InvalidationPhase::Complete } else { InvalidationPhase::Failed };
    ended(status, phase, message, now)
}

fn ended(
    status: &VarnishCacheInvalidationStatus,
    phase: InvalidationPhase,
    message: String,
    now: Timestamp,
) -> Next {
    Next::Write(VarnishCacheInvalidationStatus {
        phase: Some(phase),
        message: Some(message),
        started_at: Some(status.started_at.clone().unwrap_or(Time(now))),
        completed_at: Some(Time(now)),
        pods: status.pods.clone(),
        pod_results: None,
    })
}

/// The rest of a time; `None` if it is over.
fn left(from: Timestamp, time: Duration, now: Timestamp) -> Option<Duration> {
    let passed = now.duration_since(from);
    let passed = Duration::try_from(passed).unwrap_or(Duration::ZERO);
    time.checked_sub(passed).filter(|left| !left.is_zero())
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn named(pods: &[&str]) -> String {
    let mut text = pods.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if pods.len() > NAMED {
        text.push_str(&format!(" and {} more", pods.len() - NAMED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(NOW + second).unwrap()
    }

    fn object(status: &Value) -> VarnishCacheInvalidation {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "VarnishCacheInvalidation",
            "metadata": { "name": "purge", "namespace": "ns", "creationTimestamp": at(0).to_string() },
            "spec": { "gatewayRef": { "name": "shop" }, "type": "Purge", "hostname": "a", "paths": ["/"], "ttl": "1m" },
            "status": status,
        }))
        .unwrap()
    }

    fn started(results: &[(&str, bool)]) -> VarnishCacheInvalidation {
        let results: Vec<_> = results
            .iter()
            .map(|(pod, success)| serde_json::json!({ "podName": pod, "success": success, "message": "why" }))
            .collect();
        object(&serde_json::json!({
            "phase": "InProgress", "startedAt": at(0).to_string(), "pods": ["a", "b"], "podResults": results,
        }))
    }

    fn pods(all: &[(&str, Pod)]) -> BTreeMap<String, Pod> {
        all.iter().map(|(name, pod)| ((*name).to_owned(), *pod)).collect()
    }

    fn written(next: Next) -> (InvalidationPhase, String, VarnishCacheInvalidationStatus) {
        match next {
            Next::Write(status) => (status.phase.unwrap(), status.message.clone().unwrap(), status),
            other => panic!("{other:?}"),
        }
    }

    use InvalidationPhase::{Complete, Failed, InProgress, Pending};

    #[test]
    fn the_pods_that_count_are_those_that_are_ready_at_the_start() {
        let there = pods(&[("a", Pod::Ready), ("b", Pod::NotReady), ("c", Pod::Going), ("d", Pod::Ready)]);
        let (phase, _, status) = written(next(&object(&serde_json::json!({})), Target::Ours, &there, at(1)));
        assert_eq!((phase, status.pods), (InProgress, Some(vec!["a".to_owned(), "d".to_owned()])));
        assert_eq!(status.started_at, Some(Time(at(1))));
    }

    #[test]
    fn without_a_pod_there_is_nothing_to_do() {
        let (phase, message, status) = written(next(
            &object(&serde_json::json!({})),
            Target::Ours,
            &pods(&[("a", Pod::NotReady)]),
            at(1),
        ));
        assert_eq!(phase, Complete);
        assert!(message.contains("No pod"), "{message}");
        assert!(status.completed_at.is_some());
    }

    #[test]
    fn a_gateway_that_is_not_there_is_waited_for_shortly() {
        let one = object(&serde_json::json!({}));
        let (phase, message, _) = written(next(&one, Target::Missing, &pods(&[]), at(1)));
        assert_eq!(phase, Pending);
        assert!(message.contains("ns/shop, which does not exist"), "{message}");
        let pending = object(&serde_json::json!({ "phase": "Pending", "message": message }));
        assert_eq!(next(&pending, Target::Missing, &pods(&[]), at(1)), Next::Wait(Duration::from_secs(2)));
        assert_eq!(written(next(&pending, Target::Missing, &pods(&[]), at(4))).0, Failed);
        // Another installation may take it.
        let look = |second| next(&pending, Target::Others, &pods(&[]), at(second));
        assert_eq!(look(5), Next::Wait(Duration::from_secs(30)));
        assert_eq!(written(look(36)).0, Failed);
    }

    #[test]
    fn it_is_over_when_every_pod_has_spoken() {
        let there = pods(&[("a", Pod::Ready), ("b", Pod::Ready), ("new", Pod::Ready)]);
        let look =
            |results: &[(&str, bool)], second| next(&started(results), Target::Ours, &there, at(second));
        assert_eq!(look(&[("a", true)], 1), Next::Wait(Duration::from_secs(29)));
        let (phase, message, status) = written(look(&[("a", true), ("b", true), ("new", false)], 1));
        assert_eq!((phase, message.as_str()), (Complete, "2 of 2 pods"));
        assert_eq!(status.started_at, Some(Time(at(0))));
        let (phase, message, _) = written(look(&[("a", true), ("b", false)], 1));
        assert_eq!((phase, message.as_str()), (Failed, "1 of 2 pods; 1 pod failed, b with: why"));
    }

    #[test]
    fn a_pod_that_went_is_not_waited_for_and_a_silent_one_not_for_long() {
        let look = |there: &[(&str, Pod)], second| {
            next(&started(&[("a", true)]), Target::Ours, &pods(there), at(second))
        };
        for there in [&[("a", Pod::Ready)][..], &[("a", Pod::Ready), ("b", Pod::Over)], &[]] {
            let (phase, message, _) = written(look(there, 1));
            assert_eq!(phase, Complete);
            assert_eq!(message, "1 of 2 pods; gone meanwhile, and their caches with them: b");
        }
        let silent = [("a", Pod::Ready), ("b", Pod::NotReady)];
        assert_eq!(look(&silent, 29), Next::Wait(Duration::from_secs(1)));
        let (phase, message, _) = written(look(&silent, 30));
        assert_eq!(phase, Failed);
        assert!(message.contains("no report for 30 s: b"), "{message}");
        // A pod that is being deleted may still report a result, but none is required of it.
        let going = [("b", Pod::Going)];
        assert_eq!(look(&going, 29), Next::Wait(Duration::from_secs(1)));
        assert_eq!(written(look(&going, 31)).0, Complete);
    }

    #[test]
    fn what_is_over_stays_for_its_ttl() {
        for phase in ["Complete", "Failed"] {
            let one = object(&serde_json::json!({ "phase": phase, "completedAt": at(10).to_string() }));
            let look = |second| next(&one, Target::Missing, &pods(&[]), at(second));
            assert_eq!(look(10), Next::Wait(Duration::from_secs(60)));
            assert_eq!(look(70), Next::Delete);
            // A clock that went back deletes nothing early.
            assert_eq!(look(0), Next::Wait(Duration::from_secs(60)));
        }
    }

    #[test]
    fn one_that_cannot_be_read_fails_and_says_why() {
        let unread = |raw: Value| Unread { why: "unknown variant `Refresh`".to_owned(), raw };
        let spec = serde_json::json!({ "gatewayRef": { "name": "shop" }, "type": "Refresh" });
        let new = unread(serde_json::json!({ "metadata": { "name": "a" }, "spec": spec }));
        let status = unreadable(&new, Target::Ours, at(1)).unwrap();
        assert_eq!((status.phase, status.completed_at), (Some(Failed), Some(Time(at(1)))));
        let message = status.message.unwrap();
        assert!(message.starts_with("It was not carried out: ") && message.contains("Refresh"), "{message}");
        // It may be for another controller, and it ends once.
        assert_eq!(unreadable(&new, Target::Others, at(1)), None);
        let ended = unread(serde_json::json!({ "spec": spec, "status": { "phase": "Failed" } }));
        assert_eq!(unreadable(&ended, Target::Ours, at(1)), None);
    }
}
