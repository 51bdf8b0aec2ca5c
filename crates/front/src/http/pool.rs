//! Connections to origins, kept by each thread for itself: no lock, and no wake-up of another thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::body::{ClientBody, Progress};
use crate::BackendSide;
use crate::backend::{self, Ready};

/// The sending half of a connection.
pub(crate) type Sender = SendRequest<ClientBody>;

/// A connection that is idle for longer is closed. Most origins wait for at least a minute.
const IDLE: Duration = Duration::from_secs(55);
const NEARLY_READY: Duration = Duration::from_millis(50);
const SWEEP: Duration = Duration::from_secs(5);
/// Idle connections to one endpoint, for each thread.
const MOST_IDLE: usize = 512;

/// Too many open files, of the machine and of this process. Linux's numbers.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
/// Until it is tried again.
const SCARCE: Duration = Duration::from_millis(20);

/// The most that the head of an answer may have.
const HEAD_BYTES: usize = 128 << 10;
const HEADERS: usize = 256;

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
struct Idle {
    sender: Sender,
    since: Instant,
    _profile: Option<Arc<Ready>>,
}

#[derive(Debug, Default)]
struct Pool {
    idle: HashMap<Key, Vec<Idle>, RandomState>,
    is_swept: bool,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// A connection that carries a request. It goes back to where it is kept once the answer is whole.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) sender: Sender,
    home: Home,
    /// Of the request's body, if it has one.
    upload: Option<Arc<Progress>>,
}

#[derive(Debug)]
enum Home {
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
        Self { sender, home: Home::Thread(key, profile), upload }
    }

    pub(crate) fn of_nothing(sender: Sender) -> Self {
        Self { sender, home: Home::Nowhere, upload: None }
    }

    pub(crate) fn give_back(self) {
        let Self { sender, home, upload } = self;
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
    loop {
        let mut sender =
            POOL.try_with(|pool| Some(pool.borrow_mut().idle.get_mut(key)?.pop()?.sender)).ok().flatten()?;
        if is_usable(&mut sender).await {
            return Some(sender);
        }
    }
}

/// A connection that was given back a moment ago may not be ready yet.
async fn is_usable(sender: &mut Sender) -> bool {
    !sender.is_closed()
        && (sender.is_ready() || timeout(NEARLY_READY, sender.ready()).await.is_ok_and(|ready| ready.is_ok()))
}

fn keep(key: Key, profile: Option<Arc<Ready>>, sender: Sender) {
    let begin = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let idle = pool.idle.entry(key).or_default();
        if idle.len() < MOST_IDLE {
            idle.push(Idle { sender, since: Instant::now(), _profile: profile });
        }
        !std::mem::replace(&mut pool.is_swept, true)
    });
    if begin == Ok(true) {
        drop(tokio::spawn(sweep()));
    }
}

/// Closes what is idle for too long, as long as there is anything.
async fn sweep() {
    loop {
        sleep(SWEEP).await;
        let is_empty = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            pool.idle.retain(|_, idle| {
                idle.retain(|one| one.since.elapsed() < IDLE && !one.sender.is_closed());
                !idle.is_empty()
            });
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

/// A new connection to an endpoint, verified by the profile if there is one.
pub(crate) async fn connect(
    endpoint: SocketAddr,
    profile: Option<(&str, &Arc<Ready>)>,
    side: &BackendSide,
    patience: Duration,
) -> Option<Sender> {
    match profile {
        None => {
            let stream = match timeout(patience, reach(endpoint)).await.ok()?? {
                Reached::New(stream) => stream,
                Reached::Kept(sender) => return Some(sender),
            };
            let _ = stream.set_nodelay(true);
            open(stream).await
        }
        Some((name, ready)) => match backend::reach(endpoint, ready).await {
            Ok(stream) => {
                side.greeted(name, endpoint, stream.get_ref().1);
                open(stream).await
            }
            Err((reason, why)) => {
                side.ill(name.to_owned(), endpoint, reason, why);
                None
            }
        },
    }
}

enum Reached {
    New(TcpStream),
    /// Another request has given it back.
    Kept(Sender),
}

/// Without file descriptors a request waits for a connection that another one gives back, or closes.
async fn reach(endpoint: SocketAddr) -> Option<Reached> {
    loop {
        match TcpStream::connect(endpoint).await {
            Ok(stream) => return Some(Reached::New(stream)),
            Err(why) if matches!(why.raw_os_error(), Some(ENFILE | EMFILE)) => {
                if let Some(sender) = take(&Key::new(endpoint, None)).await {
                    return Some(Reached::Kept(sender));
                }
                sleep(SCARCE).await;
            }
            Err(_) => return None,
        }
    }
}

/// Speaks HTTP/1.1 on a stream, in a task of this thread.
async fn open<S>(stream: S) -> Option<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder.max_headers(HEADERS).max_header_size(HEAD_BYTES);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
    drop(tokio::spawn(async move {
        // How it ends is between the two; the request says what of it matters.
        let _ = connection.with_upgrades().await;
    }));
    Some(sender)
}
