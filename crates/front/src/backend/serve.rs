//! The unix socket for backends, and the connections that varnishd's threads make to it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use router::random;
use rustls::{CertificateError, ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::counters::{BackendCounters, BackendFailure};
use super::profile::{HTTP2, Profiles, Ready};
use crate::answering::Answering;
use crate::http::{dial, is_exhausted, misses};
use crate::reported::Reported;
use crate::{Http, Shutdown, lanes, proxy, relay};

/// From varnishd's connection to its PROXY header, which varnishd sends at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For varnishd to read that a backend was not reached.
const PARTING: Duration = Duration::from_secs(1);
/// What the reason of a 502 begins with where a backend was not reached or not verified: for people who read the log.
const REFUSED: &str = "Backend TLS: ";
/// The header that carries the proof: `model::names::FRONT_HEADER`.
const FRONT_HEADER: &str = "X-Ghost-Front";
const PAUSE: Duration = Duration::from_millis(500);
const EARLY_PAUSE: Duration = Duration::from_millis(10);
const MOST_EARLY: usize = 100;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The user that varnishd's manager, run as root, runs its child as.
const VARNISH_USERS: [&str; 2] = ["vcache", "varnish"];

/// Events to log or report.
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
    /// The profile is not used until it is corrected.
    BadProfile {
        profile: String,
        why: String,
    },
    /// Reported once, until the endpoint recovers or fails for another reason.
    Failed {
        profile: String,
        endpoint: SocketAddr,
        reason: BackendFailure,
        why: String,
    },
    /// An endpoint of the direct way gets no requests for now. Reported once, until it recovers.
    Avoided {
        /// `namespace/name:port`
        service: String,
        endpoint: SocketAddr,
        time: Duration,
        why: &'static str,
    },
}

type Table = HashMap<String, Arc<Ready>>;

/// By profile and endpoint: the endpoints of the same Service, any of which may answer for it.
pub type Peers = HashMap<(String, SocketAddr), Arc<[SocketAddr]>>;

/// Shared state of backends with TLS, for all tasks that connect to them.
pub struct BackendSide {
    profiles: ArcSwap<Table>,
    counters: Arc<BackendCounters>,
    reporter: Box<dyn Fn(BackendEvent) + Send + Sync>,
    /// What was last reported of each endpoint.
    reported: Reported<(String, SocketAddr)>,
}

impl fmt::Debug for BackendSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendSide").finish_non_exhaustive()
    }
}

struct Shared {
    side: Arc<BackendSide>,
    peers: watch::Receiver<Arc<Peers>>,
    proof: Arc<str>,
    /// For requests to groups.
    http: Option<Arc<Http>>,
    shutdown: watch::Receiver<Shutdown>,
    _alive: mpsc::Sender<Infallible>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Serves varnishd on `socket` until `shutdown` says otherwise. `proof` marks our own answers: ghost has it, and no origin. Without `http`
/// there are no connections for groups.
pub async fn run_backends(
    mut profiles: watch::Receiver<Arc<Profiles>>,
    peers: watch::Receiver<Arc<Peers>>,
    socket: PathBuf,
    side: Arc<BackendSide>,
    mut shutdown: watch::Receiver<Shutdown>,
    (proof, http): (Arc<str>, Option<Arc<Http>>),
) {
    let (alive, mut all_gone) = mpsc::channel(1);
    let shared = Arc::new(Shared { side, peers, proof, http, shutdown: shutdown.clone(), _alive: alive });
    // Before the first connection, or it would find nothing.
    let first = Arc::clone(&profiles.borrow_and_update());
    shared.side.follow(first).await;
    let following = async {
        while profiles.changed().await.is_ok() {
            let wanted = Arc::clone(&profiles.borrow_and_update());
            shared.side.follow(wanted).await;
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

async fn listen(shared: &Arc<Shared>, socket: &Path) {
    let mut early = 0;
    let (listener, admitted) = loop {
        match bind(socket) {
            Ok(bound) => break bound,
            // Its directory is made when varnishd is started, and the first miss comes soon after.
            Err(e) if e.kind() == io::ErrorKind::NotFound && early < MOST_EARLY => {
                early += 1;
                sleep(EARLY_PAUSE).await;
                continue;
            }
            Err(e) => {
                (shared.side.reporter)(BackendEvent::CannotListen {
                    path: socket.to_owned(),
                    why: e.to_string(),
                });
            }
        }
        sleep(PAUSE).await;
    };
    (shared.side.reporter)(BackendEvent::Listening { path: socket.to_owned() });
    loop {
        match listener.accept().await {
            Ok((stream, _)) if admitted.includes(&stream) => {
                let (Ok(stream), shared) = (stream.into_std(), Arc::clone(shared)) else { continue };
                lanes::spawn(async move {
                    if let Ok(stream) = UnixStream::from_std(stream) {
                        serve(stream, shared).await;
                    }
                });
            }
            Ok(_) => shared.side.counters.failed(BackendFailure::NotProxy),
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// varnishd may run as another user: the file is open to all, and each peer is checked.
fn bind(socket: &Path) -> io::Result<(UnixListener, Admitted)> {
    if let Err(e) = std::fs::remove_file(socket)
        && e.kind() != io::ErrorKind::NotFound
    {
        return Err(e);
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    // A socket that we create is owned by our own user.
    Ok((listener, Admitted::new(std::fs::metadata(socket)?.uid())))
}

/// Who may use our names and certificates: we, and where we are root the users that varnishd drops to.
struct Admitted(Vec<u32>);

impl Admitted {
    fn new(own: u32) -> Self {
        let mut users = vec![own];
        if own == 0 {
            let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            users.extend(known.lines().filter_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next().filter(|name| VARNISH_USERS.contains(name));
                name.and_then(|_| fields.nth(1)?.parse::<u32>().ok())
            }));
        }
        Self(users)
    }

    fn includes(&self, stream: &UnixStream) -> bool {
        stream.peer_cred().is_ok_and(|peer| self.0.contains(&peer.uid()))
    }
}

async fn serve(stream: UnixStream, shared: Arc<Shared>) {
    shared.side.counters.open.fetch_add(1, Ordering::Relaxed);
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
    shared.side.counters.open.fetch_sub(1, Ordering::Relaxed);
}

async fn exchange(mut stream: UnixStream, shared: &Shared) {
    let counters = &shared.side.counters;
    let (endpoint, profile) = match timeout(HEADER_TIMEOUT, destination(&mut stream)).await {
        Ok(Ok(Destination::Endpoint(endpoint, profile))) => (endpoint, profile),
        Ok(Ok(Destination::Group(group))) => {
            let Some(http) = &shared.http else { return counters.failed(BackendFailure::NotProxy) };
            return Box::pin(misses::serve(stream, http, &group, &shared.proof)).await;
        }
        Ok(Err(_)) | Err(_) => return counters.failed(BackendFailure::NotProxy),
    };
    let ready = shared.side.profile(&profile);
    let reached = match ready {
        None => (endpoint, Err((BackendFailure::UnknownProfile, "the profile is not known".to_owned()))),
        // Boxed, so that its memory is given back for the long time that follows.
        Some(ready) => match Box::pin(reach(endpoint, &ready)).await {
            Err(failed) => Box::pin(reach_peer(&profile, endpoint, &ready, failed, shared)).await,
            reached => (endpoint, reached),
        },
    };
    let (endpoint, (reason, why)) = match reached {
        (endpoint, Ok(backend)) => {
            let resumed = backend.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            let mut backend = Answering::new(backend, || {
                shared.side.well(&profile, endpoint);
                counters.greeted(resumed);
            });
            let (up, down) = (&counters.to_backends, &counters.from_backends);
            let ended = relay::relay(&mut stream, &mut backend, up, down).await;
            let Some(why) = backend.refused(&ended) else { return };
            (endpoint, (BackendFailure::Refused, why))
        }
        (endpoint, Err(failed)) => (endpoint, failed),
    };
    shared.side.ill(profile, endpoint, reason, why);
    refuse(stream, reason, &shared.proof).await;
}

/// Not a byte was sent: another endpoint of the Service may do, for every request. varnishd has given its body away already, and
/// could not ask again.
async fn reach_peer(
    profile: &str,
    endpoint: SocketAddr,
    ready: &Ready,
    failed: Failed,
    shared: &Shared,
) -> (SocketAddr, Result<TlsStream<TcpStream>, Failed>) {
    let peers = shared.peers.borrow().get(&(profile.to_owned(), endpoint)).cloned();
    let others: Vec<SocketAddr> =
        peers.iter().flat_map(|all| all.iter()).filter(|one| **one != endpoint).copied().collect();
    let at = random::below(others.len() as u64, random::next()) as usize;
    let Some(other) = others.get(at).copied() else { return (endpoint, Err(failed)) };
    shared.side.ill(profile.to_owned(), endpoint, failed.0, failed.1);
    (other, reach(other, ready).await)
}

/// Reports the reason to varnishd as an HTTP response. By the proof ghost knows that no origin made this response: the backend was
/// sent nothing, and ghost may try another.
async fn refuse(mut stream: UnixStream, reason: BackendFailure, proof: &str) {
    let answer = format!(
        "HTTP/1.1 502 {REFUSED}{}\r\n{FRONT_HEADER}: {proof}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        reason.name()
    );
    if stream.write_all(answer.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    // Bytes that varnishd still sends are discarded: closing before they are read would look like a failure.
    let mut rest = vec![0; 4096];
    let drained = async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} };
    let _ = timeout(PARTING, drained).await;
}

impl BackendSide {
    pub fn new(
        reporter: impl Fn(BackendEvent) + Send + Sync + 'static,
        counters: Arc<BackendCounters>,
    ) -> Arc<Self> {
        Arc::new(Self {
            profiles: ArcSwap::from_pointee(Table::new()),
            counters,
            reporter: Box::new(reporter),
            reported: Reported::default(),
        })
    }

    /// Profiles that did not change keep their sessions.
    async fn follow(&self, wanted: Arc<Profiles>) {
        let old = self.profiles.load_full();
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
        self.profiles.store(Arc::new(table));
        self.reported.clear();
        for event in bad {
            (self.reporter)(event);
        }
    }

    pub(crate) fn profile(&self, name: &str) -> Option<Arc<Ready>> {
        self.profiles.load().get(name).cloned()
    }

    /// A handshake has succeeded.
    pub(crate) fn greeted(&self, profile: &str, endpoint: SocketAddr, tls: &rustls::ClientConnection) {
        self.counters.greeted(tls.handshake_kind() == Some(HandshakeKind::Resumed));
        self.well(profile, endpoint);
    }

    pub(crate) fn report(&self, event: BackendEvent) {
        (self.reporter)(event);
    }

    pub(crate) fn well(&self, profile: &str, endpoint: SocketAddr) {
        self.reported.works(|| [(profile.to_owned(), endpoint)]);
    }

    pub(crate) fn ill(&self, profile: String, endpoint: SocketAddr, reason: BackendFailure, why: String) {
        self.counters.failed(reason);
        if self.reported.is_news((profile.clone(), endpoint), &why) {
            (self.reporter)(BackendEvent::Failed { profile, endpoint, reason, why });
        }
    }
}

/// What a connection of varnishd is for.
enum Destination {
    /// All bytes go to this endpoint, which is verified by this profile.
    Endpoint(SocketAddr, String),
    /// Requests go to this group: `model::MissFor`.
    Group(String),
}

/// Not a byte more is read than the header.
async fn destination(stream: &mut UnixStream) -> io::Result<Destination> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut bytes = vec![0; proxy::FIXED];
    stream.read_exact(&mut bytes).await?;
    let Ok(Some(length)) = proxy::length(&bytes) else { return Err(invalid("no PROXY v2")) };
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[proxy::FIXED..]).await?;
    match proxy::Header::decode(&bytes) {
        Ok(Some((proxy::Header { addresses: Some((_, endpoint)), authority: Some(profile), .. }, _))) => {
            Ok(Destination::Endpoint(endpoint, profile))
        }
        Ok(Some((proxy::Header { addresses: None, authority: Some(group), .. }, _))) => {
            Ok(Destination::Group(group))
        }
        _ => Err(invalid("no endpoint or no profile")),
    }
}

type Failed = (BackendFailure, String);

/// Reaches a backend that speaks HTTP/2. One that does not say so by ALPN is sent nothing.
pub(crate) async fn reach_http2(endpoint: SocketAddr, ready: &Ready) -> Result<TlsStream<TcpStream>, Failed> {
    let stream = reach_by(endpoint, ready, &ready.http2).await?;
    if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
        return Ok(stream);
    }
    Err((BackendFailure::Incompatible, "it does not speak HTTP/2: it does not select h2 by ALPN".to_owned()))
}

pub(crate) async fn reach(endpoint: SocketAddr, ready: &Ready) -> Result<TlsStream<TcpStream>, Failed> {
    reach_by(endpoint, ready, &ready.config).await
}

async fn reach_by(
    endpoint: SocketAddr,
    ready: &Ready,
    config: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Failed> {
    let patience = ready.of.connect_timeout;
    let stream = match timeout(patience, dial(endpoint)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) if is_exhausted(&e) => return Err((BackendFailure::Exhausted, e.to_string())),
        Ok(Err(e)) => return Err((BackendFailure::Unreachable, e.to_string())),
        Err(_) => return Err((BackendFailure::Unreachable, format!("no connection in {patience:?}"))),
    };
    let connector = TlsConnector::from(Arc::clone(config));
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
