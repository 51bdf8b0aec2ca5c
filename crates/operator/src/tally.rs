//! Counts objects and served objects for metrics. The cost depends on the number of changes only.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use model::SharedMap;
use translate::status::{ACCEPTED, RESOLVED_REFS};
use translate::{Condition, IngressStatus, Key, RouteStatus, Statuses};

use crate::metrics::Metrics;

/// What was counted last.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    last: Statuses,
    /// By kind: those that are accepted.
    accepted: BTreeMap<&'static str, usize>,
}

impl Tally {
    pub(crate) fn count(&mut self, statuses: &Statuses, metrics: &Metrics) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let gateways = statuses.gateways.values();
        metrics.gateways.set(number(gateways.len()));
        metrics.gateways_accepted.set(number(gateways.filter(|status| is_good(&status.conditions)).count()));
        let listeners = statuses.gateways.values().flat_map(|status| &status.listeners);
        let unresolved = |one: &Condition| one.kind == RESOLVED_REFS && !one.status;
        let unresolved = listeners.filter(|listener| listener.conditions.iter().any(unresolved));
        metrics.listeners_unresolved.set(number(unresolved.count()));
        let last = std::mem::replace(&mut self.last, statuses.clone());
        for ((kind, new), (_, old)) in statuses.routes().zip(last.routes()) {
            let accepted = self.accepted.entry(kind).or_default();
            follow(accepted, old, new, |status: &RouteStatus| {
                status.parents.iter().all(|parent| is_good(&parent.conditions))
            });
            metrics.count_routes(kind, new.len(), *accepted);
        }
        let served = self.accepted.entry("Ingress").or_default();
        let (old, new) = (&last.ingresses, &statuses.ingresses);
        follow(served, old, new, |status: &IngressStatus| status.varnish_service.is_some());
        metrics.count_routes("Ingress", new.len(), *served);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        metrics.last_translation.set(now.as_secs_f64());
    }
}

fn is_good(conditions: &[Condition]) -> bool {
    conditions.iter().any(|one| one.kind == ACCEPTED && one.status)
}

/// A count of those that are good, after a change.
fn follow<T: PartialEq>(
    count: &mut usize,
    old: &SharedMap<Key, T>,
    new: &SharedMap<Key, T>,
    is_good: impl Fn(&T) -> bool,
) {
    for (_, old, new) in old.differences(new, T::eq) {
        *count += usize::from(new.is_some_and(&is_good));
        *count = count.saturating_sub(usize::from(old.is_some_and(&is_good)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_counted_as_they_change() {
        let status = |good: bool| RouteStatus {
            parents: vec![translate::ParentStatus {
                conditions: vec![Condition::new(ACCEPTED, good, "a", "b", 1)],
                ..translate::ParentStatus::default()
            }],
        };
        let (metrics, mut tally, mut statuses) = (Metrics::default(), Tally::default(), Statuses::default());
        let mut then = |changes: &[(&str, Option<bool>)]| {
            for (name, good) in changes {
                match good {
                    Some(good) => drop(statuses.http_routes.insert(Key::new("a", *name), status(*good))),
                    None => drop(statuses.http_routes.remove(&Key::new("a", *name))),
                }
            }
            tally.count(&statuses, &metrics);
            tally.accepted["HTTPRoute"]
        };
        assert_eq!(then(&[("a", Some(true)), ("b", Some(false))]), 1);
        assert_eq!(then(&[("b", Some(true))]), 2);
        assert_eq!(then(&[("a", Some(false)), ("c", Some(true))]), 2);
        assert_eq!(then(&[("c", None), ("b", None)]), 0);
    }
}
