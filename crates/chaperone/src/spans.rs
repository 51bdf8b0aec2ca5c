//! Spans of requests, by OTLP over HTTP, as JSON. They come from the front, or out of varnishd's log where it sees all requests.
//! No request waits for the collector: what it does not take in time is dropped, and counted.

mod json;
mod settings;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use local_http::client;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;

use crate::log::{self, Entry};
use crate::{Error, State};

pub use self::settings::{Endpoint, Exporter};

/// Only transactions that are recorded.
const QUERY: &str = r#"VCL_Log ~ "^vg_trace:.* 01$""#;
const MOST_AT_ONCE: usize = 512;
const GATHER: Duration = Duration::from_secs(1);
const LARGEST_ANSWER: usize = 64 << 10;

/// Where spans go, ready to be used.
struct Collector {
    exporter: Exporter,
    /// Where it is https.
    tls: Option<TlsConnector>,
}

impl Collector {
    fn new(exporter: Exporter) -> Result<Self, Error> {
        let tls = exporter.endpoint.tls.then(|| connector(&exporter)).transpose()?;
        Ok(Self { exporter, tls })
    }
}

/// Trusts the CA that was given, or those of the system.
fn connector(exporter: &Exporter) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    match &exporter.certificate {
        Some(file) => {
            let bad = |why: String| Error::Exporter {
                variable: "OTEL_EXPORTER_OTLP_CERTIFICATE",
                why: format!("{}: {why}", file.display()),
            };
            let text = std::fs::read(file).map_err(|e| bad(e.to_string()))?;
            for one in CertificateDer::pem_slice_iter(&text) {
                let one = one.map_err(|e| bad(format!("it is not PEM: {e}")))?;
                roots.add(one).map_err(|e| bad(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(bad("there is no certificate in it".to_owned()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let failed = |e: rustls::Error| Error::Exporter { variable: "TLS", why: e.to_string() };
    let mut config = versions.map_err(failed)?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Exports until it is dropped.
pub async fn export(exporter: Exporter, gateway: String, by: Vec<OsString>, state: watch::Receiver<State>) {
    let collector = match Collector::new(exporter) {
        Ok(collector) => collector,
        Err(e) => {
            state.borrow().log_readers.fail();
            return tracing::error!("{gateway}: no spans: {e}");
        }
    };
    let tally = Arc::clone(&state.borrow().tally);
    let Some(source) = log::Source::of(state, by).await else { return };
    let (to, mut from) = mpsc::channel(WAITING);
    let dropped = Arc::clone(&tally);
    tokio::join!(
        read(&source, to, move || {
            dropped.spans_dropped.fetch_add(1, Ordering::Relaxed);
        }),
        async {
            send_all(&collector, &gateway, &mut from, &tally, |span| [span]).await;
        }
    );
}

/// Recorded requests that may wait for the exporter.
pub const WAITING: usize = 4096;

/// Exports what the front reports, until it is dropped or the front is gone.
pub async fn export_front(
    exporter: Exporter,
    gateway: String,
    requests: &mut mpsc::Receiver<Box<front::Finished>>,
    state: watch::Receiver<State>,
) {
    let collector = match Collector::new(exporter) {
        Ok(collector) => collector,
        Err(e) => {
            // Those that wait count as dropped from now on.
            requests.close();
            return tracing::error!("{gateway}: no spans: {e}");
        }
    };
    let tally = Arc::clone(&state.borrow().tally);
    send_all(&collector, &gateway, requests, &tally, |request| json::of_front(&request)).await;
}

async fn read(source: &log::Source, to: mpsc::Sender<Value>, dropped: impl Fn()) {
    log::follow(source, &log::arguments(Some(QUERY)), |line| {
        if let Some(span) = Entry::parse(&line, false).as_ref().and_then(json::span) {
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

async fn send_all<T, S: IntoIterator<Item = Value>>(
    collector: &Collector,
    gateway: &str,
    from: &mut mpsc::Receiver<T>,
    tally: &crate::tally::Tally,
    spans_of: impl Fn(T) -> S,
) {
    let resource = collector.exporter.resource(gateway.strip_prefix("Gateway ").unwrap_or(gateway));
    let patience = collector.exporter.timeout;
    let mut failing = false;
    let mut requests = Vec::new();
    while from.recv_many(&mut requests, MOST_AT_ONCE).await > 0 {
        if requests.len() < MOST_AT_ONCE {
            let more = async {
                while requests.len() < MOST_AT_ONCE && from.recv_many(&mut requests, MOST_AT_ONCE).await > 0 {
                }
            };
            let _ = tokio::time::timeout(GATHER, more).await;
        }
        let spans: Vec<Value> = requests.drain(..).flat_map(&spans_of).collect();
        let count = spans.len() as u64;
        let body = json::request(&resource, &spans);
        drop(spans);
        let sent = tokio::time::timeout(patience, send(collector, body)).await;
        match sent.unwrap_or_else(|_| Err(format!("no answer within {patience:?}"))) {
            Ok(()) => {
                tally.spans_exported.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut failing) {
                    tracing::info!("spans are exported again");
                }
            }
            Err(why) => {
                tally.spans_dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut failing, true) {
                    let endpoint = &collector.exporter.endpoint;
                    tracing::warn!("{endpoint} does not accept spans, and they are dropped: {why}");
                }
            }
        }
    }
}

async fn send(collector: &Collector, body: String) -> Result<(), String> {
    let Endpoint { host, port, .. } = &collector.exporter.endpoint;
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|e| e.to_string())?;
    match &collector.tls {
        None => exchange(collector, stream, body).await,
        Some(tls) => {
            let name = ServerName::try_from(host.clone()).map_err(|e| e.to_string())?;
            let stream = tls.connect(name, stream).await.map_err(|e| format!("TLS: {e}"))?;
            exchange(collector, stream, body).await
        }
    }
}

async fn exchange(
    collector: &Collector,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    body: String,
) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let Exporter { endpoint, headers, .. } = &collector.exporter;
    let mut request = Request::post(&endpoint.path)
        .header("Host", endpoint.authority())
        .header("Content-Type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| text(&e))?;
    for (name, value) in headers {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    let status = client::exchange(stream, request, LARGEST_ANSWER).await.map_err(|e| text(&e))?.status();
    if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
}
