//! OTLP's JSON.

use serde_json::{Value, json};

use crate::log::Entry;

/// One message to a collector. `resource` says who we are.
pub(super) fn request(resource: &[(String, String)], spans: &[Value]) -> String {
    let attribute =
        |(key, value): &(String, String)| json!({ "key": key, "value": { "stringValue": value } });
    let resource: Vec<Value> = resource.iter().map(attribute).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{
            "scope": { "name": "varnish-gateway", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans,
        }],
    }] })
    .to_string()
}

/// A request that is recorded.
pub(super) fn span(entry: &Entry) -> Option<Value> {
    let trace = entry.trace.as_ref().filter(|trace| trace.sampled)?;
    let text = |key: &str, value: &str| {
        (!value.is_empty()).then(|| json!({ "key": key, "value": { "stringValue": value } }))
    };
    let number = |key: &str, value: u64| json!({ "key": key, "value": { "intValue": value.to_string() } });
    let float = |key: &str, value: f64| json!({ "key": key, "value": { "doubleValue": value } });
    let optional = |value: &Option<String>| value.clone().unwrap_or_default();
    let scheme = if entry.tls.is_empty() { "http" } else { "https" };
    let version = entry.protocol.strip_prefix("HTTP/").unwrap_or_default();
    let mut attributes: Vec<Value> = [
        text("http.request.method", &entry.method),
        text("server.address", &entry.host),
        text("url.scheme", scheme),
        text("url.path", &entry.path),
        text("network.protocol.version", version),
        text("client.address", &entry.client),
        text("user_agent.original", &entry.user_agent),
        text("tls.protocol.version", entry.tls.strip_prefix("TLSv").unwrap_or(&entry.tls)),
        text("varnish_gateway.cache", &entry.cache),
        text("varnish_gateway.route", &optional(&entry.route)),
        text("varnish_gateway.route_kind", &optional(&entry.kind)),
        text("varnish_gateway.listener", &optional(&entry.listener)),
        text("varnish_gateway.service", &entry.service),
        text("varnish_gateway.backend", &optional(&entry.backend)),
    ]
    .into_iter()
    .flatten()
    .collect();
    attributes.extend(entry.rule.map(|rule| number("varnish_gateway.rule", rule.into())));
    attributes.extend(entry.status.map(|status| number("http.response.status_code", status.into())));
    attributes.extend(entry.backend_ms.map(|ms| float("varnish_gateway.backend_seconds", ms / 1e3)));
    let failed = entry.status.is_some_and(|status| status >= 500);
    let mut span = json!({
        "traceId": trace.trace_id,
        "spanId": trace.span_id,
        "name": match &entry.route { Some(route) => format!("{} {route}", entry.method), None => entry.method.clone() },
        "kind": 2,
        "startTimeUnixNano": (entry.began_micros * 1000).to_string(),
        "endTimeUnixNano": ((entry.began_micros + entry.took_micros) * 1000).to_string(),
        "attributes": attributes,
        "status": if failed { json!({ "code": 2 }) } else { json!({}) },
    });
    if let (Some(parent), Some(span)) = (&trace.parent_span_id, span.as_object_mut()) {
        span.insert("parentSpanId".to_owned(), Value::String(parent.clone()));
    }
    Some(span)
}
