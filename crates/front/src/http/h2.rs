//! HTTP/2 of clients, on h2.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response};
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use super::body::{AnswerBody, ClientBody};
use super::exchange::exchange;
use super::request::Client;
use super::response::finish;
use crate::Shutdown;

const PREFACE: Duration = Duration::from_secs(10);
/// A connection without streams is closed after this time.
const IDLE: Duration = Duration::from_secs(60);
const STREAMS: u32 = 128;
const HEADER_BYTES: u32 = 64 << 10;
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What one stream may have waiting for the client.
const SEND_BUFFER: usize = 256 << 10;

/// A stream that is under way.
struct Stream(Arc<AtomicUsize>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) async fn serve<S>(stream: S, client: Arc<Client>, mut shutdown: watch::Receiver<Shutdown>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    let Ok(Ok(mut connection)) = timeout(PREFACE, builder.handshake::<_, Bytes>(stream)).await else {
        return;
    };
    let open = Arc::new(AtomicUsize::new(0));
    let mut is_ending = false;
    loop {
        let ends = async {
            if is_ending || shutdown.wait_for(|asked| *asked > Shutdown::Run).await.is_err() {
                pending::<()>().await;
            }
        };
        let accepted = tokio::select! {
            accepted = timeout(IDLE, connection.accept()) => accepted,
            () = ends => {
                is_ending = true;
                connection.graceful_shutdown();
                continue;
            }
        };
        match accepted {
            Ok(Some(Ok((request, respond)))) => {
                open.fetch_add(1, Ordering::Relaxed);
                let drains = client.http.is_draining();
                let (stream, client) = (Stream(Arc::clone(&open)), Arc::clone(&client));
                drop(tokio::spawn(async move {
                    let _stream = stream;
                    answer(&client, request, respond).await;
                }));
                if drains && !is_ending {
                    is_ending = true;
                    connection.graceful_shutdown();
                }
            }
            Ok(Some(Err(_)) | None) => return,
            Err(_) if is_ending => {}
            Err(_) => {
                if open.load(Ordering::Relaxed) == 0 {
                    is_ending = true;
                    connection.graceful_shutdown();
                }
            }
        }
    }
}

async fn answer(client: &Arc<Client>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut request = request.map(ClientBody::h2);
    join_cookies(request.headers_mut());
    let gone = poll_fn(|cx| respond.poll_reset(cx));
    let response = tokio::select! {
        biased;
        _ = gone => return,
        response = exchange(client, request, None) => finish(response, false),
    };
    let (parts, body) = response.into_parts();
    let is_over = body.is_end_stream();
    let Ok(mut stream) = respond.send_response(Response::from_parts(parts, ()), is_over) else { return };
    if !is_over && send(&mut stream, body).await.is_err() {
        // What broke off must not look complete.
        stream.send_reset(Reason::INTERNAL_ERROR);
    }
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

/// The client is gone, or the origin broke off.
struct BrokenOff;

async fn send(stream: &mut SendStream<Bytes>, mut body: AnswerBody) -> Result<(), BrokenOff> {
    loop {
        // Whichever comes first: the origin's next bytes, or the client's farewell.
        let frame = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(|_| BrokenOff))),
            Poll::Pending => stream.poll_reset(cx).map(|_| Some(Err(BrokenOff))),
        })
        .await;
        let Some(frame) = frame.transpose()? else {
            return stream.send_data(Bytes::new(), true).map_err(|_| BrokenOff);
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                send_data(stream, data, is_last).await?;
                if is_last {
                    return Ok(());
                }
            }
            Err(frame) => {
                let Ok(trailers) = frame.into_trailers() else { continue };
                return stream.send_trailers(trailers).map_err(|_| BrokenOff);
            }
        }
    }
}

/// As the client's window allows.
async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes, is_last: bool) -> Result<(), BrokenOff> {
    loop {
        stream.reserve_capacity(data.len());
        if data.is_empty() || stream.capacity() >= data.len() {
            return stream.send_data(data, is_last).map_err(|_| BrokenOff);
        }
        let room = match stream.capacity() {
            0 => match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(room)) => room,
                _ => return Err(BrokenOff),
            },
            room => room,
        };
        let part = data.split_to(room.min(data.len()));
        let ends = is_last && data.is_empty();
        stream.send_data(part, ends).map_err(|_| BrokenOff)?;
        if ends || data.is_empty() {
            return Ok(());
        }
    }
}
