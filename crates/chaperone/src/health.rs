//! Probes: `/healthz` while we live, `/readyz` while varnishd serves a good configuration, is not draining, and can be
//! connected to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::{Error, State};

/// A probe is asked every few seconds, and its asker has little patience.
const CONNECTING: Duration = Duration::from_millis(500);

/// Answers probes until the future is dropped. `varnishd` is where it must take connections.
pub async fn serve(
    address: SocketAddr,
    varnishd: SocketAddr,
    state: watch::Receiver<State>,
) -> Result<(), Error> {
    let failed = |source| Error::Port { socket: "health".to_owned(), address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: others need the time more than we do.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let state = state.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request: Request<_>| {
                let (path, state) = (request.uri().path().to_owned(), state.borrow().clone());
                async move { Ok::<_, Infallible>(respond(&path, &state, varnishd).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(5))
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
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
                "listening": sockets,
                "refused": state.refused,
            });
            (status, body)
        }
        _ => (StatusCode::NOT_FOUND, json!({ "error": "this port knows /healthz and /readyz" })),
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
