//! Passive health: which endpoints to avoid, by how their requests went.
//!
//! Takes every success and failure of the direct way. An endpoint that fails [`FAILURES`] times in a row is avoided for a time
//! that doubles with each round; after it, its share of requests grows until it is whole again (slow start). At most half of
//! a group is avoided, and where all endpoints fail, all are used.
//!
//! Endpoints are known by the namespace of the route, the Service and the TLS profile, beside their address: the requests of
//! one namespace's routes never decide about those of another. The request path takes no lock and allocates nothing. As long as
//! no endpoint of a group was avoided lately, a pick reads one atomic number and no clock.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use router::random;

use super::upstream::budget::Budget;

/// Failures in a row after which an endpoint is avoided.
const FAILURES: u32 = 5;
/// How long it is avoided at first. All times are in milliseconds of the [`Clock`].
const FIRST: u64 = 5_000;
/// Each round takes twice as long as the one before, up to this; up to a quarter is added at random.
const LONGEST: u64 = 300_000;
/// From the end of the avoidance until the endpoint has its whole share.
const SLOW_START: u64 = 30_000;
/// The share of an endpoint, in thousandths, when slow start begins.
const FIRST_SHARE: u64 = 100;
const WHOLE: u64 = 1_000;

/// Endpoints that one request tries, one after the other, while nothing was sent.
pub(crate) const TRIES: usize = 3;

/// Milliseconds that only grow, from 1 on.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// For tests, which must not depend on time: it moves only when it is advanced.
    is_stopped: AtomicBool,
    ahead: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { began: Instant::now(), is_stopped: AtomicBool::new(false), ahead: AtomicU64::new(0) }
    }
}

impl Clock {
    pub(crate) fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, time: Instant) -> u64 {
        let passed = if self.is_stopped.load(Ordering::Relaxed) {
            0
        } else {
            time.saturating_duration_since(self.began).as_millis() as u64
        };
        passed + self.ahead.load(Ordering::Relaxed) + 1
    }

    /// Stops it, and advances it by this.
    pub(crate) fn advance(&self, by: Duration) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.ahead.fetch_add(u64::try_from(by.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }
}

/// How an endpoint failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It took no connection, or could not be verified. No client can cause this.
    Connection,
    /// It did not answer in time, or its answer was not valid. A client's request may be the reason.
    Answer,
}

/// What was learned about one endpoint.
#[derive(Debug)]
struct Endpoint {
    address: SocketAddr,
    /// Failures in a row.
    failures: AtomicU32,
    /// How often it was avoided without being whole in between.
    rounds: AtomicU32,
    /// When the last avoidance began. Requests that began earlier say nothing new.
    since: AtomicU64,
    /// When it ends, or ended. 0: the endpoint is whole.
    until: AtomicU64,
}

impl Endpoint {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            failures: AtomicU32::new(0),
            rounds: AtomicU32::new(0),
            since: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Its share of requests, in thousandths.
    fn share(&self, now: u64) -> u64 {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return WHOLE;
        }
        match now.checked_sub(until) {
            None => 0,
            Some(past) if past >= SLOW_START => WHOLE,
            Some(past) => FIRST_SHARE + (WHOLE - FIRST_SHARE) * past / SLOW_START,
        }
    }

    fn succeeded(&self, clock: &Clock, began: Instant) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return;
        }
        let now = clock.now();
        let next = if now < until {
            // It was used all the same, since too many others fail.
            if clock.at(began) < self.since.load(Ordering::Relaxed) {
                return;
            }
            now
        } else if now - until >= SLOW_START {
            0
        } else {
            return;
        };
        let _ = self.until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns when its avoidance ends, where this failure begins one, and its round.
    fn failed(&self, fault: Fault, (began, now): (u64, u64), random: u64) -> Option<(u64, u32)> {
        if began < self.since.load(Ordering::Relaxed) {
            return None;
        }
        let until = self.until.load(Ordering::Relaxed);
        if now < until {
            return None;
        }
        let starts_slowly = until != 0 && now - until < SLOW_START;
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures < FAILURES && !(starts_slowly && fault == Fault::Connection) {
            return None;
        }
        let rounds = if starts_slowly { self.rounds.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        let time = (FIRST << rounds.saturating_sub(1).min(16)).min(LONGEST);
        let end = now + time + random::below(time / 4, random);
        // Several threads may see the same failures: one of them begins the avoidance.
        self.until.compare_exchange(until, end, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        self.since.store(now, Ordering::Relaxed);
        self.rounds.store(rounds, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        Some((end, rounds))
    }
}

/// Endpoints that one request has tried.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tried {
    places: [usize; TRIES],
    count: usize,
}

impl Tried {
    /// The oldest is replaced.
    pub(crate) fn add(&mut self, at: usize) {
        self.places[self.count % TRIES] = at;
        self.count += 1;
    }

    fn contains(&self, at: usize) -> bool {
        self.places[..self.count.min(TRIES)].contains(&at)
    }

    fn last(&self) -> Option<usize> {
        Some(self.places[self.count.checked_sub(1)? % TRIES])
    }
}

/// The endpoints of one group, in its order.
#[derive(Debug)]
pub(crate) struct Group {
    endpoints: Box<[Arc<Endpoint>]>,
    /// Until then an endpoint may have less than its whole share. Shared by all groups of the same scope.
    restless: Arc<AtomicU64>,
    /// Of the same scope, too.
    budget: Arc<Budget>,
    /// Requests that are mirrored to it at the moment.
    mirrored: Arc<AtomicUsize>,
}

/// An endpoint that is avoided from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ejected {
    pub(crate) time: Duration,
    /// It was whole before.
    pub(crate) is_first: bool,
}

impl Group {
    /// Of its retries.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn mirrored(&self) -> &Arc<AtomicUsize> {
        &self.mirrored
    }

    /// Does the endpoint get no requests now?
    pub(crate) fn avoids(&self, at: usize, clock: &Clock) -> bool {
        if self.restless.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = clock.now();
        self.most_avoided(now) > 0 && self.endpoints.get(at).is_some_and(|endpoint| endpoint.share(now) == 0)
    }

    /// The position of the endpoint that takes the request. Not one of those it has tried, if there is any other.
    pub(crate) fn pick(
        &self,
        of: &router::Group,
        clock: &Clock,
        random: u64,
        tried: &Tried,
    ) -> Option<usize> {
        let restless = self.restless.load(Ordering::Relaxed);
        if restless == 0 && tried.count == 0 {
            return of.pick(random, None);
        }
        let now = clock.now();
        if restless != 0 && restless < now {
            let _ = self.restless.compare_exchange(restless, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        let most = self.most_avoided(now);
        let shares = || {
            let mut avoided = 0;
            self.endpoints.iter().enumerate().map(move |(at, endpoint)| {
                let mut share = endpoint.share(now);
                if share == 0 {
                    avoided += 1;
                    if avoided > most {
                        // Not before one that has just answered.
                        share = if most == 0 { WHOLE } else { FIRST_SHARE };
                    }
                }
                if tried.contains(at) { 0 } else { share as u32 }
            })
        };
        if of.takes_turns()
            && let Some(at) = of.pick(random, tried.last())
            && let Some(share) = shares().nth(at)
            && random::below(WHOLE, random) < u64::from(share)
        {
            return Some(at);
        }
        // The upper bits have decided above.
        let random = if of.takes_turns() { random.rotate_left(32) } else { random };
        random::by_weight(shares(), random).or_else(|| of.pick(random, tried.last()))
    }

    /// How many endpoints may be avoided: half of them; none where all would be.
    fn most_avoided(&self, now: u64) -> usize {
        let avoided = self.endpoints.iter().filter(|endpoint| endpoint.share(now) == 0).count();
        if avoided == self.endpoints.len() { 0 } else { self.endpoints.len() / 2 }
    }

    /// Endpoints that get no requests now.
    fn avoided(&self, now: u64) -> impl Iterator<Item = SocketAddr> {
        let avoided = self.endpoints.iter().filter(move |endpoint| endpoint.share(now) == 0);
        avoided.take(self.most_avoided(now)).map(|endpoint| endpoint.address)
    }

    /// The endpoint has answered a request that began then.
    pub(crate) fn succeeded(&self, at: usize, clock: &Clock, began: Instant) {
        if let Some(endpoint) = self.endpoints.get(at) {
            endpoint.succeeded(clock, began);
        }
    }

    /// The endpoint has failed a request that began then. Returns whether it is avoided from now on.
    pub(crate) fn failed(&self, at: usize, fault: Fault, health: &Health, began: Instant) -> Option<Ejected> {
        // A single endpoint is never avoided.
        if self.endpoints.len() < 2 {
            return None;
        }
        let (began, now) = (health.clock.at(began), health.clock.now());
        let (end, rounds) = self.endpoints.get(at)?.failed(fault, (began, now), random::next())?;
        self.restless.fetch_max(end + SLOW_START, Ordering::Relaxed);
        health.ejections.fetch_add(1, Ordering::Relaxed);
        Some(Ejected { time: Duration::from_millis(end - now), is_first: rounds == 1 })
    }
}

/// What is known about the endpoints of one Gateway.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) clock: Clock,
    /// For table swaps and for metrics, never for requests.
    scopes: Mutex<HashMap<Box<str>, Scope>>,
    ejections: AtomicU64,
}

/// One Service with one TLS profile, as the routes of one namespace see it.
#[derive(Debug, Default)]
struct Scope {
    restless: Arc<AtomicU64>,
    budget: Arc<Budget>,
    mirrored: Arc<AtomicUsize>,
    /// Of the present table, and of older ones that requests still have.
    groups: Vec<Weak<Group>>,
}

impl Health {
    fn scopes(&self) -> MutexGuard<'_, HashMap<Box<str>, Scope>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group's endpoints, with what is known about them. `route`: `namespace/name`.
    pub(crate) fn group(&self, route: &str, of: &router::Group) -> Arc<Group> {
        self.group_for(route, of, "")
    }

    /// The same for copies of requests, which say nothing about how others go.
    pub(crate) fn mirror(&self, route: &str, of: &router::Group) -> Arc<Group> {
        self.group_for(route, of, "mirror")
    }

    fn group_for(&self, route: &str, of: &router::Group, purpose: &str) -> Arc<Group> {
        let namespace = route.split_once('/').map_or("", |(namespace, _)| namespace);
        let tls = of.tls().map_or("", |name| name);
        // No name has a line break.
        let key = format!("{namespace}\n{}\n{tls}\n{purpose}", of.name());
        let mut scopes = self.scopes();
        let scope = scopes.entry(key.into()).or_default();
        let live = || scope.groups.iter().filter_map(Weak::upgrade);
        let is_same = |group: &Arc<Group>| {
            group.endpoints.iter().map(|endpoint| endpoint.address).eq(of.endpoints().iter().copied())
        };
        if let Some(same) = live().find(is_same) {
            return same;
        }
        let known: HashMap<SocketAddr, Arc<Endpoint>> = live()
            .flat_map(|group| group.endpoints.iter().map(Arc::clone).collect::<Vec<_>>())
            .map(|endpoint| (endpoint.address, endpoint))
            .collect();
        let endpoint = |address: &SocketAddr| {
            known.get(address).map_or_else(|| Arc::new(Endpoint::new(*address)), Arc::clone)
        };
        let group = Arc::new(Group {
            endpoints: of.endpoints().iter().map(endpoint).collect(),
            restless: Arc::clone(&scope.restless),
            budget: Arc::clone(&scope.budget),
            mirrored: Arc::clone(&scope.mirrored),
        });
        scope.groups.push(Arc::downgrade(&group));
        group
    }

    /// Forgets endpoints that no table has.
    pub(crate) fn prune(&self) {
        self.scopes().retain(|_, scope| {
            scope.groups.retain(|group| group.strong_count() > 0);
            !scope.groups.is_empty()
        });
    }

    /// How often an endpoint was found to be failing.
    pub(crate) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// Endpoints that are avoided now; one that several namespaces or Services have is there for each.
    pub(crate) fn avoided(&self) -> Vec<SocketAddr> {
        let now = self.clock.now();
        let newest = |scope: &Scope| scope.groups.iter().rev().find_map(Weak::upgrade);
        let groups: Vec<_> = self.scopes().values().filter_map(newest).collect();
        groups.iter().flat_map(|group| group.avoided(now)).collect()
    }
}

#[cfg(test)]
mod tests;
