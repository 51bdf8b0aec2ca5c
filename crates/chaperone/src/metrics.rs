//! What the front has counted, in Prometheus' words.

use std::fmt::Write;

use crate::event::Reporter;

/// The text of `/metrics`.
pub(crate) fn text(reporter: &Reporter) -> String {
    let (clients, backends) = (&reporter.clients, &reporter.backends);
    let mut text = String::new();
    let mut one = |name: &str, kind: &str, help: &str, samples: &[(String, u64)]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP varnish_gateway_{name} {help}\n# TYPE varnish_gateway_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "varnish_gateway_{name}{labels} {value}");
        }
    };
    let only = |value: u64| [(String::new(), value)];
    let reason = |name: &str| format!("{{reason=\"{name}\"}}");
    one("tls_connections_total", "counter", "Connections accepted by the front", &only(clients.accepted()));
    one("tls_connections", "gauge", "Connections open now", &only(clients.open()));
    one(
        "tls_handshakes_total",
        "counter",
        "Handshakes with clients that succeeded",
        &only(clients.handshakes()),
    );
    one("tls_resumed_total", "counter", "Those that took up an earlier session", &only(clients.resumed()));
    let failures: Vec<_> =
        front::Failure::ALL.iter().map(|why| (reason(why.name()), clients.failures(*why))).collect();
    one("tls_handshake_failures_total", "counter", "Handshakes with clients that failed", &failures);
    one("tls_passed_through_total", "counter", "Connections handed on undecrypted", &only(clients.passed()));
    let failures: Vec<_> = front::UpstreamFailure::ALL
        .iter()
        .map(|why| (reason(why.name()), clients.upstream_failures(*why)))
        .collect();
    one(
        "tls_upstream_failures_total",
        "counter",
        "Connections closed because varnishd, or an endpoint of a TLSRoute, was not reached",
        &failures,
    );
    one("backend_tls_handshakes_total", "counter", "Backends verified", &only(backends.handshakes()));
    let failures: Vec<_> =
        front::BackendFailure::ALL.iter().map(|why| (reason(why.name()), backends.failures(*why))).collect();
    one("backend_tls_failures_total", "counter", "Backends not reached or not verified", &failures);
    one("backend_tls_connections", "gauge", "Connections to backends open now", &only(backends.open()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_line() {
        let text = text(&Reporter::new(|_| {}));
        assert!(
            text.contains("varnish_gateway_backend_tls_failures_total{reason=\"wrong_name\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains("varnish_gateway_tls_handshake_failures_total{reason=\"timeout\"} 0\n"),
            "{text}"
        );
    }
}
