//! Counters of the chaperone itself.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::event::Event;

/// Upper bounds of the buckets of reloads, in milliseconds.
pub(crate) const BOUNDS_MILLIS: [u64; 12] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 60_000];

/// One for each varnishd. Restarts of its child do not reset it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// What the front counts.
    pub(crate) clients: Arc<front::Counters>,
    pub(crate) backends: Arc<front::BackendCounters>,
    /// Where it carries HTTP.
    http: Mutex<Option<Arc<front::Http>>>,
    /// What it shows its clients.
    tls: Mutex<Arc<front::Config>>,
    pub(crate) ghost: Reloads,
    pub(crate) vcl: Reloads,
    pub(crate) refused: AtomicU64,
    /// Milliseconds since 1970; 0 before the first.
    pub(crate) last_reload_millis: AtomicU64,
    pub(crate) rules: AtomicU64,
    pub(crate) endpoints: AtomicU64,
    pub(crate) deaths: AtomicU64,
    pub(crate) failed_starts: AtomicU64,
    pub(crate) invalidated: AtomicU64,
    pub(crate) not_invalidated: AtomicU64,
    /// Of writes of ours, for each peer.
    pub(crate) peers_told: AtomicU64,
    pub(crate) peers_not_told: AtomicU64,
    /// Of writes of peers; and messages that were none.
    pub(crate) peers_heard: AtomicU64,
    pub(crate) peers_refused: AtomicU64,
    pub(crate) spans_exported: AtomicU64,
    pub(crate) spans_dropped: AtomicU64,
}

/// Successful reloads, and their duration.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    buckets: [AtomicU64; BOUNDS_MILLIS.len() + 1],
    sum_micros: AtomicU64,
}

impl Reloads {
    fn add(&self, took: Duration) {
        let within = |bound: &u64| took <= Duration::from_millis(*bound);
        let at = BOUNDS_MILLIS.iter().position(within).unwrap_or(BOUNDS_MILLIS.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts by bucket, not cumulative; and the sum in seconds.
    pub(crate) fn read(&self) -> (Vec<u64>, f64) {
        let buckets = self.buckets.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
        (buckets, self.sum_micros.load(Ordering::Relaxed) as f64 / 1e6)
    }
}

impl Tally {
    pub(crate) fn carries_http(&self, http: &Arc<front::Http>) {
        *self.http.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(http));
    }

    /// The front, where it carries HTTP.
    pub(crate) fn http(&self) -> Option<Arc<front::Http>> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counters of the front for requests that varnishd did not see.
    pub(crate) fn http_stats(&self) -> Option<model::stats::Stats> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|http| http.stats())
    }

    /// Endpoints that the front avoids now.
    pub(crate) fn avoided_endpoints(&self) -> Vec<SocketAddr> {
        let http = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        http.as_ref().map(|http| http.avoided_endpoints()).unwrap_or_default()
    }

    pub(crate) fn note(&self, event: &Event) {
        let add = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match event {
            Event::Reloaded { rules, backends, took } => {
                self.ghost.add(*took);
                self.rules.store(*rules, Ordering::Relaxed);
                self.endpoints.store(*backends, Ordering::Relaxed);
                self.reloaded();
            }
            Event::VclReloaded { took } => {
                self.vcl.add(*took);
                self.reloaded();
            }
            Event::Refused { .. } => add(&self.refused),
            Event::Died { .. } => add(&self.deaths),
            Event::CannotStart { .. } => add(&self.failed_starts),
            _ => {}
        }
    }

    fn reloaded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(now.as_millis()).unwrap_or_default();
        self.last_reload_millis.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn shows(&self, tls: &Arc<front::Config>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(tls);
    }

    pub(crate) fn shown(&self) -> Arc<front::Config> {
        Arc::clone(&self.tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Parts of an invalidation: paths and tags.
    pub(crate) fn invalidated(&self, done: usize, failed: usize) {
        self.invalidated.fetch_add(done as u64, Ordering::Relaxed);
        self.not_invalidated.fetch_add(failed as u64, Ordering::Relaxed);
    }
}
