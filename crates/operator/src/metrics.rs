//! What the operator counts, for Prometheus.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use api::InvalidationPhase;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use translate::Key;

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) leader: Gauge,
    pub(crate) gateways: Gauge,
    pub(crate) gateways_accepted: Gauge,
    pub(crate) gateways_programmed: Gauge,
    routes: Family<OfKind, Gauge>,
    routes_accepted: Family<OfKind, Gauge>,
    invalidations: Family<OfPhase, Gauge>,
    queue: Gauge,
    /// Gateways whose newest plan is not applied yet.
    waiting: Mutex<BTreeSet<Key>>,
    watch_errors: Family<OfKind, Counter>,
    pub(crate) listeners_unresolved: Gauge,
    pub(crate) translation_seconds: Histogram,
    pub(crate) apply_seconds: Histogram,
    pub(crate) apply_errors: Counter,
    pub(crate) status_errors: Counter,
    pub(crate) last_translation: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("varnish_gateway_operator");
        let buckets = || exponential_buckets(0.001, 2.0, 14);
        let metrics = Self {
            leader: Gauge::default(),
            gateways: Gauge::default(),
            gateways_accepted: Gauge::default(),
            gateways_programmed: Gauge::default(),
            routes: Family::default(),
            routes_accepted: Family::default(),
            invalidations: Family::default(),
            queue: Gauge::default(),
            waiting: Mutex::default(),
            watch_errors: Family::default(),
            listeners_unresolved: Gauge::default(),
            translation_seconds: Histogram::new(buckets()),
            apply_seconds: Histogram::new(buckets()),
            apply_errors: Counter::default(),
            status_errors: Counter::default(),
            last_translation: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("leader", "1 if this replica is the leader", metrics.leader.clone());
        registry.register("gateways", "Gateways of this controller's classes", metrics.gateways.clone());
        registry.register(
            "gateways_accepted",
            "Gateways that are accepted",
            metrics.gateways_accepted.clone(),
        );
        registry.register(
            "gateways_programmed",
            "Gateways that their pods serve",
            metrics.gateways_programmed.clone(),
        );
        registry.register("routes", "Routes attached to Gateways of this controller", metrics.routes.clone());
        registry.register(
            "invalidations",
            "VarnishCacheInvalidations by phase",
            metrics.invalidations.clone(),
        );
        registry.register("queue", "Gateways whose newest plan is not applied yet", metrics.queue.clone());
        registry.register(
            "watch_errors",
            "Watches that failed and were restarted",
            metrics.watch_errors.clone(),
        );
        registry.register(
            "routes_accepted",
            "Routes that all these Gateways accept",
            metrics.routes_accepted.clone(),
        );
        registry.register(
            "listeners_unresolved",
            "Listeners with ResolvedRefs=False: a certificate, a CA or a kind of routes that cannot be used",
            metrics.listeners_unresolved.clone(),
        );
        registry.register(
            "translation_seconds",
            "Time of one translation",
            metrics.translation_seconds.clone(),
        );
        registry.register(
            "apply_seconds",
            "Time to apply the objects of one Gateway",
            metrics.apply_seconds.clone(),
        );
        registry.register(
            "apply_errors",
            "Gateways whose objects could not be applied",
            metrics.apply_errors.clone(),
        );
        registry.register(
            "status_errors",
            "Statuses that could not be written",
            metrics.status_errors.clone(),
        );
        registry.register(
            "last_translation_timestamp_seconds",
            "Time of the last translation",
            metrics.last_translation.clone(),
        );
        Self { registry, ..metrics }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPhase {
    phase: &'static str,
}

impl Metrics {
    pub(crate) fn count_routes(&self, kind: &str, all: usize, accepted: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let kind = OfKind { kind: kind.to_owned() };
        self.routes.get_or_create(&kind).set(number(all));
        self.routes_accepted.get_or_create(&kind).set(number(accepted));
    }

    pub(crate) fn count_invalidations(&self, all: impl Iterator<Item = InvalidationPhase>) {
        use InvalidationPhase::{Complete, Failed, InProgress, Pending};
        let phases =
            [(Pending, "Pending"), (InProgress, "InProgress"), (Complete, "Complete"), (Failed, "Failed")];
        let mut counts = [0; 4];
        for phase in all {
            let at = phases.iter().position(|(known, _)| *known == phase);
            at.into_iter().for_each(|at| counts[at] += 1);
        }
        for ((_, phase), count) in phases.into_iter().zip(counts) {
            self.invalidations.get_or_create(&OfPhase { phase }).set(count);
        }
    }

    /// A Gateway has a new plan.
    pub(crate) fn to_be_brought(&self, key: &Key) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(key.clone());
    }

    /// Its newest plan is applied, or it is gone.
    pub(crate) fn brought(&self, key: &Key) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(key);
    }

    pub(crate) fn text(&self) -> String {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.queue.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        for (kind, count) in source::kubernetes::watch_errors() {
            let counter = self.watch_errors.get_or_create(&OfKind { kind });
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_names_every_metric_and_no_other() {
        let metrics = Metrics::default();
        metrics.count_routes("HTTPRoute", 2, 1);
        metrics.count_invalidations([InvalidationPhase::Failed].into_iter());
        metrics.to_be_brought(&Key::new("a", "b"));
        metrics.watch_errors.get_or_create(&OfKind { kind: "Gateway".to_owned() }).inc();
        let text = metrics.text();
        assert!(text.contains("varnish_gateway_operator_routes_accepted{kind=\"HTTPRoute\"} 1\n"), "{text}");
        assert!(text.contains("varnish_gateway_operator_invalidations{phase=\"Failed\"} 1\n"), "{text}");
        assert!(text.contains("varnish_gateway_operator_queue 1\n"), "{text}");
        let page = include_str!("../../../docs/reference/metrics.md");
        let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let written: BTreeSet<String> =
            words.filter(|word| word.starts_with("varnish_gateway_operator_")).map(str::to_owned).collect();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let there: BTreeSet<String> = types
            .map(|rest| match rest.split_once(' ') {
                Some((name, "counter")) => format!("{name}_total"),
                Some((name, _)) => name.to_owned(),
                None => rest.to_owned(),
            })
            .collect();
        assert_eq!(written, there, "docs/reference/metrics.md and the operator differ");
    }
}
