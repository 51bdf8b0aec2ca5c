//! Follows the configuration: opens, changes and closes ports.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::accept::{Port, listen};
use crate::addresses::Addresses;
use crate::backends::Targets;
use crate::connection::{Service, Services};
use crate::gate::Gate;
use crate::hosts::Hosts;
use crate::stream::udp::{self, AllSessions};
use crate::stream::{Stream, Target, Transport};
use crate::terminate::Terminator;
use crate::trouble::Trouble;
use crate::{Action, Config, Counters, Event, Host, Http, Listener, ProxyProtocol, Shutdown, UdpListener};

/// Between two looks at hot objects.
const CLEANING: Duration = Duration::from_secs(5);

pub(crate) type Reporter = Arc<dyn Fn(Event) + Send + Sync>;

/// What every connection can reach.
pub(crate) struct Shared {
    pub(crate) upstream: PathBuf,
    /// Where the front carries HTTP.
    pub(crate) http: Option<Arc<Http>>,
    pub(crate) gate: ArcSwap<Gate>,
    pub(crate) proxy_protocol: ArcSwapOption<ProxyProtocol>,
    pub(crate) addresses: Arc<Addresses>,
    /// Of all UDP listeners.
    pub(crate) sessions: AllSessions,
    pub(crate) counters: Arc<Counters>,
    pub(crate) reporter: Reporter,
    pub(crate) trouble: Trouble,
    pub(crate) shutdown: watch::Receiver<Shutdown>,
    /// Closed once all who hold this are gone.
    _alive: mpsc::Sender<Infallible>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

/// Serves until `shutdown` says otherwise.
pub async fn run(
    config: watch::Receiver<Arc<Config>>,
    upstream: PathBuf,
    reporter: impl Fn(Event) + Send + Sync + 'static,
    shutdown: watch::Receiver<Shutdown>,
) {
    run_counted(config, upstream, None, reporter, shutdown, Arc::default()).await;
}

/// As [`run`], with counters that the caller can read meanwhile; and with what it needs to carry HTTP, where a
/// configuration may ask for that.
pub async fn run_counted(
    mut config: watch::Receiver<Arc<Config>>,
    upstream: PathBuf,
    http: Option<Arc<Http>>,
    reporter: impl Fn(Event) + Send + Sync + 'static,
    mut shutdown: watch::Receiver<Shutdown>,
    counters: Arc<Counters>,
) {
    let (alive, mut all_gone) = mpsc::channel(1);
    let reporter: Reporter = Arc::new(reporter);
    let shared = Arc::new(Shared {
        upstream,
        http,
        gate: ArcSwap::from_pointee(Gate::new(config.borrow().limits.clone())),
        proxy_protocol: ArcSwapOption::empty(),
        addresses: Arc::default(),
        sessions: AllSessions::default(),
        counters,
        trouble: Trouble::new(Arc::clone(&reporter)),
        reporter,
        shutdown: shutdown.clone(),
        _alive: alive,
    });
    let mut ports = Ports { open: BTreeMap::new(), udp: BTreeMap::new(), shared, terminator: None };
    // A caller that is gone without a word gets what Drain gives.
    let end = async { drop(shutdown.wait_for(|asked| *asked > Shutdown::Run).await) };
    let cleans = clean(ports.shared.http.clone());
    tokio::pin!(end, cleans);
    loop {
        let wanted = Arc::clone(&config.borrow_and_update());
        ports.follow(&wanted).await;
        let changes = tokio::select! {
            () = &mut end => break,
            changed = config.changed() => changed.is_ok(),
            never = &mut cleans => match never {},
        };
        if !changes {
            end.await;
            break;
        }
    }
    ports.close_all().await;
    drop(ports);
    // Connections end by themselves, or by Shutdown::Now, which each of them sees.
    while all_gone.recv().await.is_some() {}
}

/// Gives back what hot objects hold that can not be served any more.
async fn clean(http: Option<Arc<Http>>) -> Infallible {
    let Some(http) = http.filter(|http| http.hot().is_some()) else { return std::future::pending().await };
    loop {
        tokio::time::sleep(CLEANING).await;
        if let Some(hot) = http.hot() {
            hot.clean();
        }
    }
}

type Key = (Option<IpAddr>, u16);

struct Ports {
    open: BTreeMap<Key, Open>,
    udp: BTreeMap<Key, OpenUdp>,
    shared: Arc<Shared>,
    /// Made when first needed; keeps the keys of tickets.
    terminator: Option<Terminator>,
}

struct Open {
    port: Arc<Port>,
    close: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

struct OpenUdp {
    /// Closed when this is dropped.
    targets: watch::Sender<Arc<Target>>,
    task: JoinHandle<()>,
}

impl Ports {
    async fn follow(&mut self, config: &Config) {
        self.shared.trouble.forget();
        let gate = self.shared.gate.load();
        if gate.limits != config.limits {
            self.shared.gate.store(Arc::new(gate.with(config.limits.clone())));
        }
        self.shared.proxy_protocol.store(config.proxy_protocol.clone().map(Arc::new));
        let mut wanted: BTreeMap<Key, Vec<&Listener>> = BTreeMap::new();
        for listener in &config.listeners {
            wanted.entry((listener.address, listener.port)).or_default().push(listener);
        }
        let gone: Vec<Key> = self.open.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for key in gone {
            if let Some(open) = self.open.remove(&key) {
                open.close().await;
            }
        }
        for ((address, port), listeners) in wanted {
            let socket = listeners.first().map_or_else(String::new, |listener| listener.socket.clone());
            let hosts = listeners.iter().flat_map(|listener| &listener.hosts);
            let services = Arc::new(self.services(hosts, config, port, &socket));
            // A listener of another protocol: connections that wait are not for it.
            if let Some(open) = self.open.remove(&(address, port)) {
                if *open.port.socket == *socket {
                    open.port.services.store(services);
                    self.open.insert((address, port), open);
                    continue;
                }
                open.close().await;
            }
            let port =
                Arc::new(Port { socket: socket.into(), address, port, services: ArcSwap::new(services) });
            let (close, closed) = oneshot::channel();
            let task = tokio::spawn(listen(Arc::clone(&port), Arc::clone(&self.shared), closed));
            self.open.insert((address, port.port), Open { port, close, task });
        }
        self.follow_udp(config).await;
        self.shared.counters.streams.forget_unused();
    }

    async fn follow_udp(&mut self, config: &Config) {
        let wanted: BTreeMap<Key, &UdpListener> =
            config.datagrams.iter().rev().map(|one| ((one.address, one.port), one)).collect();
        let gone: Vec<Key> = self.udp.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for key in gone {
            if let Some(OpenUdp { targets, task }) = self.udp.remove(&key) {
                drop(targets);
                let _ = task.await;
            }
        }
        for (key, listener) in wanted {
            let target = self.target(Transport::Udp, &listener.stream);
            let target = Arc::new(if listener.drains { target.draining() } else { target });
            if let Some(open) = self.udp.get(&key) {
                open.targets.send_if_modified(|old| {
                    // A target remembers which endpoints refused: an unchanged one stays.
                    let differs = (&old.stream, old.drains) != (&target.stream, target.drains);
                    if differs {
                        *old = target;
                    }
                    differs
                });
                continue;
            }
            let (targets, known) = watch::channel(target);
            let (address, port) = key;
            let port = udp::Port { socket: listener.socket.as_str().into(), address, port };
            let task = tokio::spawn(udp::listen(port, Arc::clone(&self.shared), known));
            self.udp.insert(key, OpenUdp { targets, task });
        }
    }

    fn target(&self, transport: Transport, stream: &Stream) -> Target {
        Target::new(stream.clone(), self.shared.counters.streams.of_route(transport, &stream.route))
    }

    fn services<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a Host>,
        config: &Config,
        port: u16,
        socket: &str,
    ) -> Services {
        let made: Vec<_> = hosts
            .map(|host| {
                let service = self.service(host, config, port).unwrap_or_else(|e| {
                    let name = host.hostname.as_deref().unwrap_or("any name");
                    let why = format!("cannot serve TLS for {name}: {e}");
                    (self.shared.reporter)(Event::CannotListen { socket: socket.to_owned(), why });
                    Service::Nothing
                });
                (host.pattern(), service)
            })
            .collect();
        Hosts::new(made)
    }

    fn service(&mut self, host: &Host, config: &Config, port: u16) -> Result<Service, String> {
        let http: &[&str] =
            if config.http2 { &["h2", "http/1.1", "http/1.0"] } else { &["http/1.1", "http/1.0"] };
        let validation = config.client_validation.get(&port);
        let carries_http = config.http && self.shared.http.is_some();
        Ok(match &host.action {
            Action::Terminate { certificates } | Action::Forward { certificates, .. }
                if certificates.is_empty() =>
            {
                Service::Nothing
            }
            Action::Terminate { certificates } => {
                let server =
                    Arc::new(self.terminator()?.server(certificates, http, validation, &host.options)?);
                if carries_http { Service::Https(server) } else { Service::Terminate(server) }
            }
            // What the endpoints speak is not known here, and there is no way to pass on what a client has shown.
            Action::Forward { certificates, backends } => {
                let server = self.terminator()?.server(certificates, &[], None, &host.options)?;
                Service::Forward(Arc::new(server), Arc::new(Targets::new(backends)))
            }
            Action::Http if carries_http => Service::Http,
            Action::Http => Service::Nothing,
            Action::Relay(stream) => Service::Relay(Arc::new(self.target(Transport::Tcp, stream))),
            Action::Refuse => Service::Refused,
            Action::Passthrough { backends } => Service::Passthrough(Arc::new(Targets::plain(backends))),
        })
    }

    fn terminator(&mut self) -> Result<&Terminator, String> {
        let terminator = match self.terminator.take() {
            Some(terminator) => terminator,
            None => Terminator::new().map_err(|e| e.to_string())?,
        };
        Ok(self.terminator.insert(terminator))
    }

    /// All at once.
    async fn close_all(&mut self) {
        let (closes, tasks): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.open).into_values().map(|open| (open.close, open.task)).unzip();
        drop(closes);
        // They take no new sessions, and close when the others are silent.
        for OpenUdp { targets, .. } in std::mem::take(&mut self.udp).into_values() {
            let drains = Arc::new(targets.borrow().draining());
            targets.send_replace(drains);
        }
        for task in tasks {
            let _ = task.await;
        }
    }
}

impl Open {
    /// The port is free when this returns.
    async fn close(self) {
        drop(self.close);
        let _ = self.task.await;
    }
}

/// Takes what ghost reports on `socket` until `shutdown` says otherwise. `proof` is the secret that ghost has from this start of varnishd.
pub async fn run_events(
    http: Arc<Http>,
    socket: PathBuf,
    proof: Arc<str>,
    mut shutdown: watch::Receiver<Shutdown>,
) {
    tokio::select! {
        _ = shutdown.wait_for(|asked| *asked > Shutdown::Run) => {}
        () = crate::http::hints::listen(&http, &socket, &proof) => {}
    }
    let _ = std::fs::remove_file(&socket);
}
