//! Probes: `/healthz` while we live, `/readyz` while varnishd serves a good configuration, is not draining, and can be
//! connected to; and `/metrics`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::event::Reporter;
use crate::metrics::Scrapes;
use crate::{Error, State};

/// A probe is asked every few seconds, and its asker has little patience.
const CONNECTING: Duration = Duration::from_millis(500);
/// The longest that a connection lasts: whoever reads slowly keeps no place for ever.
const LONGEST: Duration = Duration::from_secs(60);

/// Answers probes until the future is dropped. `varnishd` is where it must take connections.
pub async fn serve(address: SocketAddr, varnishd: SocketAddr, reporter: Reporter) -> Result<(), Error> {
    let failed = |source| Error::Port { socket: "health".to_owned(), address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let scrapes = Arc::new(Scrapes::default());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: others need the time more than we do.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (reporter, scrapes) = (reporter.clone(), Arc::clone(&scrapes));
        tokio::spawn(async move {
            let answer = service_fn(|request: Request<_>| {
                let path = request.uri().path().to_owned();
                let state = reporter.state().borrow().clone();
                let (watched, scrapes) = (reporter.state(), Arc::clone(&scrapes));
                async move {
                    Ok::<_, Infallible>(match path.as_str() {
                        "/metrics" => plain(scrapes.text(&[(None, watched)]).await),
                        _ => respond(&path, &state, varnishd).await,
                    })
                }
            });
            let conversation = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(5))
                .serve_connection(TokioIo::new(stream), answer);
            let _ = tokio::time::timeout(LONGEST, conversation).await;
        });
    }
}

fn plain(text: Option<Bytes>) -> Response<Full<Bytes>> {
    let status = if text.is_some() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = text.unwrap_or_else(|| Bytes::from_static(b"the counters did not come in time: ask again\n"));
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

async fn respond(path: &str, state: &State, varnishd: SocketAddr) -> Response<Full<Bytes>> {
    let (status, body) = match path {
        "/healthz" => (StatusCode::OK, json!({ "status": "alive" })),
        "/readyz" => {
            let ready = state.ready() && connects(varnishd).await;
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let sockets = state.sockets.iter().chain(&state.front_sockets);
            let sockets: Vec<_> = sockets.map(|(name, at)| format!("{name}={at}")).collect();
            let body = json!({
                "ready": ready,
                "draining": state.draining,
                "without_routes": state.idle,
                "listening": sockets,
                "refused": state.refused,
            });
            (status, body)
        }
        _ => (StatusCode::NOT_FOUND, json!({ "error": "this port knows /healthz, /readyz and /metrics" })),
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}

async fn connects(address: SocketAddr) -> bool {
    matches!(tokio::time::timeout(CONNECTING, TcpStream::connect(address)).await, Ok(Ok(_)))
}
