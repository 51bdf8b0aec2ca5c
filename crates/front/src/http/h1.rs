//! HTTP/1 of clients, on hyper.
//!
//! A connection on which nothing moves is parked: hyper's state and buffers are given back until the client speaks again.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, timeout};

use super::body::{AnswerBody, ClientBody};
use super::exchange::exchange;
use super::request::Client;
use super::response::finish;
use super::tunnel::ClientSide;
use super::watched::Watched;
use crate::Shutdown;

/// A connection that is idle for this long is parked; it is looked at as often.
const LOOK: Duration = Duration::from_secs(2);
const LATE: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// How a stretch of requests ends.
enum Ended<S> {
    Over,
    /// With what the client has said of its next request.
    Idle(S, Bytes),
    /// The client has begun a request, and does not finish it.
    Late(S),
}

pub(crate) async fn serve<S>(mut stream: S, client: Arc<Client>, mut shutdown: watch::Receiver<Shutdown>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut first = Bytes::new();
    loop {
        let watched = Watched::new(stream, first, Arc::clone(&client.movement));
        // Boxed, so that its memory is given back while the client is silent.
        match Box::pin(requests(watched, &client, &mut shutdown)).await {
            Ended::Over => return,
            Ended::Late(mut stream) => {
                let _ = stream.write_all(LATE).await;
                let _ = stream.shutdown().await;
                return;
            }
            Ended::Idle(parked, said) if !said.is_empty() => (stream, first) = (parked, said),
            Ended::Idle(mut parked, _) => {
                let mut byte = [0; 1];
                let speaks = async { timeout(client.limits.idle_timeout, parked.read(&mut byte)).await };
                let read = tokio::select! {
                    biased;
                    read = speaks => read,
                    () = ends(&mut shutdown) => return,
                };
                let Ok(Ok(1)) = read else { return };
                (stream, first) = (parked, Bytes::copy_from_slice(&byte));
            }
        }
    }
}

async fn ends(shutdown: &mut watch::Receiver<Shutdown>) {
    if shutdown.wait_for(|asked| *asked > Shutdown::Run).await.is_err() {
        pending::<()>().await;
    }
}

/// Serves until the connection is over or idle.
async fn requests<S>(
    stream: Watched<S>,
    client: &Arc<Client>,
    shutdown: &mut watch::Receiver<Shutdown>,
) -> Ended<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let client = Arc::clone(client);
        async move { Ok::<_, Infallible>(answer(&client, request).await) }
    });
    let limits = client.limits;
    let mut builder = Builder::new();
    builder
        .max_headers(limits.headers)
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes.max(8 << 10) * 2)
        // A client that has said all it has to say still gets its answer.
        .half_close(true);
    let mut connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let movement = &client.movement;
    let look = LOOK.min(limits.head_timeout / 2);
    let mut looks = interval_at(Instant::now() + look, look);
    let (mut seen, mut still_since) = (movement.total(), Instant::now());
    let mut head_since: Option<Instant> = None;
    let mut is_ending = false;
    loop {
        let asked = async {
            if is_ending {
                pending::<()>().await;
            }
            ends(shutdown).await;
        };
        let now = tokio::select! {
            // How a connection ends is between its ends.
            _ = &mut connection => return Ended::Over,
            now = looks.tick() => now,
            () = asked => {
                is_ending = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
                continue;
            }
        };
        let moved = movement.total();
        if moved != seen {
            (seen, still_since) = (moved, now);
        }
        let is_late = if movement.is_active() || !movement.has_begun() {
            head_since = None;
            false
        } else {
            now.duration_since(*head_since.get_or_insert(now)) >= limits.head_timeout
        };
        let is_idle =
            !movement.is_active() && movement.is_flushed() && now.duration_since(still_since) >= look;
        if now.duration_since(still_since) >= limits.stall_timeout && !waits_for_origin(client) {
            return Ended::Over;
        }
        if is_ending || !(is_late || is_idle && head_since.is_none()) {
            continue;
        }
        let Some(parts) = connection.into_parts() else { return Ended::Over };
        let stream = parts.io.into_inner().into_inner();
        return if is_late { Ended::Late(stream) } else { Ended::Idle(stream, parts.read_buf) };
    }
}

/// An origin has its own limits: the client is not the one that is slow.
fn waits_for_origin(client: &Client) -> bool {
    client.movement.is_active() && client.movement.is_flushed()
}

async fn answer(client: &Arc<Client>, mut request: Request<Incoming>) -> Response<AnswerBody> {
    let upgrade = request
        .headers()
        .contains_key(http::header::UPGRADE)
        .then(|| ClientSide::Http1(hyper::upgrade::on(&mut request)));
    let response = exchange(client, request.map(ClientBody::h1), upgrade).await;
    finish(response, client.http.is_draining())
}
