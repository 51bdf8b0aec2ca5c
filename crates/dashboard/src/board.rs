//! Everything that is shown: the varnishds that run, and what happened to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use chaperone::{Configuration, Event, Severity, State};
use model::ghost::Config;
use model::invalidation::{Invalidation, Outcome};
use router::Router;
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::AbortHandle;

use crate::backends::Backends;
use crate::changes::{self, Shown};
use crate::explain::Faults;
use crate::journal::{Journal, now};
use crate::stream_traffic::StreamTraffic;
use crate::traffic::Traffic;
use crate::view::{self, Gateway, Overview, Reload, Second};

/// Changes of configuration are looked at together.
const GATHER: Duration = Duration::from_millis(300);

/// varnishd's counters are read so often, and rest so many times as long as reading took…
const EVERY: Duration = Duration::from_secs(2);
const REST: u32 = 50;
/// … while a client has looked within so many milliseconds.
const LOOKED_AT: u64 = 30_000;

/// How it behaves.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// May the page take objects out of the cache?
    pub allow_actions: bool,
}

/// Shared by all who show it and all who write to it.
#[derive(Debug)]
pub struct Board {
    pub(crate) options: Options,
    pub journal: Journal,
    started: u64,
    gateways: Mutex<BTreeMap<String, Arc<Watched>>>,
    /// By `namespace/name`: what those that run lack, and those that do not run.
    lacking: Mutex<BTreeMap<String, Gateway>>,
    faults: Mutex<Arc<Faults>>,
    /// By Gateway: it outlives the varnishd.
    reloads: Mutex<BTreeMap<String, Reloads>>,
    /// Counts changes of what is shown.
    pub(crate) version: watch::Sender<u64>,
    /// Milliseconds since 1970 of the last request.
    asked: AtomicU64,
    /// A request came after a pause.
    asks: Notify,
    /// Numbers of each second, as JSON.
    pub(crate) samples: broadcast::Sender<Arc<str>>,
}

#[derive(Debug, Default, Clone)]
struct Reloads {
    good: Option<Reload>,
    bad: Option<Reload>,
}

/// One varnishd.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) state: watch::Receiver<State>,
    /// Of the configuration that was asked for last.
    read: Mutex<Option<Read>>,
    pub(crate) traffic: Mutex<Traffic>,
    pub(crate) streams: Mutex<StreamTraffic>,
    pub(crate) backends: Mutex<Backends>,
    tasks: Mutex<Vec<AbortHandle>>,
}

#[derive(Debug, Clone)]
struct Read {
    of: Configuration,
    config: Arc<Config>,
    /// Compiled on first use.
    router: Option<Arc<Router>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    pub fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            options,
            journal: Journal::default(),
            started: now(),
            gateways: Mutex::default(),
            lacking: Mutex::default(),
            faults: Mutex::default(),
            reloads: Mutex::default(),
            version: watch::Sender::default(),
            asked: AtomicU64::new(0),
            asks: Notify::new(),
            samples: broadcast::Sender::new(16),
        })
    }

    /// These varnishds, by `namespace/name`, and no others. To be called within tokio.
    pub fn show(self: &Arc<Self>, all: &BTreeMap<String, watch::Receiver<State>>) {
        let mut gateways = lock(&self.gateways);
        gateways.retain(|name, _| all.contains_key(name));
        // Another one of the same name has a history of its own.
        lock(&self.reloads).retain(|name, _| all.contains_key(name));
        for (name, state) in all {
            if gateways.get(name).is_some_and(|known| known.state.same_channel(state)) {
                continue;
            }
            let watched = Arc::new(Watched {
                name: name.clone(),
                state: state.clone(),
                read: Mutex::default(),
                traffic: Mutex::default(),
                streams: Mutex::default(),
                backends: Mutex::default(),
                tasks: Mutex::default(),
            });
            let following = tokio::spawn(follow(Arc::clone(self), name.clone(), state.clone()));
            let measuring = tokio::spawn(measure(Arc::clone(self), Arc::downgrade(&watched)));
            let looking = tokio::spawn(look(Arc::clone(self), Arc::downgrade(&watched)));
            let tasks = [following.abort_handle(), measuring.abort_handle(), looking.abort_handle()];
            lock(&watched.tasks).extend(tasks);
            gateways.insert(name.clone(), watched);
        }
        drop(gateways);
        self.changed();
    }

    /// Gateways that are not served as configured, and why. Of those that run only the problems count; the others are shown.
    pub fn lack(&self, all: Vec<Gateway>) {
        let all = all.into_iter().map(|gateway| (gateway.name.clone(), gateway)).collect();
        *lock(&self.lacking) = all;
        self.changed();
    }

    /// What references of routes lead nowhere.
    pub fn unresolved(&self, faults: Faults) {
        *lock(&self.faults) = Arc::new(faults);
    }

    pub(crate) fn faults(&self) -> Arc<Faults> {
        Arc::clone(&lock(&self.faults))
    }

    /// Of all Gateways, those that do not run too.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let running: BTreeSet<String> = lock(&self.gateways).keys().cloned().collect();
        lock(&self.lacking).keys().cloned().chain(running).collect()
    }

    /// Something happened to the varnishd of this Gateway.
    pub fn tell(&self, gateway: &str, event: &Event) {
        let milliseconds = event.took().map(|took| took.as_secs_f64() * 1000.0);
        let text = event.sentence();
        self.journal.push(gateway, event.severity(), event.kind(), &text, milliseconds);
        let reload = || Some(Reload { at: now(), milliseconds, text: text.clone() });
        match event {
            Event::Reloaded { .. } | Event::VclReloaded { .. } => {
                lock(&self.reloads).entry(gateway.to_owned()).or_default().good = reload();
            }
            Event::Refused { .. } | Event::CannotStart { .. } => {
                lock(&self.reloads).entry(gateway.to_owned()).or_default().bad = reload();
            }
            _ => {}
        }
        self.changed();
    }

    /// Objects were taken out of its cache, or were to be.
    pub fn invalidated(&self, gateway: &str, one: &Invalidation, outcomes: &[Outcome]) {
        let failed = outcomes.iter().any(|outcome| outcome.error.is_some());
        let (severity, kind) =
            if failed { (Severity::Warning, "not-invalidated") } else { (Severity::Info, "invalidated") };
        let what = match (one.paths.as_slice(), one.tags.as_slice()) {
            ([path], []) => format!("{}{path}", one.hostname.as_deref().unwrap_or_default()),
            ([], [tag]) => format!("tag {tag}"),
            (paths, tags) => format!("{} paths, {} tags", paths.len(), tags.len()),
        };
        let summary = translate::invalidation::summary_of(one.method, outcomes);
        self.journal.record(gateway, severity, kind, &format!("{what}: {summary}"));
    }

    /// Notes that a client looks.
    pub(crate) fn look(&self) {
        let was_looked_at = self.is_looked_at();
        self.asked.store(now(), Ordering::Relaxed);
        if !was_looked_at {
            self.asks.notify_waiters();
        }
    }

    fn is_looked_at(&self) -> bool {
        self.samples.receiver_count() > 0
            || now().saturating_sub(self.asked.load(Ordering::Relaxed)) < LOOKED_AT
    }

    pub(crate) fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    pub(crate) fn gateways(&self) -> Vec<Arc<Watched>> {
        lock(&self.gateways).values().cloned().collect()
    }

    pub(crate) fn overview(&self) -> Overview {
        let mut gateways = lock(&self.lacking).clone();
        for watched in self.gateways() {
            let mut gateway = self.gateway(&watched);
            let lacking = gateways.remove(&watched.name).map(|gateway| gateway.problems);
            gateway.problems.extend(lacking.unwrap_or_default());
            gateways.insert(watched.name.clone(), gateway);
        }
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            engine: engine(),
            started: self.started,
            now: now(),
            allow_actions: self.options.allow_actions,
            gateways: gateways.into_values().collect(),
        }
    }

    fn gateway(&self, watched: &Watched) -> Gateway {
        // Not held while it is read: reporters must not wait for us.
        let state = watched.state.borrow().clone();
        let config = watched.config(&state.configuration);
        let reloads = lock(&self.reloads).get(&watched.name).cloned().unwrap_or_default();
        Gateway {
            last_reload: reloads.good,
            last_failure: reloads.bad,
            cache: lock(&watched.backends).cache,
            engine: engine(),
            ..view::gateway(&watched.name, &state, &config)
        }
    }
}

fn engine() -> Option<String> {
    chaperone::engine::chosen().map(ToString::to_string)
}

impl Watched {
    /// Does the front carry HTTP?
    pub(crate) fn is_in_front(&self) -> bool {
        self.state.borrow().configuration.tls.http
    }

    /// What is served now, read.
    pub(crate) fn current(&self) -> Arc<Config> {
        let configuration = self.state.borrow().configuration.clone();
        self.config(&configuration)
    }

    fn config(&self, of: &Configuration) -> Arc<Config> {
        let mut read = lock(&self.read);
        if let Some(known) = read.as_ref().filter(|known| known.of.is(of)) {
            return Arc::clone(&known.config);
        }
        let config = Arc::new(parse(of));
        *read = Some(Read { of: of.clone(), config: Arc::clone(&config), router: None });
        config
    }

    /// A router like the one in ghost.
    pub(crate) fn router(&self) -> Result<(Arc<Config>, Arc<Router>), String> {
        let config = self.current();
        let known = lock(&self.read).as_ref().filter(|read| Arc::ptr_eq(&read.config, &config)).cloned();
        if let Some(router) = known.and_then(|read| read.router) {
            return Ok((config, router));
        }
        let router = Arc::new(Router::compile(&config).map_err(|e| e.to_string())?.router);
        if let Some(read) = lock(&self.read).as_mut().filter(|read| Arc::ptr_eq(&read.config, &config)) {
            read.router = Some(Arc::clone(&router));
        }
        Ok((config, router))
    }
}

/// ghost has read these bytes: they can be read.
fn parse(of: &Configuration) -> Config {
    of.routes().unwrap_or_default()
}

/// Reports what a new configuration brought, and makes clients look again.
async fn follow(board: Arc<Board>, name: String, mut state: watch::Receiver<State>) {
    let mut last: Option<(Configuration, Shown)> = None;
    loop {
        let configuration = state.borrow_and_update().configuration.clone();
        board.changed();
        let same = last.as_ref().is_some_and(|(known, _)| known.is(&configuration));
        if configuration.ghost.is_some() && !same {
            let (looked, before) = (configuration.clone(), last.take());
            let looked = tokio::task::spawn_blocking(move || {
                let shown = match before.as_ref().filter(|(known, _)| Arc::ptr_eq(&known.tls, &looked.tls)) {
                    Some((_, shown)) => shown.clone(),
                    None => changes::shown(&looked.tls),
                };
                let Some((known, old_shown)) = before else { return (Vec::new(), Vec::new(), shown) };
                let of_certificates = changes::of_certificates(&old_shown, &shown);
                let routers = known.ghost.zip(looked.ghost);
                let of_endpoints = routers
                    .map(|(old, new)| changes::of_endpoints(&old.router, &new.router))
                    .unwrap_or_default();
                (of_endpoints, of_certificates, shown)
            });
            let Ok((of_endpoints, of_certificates, shown)) = looked.await else { return };
            for text in of_endpoints {
                board.journal.record(&name, Severity::Info, "endpoints", &text);
            }
            for text in of_certificates {
                board.journal.record(&name, Severity::Info, "certificates", &text);
            }
            last = Some((configuration, shown));
        }
        tokio::time::sleep(GATHER).await;
        if state.changed().await.is_err() {
            return board.changed();
        }
    }
}

/// The busiest rules, whose numbers go to clients.
const MOST_RULES: usize = 200;

/// Takes the numbers of each second.
async fn measure(board: Arc<Board>, watched: Weak<Watched>) {
    let Some(state) = watched.upgrade().map(|watched| watched.state.clone()) else { return };
    let mut samples = chaperone::stats::watch(state);
    while samples.changed().await.is_ok() {
        let sample = samples.borrow_and_update().clone();
        let Some(watched) = watched.upgrade() else { return };
        let streams = view::streams(&watched.state.borrow());
        let mut known = lock(&watched.streams);
        known.take(Instant::now(), streams);
        let streams = known.seconds(1, MOST_RULES);
        drop(known);
        let mut traffic = lock(&watched.traffic);
        traffic.take(sample.as_ref());
        if board.samples.receiver_count() == 0 {
            continue;
        }
        let second = traffic.second(&watched.name, 1, MOST_RULES);
        drop(traffic);
        let second = Second { in_front: watched.is_in_front(), streams, ..second };
        if let Ok(json) = serde_json::to_string(&second) {
            let _ = board.samples.send(json.into());
        }
    }
}

/// Reads varnishd's own counters while a client looks.
async fn look(board: Arc<Board>, watched: Weak<Watched>) {
    loop {
        let begun = Instant::now();
        let Some(state) = watched.upgrade().map(|watched| watched.state.clone()) else { return };
        let dir = state.borrow().varnishd_dir.clone();
        if let Some(dir) = dir.filter(|_| board.is_looked_at())
            && let Some(counters) = chaperone::varnishstat::read(&dir).await
        {
            let Some(watched) = watched.upgrade() else { return };
            let mut backends = lock(&watched.backends);
            let before = backends.cache;
            backends.take(&counters);
            // The page asks again by itself; for whom it is empty, now.
            if before.is_none() {
                board.changed();
            }
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY.max(begun.elapsed() * REST)) => {}
            () = board.asks.notified() => {}
        }
    }
}
