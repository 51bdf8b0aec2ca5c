//! Connections to origins, kept by each thread for itself: no lock, and no wake-up of another thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::body::{ClientBody, Progress};
use super::multiplexed::{self, Ticket};
use super::wire::{Ear, Wire};
use crate::backend::{self, Ready};
use crate::{BackendFailure, BackendSide, lanes};

/// A connection that is idle for longer is closed. Most origins wait for at least a minute.
const IDLE: Duration = Duration::from_secs(55);
const NEARLY_READY: Duration = Duration::from_millis(50);
const SWEEP: Duration = Duration::from_secs(5);
/// Idle connections to one endpoint, for each thread.
const MOST_IDLE: usize = 512;
/// Idle connections of one thread, where the process may have few file descriptors.
const FEWEST_IDLE: usize = 32;

/// The most that the head of an answer may have.
const HEAD_BYTES: usize = 128 << 10;
const HEADERS: usize = 256;

/// How often a connection is tried while file descriptors become free, and the pause before each.
const ROUNDS: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// Requests that wait for a file descriptor.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Wakes every thread with idle connections: they are to be closed.
static RELIEF: Notify = Notify::const_new();

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    half: SendRequest<ClientBody>,
    ear: Arc<Ear>,
}

impl Sender {
    pub(crate) fn is_closed(&self) -> bool {
        self.half.is_closed()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.half.is_ready()
    }

    pub(crate) async fn ready(&mut self) -> hyper::Result<()> {
        self.half.ready().await
    }

    pub(crate) fn try_send_request(
        &mut self,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<ClientBody>>>> + use<> {
        self.ear.begin();
        self.half.try_send_request(request)
    }

    /// The other side has said something since the last request began.
    pub(crate) fn has_heard(&self) -> bool {
        self.ear.has_heard()
    }
}

/// Connections for one endpoint, verified by one profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    endpoint: SocketAddr,
    /// The profile's place in memory, where there is one. It stays as long as a connection holds the profile.
    profile: usize,
}

impl Key {
    pub(crate) fn new(endpoint: SocketAddr, profile: Option<&Arc<Ready>>) -> Self {
        Self { endpoint, profile: profile.map_or(0, |ready| Arc::as_ptr(ready).addr()) }
    }
}

#[derive(Debug)]
struct Idle<C> {
    connection: C,
    since: Instant,
    _profile: Option<Arc<Ready>>,
}

/// Idle connections to one endpoint: those that hyper reads from, and those that no task reads from ([`super::plain`]).
#[derive(Debug, Default)]
struct OfEndpoint {
    hyper: Vec<Idle<Sender>>,
    plain: Vec<Idle<Plain>>,
}

#[derive(Debug)]
struct Plain {
    stream: TcpStream,
    /// Some origins send a body after HEAD, 204 and 304. It would be the answer to the next request.
    is_bodiless: bool,
}

#[derive(Debug, Default)]
struct Pool {
    idle: HashMap<Key, OfEndpoint, RandomState>,
    /// How many there are.
    count: usize,
    is_swept: bool,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// What a request has of a connection, until its answer is over.
#[derive(Debug)]
pub(crate) enum Lease {
    /// All of it. It goes back to where it is kept once the answer is whole.
    Connection {
        sender: Sender,
        home: Home,
        /// Of the request's body, if it has one.
        upload: Option<Arc<Progress>>,
    },
    /// A stream of HTTP/2.
    Stream { _ticket: Ticket },
    /// The body has the connection.
    Body,
}

#[derive(Debug)]
pub(crate) enum Home {
    Thread(Key, Option<Arc<Ready>>),
    /// It carried a request that shares no connection with others.
    Nowhere,
}

impl Lease {
    pub(crate) fn of_thread(
        sender: Sender,
        key: Key,
        profile: Option<Arc<Ready>>,
        upload: Option<Arc<Progress>>,
    ) -> Self {
        Self::Connection { sender, home: Home::Thread(key, profile), upload }
    }

    pub(crate) fn of_nothing(sender: Sender) -> Self {
        Self::Connection { sender, home: Home::Nowhere, upload: None }
    }

    pub(crate) fn give_back(self) {
        let Self::Connection { sender, home, upload } = self else { return };
        // An answer may come before the upload has ended: the next request would wait for it.
        if sender.is_closed() || upload.is_some_and(|upload| !upload.is_done()) {
            return;
        }
        match home {
            Home::Thread(key, profile) => keep(key, profile, sender),
            Home::Nowhere => {}
        }
    }
}

/// A connection that is there already.
pub(crate) async fn take(key: &Key) -> Option<Sender> {
    while let Some(mut sender) = taken(|pool| pool.take(key, |idle| &mut idle.hyper)) {
        if is_usable(&mut sender).await {
            return Some(sender);
        }
    }
    open(take_plain(key)?).await
}

/// A connection for one exchange without hyper.
pub(crate) fn take_plain(key: &Key) -> Option<TcpStream> {
    loop {
        let plain = taken(|pool| pool.take(key, |idle| &mut idle.plain))?;
        if plain.is_quiet() {
            return Some(plain.stream);
        }
    }
}

fn taken<C>(take: impl FnOnce(&mut Pool) -> Option<C>) -> Option<C> {
    POOL.try_with(|pool| take(&mut pool.borrow_mut())).ok().flatten()
}

impl Plain {
    /// Nothing is there to be read: neither an end nor bytes of no answer. The reactor knows, as of its last turn. Where bytes are likely,
    /// the kernel is asked.
    fn is_quiet(&self) -> bool {
        let is_none =
            |read: io::Result<usize>| read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        is_none(self.stream.try_read(&mut [0; 1]))
            && (!self.is_bodiless
                || is_none(socket2::SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()])))
    }
}

/// A connection that was given back a moment ago may not be ready yet.
async fn is_usable(sender: &mut Sender) -> bool {
    !sender.is_closed()
        && (sender.is_ready() || timeout(NEARLY_READY, sender.ready()).await.is_ok_and(|ready| ready.is_ok()))
}

impl Pool {
    fn take<C>(&mut self, key: &Key, of: impl Fn(&mut OfEndpoint) -> &mut Vec<Idle<C>>) -> Option<C> {
        let idle = of(self.idle.get_mut(key)?).pop()?;
        self.count -= 1;
        Some(idle.connection)
    }

    fn keep<C>(&mut self, key: Key, idle: Idle<C>, of: impl Fn(&mut OfEndpoint) -> &mut Vec<Idle<C>>) {
        if self.count >= most_idle() {
            return;
        }
        let of_endpoint = of(self.idle.entry(key).or_default());
        if of_endpoint.len() < MOST_IDLE {
            of_endpoint.push(idle);
            self.count += 1;
        }
    }

    /// Closes those that are idle since before then, and what the other side has closed.
    fn retain(&mut self, since: Option<Instant>) {
        let stays = |idle: Instant| since.is_some_and(|since| idle >= since);
        self.idle.retain(|_, idle| {
            idle.hyper.retain(|one| stays(one.since) && !one.connection.is_closed());
            idle.plain.retain(|one| stays(one.since) && one.connection.is_quiet());
            !idle.hyper.is_empty() || !idle.plain.is_empty()
        });
        self.count = self.idle.values().map(|idle| idle.hyper.len() + idle.plain.len()).sum();
    }
}

/// Idle connections that one thread may keep: together, half of the file descriptors of the process.
fn most_idle() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        (limit / 2 / lanes::count()).max(FEWEST_IDLE)
    })
}

/// Closes idle connections of all threads: the process needs their file descriptors.
fn relieve() {
    let _ = POOL.try_with(|pool| pool.borrow_mut().retain(None));
    multiplexed::relieve();
    RELIEF.notify_waiters();
}

/// Returns when idle connections are to be closed.
pub(crate) async fn relief() {
    RELIEF.notified().await;
}

fn keep(key: Key, profile: Option<Arc<Ready>>, sender: Sender) {
    let idle = Idle { connection: sender, since: Instant::now(), _profile: profile };
    kept(|pool| pool.keep(key, idle, |of| &mut of.hyper));
}

/// For the next exchange of this thread.
pub(crate) fn keep_plain(key: Key, stream: TcpStream, is_bodiless: bool) {
    let idle = Idle { connection: Plain { stream, is_bodiless }, since: Instant::now(), _profile: None };
    kept(|pool| pool.keep(key, idle, |of| &mut of.plain));
}

fn kept(keep: impl FnOnce(&mut Pool)) {
    let begin = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        keep(&mut pool);
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
            () = RELIEF.notified() => true,
            () = sleep(SWEEP) => false,
        };
        let is_empty = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            pool.retain(Instant::now().checked_sub(IDLE).filter(|_| !is_needed));
            if pool.idle.is_empty() {
                pool.is_swept = false;
            }
            pool.idle.is_empty()
        });
        if is_empty != Ok(false) {
            return;
        }
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unconnected {
    /// The endpoint does not take it, or could not be verified.
    Endpoint,
    /// This process has no file descriptor left: no fault of the endpoint.
    Exhausted,
    /// It has no address or port to reach this endpoint from. Others may be reached.
    NoPort,
}

impl From<&io::Error> for Unconnected {
    fn from(error: &io::Error) -> Self {
        match error {
            error if is_exhausted(error) => Self::Exhausted,
            error if error.kind() == io::ErrorKind::AddrNotAvailable => Self::NoPort,
            _ => Self::Endpoint,
        }
    }
}

/// No file descriptor or memory for a socket (ENFILE, EMFILE, ENOMEM, ENOBUFS).
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24 | 12 | 105))
}

/// A TCP connection. Idle connections are closed first where the process has no file descriptor left.
pub(crate) async fn dial(endpoint: SocketAddr) -> io::Result<TcpStream> {
    let mut rounds = 1;
    let mut waits = None;
    let stream = loop {
        match TcpStream::connect(endpoint).await {
            Err(e) if is_exhausted(&e) && rounds < ROUNDS => {
                rounds += 1;
                waits.get_or_insert_with(Waits::begin);
                relieve();
                sleep(PAUSE).await;
            }
            result => break result?,
        }
    };
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A new connection to an endpoint, verified by the profile if there is one; or, true, one that was kept after all.
pub(crate) async fn connect(
    endpoint: SocketAddr,
    profile: Option<(&str, &Arc<Ready>)>,
    side: &BackendSide,
    patience: Duration,
) -> Result<(Sender, bool), Unconnected> {
    let opened = match profile {
        None => {
            let key = Key::new(endpoint, None);
            match timeout(patience, reach(endpoint, patience, || take(&key))).await {
                Ok(Ok(Reached::New(stream))) => open(stream).await,
                Ok(Ok(Reached::Kept(sender))) => return Ok((sender, true)),
                Ok(Err(e)) => return Err(Unconnected::from(&e)),
                Err(_) => None,
            }
        }
        Some((name, ready)) => match backend::reach(endpoint, ready).await {
            Ok(stream) => {
                side.greeted(name, endpoint, stream.get_ref().1);
                open(stream).await
            }
            Err((reason, why)) => {
                side.ill(name.to_owned(), endpoint, reason, why);
                if reason == BackendFailure::Exhausted {
                    return Err(Unconnected::Exhausted);
                }
                None
            }
        },
    };
    opened.map(|sender| (sender, false)).ok_or(Unconnected::Endpoint)
}

/// A new connection for exchanges without hyper; or, true, one that was kept after all.
pub(crate) async fn connect_plain(key: Key, patience: Duration) -> Result<(TcpStream, bool), Unconnected> {
    match timeout(patience, reach(key.endpoint, patience, || ready(take_plain(&key)))).await {
        Ok(Ok(Reached::New(stream))) => Ok((stream, false)),
        Ok(Ok(Reached::Kept(stream))) => Ok((stream, true)),
        Ok(Err(e)) => Err(Unconnected::from(&e)),
        Err(_) => Err(Unconnected::Endpoint),
    }
}

enum Reached<C> {
    New(TcpStream),
    /// Another request has given it back.
    Kept(C),
}

/// Without file descriptors a request waits for a connection that another one gives back, or closes.
async fn reach<C, F>(endpoint: SocketAddr, patience: Duration, kept: impl Fn() -> F) -> io::Result<Reached<C>>
where
    F: Future<Output = Option<C>>,
{
    let began = Instant::now();
    let mut waits = None;
    loop {
        match TcpStream::connect(endpoint).await {
            Err(e) if is_exhausted(&e) && began.elapsed() < patience / 2 => {
                waits.get_or_insert_with(Waits::begin);
                // Before idle connections are closed: this one need not be opened again.
                if let Some(connection) = kept().await {
                    return Ok(Reached::Kept(connection));
                }
                relieve();
                sleep(PAUSE).await;
            }
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(Reached::New(stream));
            }
            Err(e) => return Err(e),
        }
    }
}

/// A request of a client that is served already needs a file descriptor.
struct Waits;

impl Waits {
    fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// New clients wait while requests of others wait for a file descriptor: clients that are served go on.
pub(crate) async fn served_first() {
    while WAITING.load(Ordering::Relaxed) > 0 {
        sleep(PAUSE).await;
    }
}

/// Speaks HTTP/1.1 on a stream, in a task of this thread.
async fn open<S>(stream: S) -> Option<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder.max_headers(HEADERS).max_header_size(HEAD_BYTES);
    let (wire, ear) = Wire::new(stream);
    let (half, connection) = builder.handshake(TokioIo::new(wire)).await.ok()?;
    drop(tokio::spawn(async move {
        // How it ends is between the two; the request says what of it matters.
        let _ = connection.with_upgrades().await;
    }));
    Some(Sender { half, ear })
}
