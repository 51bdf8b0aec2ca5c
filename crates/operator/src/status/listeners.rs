//! Statuses of listeners: of a Gateway, and of ListenerSets.

use gateway_api::listenersets::ListenerSet;
use serde_json::{Value, json};
use translate::status::{ACCEPTED, CONFLICTED, PROGRAMMED, RESOLVED_REFS};
use translate::{Condition, Key, ListenerSetStatus, ListenerStatus, Statuses};

use super::by_kind::Kind;
use super::conditions::{News, merge, same};
use super::{Write, Writer, apply, to_value};

/// The statuses of several listeners, ready to be written.
pub(super) struct Listeners {
    pub(super) entries: Vec<Value>,
    /// The cluster has them already.
    pub(super) same: bool,
    /// Events about problems of their certificates, and about their end. Other Events belong to the Gateway or ListenerSet.
    pub(super) news: Vec<News>,
}

pub(super) fn listeners(
    all: &[ListenerStatus],
    observed: Option<&Value>,
    programmed: impl Fn(&ListenerStatus) -> Condition,
) -> Listeners {
    let observed = observed.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let find = |name: &str| observed.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name));
    let mut written = Listeners {
        entries: Vec::with_capacity(all.len()),
        same: observed.len() == all.len(),
        news: Vec::new(),
    };
    for listener in all {
        let mut wanted = listener.conditions.clone();
        wanted.push(programmed(listener));
        let there = find(&listener.name);
        let there_conditions = there.and_then(|there| there.get("conditions"));
        let kinds = to_value(&listener.supported_kinds);
        written.same &= same(&wanted, there_conditions)
            && there.is_some_and(|there| {
                there.get("attachedRoutes").and_then(Value::as_i64) == Some(listener.attached_routes.into())
                    && there.get("supportedKinds").unwrap_or(&json!([])) == &kinds
            });
        let (conditions, of_listener) = merge(&wanted, there_conditions);
        written.news.extend(
            of_listener
                .into_iter()
                .filter(|one| one.note.starts_with(RESOLVED_REFS))
                .map(|one| News { note: format!("listener {}: {}", listener.name, one.note), ..one }),
        );
        written.entries.push(json!({
            "name": listener.name,
            "attachedRoutes": listener.attached_routes,
            "supportedKinds": kinds,
            "conditions": conditions,
        }));
    }
    written
}

/// A listener is as programmed as its Gateway, if it is served at all.
pub(super) fn listener_programmed(listener: &ListenerStatus, gateway: &Condition) -> Condition {
    if listener.served {
        return gateway.clone();
    }
    let why = bad(listener).map(|condition| condition.message.clone());
    Condition::new(PROGRAMMED, false, "Invalid", why.unwrap_or_default(), gateway.observed_generation)
}

/// The same for a listener of a ListenerSet: for a conflict, the reason is that of the conflict.
fn set_listener_programmed(listener: &ListenerStatus, gateway: &Condition) -> Condition {
    let conflict = bad(listener).filter(|_| !listener.served);
    match conflict.filter(|one| one.reason.ends_with("Conflict")) {
        Some(one) => Condition { kind: PROGRAMMED.to_owned(), status: false, ..one.clone() },
        None => listener_programmed(listener, gateway),
    }
}

fn bad(listener: &ListenerStatus) -> Option<&Condition> {
    listener.conditions.iter().find(|condition| condition.status == (condition.kind == CONFLICTED))
}

impl Writer {
    pub(super) fn listener_set(
        &self,
        key: &Key,
        (generation, observed): (i64, &Value),
        status: &ListenerSetStatus,
        statuses: &Statuses,
    ) -> Option<Write> {
        let accepted = status.conditions.iter().find(|condition| condition.kind == ACCEPTED)?;
        if accepted.observed_generation != generation {
            return None;
        }
        let gateway = self.cluster.gateways.get(&status.gateway)?;
        let of_gateway =
            self.programmed(&status.gateway, &gateway, statuses.gateways.get(&status.gateway)?)?;
        let of_gateway = Condition { observed_generation: generation, ..of_gateway };
        let programmed = if accepted.status {
            of_gateway.clone()
        } else {
            Condition { kind: PROGRAMMED.to_owned(), ..accepted.clone() }
        };
        let listeners = listeners(&status.listeners, observed.get("listeners"), |listener| {
            set_listener_programmed(listener, &of_gateway)
        });
        let mut wanted = status.conditions.clone();
        wanted.push(programmed);
        if listeners.same && same(&wanted, observed.get("conditions")) {
            return None;
        }
        let (conditions, mut news) = merge(&wanted, observed.get("conditions"));
        news.extend(listeners.news);
        let body = json!({ "conditions": conditions, "listeners": listeners.entries });
        Some(Write {
            kind: Kind::ListenerSet,
            key: key.clone(),
            patch: apply::<ListenerSet>(key, &body),
            news,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(served: bool, conflict: Option<&str>) -> ListenerStatus {
        let condition =
            |kind: &str, status: bool, reason: &str| Condition::new(kind, status, reason, "why", 3);
        let conditions = match conflict {
            Some(reason) => vec![condition(ACCEPTED, false, reason), condition(CONFLICTED, true, reason)],
            None => vec![
                condition(ACCEPTED, true, "Accepted"),
                condition(RESOLVED_REFS, served, "RefNotPermitted"),
            ],
        };
        ListenerStatus { name: "http".to_owned(), conditions, served, ..ListenerStatus::default() }
    }

    #[test]
    fn a_listener_of_a_set_is_programmed_with_its_gateway_unless_it_conflicts() {
        let gateway = Condition::new(PROGRAMMED, true, "Programmed", "fine", 3);
        let told = |listener: &ListenerStatus| {
            let condition = set_listener_programmed(listener, &gateway);
            assert_eq!(condition.kind, PROGRAMMED);
            (condition.status, condition.reason)
        };
        assert_eq!(told(&listener(true, None)), (true, "Programmed".to_owned()));
        assert_eq!(told(&listener(false, Some("HostnameConflict"))), (false, "HostnameConflict".to_owned()));
        assert_eq!(told(&listener(false, None)), (false, "Invalid".to_owned()));
    }

    #[test]
    fn statuses_that_stand_there_are_not_written_again() {
        let gateway = Condition::new(PROGRAMMED, true, "Programmed", "fine", 3);
        let all = [listener(true, None)];
        let first = listeners(&all, None, |one| listener_programmed(one, &gateway));
        assert!(!first.same);
        let there = Value::Array(first.entries);
        assert!(listeners(&all, Some(&there), |one| listener_programmed(one, &gateway)).same);
        let more = [ListenerStatus { attached_routes: 1, ..listener(true, None) }];
        assert!(!listeners(&more, Some(&there), |one| listener_programmed(one, &gateway)).same);
    }
}
