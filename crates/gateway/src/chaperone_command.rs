//! `chaperone`: one varnishd, fed by routing.json, main.vcl and EndpointSlices: in files, or in a cluster.

mod invalidations;
mod kubernetes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use certificate::Pem;
use chaperone::environment::Environment;
use chaperone::peers::Peers;
use chaperone::{Desired, Event, Feeder, LastGood, Reporter, Settings, Source, Steps};
use dashboard::Board;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use model::ghost::Config;
use model::names::certificate_keys;
use model::routing::{Routing, rewritten};
use resolve::EndpointIndex;
use source::files::Files;
use source::kubernetes::{EndpointSlices, Pod, Scope, Signal, Store, never_same};
use tokio::sync::watch;

use crate::cli::ChaperoneArguments;
use crate::external::Externals;
use crate::serve::tell;
use crate::{dashboard_page, loop_id, observe, signals, vmod};

/// How often certificates in files are looked at: they are few and small, and a link that is swapped counts too.
const LOOK_FOR_CERTIFICATES: Duration = Duration::from_millis(500);

pub(crate) async fn run(arguments: ChaperoneArguments) -> anyhow::Result<ExitCode> {
    let environment = Environment::read(|name| std::env::var(name).ok())?;
    let shutdown = signals::watch_signals()?;
    let mut settings = settings(&environment, &arguments);
    let (to_varnishd, desired) = watch::channel(Desired::default());
    let board = dashboard_page::board(&arguments.dashboard);
    let name = match &environment.gateway_name {
        Some(gateway) => format!("{}/{gateway}", environment.namespace),
        None => "chaperone".to_owned(),
    };
    let reporter = Reporter::new({
        let (board, name) = (Arc::clone(&board), name.clone());
        move |event| {
            // Readers of the line find it on the page.
            board.tell(&name, event);
            tell("chaperone", event);
        }
    });
    board.show(&BTreeMap::from([(name, reporter.state())]));
    let ports = watch::Sender::new(environment.listen.iter().map(|socket| socket.port).collect());
    let showing = dashboard_page::run(
        &arguments.dashboard,
        Arc::clone(&board),
        ports.subscribe(),
        watch::Sender::default(),
    );
    let work_dir = absolute(&environment.work_dir);
    let showing_locally = dashboard_page::run_local(&work_dir, Arc::clone(&board));
    let giving_way = give_way(&environment, desired.clone(), ports);

    let peers = Peers::of_secret(environment.secret_path.as_deref());
    let health = chaperone::health::serve(environment.health_address, reporter.clone(), peers.clone());
    let (to_peers, addresses) = watch::channel(environment.peers.clone());
    let for_peers = reporter.clone();
    let telling = async {
        match &peers {
            Some(peers) => peers.tell(for_peers, addresses).await,
            None => std::future::pending().await,
        }
    };
    let last_good = match &environment.gateway_name {
        Some(_) => {
            let kept = kubernetes::Kept::new(&work_dir);
            kept.prepare();
            kept.last_good()
        }
        None => LastGood::default(),
    };
    let for_feed = reporter.clone();
    let feeding = async {
        match &environment.gateway_name {
            None => feed(&environment, to_varnishd, for_feed).await,
            Some(gateway) => {
                let feeding =
                    feed_from_cluster(&environment, gateway, to_varnishd, for_feed, Arc::clone(&board));
                tokio::select! {
                    done = feeding => done,
                    () = find_peers(&environment, gateway, to_peers) => Ok(()),
                }
            }
        }
    };
    let name = match &environment.gateway_name {
        Some(name) => format!("Gateway {}/{name}", environment.namespace),
        None => "chaperone".to_owned(),
    };
    // Not in our own task: a slow reader there must not hold up a reload.
    let state = reporter.state();
    let mut reports = observe::reports_of_pod(&name, &environment);
    settings.observer = reports.as_ref().map(observe::Reports::observer);
    let ending_log = reports.as_mut().map(observe::Reports::ending);
    let exporting = match reports {
        Some(reports) => tokio::spawn(reports.export(name, state)),
        None => tokio::spawn(tasks::without_end("the export of spans", move || {
            observe::export_of_pod(name.clone(), state.clone())
        })),
    };
    let running = chaperone::run(settings, desired, last_good, reporter, shutdown);
    let ended = tokio::select! {
        () = running => Ok(ExitCode::SUCCESS),
        failed = health => failed.context("HEALTH_ADDR").map(|()| ExitCode::FAILURE),
        failed = feeding => failed.map(|()| ExitCode::FAILURE),
        () = telling => Ok(ExitCode::FAILURE),
        () = async { tokio::join!(showing, showing_locally, giving_way); } => Ok(ExitCode::FAILURE),
    };
    exporting.abort();
    if let Some(log) = ending_log {
        log.wait().await;
    }
    ended
}

/// The dashboard takes no port that a listener needs.
async fn give_way(
    environment: &Environment,
    mut desired: watch::Receiver<Desired>,
    ports: watch::Sender<BTreeSet<u16>>,
) {
    loop {
        let tls = Arc::clone(&desired.borrow_and_update().tls);
        let of_varnishd = environment.listen.iter().map(|socket| socket.port);
        ports.send_replace(of_varnishd.chain(tls.listeners.iter().map(|listener| listener.port)).collect());
        if desired.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The pods of the Gateway's own Service, as EndpointSlices have them. This one is among them: it knows what it has said itself.
async fn find_peers(environment: &Environment, gateway: &str, to: watch::Sender<Vec<SocketAddr>>) {
    let Ok(client) = source::kubernetes::connect().await else { return std::future::pending().await };
    let signal = Signal::default();
    let mut changed = signal.subscribe();
    let scope = Scope::labels(format!("kubernetes.io/service-name={gateway}"));
    let store: Store<EndpointSlice> = Store::watch(
        kube::Api::namespaced(client, &environment.namespace),
        &scope,
        never_same,
        signal,
        Signal::default(),
    );
    store.synced().await;
    let port = environment.health_address.port();
    loop {
        changed.mark_unchanged();
        let objects = store.objects();
        let texts = objects
            .values()
            .flat_map(|slice| slice.endpoints.iter().flatten())
            .flat_map(|one| &one.addresses);
        let mut all: Vec<SocketAddr> =
            texts.filter_map(|text| Some(SocketAddr::new(text.parse().ok()?, port))).collect();
        all.sort_unstable();
        all.dedup();
        to.send_replace(all);
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// In a cluster the operator's ConfigMap counts, and the endpoints that the API server knows.
async fn feed_from_cluster(
    environment: &Environment,
    gateway: &str,
    to_varnishd: watch::Sender<Desired>,
    reporter: Reporter,
    board: Arc<Board>,
) -> anyhow::Result<()> {
    let client = source::kubernetes::connect().await?;
    let namespace = environment.namespace.clone();
    let feeder = kubernetes::Feeder {
        pod: Pod::watch(client.clone(), &namespace, gateway),
        namespace: namespace.clone(),
        own_ports: environment.own_ports(),
        reporter: reporter.clone(),
        kept: kubernetes::Kept::new(&absolute(&environment.work_dir)),
        http_in_front: environment.http_in_front,
        externals: Externals::new(dns::Settings::default()),
    };
    let Some(pod) = environment.pod_name.clone() else { return feeder.run(to_varnishd).await };
    let state = reporter.state();
    let here = invalidations::Here {
        client: client.clone(),
        namespace: namespace.clone(),
        gateway: gateway.to_owned(),
        pod: pod.clone(),
        board,
    };
    let reporting = kubernetes::report(client, namespace, gateway.to_owned(), pod, reporter);
    tokio::select! {
        done = feeder.run(to_varnishd) => done,
        () = reporting => Ok(()),
        () = invalidations::run(here, state) => Ok(()),
    }
}

fn settings(environment: &Environment, arguments: &ChaperoneArguments) -> Settings {
    let (extra_args, refused) = translate::varnishd_args::check(&environment.extra_args);
    for argument in refused {
        tracing::error!("VARNISHD_EXTRA_ARGS: {argument}");
    }
    Settings {
        name: "chaperone".to_owned(),
        varnishd: arguments.varnish.daemon(),
        vmod: vmod::find(arguments.varnish.vmod.as_deref()),
        work_dir: absolute(&environment.work_dir),
        ghost_config: environment.ghost_path.as_deref().map(absolute),
        hidden: hidden(environment),
        http_in_front: environment.http_in_front,
        sockets: environment.listen.clone(),
        admin_address: environment.admin_address,
        secret: environment.secret_path.clone(),
        extra_args,
        // The sidecar of access logs asks by VARNISHD_EXTRA_ARGS.
        log_readers: observe::log_readers_of_pod(environment.http_in_front),
        observer: None,
        former_args: None,
        hot: environment.hot,
        upgrade_idle: environment.upgrade_idle,
        upgrade_total: environment.upgrade_total,
        drain_delay: environment.drain_delay,
        drain_timeout: environment.drain_timeout.unwrap_or(arguments.drain_timeout),
    }
}

/// A token of this ServiceAccount reads the Secrets with the private keys.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Directories with private keys, or with a token that gets them, out of varnishd's reach.
fn hidden(environment: &Environment) -> Vec<PathBuf> {
    let mut hidden: Vec<PathBuf> = environment.certificates_path.iter().map(|path| absolute(path)).collect();
    if environment.gateway_name.is_some() {
        hidden.push(private_dir(&absolute(&environment.work_dir)));
    }
    // What varnishd must read, files of later included.
    let mut needed = vec![absolute(&environment.work_dir), std::env::temp_dir()];
    needed
        .extend(environment.ghost_path.as_deref().and_then(|path| Some(absolute(path).parent()?.to_owned())));
    hidden.retain(|dir| {
        let within = needed.iter().find(|needed| dir.starts_with(needed));
        if let Some(needed) = within {
            tracing::warn!(
                "user VCL can read the private keys in {}, as varnishd must read {}: move one of them elsewhere",
                dir.display(),
                needed.display()
            );
        }
        within.is_none()
    });
    for dir in hidden.iter().filter(|dir| environment.certificates_path.is_some() && !dir.exists()) {
        tracing::warn!(
            "{} does not exist yet; it is hidden from varnishd when it appears, as are other new files beside it: create it before the start",
            dir.display()
        );
    }
    // Outside of a pod it does not exist, and no token is written there later.
    hidden.extend(Some(PathBuf::from(TOKEN_DIR)).filter(|dir| dir.exists()));
    hidden
}

/// Where a chaperone in a cluster keeps private keys: beside `WORK_DIR` and not in it, as varnishd reads that one.
fn private_dir(work_dir: &Path) -> PathBuf {
    let mut name = work_dir.as_os_str().to_owned();
    name.push("-private");
    name.into()
}

/// varnishd's child works in a directory of its own.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads all files again whenever one may have changed.
async fn feed(
    environment: &Environment,
    to_varnishd: watch::Sender<Desired>,
    reporter: Reporter,
) -> anyhow::Result<()> {
    let watched =
        [Some(&environment.vcl_path), Some(&environment.routing_path), environment.endpoints_path.as_ref()];
    let watched: Vec<PathBuf> = watched.into_iter().flatten().cloned().collect();
    let mut watch = Files::new(watched).watch()?;
    let endpoints = Endpoints::new(environment).await?;
    let mut endpoints_changed = endpoints.changed();
    let mut reader = Reader {
        environment,
        endpoints,
        slices: Vec::new(),
        knows_endpoints: false,
        vcl: None,
        routing: None,
        certificates: BTreeMap::new(),
        feeder: Feeder::default(),
        index: EndpointIndex::default(),
        told: HashSet::new(),
        reporter,
        externals: Externals::new(dns::Settings::default()),
    };
    let mut looked_up = reader.externals.changes();
    loop {
        endpoints_changed.mark_unchanged();
        looked_up.mark_unchanged();
        let desired = reader.read().await?;
        to_varnishd.send_if_modified(|old| {
            let new = *old != desired;
            if new {
                *old = desired;
            }
            new
        });
        loop {
            tokio::select! {
                () = watch.changed() => break,
                Ok(()) = endpoints_changed.changed() => break,
                Ok(()) = looked_up.changed() => break,
                () = tokio::time::sleep(LOOK_FOR_CERTIFICATES), if reader.ends_tls() => {
                    if reader.read_certificates() != reader.certificates {
                        break;
                    }
                }
            }
        }
    }
}

/// Where EndpointSlices come from while all else comes from files.
enum Endpoints {
    Files(Files, PathBuf),
    Cluster(EndpointSlices),
}

impl Endpoints {
    async fn new(environment: &Environment) -> anyhow::Result<Self> {
        if let Some(path) = environment.endpoints_path.clone() {
            return Ok(Self::Files(Files::new(vec![path.clone()]), path));
        }
        let client = source::kubernetes::connect().await.context(
            "ENDPOINTS_PATH is not set, and there is no cluster to read EndpointSlices from: set ENDPOINTS_PATH to a file or \
             directory of EndpointSlice manifests, or KUBECONFIG to a cluster's",
        )?;
        Ok(Self::Cluster(EndpointSlices::new(client)))
    }

    /// Raised by the cluster. Files are watched with the others.
    fn changed(&self) -> watch::Receiver<u64> {
        match self {
            Self::Files(..) => watch::Sender::new(0).subscribe(),
            Self::Cluster(slices) => slices.changed(),
        }
    }
}

/// The files as they last made sense, each for itself: a bad one holds back no other.
struct Reader<'a> {
    environment: &'a Environment,
    endpoints: Endpoints,
    slices: Vec<Arc<EndpointSlice>>,
    /// Every namespace that was routed to was listed once.
    knows_endpoints: bool,
    vcl: Option<Arc<str>>,
    routing: Option<Routing>,
    certificates: BTreeMap<String, Pem>,
    feeder: Feeder,
    /// The newest endpoints.
    index: EndpointIndex,
    /// What was wrong at the last look, so that it is reported once.
    told: HashSet<String>,
    reporter: Reporter,
    externals: Externals,
}

impl Reader<'_> {
    fn ends_tls(&self) -> bool {
        self.certificate_names().next().is_some()
    }

    fn certificate_names(&self) -> impl Iterator<Item = &String> {
        self.routing.iter().flat_map(Routing::certificate_names)
    }

    /// Those that routing.json names, as far as they are there.
    fn read_certificates(&self) -> BTreeMap<String, Pem> {
        let Some(dir) = &self.environment.certificates_path else { return BTreeMap::new() };
        let read = |name: &String| {
            let (chain, key) = certificate_keys(name)?;
            let file = |name: String| std::fs::read(dir.join(name)).ok();
            Some((name.clone(), Pem { chain: file(chain)?, key: file(key)? }))
        };
        self.certificate_names().filter_map(read).collect()
    }

    async fn read_endpoints(&mut self, wrong: &mut Vec<String>) {
        match &mut self.endpoints {
            Endpoints::Files(files, path) => {
                self.knows_endpoints = true;
                match std::fs::metadata(&path) {
                    Ok(_) => {
                        let loaded = files.load();
                        wrong.extend(loaded.problems.iter().map(ToString::to_string));
                        self.slices = loaded.snapshot.endpoint_slices.values().cloned().collect();
                    }
                    // All endpoints are not gone because a volume is.
                    Err(e) => wrong.push(format!(
                        "ENDPOINTS_PATH {}: {e}; the endpoints that were there stay in use",
                        path.display()
                    )),
                }
            }
            Endpoints::Cluster(slices) => {
                let Some(routing) = &self.routing else { return };
                self.slices = slices.of_namespaces(&routing.service_namespaces()).await;
                let unlisted = slices.unlisted();
                // A namespace that we may not read must not hold back the others.
                self.knows_endpoints |= unlisted.iter().all(|(_, is_forbidden)| *is_forbidden);
                let until = match self.knows_endpoints {
                    true => "its Services have no endpoints until then",
                    false => "nothing is served until then",
                };
                wrong.extend(unlisted.iter().map(|(namespace, _)| {
                    format!(
                        "EndpointSlices of namespace {namespace} cannot be listed ({until}): is the API server of KUBECONFIG \
                         reachable, and may its user list and watch EndpointSlices there? ENDPOINTS_PATH reads them from files instead"
                    )
                }));
            }
        }
    }

    async fn read(&mut self) -> anyhow::Result<Desired> {
        let Environment { namespace, vcl_path, routing_path, .. } = self.environment;
        let (mut wrong, mut steps) = (Vec::new(), Steps::observed());
        let vcl = read_text(vcl_path).context("VCL_PATH").map(Arc::from);
        take(&mut self.vcl, vcl, &mut wrong);
        let routing = read_routing(routing_path, namespace, &mut wrong).context("ROUTING_CONFIG_PATH");
        take(&mut self.routing, routing, &mut wrong);
        if let Some(routing) = &mut self.routing {
            routing.http_in_front = self.environment.http_in_front;
        }
        self.read_endpoints(&mut wrong).await;
        let external = self.routing.as_ref().and_then(|routing| routing.external_names.as_ref());
        self.externals.want(external);
        if !self.reporter.state().borrow().serving {
            self.externals.settle().await;
        }
        let slices = self.externals.beside(external, self.slices.clone());
        let listeners = self.routing.as_ref().map(Routing::listener_ports).unwrap_or_default();
        self.index = self.index.following(&slices);
        let index = self.index.clone().refusing(self.environment.own_ports()).refusing(listeners);
        self.certificates = self.read_certificates();
        steps.done("read");
        let mut desired = Desired { vcl: self.vcl.clone(), ..Desired::default() };
        if let Some(routing) = &self.routing {
            self.reporter.set_idle(is_idle(routing));
            let certificates = &self.certificates;
            let source = Source { routing, below: None, frame: routing, certificates, bind: None };
            let finish = |ghost: &mut Config| {
                ghost.gateway_id.get_or_insert_with(|| loop_id::for_gateway(""));
            };
            let ghost = match self.knows_endpoints {
                true => Some(self.feeder.ghost(source, &index, true, finish)?),
                false => None,
            };
            let mut front = self.feeder.front(source, &index, None);
            let of_ghost = ghost.iter().flat_map(|(_, notices)| notices);
            for notice in of_ghost.chain(&front.of_endpoints) {
                tracing::debug!("{notice}");
            }
            // VARNISH_LISTEN names varnishd's sockets in both arrangements.
            let of_varnishd = |port| self.environment.listen.iter().any(|socket| socket.port == port);
            let listeners = &mut front.listeners.listeners;
            listeners.retain(|listener| !self.environment.http_in_front || !of_varnishd(listener.port));
            wrong.extend(front.of_listeners.iter().map(ToString::to_string));
            steps.done("compiled");
            desired = Desired::new(ghost.map(|(ghost, _)| ghost), self.vcl.clone(), front, None).after(steps);
        }
        // Not within the call below: readers of the state must let go before it changes.
        let serving = self.reporter.state().borrow().serving;
        for message in wrong.iter().filter(|message| !self.told.contains(*message)) {
            self.reporter.tell(&Event::Refused { why: message.clone(), serving });
        }
        if wrong.is_empty() && !self.told.is_empty() {
            self.reporter.tell(&Event::Recovered);
        }
        self.told = wrong.into_iter().collect();
        Ok(desired)
    }
}

/// Has it no routes, and is that no reason for being ready?
fn is_idle(routing: &Routing) -> bool {
    routing.unready_without_routes && !routing.has_routes()
}

/// The new for the old, if it is good.
fn take<T>(old: &mut Option<T>, new: anyhow::Result<T>, wrong: &mut Vec<String>) {
    match (new, &old) {
        (Ok(new), _) => *old = Some(new),
        (Err(e), Some(_)) => wrong.push(format!("{e:#}; the last good one stays in use")),
        (Err(e), None) => wrong.push(format!("{e:#}; nothing is served without it")),
    }
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn read_routing(path: &Path, namespace: &str, wrong: &mut Vec<String>) -> anyhow::Result<Routing> {
    let text = read_text(path)?;
    let routing = parse_routing(text.as_bytes(), namespace, &path.display().to_string(), wrong)?;
    anyhow::ensure!(
        routing.base.is_none(),
        "{}: it says only what has changed since a base, which a file cannot: write all hosts",
        path.display()
    );
    Ok(routing)
}

/// Of this version or an earlier one. A newer operator may write fields that we do not know: they are reported, and ignored.
fn parse_routing(
    text: &[u8],
    namespace: &str,
    name: &str,
    wrong: &mut Vec<String>,
) -> anyhow::Result<Routing> {
    let at = || name.to_owned();
    let mut unknown = Vec::new();
    let note = |field: serde_ignored::Path<'_>| unknown.push(field.to_string());
    let read = match rewritten(text).with_context(at)? {
        Some(json) => serde_ignored::deserialize(json, note),
        None => serde_ignored::deserialize(&mut serde_json::Deserializer::from_slice(text), note),
    };
    let mut routing: Routing = read.with_context(at)?;
    match unknown.as_slice() {
        [] => {}
        [field] => wrong.push(format!("{}: the unknown field {field} is ignored", at())),
        [first, others @ ..] => {
            let more = others.len();
            wrong.push(format!("{}: the unknown fields {first} and {more} more are ignored", at()));
        }
    }
    let routes = routing.vhosts.values_mut().flat_map(|v| v.routes.iter_mut().chain(&mut v.default_route));
    let backends = routes.chain(&mut routing.default).flat_map(|route| &mut route.backends);
    for backend in backends.filter(|backend| backend.service.is_some()) {
        backend.namespace.get_or_insert_with(|| namespace.into());
    }
    Ok(routing)
}
