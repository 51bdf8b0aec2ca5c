//! `serve`: the whole gateway on one machine, configured by files.

mod instance;
mod news;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use chaperone::{Desired, Event, ListenSocket, Settings, Shutdown};
use source::files::{Files, Loaded};
use tokio::sync::watch;
use translate::{GatewayPlan, Infra, Key, Snapshot};

use crate::cli::ServeArguments;
use crate::serve::instance::Instance;
use crate::serve::news::News;
use crate::{input, signals, verdict, vmod};

pub(crate) async fn run(arguments: ServeArguments) -> anyhow::Result<ExitCode> {
    let mut shutdown = signals::watch_signals()?;
    let state = StateDir::new(arguments.state_dir.clone())?;
    let mut files = Files::new(arguments.files.files.clone());
    let mut changes = files.watch()?;
    let mut machine = Machine {
        state: state.path(),
        vmod: vmod::find(arguments.varnish.vmod.as_deref()),
        arguments,
        shutdown: shutdown.clone(),
        instances: BTreeMap::new(),
        places: BTreeMap::new(),
        news: News::default(),
    };
    loop {
        machine.apply(files.load());
        tokio::select! {
            () = changes.changed() => {}
            _ = shutdown.wait_for(|s| *s > Shutdown::Run) => break,
        }
    }
    for (_, instance) in std::mem::take(&mut machine.instances) {
        instance.ended().await;
    }
    drop(state);
    Ok(ExitCode::SUCCESS)
}

/// A directory of the user's, or one that goes with us.
enum StateDir {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl StateDir {
    fn new(given: Option<PathBuf>) -> std::io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        // varnishd's own user must pass through.
        let passable = std::fs::Permissions::from_mode(0o755);
        Ok(match given {
            Some(dir) => {
                std::fs::create_dir_all(&dir)?;
                Self::Given(std::path::absolute(dir)?)
            }
            None => Self::Temporary(
                tempfile::Builder::new().prefix("varnish-gateway-").permissions(passable).tempdir()?,
            ),
        })
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Given(dir) => dir.clone(),
            Self::Temporary(dir) => dir.path().to_owned(),
        }
    }
}

/// All Gateways of this machine.
struct Machine {
    arguments: ServeArguments,
    state: PathBuf,
    vmod: Option<PathBuf>,
    shutdown: watch::Receiver<Shutdown>,
    instances: BTreeMap<Key, Instance>,
    /// Every Gateway that was ever started, numbered from 0.
    places: BTreeMap<Key, u16>,
    news: News,
}

impl Machine {
    fn apply(&mut self, Loaded { snapshot, problems, changed }: Loaded) {
        self.news.problems(&problems);
        if !changed && !self.instances.is_empty() {
            return;
        }
        let translation = translate::translate(&snapshot);
        self.news.verdicts(verdict::of(&translation.statuses));
        self.news.no_gateway(translation.gateways.is_empty());
        let endpoints = input::endpoints(&snapshot);
        let mut notices = translation.notices;
        let conflicts = port_conflicts(&snapshot, &translation.gateways);
        self.news.conflicts(conflicts.values());

        self.instances.retain(|key, instance| {
            let stays = translation.gateways.contains_key(key) && !conflicts.contains_key(key);
            if !stays {
                instance.stop();
            }
            stays
        });
        for (key, plan) in translation.gateways.iter().filter(|(key, _)| !conflicts.contains_key(*key)) {
            let (ghost, of_endpoints) = input::ghost(plan, &endpoints);
            notices.extend(of_endpoints);
            match serde_json::to_vec(&ghost) {
                Ok(json) => self.bring(key, plan, json.into()),
                Err(e) => tracing::error!("Gateway {key}: ghost.json cannot be written: {e}"),
            }
        }
        self.news.notices(notices);
    }

    /// Starts, feeds, restarts or stops one Gateway's varnishd.
    fn bring(&mut self, key: &Key, plan: &GatewayPlan, ghost: Arc<[u8]>) {
        let routes = instance::count_routes(&plan.routing);
        let vcl = plan.main_vcl.as_deref().map(Arc::from);
        let desired = Desired { ghost: Some(ghost), vcl };
        let settings = plan.infra.as_ref().map(|infra| self.settings(key, infra));
        match (self.instances.get_mut(key), plan.infra.as_ref().zip(settings)) {
            // Without sockets there is nothing to listen on; verdicts say why.
            (instance, Some((infra, _))) if infra.sockets.is_empty() => {
                if let Some(instance) = instance {
                    instance.stop();
                    self.instances.remove(key);
                }
            }
            (Some(instance), Some((infra, settings))) if instance.infra != *infra => {
                tracing::info!(
                    event = "restarting",
                    object = %format_args!("Gateway {key}"),
                    "Gateway {key}: restarting varnishd, since its listeners or arguments changed"
                );
                instance.restart(settings, infra.clone());
                instance.feed(desired, routes);
            }
            (Some(instance), _) => instance.feed(desired, routes),
            (None, Some((infra, settings))) => {
                let instance = Instance::start(settings, infra.clone(), self.shutdown.clone());
                instance.feed(desired, routes);
                self.instances.insert(key.clone(), instance);
            }
            (None, None) => {}
        }
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
            varnishd: self.arguments.varnish.varnishd.clone(),
            vmod: self.vmod.clone(),
            work_dir: self.state.join(format!("{}_{}", key.namespace, key.name)),
            ghost_config: None,
            sockets: infra.sockets.iter().map(socket).collect(),
            reload_address: internal(0),
            admin_address: internal(1),
            extra_args: infra.varnishd_args.clone(),
            upgrade_idle: std::time::Duration::from_secs_f64(infra.upgrade_idle_seconds.max(0.001)),
            drain_timeout: self.arguments.drain_timeout,
        }
    }
}

/// Two Gateways cannot share a port of one machine: the older has it, and the other hears so.
fn port_conflicts(snapshot: &Snapshot, plans: &BTreeMap<Key, GatewayPlan>) -> BTreeMap<Key, String> {
    let age = |key: &Key| snapshot.gateways.get(key).and_then(|g| g.metadata.creation_timestamp.clone());
    let mut by_age: Vec<_> = plans.iter().collect();
    by_age.sort_by_key(|(key, _)| age(key));
    let mut taken: BTreeMap<u16, &Key> = BTreeMap::new();
    let mut conflicts = BTreeMap::new();
    for (key, plan) in by_age {
        let ports: Vec<_> = plan.infra.iter().flat_map(|i| &i.sockets).map(|s| s.port).collect();
        match ports.iter().find_map(|port| taken.get(port).map(|by| (port, by))) {
            Some((port, by)) => {
                let message = format!(
                    "Gateway {key}: not served: port {port} belongs to Gateway {by}, which is older. \
                     Give its listener another port, or move both listeners into one Gateway"
                );
                conflicts.insert(key.clone(), message);
            }
            None => taken.extend(ports.into_iter().map(|port| (port, key))),
        }
    }
    conflicts
}

/// One line for what a varnishd does.
pub(crate) fn tell(name: &str, event: &Event) {
    let seconds = |d: &std::time::Duration| d.as_secs_f64();
    match event {
        Event::Serving { sockets } => {
            for (socket, address) in sockets {
                tracing::info!(event = "listening", object = name, socket, %address, "{name}: listening on {address} ({socket})");
            }
        }
        Event::Reloaded { rules, backends, took } => {
            let ms = seconds(took) * 1000.0;
            tracing::info!(
                event = "reloaded",
                object = name,
                rules,
                backends,
                ms,
                "{name}: reloaded {rules} routes, {backends} endpoints in {ms:.0} ms"
            );
        }
        Event::VclReloaded { took } => {
            let ms = seconds(took) * 1000.0;
            tracing::info!(
                event = "vcl-reloaded",
                object = name,
                ms,
                "{name}: reloaded the VCL in {ms:.0} ms"
            );
        }
        Event::Refused { why } => {
            tracing::warn!(
                event = "refused",
                object = name,
                "{name}: {why}\n  what was served before is still served"
            );
        }
        Event::CannotStart { why, again_in } => {
            tracing::error!(
                event = "cannot-start",
                object = name,
                again_in = seconds(again_in),
                "{name}: {why} (trying again in {} s)",
                seconds(again_in)
            );
        }
        Event::Died { why, again_in } => {
            tracing::error!(
                event = "died",
                object = name,
                again_in = seconds(again_in),
                "{name}: {why}; starting it again in {} s",
                seconds(again_in)
            );
        }
        Event::Restarted => {
            tracing::info!(event = "restarted", object = name, "{name}: varnishd's child runs again");
        }
        Event::Draining => tracing::info!(event = "draining", object = name, "{name}: draining"),
        Event::Stopped => tracing::info!(event = "stopped", object = name, "{name}: stopped"),
    }
}
