//! `serve`: the whole gateway on one machine, configured by files.

pub(crate) mod control;
mod instance;
mod invalidations;
mod lacking;
mod news;
pub(crate) mod state_dir;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::DataPath;
use chaperone::{
    Desired, Event, Feeder, FrontPart, Ghost, ListenSocket, Settings, Severity, Shutdown, Source, Steps,
};
use dashboard::Board;
use model::ghost::Config;
use resolve::EndpointIndex;
use source::files::{Files, Loaded};
use tokio::sync::watch;
use translate::{GatewayPlan, Infra, Key, Notice};

use crate::cli::ServeArguments;
use crate::compile_vcl::refused_arguments;
use crate::external::Externals;
use crate::serve::instance::{Ended, Instance};
use crate::serve::invalidations::New;
use crate::serve::news::News;
use crate::serve::state_dir::StateDir;
use crate::shared_ports::Settled;
use crate::{dashboard_page, input, loop_id, shared_ports, signals, static_addresses, verdict, vmod};

pub(crate) async fn run(arguments: ServeArguments) -> anyhow::Result<ExitCode> {
    let mut shutdown = signals::watch_signals()?;
    let default_data_path = input::default_data_path()?;
    let state = StateDir::new(arguments.state_dir.as_deref())?;
    // Its own time: there may be much to remove.
    tokio::task::spawn_blocking(state_dir::sweep);
    let board = dashboard_page::board(&arguments.dashboard);
    let mut files = Files::new(arguments.files.files.clone());
    let mut changes = files.watch()?;
    let dashboard_port = watch::Sender::default();
    let externals = Externals::new(arguments.dns());
    let mut looked_up = externals.changes();
    let mut machine = Machine {
        state: state.path(),
        vmod: vmod::find(arguments.varnish.vmod.as_deref()),
        arguments: Arc::new(arguments),
        default_data_path,
        shutdown: shutdown.clone(),
        instances: BTreeMap::new(),
        ending: Vec::new(),
        places: BTreeMap::new(),
        feeders: BTreeMap::new(),
        endpoints: EndpointIndex::default(),
        former: BTreeMap::new(),
        news: News::new(board.journal.clone()),
        ports: watch::Sender::default(),
        dashboard_port: dashboard_port.subscribe(),
        board: Arc::clone(&board),
        invalidations: invalidations::Seen::default(),
        running: control::Running::default(),
        externals,
    };
    let (arguments, ports) = (Arc::clone(&machine.arguments), machine.ports.subscribe());
    let state_dir = machine.state.clone();
    machine.apply(Steps::observed(), || files.load()).await;
    let beside = [
        tokio::spawn({
            let (state_dir, running, board) =
                (state_dir.clone(), Arc::clone(&machine.running), Arc::clone(&board));
            let run = move || control::run(state_dir.clone(), Arc::clone(&running), Arc::clone(&board));
            async move { while tasks::panicked("the control socket", run()).await {} }
        }),
        // It knows the ports of Gateways by now.
        tokio::spawn({
            let board = Arc::clone(&board);
            async move {
                let run = || {
                    let (board, ports, port) = (Arc::clone(&board), ports.clone(), dashboard_port.clone());
                    dashboard_page::run(&arguments.dashboard, board, ports, port)
                };
                while tasks::panicked("the dashboard", run()).await {}
            }
        }),
        tokio::spawn(async move {
            let run = || dashboard_page::run_local(&state_dir, Arc::clone(&board));
            while tasks::panicked("the control API", run()).await {}
        }),
    ];
    loop {
        tokio::select! {
            () = changes.changed() => machine.apply(Steps::observed(), || files.load()).await,
            // As long as the machine lives.
            _ = looked_up.changed() => {
                machine.apply(Steps::observed(), || Loaded { changed: true, ..files.load() }).await;
            }
            _ = shutdown.wait_for(|s| *s > Shutdown::Run) => break,
        }
    }
    for ended in machine.all_ended() {
        ended.wait().await;
    }
    beside.iter().for_each(tokio::task::JoinHandle::abort);
    drop(state);
    Ok(ExitCode::SUCCESS)
}

/// All Gateways of this machine.
struct Machine {
    arguments: Arc<ServeArguments>,
    default_data_path: Option<DataPath>,
    state: PathBuf,
    vmod: Option<PathBuf>,
    shutdown: watch::Receiver<Shutdown>,
    instances: BTreeMap<Key, Instance>,
    /// varnishds that were told to stop, and the ports that they have until then.
    ending: Vec<(Key, BTreeSet<u16>, Ended)>,
    /// Every Gateway that was ever started, numbered from 0.
    places: BTreeMap<Key, u16>,
    /// What each was fed last.
    feeders: BTreeMap<Key, Feeder>,
    /// The newest.
    endpoints: EndpointIndex,
    /// What parameters of each were last.
    former: BTreeMap<Key, Arc<str>>,
    news: News,
    invalidations: invalidations::Seen,
    externals: Externals,
    /// For commands of other processes.
    running: control::Running,
    board: Arc<Board>,
    /// All that the Gateways have.
    ports: watch::Sender<BTreeSet<u16>>,
    /// The one that the dashboard has.
    dashboard_port: watch::Receiver<Option<u16>>,
}

/// For the dashboard to give its port to a listener.
const GIVING_WAY: Duration = Duration::from_secs(1);
/// How long a WebSocket may last.
const UPGRADE_TOTAL: Duration = Duration::from_secs(86_400);

impl Machine {
    async fn apply(&mut self, mut steps: Steps, load: impl FnOnce() -> Loaded) {
        let Loaded { mut snapshot, problems, changed } = load();
        steps.done("read");
        self.news.problems(&problems);
        if !changed && !self.instances.is_empty() {
            return;
        }
        snapshot.ingress_settings.class.clone_from(&self.arguments.files.ingress_class);
        snapshot.default_data_path = self.default_data_path;
        snapshot.reads_varnishd_log = self.arguments.observe.needs_varnishds_log();
        snapshot.former_parameters.clone_from(&self.former);
        let mut translation = translate::translate(&snapshot);
        steps.done("translated");
        self.former.retain(|key, _| translation.gateways.contains_key(key));
        for (key, plan) in &translation.gateways {
            if let Some(parameters) = &plan.parameters {
                self.former.insert(key.clone(), Arc::clone(parameters));
            }
        }
        self.news.verdicts(verdict::from_statuses(&translation.statuses));
        self.news.no_gateway(translation.gateways.is_empty());
        for (key, plan) in translation.gateways.iter_mut().filter(|(_, plan)| plan.infra.is_none()) {
            // Parameters are missing: what runs keeps its arrangement.
            plan.routing.http_in_front = self.instances.get(key).is_some_and(|i| i.infra.http_in_front);
        }
        self.endpoints = self.endpoints.following(snapshot.endpoint_slices.values());
        let endpoints = self.endpoints.clone().refusing(self.own_ports(&translation));
        let external = |plan: &GatewayPlan| plan.routing.external_names.clone();
        self.externals.want(&translation.gateways.values().filter_map(external).collect::<Vec<_>>());
        if self.instances.is_empty() {
            self.externals.settle().await;
        }
        let mut notices = std::mem::take(&mut translation.notices);
        notices.extend(static_addresses::notices(&snapshot, translation.gateways.keys()));
        let has_now = |key: &Key, port| self.instances.get(key).is_some_and(|i| i.has_port(port));
        let settled = shared_ports::settle(&snapshot, &mut translation.gateways, has_now);
        self.news.conflicts(&settled.conflicts);

        for (key, plan) in &mut translation.gateways {
            if let Some(infra) = &mut plan.infra {
                self.refuse_bad_arguments(key, infra);
            }
        }
        let mut fronts = self.fronts(&translation.gateways, &endpoints, &settled, &mut notices);
        let ports = ports_of(&translation.gateways, &fronts);
        self.ports.send_replace(ports.clone());
        // A varnishd that finds its port taken goes without it, and must be restarted later.
        let given = self.dashboard_port.wait_for(|port| port.is_none_or(|port| !ports.contains(&port)));
        let _ = tokio::time::timeout(GIVING_WAY, given).await;
        self.stop_changed(&translation.gateways, &fronts);
        let mut lacking = Vec::new();
        for (key, plan) in &translation.gateways {
            let endpoints = self.externals.endpoints_of(&plan.routing, &endpoints);
            let observe = &self.arguments.observe;
            let finish = |ghost: &mut Config| {
                observe.ask(ghost, plan.routing.http_in_front);
                ghost.gateway_id = Some(loop_id::for_gateway(&key.to_string()));
            };
            let feeder = self.feeders.entry(key.clone()).or_default();
            let made = feeder.ghost(source(plan, self.arguments.bind), &endpoints, true, finish);
            notices.extend(observe.unheard(key, plan));
            match made {
                Ok((ghost, of_endpoints)) => {
                    notices.extend(of_endpoints);
                    if let Some(front) = fronts.remove(key) {
                        let mut steps = steps.clone();
                        steps.done("compiled");
                        self.bring(key, plan, ghost, front, steps);
                    }
                }
                Err(e) => tracing::error!("Gateway {key}: {e}"),
            }
            let idle = (!self.instances.contains_key(key)).then(|| input::ghost(plan, &endpoints).0);
            lacking.extend(lacking::for_gateway(key, &translation, &settled.conflicts, idle.as_ref()));
        }
        self.news.notices(notices);
        let running: BTreeMap<Key, _> =
            self.instances.iter().map(|(key, instance)| (key.clone(), instance.state())).collect();
        self.board.show(&running.iter().map(|(key, state)| (key.to_string(), state.clone())).collect());
        self.board.lack(lacking);
        self.board.unresolved(verdict::unresolved(&translation.statuses));
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
        for New { key, one, is_old } in self.invalidations.new_ones(&snapshot.cache_invalidations) {
            let gateway = Key::new(&key.namespace, &one.spec.gateway_ref.name);
            match self.instances.get(&gateway) {
                Some(_) if is_old => invalidations::needless(&key),
                Some(instance) => drop(tokio::spawn(invalidations::carry_out(
                    key,
                    one,
                    instance.state(),
                    Arc::clone(&self.board),
                ))),
                None if translation.gateways.contains_key(&gateway) => {
                    invalidations::failed(&key, &format!("Gateway {gateway} does not run, and has no cache"));
                }
                None => {
                    let why =
                        format!("spec.gatewayRef names Gateway {gateway}, which is not among the files");
                    invalidations::failed(&key, &why);
                }
            }
        }
    }

    /// What the front of each Gateway is to serve, without the ports that another Gateway has.
    fn fronts(
        &mut self,
        plans: &BTreeMap<Key, GatewayPlan>,
        endpoints: &EndpointIndex,
        settled: &Settled,
        notices: &mut Vec<Notice>,
    ) -> BTreeMap<Key, FrontPart> {
        self.feeders.retain(|key, _| plans.contains_key(key));
        let mut fronts = BTreeMap::new();
        for (key, plan) in plans {
            let endpoints = self.externals.endpoints_of(&plan.routing, endpoints);
            let feeder = self.feeders.entry(key.clone()).or_default();
            let mut front = feeder.front(source(plan, self.arguments.bind), &endpoints, None);
            notices.append(&mut front.of_endpoints);
            notices.extend(
                std::mem::take(&mut front.of_listeners)
                    .into_iter()
                    .map(|n| Notice { object: format!("Gateway {key}: {}", n.object), ..n }),
            );
            front.listeners.listeners.retain(|listener| !settled.has_lost(key, listener.port));
            front.listeners.datagrams.retain(|listener| !settled.has_lost_udp(key, listener.port));
            fronts.insert(key.clone(), front);
        }
        fronts
    }

    /// Stops all varnishds that are not wanted any more, or not as they are, before any is started: one may
    /// need the port of another.
    fn stop_changed(&mut self, plans: &BTreeMap<Key, GatewayPlan>, fronts: &BTreeMap<Key, FrontPart>) {
        self.ending.retain(|(_, _, ended)| !ended.is_so());
        self.instances.retain(|key, instance| {
            let infra = plans.get(key).map(|plan| &plan.infra);
            // Without sockets there is nothing to listen on; verdicts say why. Where only listeners of the front went, they may
            // come back: varnishd keeps its cache.
            let listens = |infra: &Infra| {
                !infra.sockets.is_empty()
                    || fronts.get(key).is_some_and(|front| front.listeners.sockets().next().is_some())
                    || *infra == instance.infra
            };
            let wanted = infra.is_some_and(|infra| infra.as_ref().is_none_or(listens));
            let changed = infra.and_then(Option::as_ref).is_some_and(|infra| *infra != instance.infra);
            if !wanted || changed {
                instance.stop();
                let ports = instance.ports().collect();
                self.ending.push((key.clone(), ports, instance.ended()));
            }
            wanted
        });
    }

    /// What must be over before a varnishd can start in this place.
    fn in_the_way(&self, key: &Key, infra: &Infra) -> Vec<Ended> {
        let blocks = |other: &Key, ports: &BTreeSet<u16>| {
            other == key || infra.sockets.iter().any(|socket| ports.contains(&socket.port))
        };
        let blocking = self.ending.iter().filter(|(other, ports, _)| blocks(other, ports));
        blocking.map(|(_, _, ended)| ended.clone()).collect()
    }

    fn all_ended(&self) -> impl Iterator<Item = Ended> {
        let ending = self.ending.iter().map(|(_, _, ended)| ended.clone());
        ending.chain(self.instances.values().map(Instance::ended))
    }

    /// Starts, feeds or restarts one Gateway's varnishd.
    fn bring(&mut self, key: &Key, plan: &GatewayPlan, ghost: Ghost, front: FrontPart, steps: Steps) {
        let routes = instance::count_routes(&plan.routing);
        let vcl = plan.main_vcl.as_deref().map(Arc::from);
        let listens =
            |infra: &&Infra| !infra.sockets.is_empty() || front.listeners.sockets().next().is_some();
        let served = plan.infra.as_ref().filter(listens);
        let served = served.map(|infra| (infra, self.settings(key, infra), self.in_the_way(key, infra)));
        let desired = Desired::new(Some(ghost), vcl, front, None).after(steps);
        match (self.instances.get_mut(key), served) {
            (Some(instance), Some((infra, settings, after))) if instance.infra != *infra => {
                tracing::info!(
                    event = "restarting",
                    object = %format_args!("Gateway {key}"),
                    "Gateway {key}: restarting varnishd, since its listeners or arguments changed"
                );
                instance.restart(settings, infra.clone(), after);
                instance.feed(desired, routes);
            }
            (Some(instance), _) => instance.feed(desired, routes),
            (None, Some((infra, settings, after))) => {
                let of = (key.to_string(), Arc::clone(&self.board));
                let observe = self.arguments.observe.clone();
                let instance =
                    Instance::start(of, settings, infra.clone(), observe, self.shutdown.clone(), after);
                instance.feed(desired, routes);
                self.instances.insert(key.clone(), instance);
            }
            (None, None) => {}
        }
    }

    /// What trusts connections by loopback, and the listeners: a route to them would be a way around what guards them, or a loop.
    fn own_ports(&self, translation: &translate::Translation) -> Vec<u16> {
        let internal = self.arguments.internal_ports.into_iter().flat_map(|first| {
            let count = 2 * u16::try_from(translation.gateways.len()).unwrap_or(u16::MAX / 2);
            first..first.saturating_add(count)
        });
        let open = self.arguments.bind.is_none_or(|bind| bind.is_loopback() || bind.is_unspecified());
        let listeners = translation.gateways.values().flat_map(GatewayPlan::http_ports).filter(|_| open);
        internal.chain(listeners).chain(*self.dashboard_port.borrow()).collect()
    }

    /// Arguments that varnishd refuses do not take down one that runs: it keeps its own.
    fn refuse_bad_arguments(&mut self, key: &Key, infra: &mut Infra) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if infra.varnishd_args == instance.infra.varnishd_args {
            return;
        }
        if instance.refused_args.as_ref() != Some(&infra.varnishd_args) {
            let refused = refused_arguments(&self.arguments.varnish, &infra.varnishd_args);
            let Some(why) = refused.unwrap_or_else(|e| Some(format!("{e:#}"))) else { return };
            let why = format!("varnishd refuses its arguments (varnishdExtraArgs, storage): {why}");
            let refused = Event::Refused { why, serving: true };
            tell(&format!("Gateway {key}"), &refused);
            self.board.tell(&key.to_string(), &refused);
            instance.refused_args = Some(infra.varnishd_args.clone());
        }
        infra.varnishd_args.clone_from(&instance.infra.varnishd_args);
    }

    fn settings(&mut self, key: &Key, infra: &Infra) -> Settings {
        let next = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
        let place = *self.places.entry(key.clone()).or_insert(next);
        let internal = |offset: u16| {
            let port =
                self.arguments.internal_ports.map_or(0, |first| first.saturating_add(2 * place + offset));
            SocketAddr::from(([127, 0, 0, 1], port))
        };
        let address = self.arguments.bind;
        let socket = |s: &translate::Socket| ListenSocket { name: s.name.clone(), address, port: s.port };
        Settings {
            name: format!("Gateway {key}"),
            varnishd: self.arguments.varnish.daemon(),
            vmod: self.vmod.clone(),
            work_dir: self.state.join(directory_name(key)),
            ghost_config: None,
            hidden: Vec::new(),
            http_in_front: infra.http_in_front,
            sockets: infra.sockets.iter().map(socket).collect(),
            admin_address: internal(1),
            secret: None,
            extra_args: infra.varnishd_args.clone(),
            log_readers: self.arguments.observe.log_readers(infra.http_in_front),
            observer: None,
            former_args: None,
            hot: hot_limits(&infra.hot_objects),
            upgrade_idle: Duration::from_secs_f64(infra.upgrade_idle_seconds.max(0.001)),
            upgrade_total: UPGRADE_TOTAL,
            drain_delay: Duration::ZERO,
            drain_timeout: self.arguments.drain_timeout,
        }
    }
}

fn hot_limits(given: &translate::HotObjects) -> front::HotLimits {
    chaperone::hot_limits(!given.disabled, given.bytes, given.max_object_bytes)
}

/// A configuration of a plan, which is always whole.
fn source(plan: &GatewayPlan, bind: Option<IpAddr>) -> Source<'_> {
    let (routing, certificates) = (&plan.routing, &plan.certificates);
    Source { routing, below: None, frame: routing, certificates, bind }
}

fn ports_of(plans: &BTreeMap<Key, GatewayPlan>, fronts: &BTreeMap<Key, FrontPart>) -> BTreeSet<u16> {
    let of_varnishd = plans.values().filter_map(|plan| plan.infra.as_ref()).flat_map(|infra| &infra.sockets);
    let of_front = fronts.values().flat_map(|front| &front.listeners.listeners);
    of_varnishd.map(|socket| socket.port).chain(of_front.map(|listener| listener.port)).collect()
}

/// Where a Gateway's varnishd lives. Short: the path of a unix socket in it has 107 bytes at most.
fn directory_name(key: &Key) -> String {
    const LONGEST: usize = 50;
    let name = format!("{}_{}", key.namespace, key.name);
    if name.len() <= LONGEST {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("{}_{:016x}", &name[..name.floor_char_boundary(LONGEST - 17)], hasher.finish())
}

/// One line for what a varnishd does.
pub(crate) fn tell(name: &str, event: &Event) {
    let seconds = |d: &Duration| d.as_secs_f64();
    let text = event.sentence();
    let kind = event.kind();
    let listening = |socket: &str, address: &SocketAddr| {
        tracing::info!(event = "listening", object = name, socket, %address, "{name}: listening on {address} ({socket})");
    };
    match event {
        Event::Serving { sockets } => {
            for (socket, address) in sockets {
                listening(socket, address);
            }
        }
        Event::Listening { socket, address } => listening(socket, address),
        Event::Closed { socket } | Event::Restarting { socket } => {
            tracing::info!(event = kind, object = name, socket, "{name}: {text}");
        }
        Event::Reloaded { rules, backends, took } => {
            let ms = seconds(took) * 1000.0;
            tracing::info!(event = kind, object = name, rules, backends, ms, "{name}: {text}");
        }
        Event::VclReloaded { took } => {
            let ms = seconds(took) * 1000.0;
            tracing::info!(event = kind, object = name, ms, "{name}: {text}");
        }
        Event::CannotStart { again_in, .. } | Event::Died { again_in, .. } => {
            let again_in = seconds(again_in);
            tracing::error!(event = kind, object = name, again_in, "{name}: {text}");
        }
        _ => match event.severity() {
            Severity::Info => tracing::info!(event = kind, object = name, "{name}: {text}"),
            Severity::Warning => tracing::warn!(event = kind, object = name, "{name}: {text}"),
            Severity::Error => tracing::error!(event = kind, object = name, "{name}: {text}"),
        },
    }
}
