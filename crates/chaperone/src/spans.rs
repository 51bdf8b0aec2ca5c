//! Spans of requests, by OTLP over HTTP, as JSON. They come out of varnishd's log, so nobody waits for the collector: what it
//! does not take in time is dropped, and counted.

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use crate::log::{self, Entry};
use crate::{Error, State};

/// Only transactions that are recorded.
const QUERY: &str = r#"VCL_Log ~ "^vg_trace:.* 01$""#;
const WAITING: usize = 4096;
const MOST_AT_ONCE: usize = 512;
const GATHER: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 64 << 10;

/// A collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    path: String,
}

impl Endpoint {
    /// `http://collector:4318`, to which `/v1/traces` is added.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| Error::Endpoint { endpoint: text.to_owned(), why: why.to_owned() };
        let uri: Uri = text.trim().parse().map_err(|_| bad("it is no URL: write http://collector:4318"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(bad(
                    "https is not supported: run a collector beside the gateway, and name it by http",
                ));
            }
            _ => return Err(bad("it must begin with http://")),
        }
        let host = uri.host().ok_or_else(|| bad("it names no host"))?;
        let path = format!("{}/v1/traces", uri.path().trim_end_matches('/'));
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self { host, port: uri.port_u16().unwrap_or(4318), path })
    }
}

/// Exports until it is dropped.
pub async fn export(endpoint: Endpoint, gateway: String, by: Vec<OsString>, state: watch::Receiver<State>) {
    let mut known = state.clone();
    let dir = match known.wait_for(|state| state.varnishd_dir.is_some()).await {
        Ok(state) => state.varnishd_dir.clone(),
        Err(_) => None,
    };
    let Some(varnishd_dir) = dir else { return };
    let source = log::Source { varnishd_dir: varnishd_dir.to_path_buf(), by };
    let tally = std::sync::Arc::clone(&state.borrow().tally);
    let (to, from) = mpsc::channel(WAITING);
    let dropped = std::sync::Arc::clone(&tally);
    tokio::join!(
        read(&source, to, move || {
            dropped.spans_dropped.fetch_add(1, Ordering::Relaxed);
        }),
        async {
            send_all(&endpoint, &gateway, from, &tally).await;
        }
    );
}

async fn read(source: &log::Source, to: mpsc::Sender<Value>, dropped: impl Fn()) {
    log::follow(source, &log::arguments(Some(QUERY)), |line| {
        if let Some(span) = Entry::parse(&line, false).as_ref().and_then(span) {
            match to.try_send(span) {
                Err(mpsc::error::TrySendError::Full(_)) => dropped(),
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Ok(()) => {}
            }
        }
        true
    })
    .await;
}

async fn send_all(
    endpoint: &Endpoint,
    gateway: &str,
    mut from: mpsc::Receiver<Value>,
    tally: &crate::tally::Tally,
) {
    let mut failing = false;
    let mut spans = Vec::new();
    while from.recv_many(&mut spans, MOST_AT_ONCE).await > 0 {
        if spans.len() < MOST_AT_ONCE {
            let more = async {
                while spans.len() < MOST_AT_ONCE && from.recv_many(&mut spans, MOST_AT_ONCE).await > 0 {}
            };
            let _ = tokio::time::timeout(GATHER, more).await;
        }
        let count = spans.len() as u64;
        let body = request(gateway, &spans);
        spans.clear();
        let sent = tokio::time::timeout(PATIENCE, send(endpoint, body)).await;
        match sent.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}"))) {
            Ok(()) => {
                tally.spans_exported.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut failing) {
                    tracing::info!("spans are exported again");
                }
            }
            Err(why) => {
                tally.spans_dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut failing, true) {
                    let Endpoint { host, port, .. } = endpoint;
                    tracing::warn!("spans are not taken by {host}:{port}, and dropped: {why}");
                }
            }
        }
    }
}

async fn send(endpoint: &Endpoint, body: String) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let Endpoint { host, port, path } = endpoint;
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|e| text(&e))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| text(&e))?;
    let driver = tokio::spawn(connection);
    let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let request = Request::post(path)
        .header("Host", host)
        .header("Content-Type", "application/json")
        .header("Connection", "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| text(&e))?;
    let response = sender.send_request(request).await.map_err(|e| text(&e))?;
    let status = response.status();
    let _ = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
    driver.abort();
    if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
}

fn request(gateway: &str, spans: &[Value]) -> String {
    let attribute = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let resource =
        [attribute("service.name", "varnish-gateway"), attribute("varnish_gateway.gateway", gateway)];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{
            "scope": { "name": "varnish-gateway", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans,
        }],
    }] })
    .to_string()
}

fn span(entry: &Entry) -> Option<Value> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_http() {
        let at =
            |host: &str, port, path: &str| Endpoint { host: host.to_owned(), port, path: path.to_owned() };
        assert_eq!(Endpoint::parse("http://otel:4318").unwrap(), at("otel", 4318, "/v1/traces"));
        assert_eq!(Endpoint::parse("http://[::1]:80/x/").unwrap(), at("::1", 80, "/x/v1/traces"));
        for bad in ["https://otel:4318", "otel:4318", "", "grpc://otel"] {
            assert!(Endpoint::parse(bad).unwrap_err().to_string().contains("http"), "{bad}");
        }
    }
}
