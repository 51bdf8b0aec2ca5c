//! The unix socket, and whoever of varnishd's threads comes to it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::{CertificateError, HandshakeKind};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::counters::{BackendCounters, BackendFailure};
use super::profile::{Profiles, Ready};
use crate::{Shutdown, proxy, relay};

/// From varnishd's connection to its PROXY header, which varnishd sends at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a person wants to know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendEvent {
    Listening {
        path: PathBuf,
    },
    /// Tried again until it works.
    CannotListen {
        path: PathBuf,
        why: String,
    },
    /// The profile is not used until it is mended.
    BadProfile {
        profile: String,
        why: String,
    },
    /// Told once, until the endpoint is well again or fails for another reason.
    Failed {
        profile: String,
        endpoint: SocketAddr,
        reason: BackendFailure,
        why: String,
    },
}

type Table = HashMap<String, Arc<Ready>>;

struct Shared {
    profiles: ArcSwap<Table>,
    counters: Arc<BackendCounters>,
    reporter: Box<dyn Fn(BackendEvent) + Send + Sync>,
    /// What was last told of each endpoint.
    told: Mutex<HashMap<(String, SocketAddr), String>>,
    shutdown: watch::Receiver<Shutdown>,
    _alive: mpsc::Sender<Infallible>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Serves varnishd on `socket` until `shutdown` says otherwise.
pub async fn run_backends(
    mut profiles: watch::Receiver<Arc<Profiles>>,
    socket: PathBuf,
    reporter: impl Fn(BackendEvent) + Send + Sync + 'static,
    mut shutdown: watch::Receiver<Shutdown>,
    counters: Arc<BackendCounters>,
) {
    let (alive, mut all_gone) = mpsc::channel(1);
    let shared = Arc::new(Shared {
        profiles: ArcSwap::from_pointee(Table::new()),
        counters,
        reporter: Box::new(reporter),
        told: Mutex::new(HashMap::new()),
        shutdown: shutdown.clone(),
        _alive: alive,
    });
    // Before the first connection, or it would find nothing.
    let first = Arc::clone(&profiles.borrow_and_update());
    follow(&shared, first).await;
    let following = async {
        while profiles.changed().await.is_ok() {
            let wanted = Arc::clone(&profiles.borrow_and_update());
            follow(&shared, wanted).await;
        }
        pending::<()>().await;
    };
    let end = async { drop(shutdown.wait_for(|asked| *asked > Shutdown::Run).await) };
    tokio::select! {
        () = end => {}
        () = following => {}
        () = listen(&shared, &socket) => {}
    }
    let _ = std::fs::remove_file(&socket);
    drop(shared);
    while all_gone.recv().await.is_some() {}
}

/// Profiles that did not change keep their sessions.
async fn follow(shared: &Arc<Shared>, wanted: Arc<Profiles>) {
    let old = shared.profiles.load_full();
    // The system's CAs are read from files.
    let made = tokio::task::spawn_blocking(move || {
        let mut table = Table::new();
        let mut bad = Vec::new();
        for (name, profile) in wanted.iter() {
            let ready = match old.get(name) {
                Some(ready) if ready.of == *profile => Ok(Arc::clone(ready)),
                _ => Ready::new(profile).map(Arc::new),
            };
            match ready {
                Ok(ready) => {
                    table.insert(name.clone(), ready);
                }
                Err(why) => bad.push(BackendEvent::BadProfile { profile: name.clone(), why }),
            }
        }
        (table, bad)
    });
    let Ok((table, bad)) = made.await else { return };
    shared.profiles.store(Arc::new(table));
    if let Ok(mut told) = shared.told.lock() {
        told.clear();
    }
    for event in bad {
        (shared.reporter)(event);
    }
}

async fn listen(shared: &Arc<Shared>, socket: &Path) {
    let listener = loop {
        match bind(socket) {
            Ok(listener) => break listener,
            Err(e) => {
                (shared.reporter)(BackendEvent::CannotListen { path: socket.to_owned(), why: e.to_string() });
            }
        }
        sleep(PAUSE).await;
    };
    (shared.reporter)(BackendEvent::Listening { path: socket.to_owned() });
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve(stream, Arc::clone(shared)));
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// varnishd may run as another user; who may come here is decided by the directory.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    if let Err(e) = std::fs::remove_file(socket)
        && e.kind() != io::ErrorKind::NotFound
    {
        return Err(e);
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

async fn serve(stream: UnixStream, shared: Arc<Shared>) {
    shared.counters.open.fetch_add(1, Ordering::Relaxed);
    let mut shutdown = shared.shutdown.clone();
    let now = async {
        if shutdown.wait_for(|asked| *asked == Shutdown::Now).await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = now => {}
        () = exchange(stream, &shared) => {}
    }
    shared.counters.open.fetch_sub(1, Ordering::Relaxed);
}

async fn exchange(mut stream: UnixStream, shared: &Shared) {
    let counters = &shared.counters;
    let Ok(Ok((endpoint, profile))) = timeout(HEADER_TIMEOUT, destination(&mut stream)).await else {
        return counters.failed(BackendFailure::NotProxy);
    };
    let ready = shared.profiles.load().get(&profile).cloned();
    let reached = match ready {
        None => Err((BackendFailure::UnknownProfile, "the profile is not known".to_owned())),
        // Boxed, so that its memory is given back for the long time that follows.
        Some(ready) => Box::pin(reach(endpoint, &ready)).await,
    };
    match reached {
        Ok(mut backend) => {
            shared.well(profile, endpoint);
            counters.handshakes.fetch_add(1, Ordering::Relaxed);
            if backend.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
                counters.resumed.fetch_add(1, Ordering::Relaxed);
            }
            let _ =
                relay::relay(&mut stream, &mut backend, &counters.to_backends, &counters.from_backends).await;
        }
        Err((reason, why)) => shared.ill(profile, endpoint, reason, why),
    }
}

impl Shared {
    fn well(&self, profile: String, endpoint: SocketAddr) {
        if let Ok(mut told) = self.told.lock()
            && !told.is_empty()
        {
            told.remove(&(profile, endpoint));
        }
    }

    fn ill(&self, profile: String, endpoint: SocketAddr, reason: BackendFailure, why: String) {
        self.counters.failed(reason);
        let news = self.told.lock().is_ok_and(|mut told| {
            told.insert((profile.clone(), endpoint), why.clone()).is_none_or(|before| before != why)
        });
        if news {
            (self.reporter)(BackendEvent::Failed { profile, endpoint, reason, why });
        }
    }
}

/// Endpoint and profile; not a byte more is read.
async fn destination(stream: &mut UnixStream) -> io::Result<(SocketAddr, String)> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut bytes = vec![0; proxy::FIXED];
    stream.read_exact(&mut bytes).await?;
    let Ok(Some(length)) = proxy::length(&bytes) else { return Err(invalid("no PROXY v2")) };
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[proxy::FIXED..]).await?;
    match proxy::Header::decode(&bytes) {
        Ok(Some((proxy::Header { addresses: Some((_, endpoint)), authority: Some(profile), .. }, _))) => {
            Ok((endpoint, profile))
        }
        _ => Err(invalid("no endpoint or no profile")),
    }
}

type Failed = (BackendFailure, String);

async fn reach(endpoint: SocketAddr, ready: &Ready) -> Result<TlsStream<TcpStream>, Failed> {
    let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return Err((BackendFailure::Unreachable, e.to_string())),
        Err(_) => return Err((BackendFailure::Unreachable, format!("no connection in {CONNECT_TIMEOUT:?}"))),
    };
    let _ = stream.set_nodelay(true);
    let connector = TlsConnector::from(Arc::clone(&ready.config));
    match timeout(HANDSHAKE_TIMEOUT, connector.connect(ready.name.clone(), stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(e)) => Err(failure(&e)),
        Err(_) => Err((BackendFailure::Timeout, format!("no TLS handshake in {HANDSHAKE_TIMEOUT:?}"))),
    }
}

fn failure(error: &io::Error) -> Failed {
    let why = error.to_string();
    let reason = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        None => BackendFailure::Unreachable,
        Some(rustls::Error::InvalidCertificate(invalid)) => match invalid {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                BackendFailure::WrongName
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => BackendFailure::Expired,
            _ => BackendFailure::Untrusted,
        },
        Some(rustls::Error::AlertReceived(_)) => BackendFailure::Refused,
        Some(_) => BackendFailure::Incompatible,
    };
    (reason, why)
}
