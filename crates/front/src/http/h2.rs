//! HTTP/2 of clients, on h2.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Body;
use router::random;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::body::{AnswerBody, ClientBody};
use super::exchange::{Begun, Waiting, begin, exchange};
use super::h2_io::H2Io;
use super::hints;
use super::request::{Client, ExtendedConnect};
use super::resets::Resets;
use super::response::finish;
use super::tunnel::ClientSide;
use crate::{Refusal, Shutdown};

const PREFACE: Duration = Duration::from_secs(10);
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What one stream may have waiting for the client.
///
/// With a part of [`super::wire::PART`] bytes that waits for room, and one that was read ahead of it, a client that reads nothing
/// holds three times as much for each stream.
const SEND_BUFFER: usize = 32 << 10;

/// Timeout for sending GOAWAY to a client whose connection is closed.
const FAREWELL: Duration = Duration::from_secs(1);

/// What the streams of one connection share.
struct Streams {
    open: AtomicUsize,
    resets: Resets,
}

/// A stream that is under way.
struct Stream(Arc<Streams>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the limit that closed the connection, if any did.
pub(crate) async fn serve<S>(
    stream: S,
    client: Arc<Client>,
    mut shutdown: watch::Receiver<Shutdown>,
) -> Option<Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = client.limits;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(limits.resets as usize)
        .enable_connect_protocol();
    let Ok(Ok(mut connection)) =
        timeout(PREFACE.min(limits.head_timeout), builder.handshake::<_, Bytes>(stream)).await
    else {
        return None;
    };
    let streams = Arc::new(Streams { open: AtomicUsize::new(0), resets: Resets::new(limits.resets) });
    // A tunnel goes on after its request is answered.
    let is_busy = || streams.open.load(Ordering::Relaxed) > 0 || client.tunnels.are_open();
    let mut is_ending = false;
    loop {
        let ends = async {
            if is_ending || shutdown.wait_for(|asked| *asked > Shutdown::Run).await.is_err() {
                pending::<()>().await;
            }
        };
        let accepted = tokio::select! {
            accepted = timeout(limits.idle_timeout, connection.accept()) => accepted,
            () = ends => {
                is_ending = true;
                connection.graceful_shutdown();
                continue;
            }
        };
        match accepted {
            Ok(Some(Ok(_))) if streams.resets.are_too_many() => {
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                let _ = timeout(FAREWELL, poll_fn(|cx| connection.poll_closed(cx))).await;
                return Some(Refusal::Http2Flood);
            }
            Ok(Some(Ok((request, respond)))) => {
                streams.open.fetch_add(1, Ordering::Relaxed);
                let drains = client.http.is_draining();
                let (stream, client) = (Stream(Arc::clone(&streams)), Arc::clone(&client));
                drop(tokio::spawn(async move {
                    if answer(&client, request, respond).await == Left::Reset {
                        stream.0.resets.add();
                    }
                }));
                if drains && !is_ending {
                    is_ending = true;
                    connection.graceful_shutdown();
                }
            }
            Ok(Some(Err(e))) => {
                let is_flood =
                    e.is_go_away() && !e.is_remote() && e.reason() == Some(Reason::ENHANCE_YOUR_CALM);
                return is_flood.then_some(Refusal::Http2Flood);
            }
            Ok(None) => return None,
            // A client that does not answer our GOAWAY either is gone.
            Err(_) if is_ending && !is_busy() => return None,
            Err(_) if is_ending => {}
            Err(_) => {
                if !is_busy() {
                    is_ending = true;
                    connection.graceful_shutdown();
                }
            }
        }
    }
}

/// The response of another; `None` where the client resets the stream before it.
async fn wait(
    client: &Arc<Client>,
    mut waiting: Waiting,
    respond: &mut SendResponse<Bytes>,
) -> Option<Response<AnswerBody>> {
    let parts = waiting.parts_mut();
    // HTTP/1 clients get the final response alone: hyper's server cannot send another before it.
    let mut hints = (parts.method == Method::GET).then(|| hints::expect(&mut parts.extensions));
    let mut exchange = pin!(waiting.answer(client));
    let response = loop {
        let gone = poll_fn(|cx| respond.poll_reset(cx));
        let hint = async {
            match &mut hints {
                Some(hints) => hints.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = gone => return None,
            hint = hint => match hint {
                Some(hint) => drop(respond.send_informational(hint)),
                None => hints = None,
            },
            response = &mut exchange => break response,
        }
    };
    // They may have come together with the answer.
    while let Some(Ok(hint)) = hints.as_mut().map(|hints| hints.try_recv()) {
        let _ = respond.send_informational(hint);
    }
    Some(response)
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// With its whole response, or broken off by the origin or by us.
    Over,
    /// The client reset it, or is gone.
    Reset,
}

async fn answer(
    client: &Arc<Client>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Left {
    if request.extensions().get::<Protocol>().is_some_and(|protocol| protocol.as_str() == "websocket") {
        return tunnel(client, request, respond).await;
    }
    let mut request = request.map(|body| ClientBody::h2(body, client.limits.body_bytes));
    let is_head = request.method() == Method::HEAD;
    join_cookies(request.headers_mut());
    let response = match begin(client, request, None) {
        Begun::Answered(response) => response,
        Begun::Waits(waiting) => match wait(client, waiting, &mut respond).await {
            Some(response) => response,
            None => return Left::Reset,
        },
    };
    let (parts, body) = finish(response, is_head, false).into_parts();
    let is_over = is_head || body.is_end_stream();
    let Ok(mut stream) = respond.send_response(Response::from_parts(parts, ()), is_over) else {
        return Left::Reset;
    };
    if is_over {
        return Left::Over;
    }
    let sent = send_body(&mut stream, body, client.limits.stall_timeout).await;
    ended(&mut stream, sent)
}

/// A response that broke off must not look complete.
fn ended(stream: &mut SendStream<Bytes>, sent: Result<(), BrokenOff>) -> Left {
    match sent {
        Ok(()) => Left::Over,
        Err(BrokenOff::Client) => Left::Reset,
        Err(BrokenOff::Origin) => {
            stream.send_reset(Reason::INTERNAL_ERROR);
            Left::Over
        }
    }
}

/// A WebSocket by RFC 8441: the origin sees the upgrade of HTTP/1.1.
async fn tunnel(
    client: &Arc<Client>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Left {
    let (mut parts, receive) = request.into_parts();
    parts.method = Method::GET;
    parts.extensions.insert(ExtendedConnect);
    join_cookies(&mut parts.headers);
    // A stream of bytes has none.
    parts.headers.remove(header::CONTENT_LENGTH);
    let key = [random::next(), random::next()].map(u64::to_be_bytes).concat();
    if let Ok(key) = HeaderValue::from_str(&BASE64.encode(key)) {
        parts.headers.insert(header::SEC_WEBSOCKET_KEY, key);
    }
    parts.headers.entry(header::SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
    let (opened, side) = oneshot::channel();
    let request = Request::from_parts(parts, ClientBody::Empty);
    let gone = poll_fn(|cx| respond.poll_reset(cx));
    let response = tokio::select! {
        biased;
        _ = gone => return Left::Reset,
        response = exchange(client, request, Some(ClientSide::Http2(side))) => finish(response, false, false),
    };
    let (mut parts, body) = response.into_parts();
    let switches = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    if switches {
        parts.status = StatusCode::OK;
        for name in [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_ACCEPT] {
            parts.headers.remove(name);
        }
    }
    let is_over = !switches && body.is_end_stream();
    let Ok(mut send) = respond.send_response(Response::from_parts(parts, ()), is_over) else {
        return Left::Reset;
    };
    if switches {
        let _ = opened.send(H2Io::new(receive, send));
        return Left::Over;
    }
    if is_over {
        return Left::Over;
    }
    let sent = send_body(&mut send, body, client.limits.stall_timeout).await;
    ended(&mut send, sent)
}

/// HTTP/2 clients may send a cookie by pieces; HTTP/1 has one line (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let all: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

/// Why a response broke off.
#[derive(Debug, Clone, Copy)]
enum BrokenOff {
    /// The client reset the stream, or is gone.
    Client,
    /// The origin broke off, or the client takes nothing.
    Origin,
}

async fn send_body(
    stream: &mut SendStream<Bytes>,
    mut body: AnswerBody,
    patience: Duration,
) -> Result<(), BrokenOff> {
    loop {
        // Whichever comes first: the origin's next bytes, or the client's farewell.
        let frame = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(|_| BrokenOff::Origin))),
            Poll::Pending => stream.poll_reset(cx).map(|_| Some(Err(BrokenOff::Client))),
        })
        .await;
        let Some(frame) = frame.transpose()? else {
            return stream.send_data(Bytes::new(), true).map_err(|_| BrokenOff::Client);
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                send_data(stream, data, is_last, patience).await?;
                if is_last {
                    return Ok(());
                }
            }
            Err(frame) => {
                let Ok(trailers) = frame.into_trailers() else { continue };
                return stream.send_trailers(trailers).map_err(|_| BrokenOff::Client);
            }
        }
    }
}

/// As the client's window allows.
async fn send_data(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    is_last: bool,
    patience: Duration,
) -> Result<(), BrokenOff> {
    loop {
        stream.reserve_capacity(data.len());
        if data.is_empty() || stream.capacity() >= data.len() {
            return stream.send_data(data, is_last).map_err(|_| BrokenOff::Client);
        }
        let room = match stream.capacity() {
            0 => match timeout(patience, poll_fn(|cx| stream.poll_capacity(cx))).await {
                Ok(Some(Ok(room))) => room,
                Ok(_) => return Err(BrokenOff::Client),
                Err(_) => return Err(BrokenOff::Origin),
            },
            room => room,
        };
        let part = data.split_to(room.min(data.len()));
        let ends = is_last && data.is_empty();
        stream.send_data(part, ends).map_err(|_| BrokenOff::Client)?;
        if ends || data.is_empty() {
            return Ok(());
        }
    }
}
