//! A front on loopback, with a server on a unix socket behind it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use certificate::Pair;
use front::proxy::Header;
use front::{Config, Counters, Event, Host, Listener, Shutdown, run_counted};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Front {
    pub(crate) config: watch::Sender<Arc<Config>>,
    pub(crate) shutdown: watch::Sender<Shutdown>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// Of the first listener.
    pub(crate) address: SocketAddr,
}

impl Front {
    /// Waits until the first listener is open.
    pub(crate) async fn start(config: Config, upstream: PathBuf) -> Self {
        let mut front = Self::start_unopened(config, upstream);
        match front.event().await {
            Event::Listening { address, .. } => front.address = loopback(address),
            other => panic!("{other:?}"),
        }
        front
    }

    pub(crate) fn start_unopened(config: Config, upstream: PathBuf) -> Self {
        let (config, configs) = watch::channel(Arc::new(config));
        let (shutdown, shutdowns) = watch::channel(Shutdown::Run);
        let (tell, events) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let report = move |event| {
            let _ = tell.send(event);
        };
        let task =
            tokio::spawn(run_counted(configs, upstream, None, report, shutdowns, Arc::clone(&counters)));
        Self { config, shutdown, counters, task, events, address: (Ipv4Addr::LOCALHOST, 0).into() }
    }

    pub(crate) async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("an event").expect("a front")
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Counters) -> bool) {
        let waited = timeout(PATIENCE, async {
            while !condition(&self.counters) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(waited.await.is_ok(), "{what}: {:?}", self.counters);
    }
}

/// Where to reach a socket that listens on all addresses.
pub(crate) fn loopback(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() { (Ipv4Addr::LOCALHOST, address.port()).into() } else { address }
}

pub(crate) fn listener(hosts: Vec<Host>) -> Listener {
    Listener { socket: "https-443".to_owned(), address: None, port: 0, hosts }
}

pub(crate) fn host(name: &str, certificates: &[&Arc<Pair>]) -> Host {
    Host::terminate(hostname(name), certificates.iter().map(|pair| Arc::clone(pair)).collect())
}

pub(crate) fn hostname(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

pub(crate) fn config(hosts: Vec<Host>) -> Config {
    Config { listeners: vec![listener(hosts)], ..Config::default() }
}

/// Takes PROXY v2, tells of it, and then echoes until the end.
pub(crate) struct Upstream {
    pub(crate) directory: TempDir,
    pub(crate) headers: mpsc::UnboundedReceiver<Header>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let headers = echo(&directory.path().join("https.sock"));
        Self { directory, headers }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("https.sock")
    }

    pub(crate) async fn header(&mut self) -> Header {
        timeout(PATIENCE, self.headers.recv()).await.expect("a header").expect("an upstream")
    }
}

pub(crate) fn echo(path: &Path) -> mpsc::UnboundedReceiver<Header> {
    let listener = UnixListener::bind(path).unwrap();
    let (tell, headers) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let (header, rest) = take_header(&mut stream).await;
                let _ = tell.send(header);
                stream.write_all(&rest).await.unwrap();
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    headers
}

pub(crate) async fn take_header(stream: &mut UnixStream) -> (Header, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        if let Some((header, length)) = Header::decode(&bytes).unwrap() {
            return (header, bytes.split_off(length));
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "the end before PROXY v2");
    }
}
