//! Counts requests, for each rule of each route; and by the way that they took, for each socket and each Service.
//!
//! A request costs seven additions at its end, without a lock or an allocation. Counters are found once, when a
//! configuration is made. They belong to a [`Registry`], not to a configuration: a reload continues counting where the
//! configuration before it stopped. Counters that no configuration names are dropped.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::RouteKind;
use model::stats::{
    BUCKETS, CACHE_RESULTS, CODES, Counts, Flow, Histogram, NamedFlow, RouteStats, Stats, WAYS, bucket, code,
};

use crate::{Router, Rule};

/// Positions in [`CACHE_RESULTS`].
pub const HIT: u8 = 0;
pub const MISS: u8 = 1;
pub const PASS: u8 = 2;
pub const STALE: u8 = 3;
pub const OTHER: u8 = 4;

/// The data path of a request: a position in [`WAYS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    Cache = 0,
    Direct = 1,
    #[default]
    Own = 2,
    /// Out of the front's own memory.
    Hot = 3,
}

impl Way {
    pub const ALL: [Self; WAYS.len()] = [Self::Cache, Self::Direct, Self::Own, Self::Hot];

    pub fn name(self) -> &'static str {
        WAYS[self as usize]
    }
}

/// Aligned, so that two routes do not share a line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counters {
    /// By code and cache result: one addition for both.
    requests: [[AtomicU64; CACHE_RESULTS.len()]; CODES.len()],
    bytes: AtomicU64,
    seconds: Times,
    backend: Times,
    backend_failures: AtomicU64,
    /// By [`Way`].
    ways: [AtomicU64; WAYS.len()],
}

/// For each rule of each route. The ways took no room: it was there for the alignment.
const _: () = assert!(size_of::<Counters>() == 512);

/// Counts the requests of one socket or of one Service, by way.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct FlowCounters {
    requests: [AtomicU64; WAYS.len()],
    /// Of the ways before [`Way::Hot`], which has none.
    errors: [AtomicU64; WAYS.len() - 1],
    hits: AtomicU64,
}

const _: () = assert!(size_of::<FlowCounters>() == 64);

impl FlowCounters {
    /// A request is over. `cache` is a position in [`CACHE_RESULTS`].
    pub fn answered(&self, way: Way, status: u16, cache: u8) {
        self.requests[way as usize].fetch_add(1, Ordering::Relaxed);
        if matches!(status, 500..=599)
            && let Some(errors) = self.errors.get(way as usize)
        {
            errors.fetch_add(1, Ordering::Relaxed);
        }
        if way == Way::Cache && matches!(cache, HIT | STALE) {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Flow {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Flow {
            requests: self.requests.each_ref().map(read),
            errors: std::array::from_fn(|way| self.errors.get(way).map_or(0, read)),
            hits: read(&self.hits),
        }
    }
}

#[derive(Debug, Default)]
struct Times {
    buckets: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
}

impl Times {
    fn add(&self, seconds: f64) {
        // A clock that was set back gives 0.
        let micros = (seconds * 1e6) as u64;
        self.buckets[bucket(micros)].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn read(&self) -> Histogram {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Histogram { buckets: self.buckets.each_ref().map(read), sum_micros: read(&self.sum_micros) }
    }
}

impl Counters {
    /// A request is over.
    pub fn answered(&self, status: u16, cache: u8, bytes: u64, seconds: f64) {
        self.requests[code(status)][usize::from(cache.min(OTHER))].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.seconds.add(seconds);
    }

    /// The same request took this way.
    pub fn took(&self, way: Way) {
        self.ways[way as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// An origin has said something, or nothing.
    pub fn fetched(&self, seconds: f64, answered: bool) {
        // A refused connection is quick, and says nothing of an origin's speed.
        if answered {
            self.backend.add(seconds);
        } else {
            self.backend_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Counts {
        let mut counts = Counts {
            bytes: self.bytes.load(Ordering::Relaxed),
            seconds: self.seconds.read(),
            backend: self.backend.read(),
            backend_failures: self.backend_failures.load(Ordering::Relaxed),
            ways: self.ways.each_ref().map(|counter| counter.load(Ordering::Relaxed)),
            ..Counts::default()
        };
        for (code, of_code) in self.requests.iter().enumerate() {
            for (cache, counter) in of_code.iter().enumerate() {
                let n = counter.load(Ordering::Relaxed);
                counts.codes[code] += n;
                counts.cache[cache] += n;
            }
        }
        counts
    }
}

/// By kind, name and position: what a rule is to people. Several entries of ghost.json may be of one rule.
type Id = (RouteKind, Box<str>, u32);

/// All counters of one process, or of one Gateway.
#[derive(Debug)]
pub struct Registry {
    known: Mutex<Option<Known<Id, Counters>>>,
    unrouted: Mutex<Option<Arc<Counters>>>,
    sockets: Named,
    services: Named,
}

/// What configurations count by. A change looks at what it names, not at all that is known.
#[derive(Debug)]
struct Known<K, V> {
    by_name: HashMap<K, Weak<V>>,
    /// With so many, those that no configuration has are dropped.
    sweep_at: usize,
}

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self { by_name: HashMap::new(), sweep_at: LEAST_SWEPT }
    }
}

/// Fewer may be left over.
const LEAST_SWEPT: usize = 256;

impl<K: Hash + Eq, V: Default> Known<K, V> {
    /// Drops what no configuration has, once in a while: each addition pays for two looks.
    fn sweep(&mut self) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, one| one.strong_count() > 0);
            self.sweep_at = (self.by_name.len() * 2).max(LEAST_SWEPT);
        }
    }

    fn of(&mut self, name: K) -> Arc<V> {
        let place = self.by_name.entry(name).or_default();
        place.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *place = Arc::downgrade(&new);
            new
        })
    }
}

/// Flows by name, as long as a configuration has them.
#[derive(Debug)]
struct Named(Mutex<Option<Known<Box<str>, FlowCounters>>>);

impl Named {
    /// Looks up many names under one lock.
    fn find<R>(&self, with: impl FnOnce(&mut dyn FnMut(&str) -> Arc<FlowCounters>) -> R) -> R {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.sweep();
        with(&mut |name| match known.by_name.get(name).and_then(Weak::upgrade) {
            Some(flow) => flow,
            None => known.of(name.into()),
        })
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    pub const fn new() -> Self {
        Self {
            known: Mutex::new(None),
            unrouted: Mutex::new(None),
            sockets: Named(Mutex::new(None)),
            services: Named(Mutex::new(None)),
        }
    }
}

/// The counters of one configuration.
#[derive(Debug, Default)]
pub struct RouteCounters {
    /// By rule; empty where it is switched off.
    by_rule: Box<[Arc<Counters>]>,
    unrouted: Option<Arc<Counters>>,
    /// By name. A Gateway has few.
    sockets: Box<[(Box<str>, Arc<FlowCounters>)]>,
    /// Of the groups of all rules, one after the other; and where those of each rule begin.
    services: Box<[Arc<FlowCounters>]>,
    first_service: Box<[u32]>,
}

impl RouteCounters {
    pub fn new(router: &Router, registry: &Registry) -> Self {
        if !router.counts_routes() {
            return Self::default();
        }
        let mut known = registry.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.sweep();
        let mut unrouted = registry.unrouted.lock().unwrap_or_else(PoisonError::into_inner);
        let unrouted = Arc::clone(unrouted.get_or_insert_default());
        let mut by_rule: Vec<Arc<Counters>> = Vec::with_capacity(router.rules().len());
        let mut before: Option<&Rule> = None;
        for rule in router.rules() {
            // Matches of one rule stand together.
            let counters = match (before.filter(|before| is_same(before, rule)), by_rule.last()) {
                (Some(_), Some(counters)) => Arc::clone(counters),
                // Of no route: what answers where there is no route at all.
                _ if rule.route_name().is_empty() => Arc::clone(&unrouted),
                _ => known.of((rule.kind(), rule.route_name().into(), rule.rule_index())),
            };
            by_rule.push(counters);
            before = Some(rule);
        }
        let (sockets, (services, first_service)) = (sockets(router, registry), services(router, registry));
        Self { by_rule: by_rule.into(), unrouted: Some(unrouted), sockets, services, first_service }
    }

    /// Of a listener's socket (`http-80`). `None` where it is switched off, and for sockets that no listener has.
    pub fn socket(&self, name: &str) -> Option<&FlowCounters> {
        self.sockets.iter().find(|(known, _)| **known == *name).map(|(_, flow)| &**flow)
    }

    /// Of the Service of a rule's group.
    pub fn service(&self, rule: u32, group: usize) -> Option<&FlowCounters> {
        let first = *self.first_service.get(rule as usize)? as usize;
        self.services.get(first + group).map(|flow| &**flow)
    }

    /// Of a rule, or of requests without one. `None` where it is switched off.
    pub fn of(&self, rule: Option<u32>) -> Option<&Arc<Counters>> {
        match rule {
            Some(rule) => self.by_rule.get(rule as usize),
            None => self.unrouted.as_ref(),
        }
    }

    /// What was counted until now, with those of a base below. Only what is counted by route is filled in.
    pub fn read(&self, router: &Router, below: Option<(&Self, &Router)>) -> Stats {
        let mut seen: HashSet<_> = self.unrouted.iter().map(Arc::as_ptr).collect();
        let mut routes = Vec::new();
        let (sockets, services) = self.read_flows(router, below);
        let below =
            below.into_iter().flat_map(|(counters, router)| router.rules().iter().zip(&counters.by_rule));
        for (rule, counters) in router.rules().iter().zip(&self.by_rule).chain(below) {
            if !seen.insert(Arc::as_ptr(counters)) {
                continue;
            }
            let counts = counters.read();
            if !counts.is_empty() {
                let (kind, route, rule) = (rule.kind(), rule.route_name().to_owned(), rule.rule_index());
                routes.push(RouteStats { kind, route, rule, counts });
            }
        }
        Stats {
            per_route: self.unrouted.is_some(),
            unrouted: self.unrouted.as_ref().map(|counters| counters.read()).unwrap_or_default(),
            routes,
            sockets,
            services,
            ..Stats::default()
        }
    }

    fn read_flows(
        &self,
        router: &Router,
        below: Option<(&Self, &Router)>,
    ) -> (Vec<NamedFlow>, Vec<NamedFlow>) {
        let mut seen = HashSet::new();
        let mut read = |to: &mut Vec<NamedFlow>, name: &str, counters: &Arc<FlowCounters>| {
            if seen.insert(Arc::as_ptr(counters)) {
                let flow = counters.read();
                if !flow.is_empty() {
                    to.push(NamedFlow { name: name.to_owned(), flow });
                }
            }
        };
        let (mut sockets, mut services) = (Vec::new(), Vec::new());
        for (counters, router) in std::iter::once((self, router)).chain(below) {
            for (name, flow) in &counters.sockets {
                read(&mut sockets, name, flow);
            }
            let names = router.rules().iter().flat_map(|rule| rule.groups().iter().map(crate::Group::name));
            for (name, flow) in names.zip(&counters.services) {
                read(&mut services, name, flow);
            }
        }
        (sockets, services)
    }
}

fn sockets(router: &Router, registry: &Registry) -> Box<[(Box<str>, Arc<FlowCounters>)]> {
    registry.sockets.find(|flow_of| {
        let mut all: Vec<(Box<str>, Arc<FlowCounters>)> = Vec::new();
        for listener in router.listeners() {
            if all.iter().all(|(known, _)| **known != *listener.socket()) {
                all.push((listener.socket().into(), flow_of(listener.socket())));
            }
        }
        all.into()
    })
}

fn services(router: &Router, registry: &Registry) -> (Box<[Arc<FlowCounters>]>, Box<[u32]>) {
    registry.services.find(|flow_of| {
        let mut all = Vec::new();
        let mut first = Vec::with_capacity(router.rules().len());
        for rule in router.rules() {
            first.push(u32::try_from(all.len()).unwrap_or(u32::MAX));
            all.extend(rule.groups().iter().map(|group| flow_of(group.name())));
        }
        (all.into(), first.into())
    })
}

fn is_same(a: &Rule, b: &Rule) -> bool {
    a.rule_index() == b.rule_index() && a.kind() == b.kind() && a.route_name() == b.route_name()
}
