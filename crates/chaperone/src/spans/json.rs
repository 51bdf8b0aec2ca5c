//! OTLP's JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::log::{Entry, Trace};

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

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// A request that the front has recorded, and below it the part of the origin that was asked straight.
pub(super) fn of_front(request: &front::Finished) -> Vec<Value> {
    let (high, low) = request.trace.trace;
    let span_id = |span: u64| format!("{span:016x}");
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let (kind, route, rule) = request
        .route
        .clone()
        .map_or((None, None, None), |(kind, route, rule)| (Some(kind.to_owned()), Some(route), Some(rule)));
    let trace = Trace {
        trace_id: format!("{high:016x}{low:016x}"),
        span_id: span_id(request.trace.span),
        parent_span_id: Some(request.trace.parent).filter(|id| *id != 0).map(span_id),
        sampled: true,
    };
    let entry = Entry {
        client: request.client.to_string(),
        method: request.method.clone(),
        host: request.host.clone(),
        path: request.path.clone(),
        protocol: request.protocol.to_owned(),
        status: request.status,
        bytes: request.bytes,
        cache: request.cache.to_owned(),
        kind,
        route,
        rule,
        listener: request.listener.clone(),
        service: request.service.clone(),
        backend: request.upstream.map(|upstream| upstream.endpoint.to_string()),
        backend_ms: request.upstream.and_then(|upstream| upstream.first_byte).map(millis),
        tls: request.tls.clone(),
        trace: Some(trace),
        user_agent: request.user_agent.clone(),
        began_micros: request.began_micros,
        took_micros: u64::try_from(request.took.as_micros()).unwrap_or(u64::MAX),
        ..Entry::default()
    };
    let Some(mut span) = span(&entry) else { return Vec::new() };
    if let Some(attributes) = span["attributes"].as_array_mut() {
        attributes.push(text("varnish_gateway.way", request.way));
        attributes.extend(request.reason.map(|reason| text("error.type", reason)));
    }
    if request.reason.is_some() && request.status.is_none_or(|status| status < 400) {
        // The response broke off, whatever its status was.
        span["status"] = json!({ "code": 2 });
    }
    let child =
        request.upstream.filter(|upstream| upstream.span != 0).map(|part| upstream(request, &entry, part));
    [span].into_iter().chain(child).collect()
}

/// All tries together: a connection that is refused is quick, and the attributes have their number.
fn upstream(request: &front::Finished, entry: &Entry, part: front::Upstream) -> Value {
    let nanos = |after: Duration| u128::from(request.began_micros) * 1000 + after.as_nanos();
    let ends = part.first_byte.map_or(request.took, |first_byte| part.after + first_byte);
    let mut attributes = vec![
        text("http.request.method", &request.method),
        text("server.address", &part.endpoint.ip().to_string()),
        number("server.port", part.endpoint.port().into()),
    ];
    if part.tries > 1 {
        attributes.push(number("http.request.resend_count", u64::from(part.tries) - 1));
    }
    let connect = part.connect.map(|took| {
        json!({ "key": "varnish_gateway.connect_seconds", "value": { "doubleValue": took.as_secs_f64() } })
    });
    attributes.extend(connect);
    if part.first_byte.is_some() {
        attributes.extend(request.status.map(|status| number("http.response.status_code", status.into())));
    }
    let trace = entry.trace.as_ref();
    json!({
        "traceId": trace.map(|trace| &trace.trace_id),
        "spanId": format!("{:016x}", part.span),
        "parentSpanId": trace.map(|trace| &trace.span_id),
        "name": if request.service.is_empty() { request.method.clone() } else { format!("{} {}", request.method, request.service) },
        "kind": 3,
        "startTimeUnixNano": nanos(part.after).to_string(),
        "endTimeUnixNano": nanos(ends).to_string(),
        "attributes": attributes,
        "status": if part.first_byte.is_none() { json!({ "code": 2 }) } else { json!({}) },
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn request() -> front::Finished {
        front::Finished {
            trace: router::trace::Trace { trace: (1, 2), span: 3, parent: 4, sampled: true },
            began_micros: 1_000_000,
            took: Duration::from_millis(30),
            client: Ipv4Addr::LOCALHOST.into(),
            method: "GET".into(),
            host: "a.example.com".into(),
            path: "/x".into(),
            protocol: "HTTP/2.0",
            user_agent: String::new(),
            tls: "TLSv1.3".into(),
            status: Some(200),
            bytes: 100,
            way: "direct",
            cache: "pass",
            reason: None,
            route: Some(("HTTPRoute", "shop/web".into(), 1)),
            listener: Some("web".into()),
            service: "shop/web:80".into(),
            upstream: Some(front::Upstream {
                span: 5,
                endpoint: ([10, 0, 0, 1], 80).into(),
                tries: 2,
                after: Duration::from_millis(1),
                connect: None,
                first_byte: Some(Duration::from_millis(20)),
            }),
        }
    }

    fn attribute<'s>(span: &'s Value, key: &str) -> &'s Value {
        let mut all = span["attributes"].as_array().unwrap().iter();
        all.find(|one| one["key"] == key).map_or(&Value::Null, |one| &one["value"])
    }

    #[test]
    fn the_origins_part_is_a_child_of_the_request() {
        let spans = of_front(&request());
        let [span, child] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(
            (&span["spanId"], &span["parentSpanId"]),
            (&"0000000000000003".into(), &"0000000000000004".into())
        );
        assert_eq!((&child["spanId"], &child["parentSpanId"]), (&"0000000000000005".into(), &span["spanId"]));
        assert_eq!(child["traceId"], span["traceId"]);
        assert_eq!((&span["kind"], &child["kind"]), (&2.into(), &3.into()));
        assert_eq!(
            (&child["startTimeUnixNano"], &child["endTimeUnixNano"]),
            (&"1001000000".into(), &"1021000000".into())
        );
        assert_eq!(attribute(child, "http.request.resend_count")["intValue"], "1");
        assert_eq!(attribute(span, "varnish_gateway.way")["stringValue"], "direct");
        assert_eq!((&span["status"], &child["status"]), (&json!({}), &json!({})));
    }

    #[test]
    fn failures_are_errors_with_their_type() {
        let mut request = request();
        (request.reason, request.status) = (Some("backend_timeout"), Some(504));
        if let Some(upstream) = &mut request.upstream {
            upstream.first_byte = None;
        }
        let spans = of_front(&request);
        assert!(spans.iter().all(|span| span["status"]["code"] == 2), "{spans:?}");
        assert_eq!(attribute(&spans[0], "error.type")["stringValue"], "backend_timeout");
        assert_eq!(spans[1]["endTimeUnixNano"], "1030000000");
        // If the client disconnected, it is not our failure, but the response is not complete.
        (request.reason, request.status, request.upstream) = (Some("client_gone"), None, None);
        let spans = of_front(&request);
        assert_eq!((spans.len(), &spans[0]["status"]["code"]), (1, &2.into()));
    }
}
