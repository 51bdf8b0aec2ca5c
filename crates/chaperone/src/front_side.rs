//! The front beside varnishd: it terminates TLS of clients and passes the bytes on; for backends with TLS it opens and verifies
//! the connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use page::Page;
use router::Router;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::event::{Event, Reporter};
use crate::ghost_files::Ghost;
use crate::tally::Tally;
use crate::varnishd::speaks_http2;
use crate::{Settings, session_key};

/// How long clients may take to read the last bytes of a varnishd that has exited.
const FLUSHING: Duration = Duration::from_secs(2);
/// Requests that were routed before a reload may still connect by what it replaced.
const RETIRING: Duration = Duration::from_secs(120);

/// A running front. Dropping this stops it.
#[derive(Debug)]
pub(crate) struct FrontSide {
    config: watch::Sender<Arc<front::Config>>,
    profiles: watch::Sender<Arc<front::Profiles>>,
    peers: watch::Sender<Arc<front::Peers>>,
    /// Profiles that no reload since has named.
    retired: HashMap<String, Instant>,
    shutdown: watch::Sender<front::Shutdown>,
    /// Does varnishd understand it?
    http2: bool,
    running: JoinSet<()>,
    tally: Arc<Tally>,
    /// What the front needs to carry HTTP.
    pub(crate) http: Arc<front::Http>,
}

impl FrontSide {
    /// Without a public socket yet. By `proof` ghost recognises the front's own answers.
    ///
    /// `page`: by which ghost says what may be hot, if anything may.
    pub(crate) fn start(
        settings: &Settings,
        proof: Arc<str>,
        reporter: Reporter,
        page: Option<Arc<Page>>,
    ) -> Self {
        let (upstream, backends) = (settings.https_socket(), settings.backends_socket());
        let http2 = speaks_http2(&settings.extra_args);
        let (config, shutdown) = (watch::Sender::default(), watch::Sender::default());
        let profiles = watch::Sender::default();
        let peers: watch::Sender<Arc<front::Peers>> = watch::Sender::default();
        let of_backends = reporter.clone();
        let tally = Arc::clone(&reporter.state().borrow().tally);
        let (counters, backend_counters) = (Arc::clone(&reporter.clients), Arc::clone(&reporter.backends));
        let tell = move |event| {
            reporter.tell(&match event {
                front::Event::Listening { socket, address } => Event::Listening { socket, address },
                front::Event::CannotListen { socket, why } => Event::NotListening { socket, why },
                front::Event::Closed { socket } => Event::Closed { socket },
                front::Event::Unreached { service, endpoint, why } => {
                    Event::BackendTls { why: unreached(&service, endpoint, &why) }
                }
            });
        };
        let tell_backends = move |event: front::BackendEvent| {
            if let Some(why) = describe(&event) {
                of_backends.tell(&Event::BackendTls { why });
            }
        };
        let side = front::BackendSide::new(tell_backends, backend_counters);
        let http = front::Http::new(
            Arc::clone(&side),
            settings.front_socket(),
            settings.upgrade_idle,
            settings.upgrade_total,
        );
        let http = http
            .observed_by(settings.observer.clone())
            .with_session_key(session_key::read_or_create(settings));
        let http = match page {
            Some(page) => http.with_hot(page, settings.hot),
            None => http,
        };
        let http = Arc::new(http);
        tally.carries_http(&http);
        let mut running = JoinSet::new();
        let of_clients = Arc::clone(&http);
        let (known, end) = (config.subscribe(), shutdown.subscribe());
        running.spawn(async move {
            let run = || {
                let (upstream, tell, counters) = (upstream.clone(), tell.clone(), Arc::clone(&counters));
                let http = Some(Arc::clone(&of_clients));
                front::run_counted(known.clone(), upstream, http, tell, end.clone(), counters)
            };
            while tasks::panicked("the front", run()).await {}
        });
        let (of_events, secret, end) = (Arc::clone(&http), Arc::clone(&proof), shutdown.subscribe());
        let events = settings.events_socket();
        running.spawn(async move {
            let run = || {
                front::run_events(Arc::clone(&of_events), events.clone(), Arc::clone(&secret), end.clone())
            };
            while tasks::panicked("the reports of ghost", run()).await {}
        });
        let (known, of_services, end) = (profiles.subscribe(), peers.subscribe(), shutdown.subscribe());
        let of_misses = Arc::clone(&http);
        running.spawn(async move {
            // Its directory is made when varnishd is started; and most Gateways need none of it.
            let mut wanted = known.clone();
            tokio::select! {
                known = wanted.wait_for(|profiles: &Arc<front::Profiles>| !profiles.is_empty()) => {
                    if known.is_err() {
                        return;
                    }
                }
                () = of_misses.takes_misses() => {}
            }
            let run = || {
                let (backends, side) = (backends.clone(), Arc::clone(&side));
                let (known, of_services, end) = (known.clone(), of_services.clone(), end.clone());
                let ours = (Arc::clone(&proof), Some(Arc::clone(&of_misses)));
                front::run_backends(known, of_services, backends, side, end, ours)
            };
            while tasks::panicked("the front of backends", run()).await {}
        });
        Self { config, profiles, peers, retired: HashMap::new(), shutdown, http2, running, tally, http }
    }

    /// From now on these listeners, with these certificates.
    pub(crate) fn show(&self, config: &Arc<front::Config>) {
        let mut config = Arc::clone(config);
        // Where varnishd gets the bytes, it must understand them.
        if config.http2 && !self.http2 && !config.http {
            Arc::make_mut(&mut config).http2 = false;
        }
        self.tally.shows(&config);
        self.config.send_if_modified(|old| {
            let differs = *old != config;
            *old = config;
            differs
        });
    }

    /// These ways to verify backends too, beside those that are known.
    pub(crate) fn add_backends(&self, profiles: &Arc<front::Profiles>, ghost: Option<&Ghost>) {
        if !profiles.is_empty() || !self.peers.borrow().is_empty() {
            let router = ghost.map(|ghost| &*ghost.router);
            self.peers.send_replace(Arc::new(router.map(peers).unwrap_or_default()));
        }
        self.profiles.send_if_modified(|known| {
            let new = profiles.iter().any(|(name, profile)| known.get(name) != Some(profile));
            if new {
                let all = Arc::make_mut(known);
                all.extend(profiles.iter().map(|(name, profile)| (name.clone(), profile.clone())));
            }
            new
        });
    }

    /// ghost names no others any more; those are removed once no request can be using them.
    pub(crate) fn keep_backends(&mut self, profiles: &Arc<front::Profiles>) {
        let now = Instant::now();
        self.retired.retain(|name, _| !profiles.contains_key(name));
        for name in self.profiles.borrow().keys().filter(|name| !profiles.contains_key(*name)) {
            self.retired.entry(name.clone()).or_insert(now);
        }
        let over: Vec<String> = self
            .retired
            .iter()
            .filter(|(_, since)| now.duration_since(**since) > RETIRING)
            .map(|(name, _)| name.clone())
            .collect();
        if !over.is_empty() {
            self.retired.retain(|name, _| !over.contains(name));
            self.profiles.send_modify(|known| Arc::make_mut(known).retain(|name, _| !over.contains(name)));
        }
    }

    /// Takes no more connections and sessions; those that are there stay.
    pub(crate) fn close(&self) {
        // A UDP socket stays open for the sessions that it has.
        let mut datagrams = self.config.borrow().datagrams.clone();
        datagrams.iter_mut().for_each(|listener| listener.drains = true);
        let limits = self.config.borrow().limits.clone();
        self.show(&Arc::new(front::Config { datagrams, limits, ..front::Config::default() }));
    }

    /// Ends with the connections that varnishd has left.
    pub(crate) async fn stop(self) {
        let Self { profiles, shutdown, mut running, .. } = self;
        shutdown.send_replace(front::Shutdown::Drain);
        // Tasks that wait for the first profile need not wait any longer.
        drop(profiles);
        let mut all = async || while running.join_next().await.is_some() {};
        if tokio::time::timeout(FLUSHING, all()).await.is_err() {
            shutdown.send_replace(front::Shutdown::Now);
            let _ = tokio::time::timeout(FLUSHING, all()).await;
        }
    }
}

/// Which endpoints stand in for each other, by the router and its base. Of two groups with one endpoint the first counts.
fn peers(router: &Router) -> front::Peers {
    let mut peers = front::Peers::new();
    let below = router.base().into_iter().flat_map(|base| base.rules());
    for group in router.rules().iter().chain(below).flat_map(|rule| rule.groups()) {
        let Some(tls) = group.tls() else { continue };
        let all: Arc<[SocketAddr]> = group.endpoints().into();
        for endpoint in all.iter() {
            peers.entry((tls.to_string(), *endpoint)).or_insert_with(|| Arc::clone(&all));
        }
    }
    peers
}

/// Of a backend of a TLSRoute, TCPRoute or UDPRoute.
fn unreached(service: &str, endpoint: Option<SocketAddr>, why: &str) -> String {
    match (service, endpoint) {
        ("", _) => "a connection of a TLSRoute, TCPRoute or UDPRoute was closed: its backendRef is invalid; the route's \
                    status says why"
            .to_owned(),
        (service, None) => {
            format!("connections to Service {service} are closed: {why}; are its pods ready?")
        }
        (service, Some(endpoint)) => format!(
            "endpoint {endpoint} of Service {service} is not reached: {why}; is it up, does a \
             NetworkPolicy stand in the way, and does its BackendTLSPolicy, if there is one, name the CA of its certificate?"
        ),
    }
}

/// The message for users, with the remedy.
fn describe(event: &front::BackendEvent) -> Option<String> {
    use front::BackendFailure as Failure;
    Some(match event {
        front::BackendEvent::Listening { .. } => return None,
        front::BackendEvent::CannotListen { path, why } => {
            format!("backends with TLS cannot be reached: {}: {why} (it is tried again)", path.display())
        }
        front::BackendEvent::BadProfile { profile, why } => {
            format!("TLS to backends by {profile} cannot be used: {why}; their requests get 503")
        }
        front::BackendEvent::Avoided { service, endpoint, time, why } => format!(
            "endpoint {endpoint} of Service {service} is avoided for {} seconds: {why}; is it up, and is it ready? The time grows \
             if it fails again; if it does not, its share of requests grows within 30 seconds",
            time.as_secs()
        ),
        front::BackendEvent::Failed { profile, endpoint, reason, why } => {
            let remedy = match reason {
                Failure::Untrusted => "does the BackendTLSPolicy name the CA of its certificate?",
                Failure::WrongName => {
                    "compare hostname and subjectAltNames of the BackendTLSPolicy with its certificate"
                }
                Failure::Expired => "renew its certificate",
                Failure::Refused => {
                    "does it ask for a client certificate? Gateway spec.tls.backend names ours"
                }
                Failure::Incompatible => "does this port speak TLS 1.2 or 1.3?",
                Failure::Unreachable | Failure::Timeout => {
                    "is it up, and does a NetworkPolicy stand in the way?"
                }
                Failure::Exhausted => "the gateway needs more file descriptors: raise its limit (ulimit -n)",
                Failure::NotProxy | Failure::UnknownProfile => "this passes with the next reload",
            };
            format!("backend {endpoint} is not reached by TLS ({profile}): {why}; {remedy}")
        }
    })
}
