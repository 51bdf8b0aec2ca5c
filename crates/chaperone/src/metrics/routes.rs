//! What ghost has counted for each rule of each route.

use model::stats::{BOUNDS_MICROS, CACHE_RESULTS, CODES, Histogram, NOT_KEPT, Stats};

use super::exposition::{Families, Kind};

const REQUESTS: (&str, &str) =
    ("varnish_gateway_route_requests_total", "Answers to clients, by class of status code");
const CACHE: (&str, &str) = (
    "varnish_gateway_route_cache_total",
    "The same responses by cache result; other: the cache was not used",
);
const BYTES: (&str, &str) = ("varnish_gateway_route_sent_bytes_total", "Bytes of answers, heads and bodies");
const SECONDS: (&str, &str) =
    ("varnish_gateway_route_request_seconds", "From the request's head to the answer's last byte");
const BACKEND: (&str, &str) = (
    "varnish_gateway_route_backend_seconds",
    "From the beginning of a fetch to the head of the origin's answer",
);
const FAILURES: (&str, &str) =
    ("varnish_gateway_route_backend_failures_total", "Fetches that failed without a response");
const UNROUTED: (&str, &str) =
    ("varnish_gateway_unrouted_requests_total", "Requests that no route took, by class of status code");

pub(super) fn add(to: &mut Families, stats: Option<&Stats>) {
    for (name, help) in [REQUESTS, CACHE, BYTES, FAILURES, UNROUTED] {
        to.announce(name, Kind::Counter, help);
    }
    for (name, help) in [SECONDS, BACKEND] {
        to.announce(name, Kind::Histogram, help);
    }
    let Some(stats) = stats else { return };
    to.gauge(
        "varnish_gateway_requests_in_flight",
        "Requests that were routed and are in progress",
        &[],
        stats.in_flight,
    );
    to.counter(
        "varnish_gateway_loops_total",
        "Requests that were refused with 508, as a backend led back to this Gateway",
        &[],
        stats.loops,
    );
    to.gauge("varnish_gateway_upgraded_connections", "WebSockets that are open", &[], stats.upgraded);
    to.counter(
        "varnish_gateway_upgrades_refused_total",
        "WebSockets that got 503, because half of varnishd's threads already serve others",
        &[],
        stats.upgrades_refused,
    );
    let changes = [("added", stats.endpoints_added), ("removed", stats.endpoints_removed)];
    for (change, count) in changes {
        to.counter(
            "varnish_gateway_endpoint_changes_total",
            "Endpoints that were added and removed by reloads",
            &[("change", change)],
            count,
        );
    }
    to.gauge(
        "varnish_gateway_endpoints_avoided",
        "Endpoints that get no requests from the front for now, since they failed several times in a row",
        &[],
        stats.endpoints_avoided,
    );
    to.counter(
        "varnish_gateway_endpoint_ejections_total",
        "Times that the front began to avoid an endpoint",
        &[],
        stats.ejections,
    );
    for (reason, count) in NOT_KEPT.iter().zip(stats.not_kept) {
        to.counter(
            "varnish_gateway_not_kept_total",
            "Cacheable responses that were not stored: too large, or not possible to index",
            &[("reason", reason)],
            count,
        );
    }
    for (name, help, bytes) in [
        (
            "varnish_gateway_index_bytes",
            "Approximate memory of the index of cached objects",
            stats.index_bytes,
        ),
        (
            "varnish_gateway_index_limit_bytes",
            "Memory limit of the index of cached objects",
            stats.index_limit_bytes,
        ),
        ("varnish_gateway_ban_bytes", "Approximate memory of the bans of the last minutes", stats.ban_bytes),
    ] {
        to.gauge(name, help, &[], bytes);
    }
    if !stats.per_route {
        return;
    }
    for (code, count) in CODES.iter().zip(stats.unrouted.codes) {
        to.counter(UNROUTED.0, UNROUTED.1, &[("code", code)], count);
    }
    let bounds = BOUNDS_MICROS.map(|micros| micros as f64 / 1e6);
    for route in &stats.routes {
        let (namespace, name) = route.route.split_once('/').unwrap_or(("", &route.route));
        let rule = route.rule.to_string();
        let labels =
            [("kind", route.kind.name()), ("namespace", namespace), ("name", name), ("rule", rule.as_str())];
        let [kind, of_namespace, of_name, of_rule] = labels;
        let mut parts = |family: (&str, &str), label: &str, names: &[&str], counts: &[u64]| {
            for (value, count) in names.iter().zip(counts).filter(|(_, count)| **count > 0) {
                let labels = [kind, of_namespace, of_name, of_rule, (label, *value)];
                to.counter(family.0, family.1, &labels, *count);
            }
        };
        let counts = &route.counts;
        parts(REQUESTS, "code", &CODES, &counts.codes);
        parts(CACHE, "result", &CACHE_RESULTS, &counts.cache);
        to.counter(BYTES.0, BYTES.1, &labels, counts.bytes);
        to.counter(FAILURES.0, FAILURES.1, &labels, counts.backend_failures);
        let mut times = |family: (&str, &str), times: &Histogram| {
            let sum = times.sum_micros as f64 / 1e6;
            to.histogram(family.0, family.1, &labels, &bounds, (&times.buckets, sum));
        };
        times(SECONDS, &counts.seconds);
        if counts.backend.count() > 0 {
            times(BACKEND, &counts.backend);
        }
    }
}
