//! Bans of a moment ago, by host. A ban takes the objects that are there: an answer that was asked for before it, and comes
//! after it, would get in.
//!
//! Expressions take memory, so they have a budget. Where a ban has to be forgotten early, it counts as a ban of its whole
//! host: an invalidation is never lost, it becomes coarser.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// So long a ban is held against answers one by one.
const SECONDS: f64 = 120.0;
/// Of one host.
const MOST: usize = 250;
/// Bytes of all expressions, and of those of one host: one host cannot make the bans of the others coarser.
pub const MOST_BYTES: usize = 64 << 20;
pub const MOST_BYTES_OF_HOST: usize = 8 << 20;
/// Hosts with bans of late.
const MOST_HOSTS: usize = 10_000;
/// No fetch takes so long.
const LONGEST_FETCH: f64 = 3600.0;
/// So often at most all hosts are looked at for bans that are old.
const SWEEP_SECONDS: f64 = 1.0;

/// An expression about URLs.
pub trait Matches {
    fn matches(&self, url: &[u8]) -> bool;
    /// About how many bytes of memory it takes.
    fn bytes(&self) -> usize;
}

pub struct Bans<M> {
    recent: RwLock<Recent<M>>,
    /// The time of the newest ban, as the bits of a positive f64. A fetch that began later takes no lock.
    newest: AtomicU64,
    bytes: AtomicUsize,
}

struct Recent<M> {
    hosts: HashMap<Box<[u8]>, Host<M>>,
    /// Of all hosts.
    bytes: usize,
    swept: f64,
    /// Bans of any host until then are not known any more: what was asked for before may be meant by them.
    forgotten: f64,
}

struct Host<M> {
    bans: VecDeque<(f64, M)>,
    bytes: usize,
    /// The same of this host alone.
    forgotten: f64,
}

impl<M> Default for Host<M> {
    fn default() -> Self {
        Self { bans: VecDeque::new(), bytes: 0, forgotten: 0.0 }
    }
}

impl<M> Default for Recent<M> {
    fn default() -> Self {
        Self { hosts: HashMap::new(), bytes: 0, swept: 0.0, forgotten: 0.0 }
    }
}

impl<M> Default for Bans<M> {
    fn default() -> Self {
        Self { recent: RwLock::default(), newest: AtomicU64::new(0), bytes: AtomicUsize::new(0) }
    }
}

impl<M: Matches> Host<M> {
    fn newest(&self) -> f64 {
        self.bans.back().map_or(self.forgotten, |(at, _)| *at)
    }

    /// Forgets the oldest ban, and so takes it for one of all URLs.
    fn forget_one(&mut self) {
        if let Some((at, urls)) = self.bans.pop_front() {
            self.bytes = self.bytes.saturating_sub(urls.bytes());
            self.forgotten = self.forgotten.max(at);
        }
    }

    fn forget_old(&mut self, now: f64) {
        while self.bans.front().is_some_and(|(at, _)| now - at > SECONDS) {
            self.forget_one();
        }
    }
}

impl<M: Matches> Recent<M> {
    fn forget_old(&mut self, now: f64) {
        if now - self.swept > SWEEP_SECONDS || self.hosts.len() >= MOST_HOSTS {
            self.swept = now;
            self.hosts.values_mut().for_each(|host| host.forget_old(now));
            self.hosts.retain(|_, host| now - host.newest() <= LONGEST_FETCH);
            if self.hosts.len() >= MOST_HOSTS {
                self.forgotten =
                    self.hosts.values().fold(self.forgotten, |last, host| last.max(host.newest()));
                self.hosts = HashMap::new();
            }
            self.bytes = self.hosts.values().map(|host| host.bytes).sum();
        }
    }
}

impl<M: Matches> Bans<M> {
    /// To be called before the ban is made. Times are seconds of one clock.
    pub fn note(&self, host: &[u8], urls: M, now: f64) {
        let mut recent = self.write();
        recent.forget_old(now);
        let before = recent.hosts.get(host).map_or(0, |host| host.bytes);
        let others = recent.bytes.saturating_sub(before);
        let bytes = urls.bytes();
        let most = MOST_BYTES_OF_HOST.min(MOST_BYTES.saturating_sub(others));
        let of_host = recent.hosts.entry(host.into()).or_default();
        while !of_host.bans.is_empty() && (of_host.bans.len() >= MOST || of_host.bytes + bytes > most) {
            of_host.forget_one();
        }
        if bytes > most {
            of_host.forgotten = of_host.forgotten.max(now);
        } else {
            of_host.bans.push_back((now, urls));
            of_host.bytes += bytes;
        }
        recent.bytes = others + of_host.bytes;
        self.bytes.store(recent.bytes, Ordering::Relaxed);
        self.newest.fetch_max(now.max(0.0).to_bits(), Ordering::AcqRel);
    }

    /// Was this URL banned at that time or later?
    pub fn is_any_since(&self, host: &[u8], url: &[u8], then: f64, now: f64) -> bool {
        let newest = f64::from_bits(self.newest.load(Ordering::Acquire));
        if now - newest > SECONDS && self.bytes.swap(0, Ordering::AcqRel) > 0 {
            let mut recent = self.write();
            recent.forget_old(now);
            // A ban may have come meanwhile.
            self.bytes.store(recent.bytes, Ordering::Relaxed);
        }
        if then > newest {
            return false;
        }
        let recent = self.read();
        if then <= recent.forgotten {
            return true;
        }
        let Some(of_host) = recent.hosts.get(host) else { return false };
        then <= of_host.forgotten
            || of_host.bans.iter().rev().take_while(|(at, _)| *at >= then).any(|(_, urls)| urls.matches(url))
    }

    pub fn clear(&self) {
        *self.write() = Recent::default();
        self.bytes.store(0, Ordering::Relaxed);
        self.newest.store(0, Ordering::Release);
    }

    /// About how many bytes the expressions take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, Recent<M>> {
        self.recent.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Recent<M>> {
        self.recent.write().unwrap_or_else(PoisonError::into_inner)
    }
}
