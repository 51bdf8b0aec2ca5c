//! Connections to endpoints that speak HTTP/2, kept by each thread for itself. One connection carries many requests at once.
//!
//! Guarantees that no connection carries more requests than the other side allows, or than [`MOST_STREAMS`]: with those, the window of
//! the connection is as large as all their windows together, so that clients which take nothing hold up no other client.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::RandomState;
use h2::client::{Builder, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::heard::Heard;
use super::pool::{self, Key, Unconnected};
use crate::backend::{self, Ready};
use crate::{BackendFailure, BackendSide};

/// Requests of one connection at once.
const MOST_STREAMS: usize = 100;
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MOST_STREAMS as u32;
/// What one request may have waiting for the endpoint.
const SEND_BUFFER: usize = 128 << 10;
/// The most that the head of an answer may have.
const HEAD_BYTES: u32 = 128 << 10;

/// A connection without requests is closed after this time.
const IDLE: Duration = Duration::from_secs(55);
const SWEEP: Duration = Duration::from_secs(5);
/// For the settings of the other side, which say how many requests it takes. After this time requests are sent all the same.
const SETTLES: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Bytes>,
    state: Arc<State>,
    /// Its place in memory is part of the key.
    _profile: Option<Arc<Ready>>,
}

#[derive(Debug)]
struct State {
    /// Requests that are under way.
    open: AtomicUsize,
    /// It takes no more requests.
    is_over: AtomicBool,
    /// When the last request ended.
    used: Mutex<Instant>,
}

impl Connection {
    /// The endpoint has not said farewell, and nothing has failed.
    fn is_usable(&self) -> bool {
        let mut sender = self.sender.clone();
        let is_ready = sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        !self.state.is_over.load(Ordering::Relaxed) && !matches!(is_ready, std::task::Poll::Ready(Err(_)))
    }

    fn has_room(&self) -> bool {
        let most = self.sender.current_max_send_streams().min(MOST_STREAMS);
        self.state.open.load(Ordering::Relaxed) < most
    }

    fn is_idle(&self) -> bool {
        self.state.open.load(Ordering::Relaxed) == 0
    }

    fn idles_too_long(&self) -> bool {
        self.is_idle() && self.state.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= IDLE
    }
}

/// The place of one request on a connection, until the request is over.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Connection>);

impl Ticket {
    fn new(connection: &Arc<Connection>) -> Self {
        connection.state.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    pub(crate) fn sender(&self) -> SendRequest<Bytes> {
        self.0.sender.clone()
    }

    /// The connection gets no more requests. Those that it has go on.
    pub(crate) fn retire(&self) {
        self.0.state.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *self.0.state.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.state.open.fetch_sub(1, Ordering::Relaxed);
    }
}

type Dialled = Option<Result<(), Unconnected>>;

#[derive(Debug, Default)]
struct Pool {
    connections: HashMap<Key, Vec<Arc<Connection>>, RandomState>,
    /// Connections that one request opens, and others wait for.
    dials: HashMap<Key, watch::Receiver<Dialled>, RandomState>,
    is_swept: bool,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// A place on a connection that is there already.
pub(crate) fn take(key: &Key) -> Option<Ticket> {
    POOL.try_with(|pool| pool.borrow_mut().take(key)).ok().flatten()
}

impl Pool {
    /// Of several connections the first one that has room: the others become idle, and are closed.
    fn take(&mut self, key: &Key) -> Option<Ticket> {
        let all = self.connections.get_mut(key)?;
        loop {
            let at = all.iter().position(|connection| connection.has_room())?;
            let connection = all.get(at)?;
            if connection.is_usable() {
                return Some(Ticket::new(connection));
            }
            all.remove(at);
        }
    }

    fn retain(&mut self, stays: impl Fn(&Connection) -> bool) {
        self.connections.retain(|_, all| {
            all.retain(|connection| stays(connection));
            !all.is_empty()
        });
    }
}

/// Closes connections of this thread that carry nothing: the process needs their file descriptors.
pub(crate) fn relieve() {
    let _ = POOL.try_with(|pool| pool.borrow_mut().retain(|connection| !connection.is_idle()));
}

/// A place on a new connection. Of several requests that need one at once, one opens it.
pub(crate) async fn connect(
    endpoint: SocketAddr,
    profile: Option<(&str, &Arc<Ready>)>,
    side: &BackendSide,
    patience: Duration,
) -> Result<Ticket, Unconnected> {
    let key = Key::new(endpoint, profile.map(|(_, ready)| ready));
    loop {
        match turn(key) {
            Turn::Dials(dial) => {
                let dialled = open(endpoint, profile, side, patience).await;
                let ticket = dialled.map(|connection| {
                    let ticket = Ticket::new(&connection);
                    keep(key, connection);
                    ticket
                });
                dial.say(ticket.as_ref().map(|_| ()).map_err(|why| *why));
                return ticket;
            }
            Turn::Waits(mut dialled) => {
                // An error: the request that opened it has left.
                let dialled = dialled.wait_for(Option::is_some).await.ok().and_then(|dialled| *dialled);
                if let Some(Err(why)) = dialled {
                    return Err(why);
                }
                if let Some(ticket) = take(&key) {
                    return Ok(ticket);
                }
            }
        }
    }
}

enum Turn {
    Dials(Dial),
    Waits(watch::Receiver<Dialled>),
}

/// Held by the request that opens a connection.
struct Dial {
    key: Key,
    to: watch::Sender<Dialled>,
}

impl Dial {
    fn say(self, dialled: Result<(), Unconnected>) {
        let _ = self.to.send(Some(dialled));
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        let _ = POOL.try_with(|pool| pool.borrow_mut().dials.remove(&self.key));
    }
}

fn turn(key: Key) -> Turn {
    let waits = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        match pool.dials.get(&key) {
            Some(dialled) => Turn::Waits(dialled.clone()),
            None => {
                let (to, dialled) = watch::channel(None);
                pool.dials.insert(key, dialled);
                Turn::Dials(Dial { key, to })
            }
        }
    });
    waits.unwrap_or_else(|_| Turn::Dials(Dial { key, to: watch::channel(None).0 }))
}

fn keep(key: Key, connection: Arc<Connection>) {
    let begin = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        pool.connections.entry(key).or_default().push(connection);
        !std::mem::replace(&mut pool.is_swept, true)
    });
    if begin == Ok(true) {
        drop(tokio::spawn(sweep()));
    }
}

/// Closes connections that are idle for too long, until none is left; and all idle ones if file descriptors are needed.
async fn sweep() {
    loop {
        let is_needed = tokio::select! {
            () = pool::relief() => true,
            () = sleep(SWEEP) => false,
        };
        let is_empty = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            pool.retain(|one| one.is_usable() && !one.idles_too_long() && !(is_needed && one.is_idle()));
            if pool.connections.is_empty() {
                pool.is_swept = false;
            }
            pool.connections.is_empty()
        });
        if is_empty != Ok(false) {
            return;
        }
    }
}

async fn open(
    endpoint: SocketAddr,
    profile: Option<(&str, &Arc<Ready>)>,
    side: &BackendSide,
    patience: Duration,
) -> Result<Arc<Connection>, Unconnected> {
    match profile {
        None => match timeout(patience, pool::dial(endpoint)).await {
            Ok(Ok(stream)) => begin(stream, None).await,
            Ok(Err(e)) => Err(Unconnected::from(&e)),
            Err(_) => Err(Unconnected::Endpoint),
        },
        Some((name, ready)) => match backend::reach_http2(endpoint, ready).await {
            Ok(stream) => {
                side.greeted(name, endpoint, stream.get_ref().1);
                begin(stream, Some(Arc::clone(ready))).await
            }
            Err((reason, why)) => {
                side.ill(name.to_owned(), endpoint, reason, why);
                let is_exhausted = reason == BackendFailure::Exhausted;
                Err(if is_exhausted { Unconnected::Exhausted } else { Unconnected::Endpoint })
            }
        },
    }
}

/// Speaks HTTP/2 on a stream, in a task of this thread.
async fn begin<S>(stream: S, profile: Option<Arc<Ready>>) -> Result<Arc<Connection>, Unconnected>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(MOST_STREAMS)
        .max_header_list_size(HEAD_BYTES)
        .max_send_buffer_size(SEND_BUFFER);
    let heard = Heard::new(stream);
    let (sender, mut connection) =
        builder.handshake::<_, Bytes>(heard.0).await.map_err(|_| Unconnected::Endpoint)?;
    let state = Arc::new(State {
        open: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        used: Mutex::new(Instant::now()),
    });
    let (tell, settled) = oneshot::channel();
    let (of_task, has_heard) = (Arc::clone(&state), heard.1);
    drop(tokio::spawn(async move {
        let mut tell = Some(tell);
        // How it ends is between the two; the requests say what of it matters.
        let _ = poll_fn(|cx| {
            let polled = Pin::new(&mut connection).poll(cx);
            // What came first were its settings, or no HTTP/2.
            if polled.is_pending()
                && has_heard.load(Ordering::Relaxed)
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(());
            }
            polled
        })
        .await;
        of_task.is_over.store(true, Ordering::Relaxed);
    }));
    match timeout(SETTLES, settled).await {
        Ok(Err(_)) => Err(Unconnected::Endpoint),
        Ok(Ok(())) | Err(_) => Ok(Arc::new(Connection { sender, state, _profile: profile })),
    }
}
