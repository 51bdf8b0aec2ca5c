//! HTTP/1 of clients, on hyper.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version, header};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::body::{AnswerBody, ClientBody};
use super::exchange::exchange;
use super::request::{Client, refused};
use super::response::{Closes, finish};
use crate::Shutdown;

/// For the head of a request, and between two requests.
const HEAD: Duration = Duration::from_secs(60);
/// The most bytes of a head, and its headers. Beyond: 431.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 128;
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

/// How the answers of a connection have to end.
#[derive(Debug, Default)]
struct State {
    /// The body ends with the connection (HTTP/1.0): if it breaks off, only a reset tells it from a whole one.
    is_open_ended: AtomicBool,
    /// The client may still be sending when the connection closes.
    lingers: AtomicBool,
}

/// The client's stream, as hyper holds it.
#[derive(Debug)]
struct Held<S: Wire> {
    stream: S,
    state: Arc<State>,
}

impl<S: Wire> Drop for Held<S> {
    fn drop(&mut self) {
        if self.state.is_open_ended.load(Ordering::Relaxed) {
            self.stream.reset_when_dropped();
        }
    }
}

pub(crate) async fn serve<S: Wire>(stream: S, client: Arc<Client>, shutdown: watch::Receiver<Shutdown>) {
    serve_within(HEAD, stream, client, shutdown).await;
}

async fn serve_within<S: Wire>(
    head: Duration,
    stream: S,
    client: Arc<Client>,
    mut shutdown: watch::Receiver<Shutdown>,
) {
    let state = Arc::new(State::default());
    let service = service_fn(|request| {
        let (client, state) = (Arc::clone(&client), Arc::clone(&state));
        async move { Ok::<_, Infallible>(answer(&client, &state, request).await) }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_headers(HEADERS)
        .max_header_size(HEAD_BYTES)
        .max_buf_size(HEAD_BYTES * 2)
        // A client that has said all it has to say still gets its answer.
        .half_close(true);
    let held = Held { stream, state: Arc::clone(&state) };
    let mut connection = builder.serve_connection(TokioIo::new(held), service).with_upgrades();
    let ends = async {
        if shutdown.wait_for(|asked| *asked > Shutdown::Run).await.is_err() {
            pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        () = ends => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    // None: it became a tunnel.
    let Some(parts) = connection.into_parts() else { return };
    let mut held = parts.io.into_inner();
    match ended {
        Ok(()) => {
            state.is_open_ended.store(false, Ordering::Relaxed);
            if state.lingers.load(Ordering::Relaxed) {
                Box::pin(linger(&mut held.stream)).await;
            }
        }
        // hyper has answered with 400, 414 or 431.
        Err(why) if why.is_parse() => Box::pin(linger(&mut held.stream)).await,
        // Without a part of a head the client has only been idle.
        Err(why) if why.is_timeout() && !parts.read_buf.is_empty() => Box::pin(late(&mut held.stream)).await,
        // How a connection ends is between its ends.
        Err(_) => {}
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

/// Reads on for a while, without looking at what comes.
async fn linger<S: Wire>(stream: &mut S) {
    let reads = async {
        if stream.shutdown().await.is_ok() {
            let mut ignored = vec![0; 16 << 10];
            while let Ok(1..) = stream.read(&mut ignored).await {}
        }
    };
    let _ = timeout(LINGER, reads).await;
}

async fn answer(client: &Arc<Client>, state: &State, mut request: Request<Incoming>) -> Response<AnswerBody> {
    let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let is_http10 = request.version() == Version::HTTP_10;
    let has_body = !request.body().is_end_stream();
    let response = exchange(client, request.map(ClientBody::h1), upgrade).await;
    let is_refused = response.extensions().get::<Closes>().is_some();
    state.lingers.store(has_body || is_refused, Ordering::Relaxed);
    if is_http10 {
        let has_length = response.headers().contains_key(header::CONTENT_LENGTH);
        state.is_open_ended.store(!has_length && !response.body().is_end_stream(), Ordering::Relaxed);
    }
    finish(response, is_refused || client.http.is_draining())
}

impl<S: Wire> AsyncRead for Held<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl<S: Wire> AsyncWrite for Held<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    use tokio::net::TcpListener;

    use super::*;
    use crate::http::Http;
    use crate::{BackendSide, proxy};

    /// What a client gets that sends this, and then nothing.
    async fn after(sent: &[u8]) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let day = Duration::from_secs(86_400);
        let side = BackendSide::new(|_| (), Arc::default());
        let http = Arc::new(Http::new(side, PathBuf::new(), PathBuf::new(), day, day));
        let of = Client::new(http, address, "http-80".into(), proxy::Header::default());
        let (_run, shutdown) = watch::channel(Shutdown::Run);
        client.write_all(sent).await.unwrap();
        let mut got = String::new();
        let serves = serve_within(Duration::from_millis(200), stream, Arc::new(of), shutdown);
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
