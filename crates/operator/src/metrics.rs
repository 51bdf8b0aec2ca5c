//! What the operator counts, for Prometheus.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) leader: Gauge,
    pub(crate) gateways: Gauge,
    pub(crate) gateways_accepted: Gauge,
    pub(crate) gateways_programmed: Gauge,
    pub(crate) routes: Gauge,
    pub(crate) routes_accepted: Gauge,
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
            routes: Gauge::default(),
            routes_accepted: Gauge::default(),
            listeners_unresolved: Gauge::default(),
            translation_seconds: Histogram::new(buckets()),
            apply_seconds: Histogram::new(buckets()),
            apply_errors: Counter::default(),
            status_errors: Counter::default(),
            last_translation: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("leader", "1 where this replica leads", metrics.leader.clone());
        registry.register("gateways", "Gateways of our classes", metrics.gateways.clone());
        registry.register("gateways_accepted", "Those that are accepted", metrics.gateways_accepted.clone());
        registry.register(
            "gateways_programmed",
            "Those that pods serve",
            metrics.gateways_programmed.clone(),
        );
        registry.register("routes", "HTTPRoutes with a parent among our Gateways", metrics.routes.clone());
        registry.register(
            "routes_accepted",
            "Those that are accepted by all these parents",
            metrics.routes_accepted.clone(),
        );
        registry.register(
            "listeners_unresolved",
            "Listeners with ResolvedRefs=False: a certificate, a CA or a kind of routes that cannot be used",
            metrics.listeners_unresolved.clone(),
        );
        registry.register(
            "translation_seconds",
            "Time to translate everything",
            metrics.translation_seconds.clone(),
        );
        registry.register("apply_seconds", "Time to bring one Gateway", metrics.apply_seconds.clone());
        registry.register("apply_errors", "Gateways that could not be brought", metrics.apply_errors.clone());
        registry.register(
            "status_errors",
            "Statuses that could not be written",
            metrics.status_errors.clone(),
        );
        registry.register(
            "last_translation_timestamp_seconds",
            "When everything was last translated",
            metrics.last_translation.clone(),
        );
        Self { registry, ..metrics }
    }
}

impl Metrics {
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
