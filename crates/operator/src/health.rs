//! Probes (`/healthz`, `/readyz`) and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use local_http::server::{self, Incoming, Limits};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::{Error, Settings};

/// The content type of the text that prometheus-client writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers until the future is dropped: on a separate thread, so that probes are answered in time while the operator is busy.
pub(crate) async fn serve(
    settings: &Settings,
    metrics: Arc<Metrics>,
    ready: watch::Receiver<bool>,
) -> Result<(), Error> {
    let (_dropped, mut until) = tokio::sync::oneshot::channel::<()>();
    let (failed, failure) = tokio::sync::oneshot::channel();
    let settings = settings.clone();
    std::thread::spawn(move || {
        let done = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Err(source) => Err(Error::Port { address: settings.health_address, source }),
            Ok(runtime) => runtime.block_on(async {
                tokio::select! {
                    done = answer(&settings, metrics, ready) => done,
                    _ = &mut until => Ok(()),
                }
            }),
        };
        let _ = failed.send(done);
    });
    failure.await.unwrap_or(Ok(()))
}

async fn answer(
    settings: &Settings,
    metrics: Arc<Metrics>,
    ready: watch::Receiver<bool>,
) -> Result<(), Error> {
    let health = answer_at(settings.health_address, move |path| match path {
        "/healthz" => (StatusCode::OK, "alive\n".to_owned()),
        "/readyz" if *ready.borrow() => (StatusCode::OK, "ready\n".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "not all kinds are listed yet\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "this port knows /healthz and /readyz\n".to_owned()),
    });
    let metrics = answer_at(settings.metrics_address, move |path| match path {
        "/metrics" => (StatusCode::OK, metrics.text()),
        _ => (StatusCode::NOT_FOUND, "this port knows /metrics\n".to_owned()),
    });
    tokio::select! {
        done = health => done,
        done = metrics => done,
    }
}

async fn answer_at(
    address: SocketAddr,
    answer: impl Fn(&str) -> (StatusCode, String) + Send + Sync + 'static,
) -> Result<(), Error> {
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Port { address, source })?;
    let answer = Arc::new(answer);
    server::serve(listener, Limits::PROBES, move |request: Incoming| {
        let answer = Arc::clone(&answer);
        async move {
            let path = request.uri().path();
            let (status, body) = answer(path);
            let mut response = Response::new(Full::new(Bytes::from(body)));
            *response.status_mut() = status;
            if path == "/metrics" && status.is_success() {
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            }
            response
        }
    })
    .await;
    Ok(())
}
