//! What the front counts of all requests, where it carries HTTP.

use front::{Http, Mirrored, Reason, Way};

use super::exposition::{Families, Kind};

const WAYS: (&str, &str) = (
    "varnish_gateway_way_requests_total",
    "Requests by the way they went: to the cache, straight to an origin, or answered by the gateway itself",
);
const FAILURES: (&str, &str) = (
    "varnish_gateway_request_failures_total",
    "Requests that the gateway refused, that failed or that broke off, by reason",
);
const FALLBACKS: (&str, &str) = (
    "varnish_gateway_cache_fallbacks_total",
    "Requests for the cache that went to their origins because varnishd did not run",
);
const NOT_INVALIDATED: (&str, &str) = (
    "varnish_gateway_not_invalidated_total",
    "Responses to unsafe methods that were sent before the cache had forgotten all that they changed: varnishd did not answer within a second or refused, or a URL or group was too long",
);
const RETRIES: (&str, &str) = (
    "varnish_gateway_retries_total",
    "Requests that were to be sent again: sent, refused by the retry budget, or not possible because the body was not kept",
);
const MIRRORS: (&str, &str) =
    ("varnish_gateway_mirrored_requests_total", "Copies of requests for mirrors, by their result");
const LINES: (&str, &str) =
    ("varnish_gateway_access_log_lines_total", "Lines of the front's access log, by what became of them");

pub(super) fn add(to: &mut Families, http: Option<&Http>) {
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
