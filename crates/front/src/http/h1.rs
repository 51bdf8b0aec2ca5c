//! HTTP/1 of clients, on hyper.
//!
//! A connection on which nothing moves is parked: hyper's state and buffers are given back until the client speaks again.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, timeout};
use tokio_rustls::server::TlsStream;

use super::body::{AnswerBody, ClientBody};
use super::exchange::{Begun, begin};
use super::reason::Reason;
use super::record::Record;
use super::request::{Client, refused};
use super::response::{Closes, finish};
use super::tunnel::ClientSide;
use super::watched::Watched;
use crate::Shutdown;

/// A connection that is idle for this long is parked; it is looked at as often.
const LOOK: Duration = Duration::from_secs(2);
/// However short the timeouts are.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);
/// How long a closed connection is read on, so that what the client still sends does not reset it before it has read its answer.
const LINGER: Duration = Duration::from_secs(2);

/// A connection that can be made to end with a reset.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// When it is dropped, the client gets a reset in the place of an orderly end.
    fn reset_when_dropped(&self);
}

impl Wire for TcpStream {
    fn reset_when_dropped(&self) {
        let _ = socket2::SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

/// A TLS client also sees that `close_notify` is missing.
impl Wire for Box<TlsStream<TcpStream>> {
    fn reset_when_dropped(&self) {
        self.get_ref().0.reset_when_dropped();
    }
}

/// How a stretch of requests ends.
enum Ended<S> {
    Over,
    /// The client may still be sending.
    Lingers(S),
    /// With bytes of the next request that were already read.
    Idle(S, Bytes),
    /// The client has begun a request, and does not finish it.
    Late(S),
}

pub(crate) async fn serve<S: Wire>(
    mut stream: S,
    client: Arc<Client>,
    mut shutdown: watch::Receiver<Shutdown>,
) {
    let mut first = Bytes::new();
    loop {
        let watched = Watched::new(stream, first, Arc::clone(&client.movement));
        // Boxed, so that its memory is given back while the client is silent.
        match Box::pin(requests(watched, &client, &mut shutdown)).await {
            Ended::Over => return,
            Ended::Late(mut stream) => {
                Record::unread(&client, StatusCode::REQUEST_TIMEOUT.as_u16(), Reason::HeadTimeout);
                return Box::pin(late(&mut stream)).await;
            }
            Ended::Lingers(mut stream) => return Box::pin(linger(&mut stream)).await,
            Ended::Idle(parked, said) if !said.is_empty() => (stream, first) = (parked, said),
            Ended::Idle(mut parked, said) => {
                // Empty, but hyper's buffer all the same.
                drop(said);
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
async fn requests<S: Wire>(
    stream: Watched<S>,
    client: &Arc<Client>,
    shutdown: &mut watch::Receiver<Shutdown>,
) -> Ended<S> {
    let service = service_fn(|request| answer(client, request));
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
    let look = LOOK.min(limits.head_timeout.min(limits.idle_timeout) / 2).max(SHORTEST_LOOK);
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
            biased;
            ended = &mut connection => {
                // None: it became a tunnel.
                let Some(parts) = connection.into_parts() else {
                    client.tunnels.over().await;
                    return Ended::Over;
                };
                let lingers = match ended {
                    Ok(()) => {
                        movement.is_whole();
                        movement.lingers()
                    }
                    // hyper has answered with 400, 414 or 431. How others end is between the two ends.
                    Err(why) => {
                        if let Some((status, reason)) = refused_by_parser(&why) {
                            Record::unread(client, status, reason);
                        }
                        why.is_parse()
                    }
                };
                // Dropped with its watch where it does not linger: an answer that broke off may have to end with a reset.
                let stream = parts.io.into_inner();
                return if lingers {
                    stream.into_inner().map_or(Ended::Over, Ended::Lingers)
                } else {
                    Ended::Over
                };
            }
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
        let Some(stream) = parts.io.into_inner().into_inner() else { return Ended::Over };
        return if is_late { Ended::Late(stream) } else { Ended::Idle(stream, parts.read_buf) };
    }
}

/// The status that hyper has answered with, as it does by itself: no request reaches us then.
fn refused_by_parser(why: &hyper::Error) -> Option<(u16, Reason)> {
    if !why.is_parse() || why.is_parse_version_h2() {
        return None;
    }
    Some(match why.is_parse_too_large() {
        // hyper has no other way to distinguish the two.
        true if why.to_string().contains("URI too long") => (414, Reason::UrlTooLong),
        true => (431, Reason::HeadTooLarge),
        false => (400, Reason::BadRequest),
    })
}

/// An origin has its own limits: the client is not the one that is slow.
fn waits_for_origin(client: &Client) -> bool {
    client.movement.is_active() && client.movement.is_flushed()
}

/// The response, or what makes it. Boxed where something has to be waited for: hyper moves what it gets here, and hot objects need none of it.
#[expect(clippy::large_enum_variant, reason = "a hot object costs no allocation here")]
enum Answering<F> {
    Now(Option<Response<AnswerBody>>),
    Later(Pin<Box<F>>),
}

impl<F: Future<Output = Response<AnswerBody>>> Future for Answering<F> {
    type Output = Result<Response<AnswerBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(response) => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
            Self::Later(answer) => answer.as_mut().poll(cx).map(Ok),
        }
    }
}

fn answer(
    client: &Arc<Client>,
    mut request: Request<Incoming>,
) -> Answering<impl Future<Output = Response<AnswerBody>> + use<>> {
    let is_http10 = request.version() == Version::HTTP_10;
    let has_body = !request.body().is_end_stream();
    let is_head = request.method() == Method::HEAD;
    let upgrade = request
        .headers()
        .contains_key(header::UPGRADE)
        .then(|| ClientSide::Http1(hyper::upgrade::on(&mut request)));
    let most = client.limits.body_bytes;
    let request = request.map(|body| ClientBody::h1(body, most, &client.movement));
    let sent = Sent { is_http10, has_body, is_head };
    match begin(client, request, upgrade) {
        Begun::Answered(response) => Answering::Now(Some(sent.finish(client, response))),
        Begun::Waits(waiting) => {
            let client = Arc::clone(client);
            Answering::Later(Box::pin(async move { sent.finish(&client, waiting.answer(&client).await) }))
        }
    }
}

/// What of a request counts for the end of its answer.
#[derive(Clone, Copy)]
struct Sent {
    is_http10: bool,
    has_body: bool,
    is_head: bool,
}

impl Sent {
    fn finish(self, client: &Client, response: Response<AnswerBody>) -> Response<AnswerBody> {
        let Self { is_http10, has_body, is_head } = self;
        let is_refused = response.extensions().get::<Closes>().is_some();
        let has_length = || response.headers().contains_key(header::CONTENT_LENGTH);
        let is_open_ended = is_http10 && !has_length() && !response.body().is_end_stream();
        client.movement.answers(has_body || is_refused, is_open_ended);
        finish(response, is_head, is_refused || client.http.is_draining())
    }
}

/// The head of a request did not come in time.
async fn late<S: Wire>(stream: &mut S) {
    let why = refused(StatusCode::REQUEST_TIMEOUT, "the request's head did not come in time");
    let answer = format!(
        "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
        why.body.len(),
        why.body
    );
    if let Ok(Ok(())) = timeout(LINGER, stream.write_all(answer.as_bytes())).await {
        linger(stream).await;
    }
}

/// Reads and discards bytes for a while.
async fn linger<S: Wire>(stream: &mut S) {
    let reads = async {
        if stream.shutdown().await.is_ok() {
            let mut ignored = vec![0; 16 << 10];
            while let Ok(1..) = stream.read(&mut ignored).await {}
        }
    };
    let _ = timeout(LINGER, reads).await;
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    use tokio::net::TcpListener;

    use super::*;
    use crate::http::Http;
    use crate::{BackendSide, HttpLimits, proxy};

    /// What a client gets that sends this, and then nothing.
    async fn after(sent: &[u8]) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let day = Duration::from_secs(86_400);
        let side = BackendSide::new(|_| (), Arc::default());
        let http = Arc::new(Http::new(side, PathBuf::new(), day, day));
        let limits = HttpLimits {
            head_timeout: Duration::from_millis(200),
            idle_timeout: Duration::from_millis(400),
            ..HttpLimits::default()
        };
        let of = Client::new(http, address, "http-80".into(), proxy::Header::default(), limits);
        let (_run, shutdown) = watch::channel(Shutdown::Run);
        client.write_all(sent).await.unwrap();
        let mut got = String::new();
        let serves = serve(stream, Arc::new(of), shutdown);
        let reads = async {
            timeout(Duration::from_secs(20), client.read_to_string(&mut got)).await.unwrap().unwrap();
            drop(client);
        };
        tokio::join!(serves, reads);
        got
    }

    #[tokio::test]
    async fn a_head_that_is_late_is_answered_with_408() {
        for sent in ["G", "GET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: y"] {
            let got = after(sent.as_bytes()).await;
            assert!(
                got.starts_with("HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n"),
                "{sent:?}: {got}"
            );
        }
    }

    #[tokio::test]
    async fn a_client_that_is_idle_is_left_without_a_word() {
        assert_eq!(after(b"").await, "");
        let got = after(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(got.starts_with("HTTP/1.1 503 ") && !got.contains(" 408 "), "{got}");
    }
}
