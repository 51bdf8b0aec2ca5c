//! Small servers. Every client is bounded: in the bytes of its head, the time to send it, the time that it takes no bytes of a response, and
//! the number of connections.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::patient::Patient;

pub type Incoming = Request<hyper::body::Incoming>;

/// The most bytes of a request's head.
const LARGEST_HEAD: usize = 16 << 10;
/// For a whole head to arrive.
const HEAD: Duration = Duration::from_secs(5);
/// For a client that takes no bytes of a response.
const STALLED: Duration = Duration::from_secs(30);
/// After a connection could not be accepted: most likely the process is out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that accepts connections.
pub trait Listener: Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// At a time; more wait.
    pub connections: usize,
    /// The longest that a connection lasts.
    pub lifetime: Option<Duration>,
}

impl Limits {
    /// For probes: a limit on connections would let a few idle clients keep probes out, so their time is limited instead.
    pub const PROBES: Self =
        Self { connections: Semaphore::MAX_PERMITS, lifetime: Some(Duration::from_secs(60)) };
}

/// Answers requests until it is dropped.
pub async fn serve<A, F, B>(listener: impl Listener, limits: Limits, answer: A)
where
    A: Fn(Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.next().await {
            Ok(stream) => {
                let answer = answer.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| {
                        let answered = answer(request);
                        async move { Ok::<_, Infallible>(answered.await) }
                    });
                    let conversation = hyper::server::conn::http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEAD)
                        .max_buf_size(LARGEST_HEAD)
                        .serve_connection(TokioIo::new(Patient::new(stream, STALLED)), service);
                    let lifetime = limits.lifetime.unwrap_or(Duration::MAX);
                    let _ = tokio::time::timeout(lifetime, conversation).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
