//! What the front counts of all requests, where it carries HTTP.

use front::{Http, Mirrored, NotHot, Reason, Way};

use super::exposition::{Families, Kind};

const WAYS: (&str, &str) = (
    "varnish_gateway_way_requests_total",
    "Requests by way: from the front's memory, to the cache, straight to an origin, or answered by the gateway itself",
);
const FAILURES: (&str, &str) = (
    "varnish_gateway_request_failures_total",
    "Requests that the gateway refused, that failed or that broke off, by reason",
);
const HOT_OBJECTS: (&str, &str) = (
    "varnish_gateway_hot_objects",
    "Responses in the front's own memory, which are answered without varnishd",
);
const HOT_BYTES: (&str, &str) =
    ("varnish_gateway_hot_bytes", "Memory of the responses in the front's own memory, in bytes");
const HOT_STORED: (&str, &str) =
    ("varnish_gateway_hot_stored_total", "Responses that were stored or renewed in the front's own memory");
const HOT_EVICTED: (&str, &str) = (
    "varnish_gateway_hot_evicted_total",
    "Responses in the front's own memory that had to make room for others",
);
const HOT_REFUSED: (&str, &str) = (
    "varnish_gateway_hot_refused_total",
    "Cache hits that were requested and not stored in the front's own memory, by reason",
);
const FALLBACKS: (&str, &str) = (
    "varnish_gateway_cache_fallbacks_total",
    "Cacheable requests that went to their origins because varnishd did not run",
);
const NOT_INVALIDATED: (&str, &str) = (
    "varnish_gateway_not_invalidated_total",
    "Responses to unsafe methods that were sent before the cache had forgotten all that they changed: varnishd did not answer within a second or refused, or a URL or group was too long",
);
const RETRIES: (&str, &str) = (
    "varnish_gateway_retries_total",
    "Requests to retry: sent again, refused by the retry budget, or not possible because the body was not kept",
);
const MIRRORS: (&str, &str) =
    ("varnish_gateway_mirrored_requests_total", "Copies of requests for mirrors, by their result");
const LINES: (&str, &str) =
    ("varnish_gateway_access_log_lines_total", "Lines of the front's access log by result");

pub(super) fn add(to: &mut Families, http: Option<&Http>) {
    for (name, help) in [HOT_STORED, HOT_EVICTED, HOT_REFUSED] {
        to.announce(name, Kind::Counter, help);
    }
    for (name, help) in [HOT_OBJECTS, HOT_BYTES] {
        to.announce(name, Kind::Gauge, help);
    }
    for (name, help) in [WAYS, FAILURES, FALLBACKS, NOT_INVALIDATED, RETRIES, MIRRORS, LINES] {
        to.announce(name, Kind::Counter, help);
    }
    let Some(http) = http else { return };
    for way in Way::ALL {
        to.counter(WAYS.0, WAYS.1, &[("way", way.name())], http.by_way(way));
    }
    for reason in Reason::ALL {
        to.counter(FAILURES.0, FAILURES.1, &[("reason", reason.name())], http.by_reason(reason));
    }
    if let Some(hot) = http.hot() {
        to.gauge(HOT_OBJECTS.0, HOT_OBJECTS.1, &[], hot.entries());
        to.gauge(HOT_BYTES.0, HOT_BYTES.1, &[], hot.bytes());
        to.counter(HOT_STORED.0, HOT_STORED.1, &[], hot.stored());
        to.counter(HOT_EVICTED.0, HOT_EVICTED.1, &[], hot.evicted());
        for reason in NotHot::ALL {
            to.counter(HOT_REFUSED.0, HOT_REFUSED.1, &[("reason", reason.name())], hot.refused(reason));
        }
    }
    to.counter(FALLBACKS.0, FALLBACKS.1, &[], http.fallbacks());
    to.counter(NOT_INVALIDATED.0, NOT_INVALIDATED.1, &[], http.not_invalidated());
    for (result, count) in [
        ("sent", http.retries()),
        ("over_budget", http.retries_over_budget()),
        ("body_not_kept", http.retries_without_body()),
    ] {
        to.counter(RETRIES.0, RETRIES.1, &[("result", result)], count);
    }
    for result in Mirrored::ALL {
        to.counter(MIRRORS.0, MIRRORS.1, &[("result", result.name())], http.mirrored(result));
    }
    if let Some(log) = http.observer().and_then(|observer| observer.access_log()) {
        for (result, count) in [("written", log.written()), ("dropped", log.dropped())] {
            to.counter(LINES.0, LINES.1, &[("result", result)], count);
        }
    }
}
