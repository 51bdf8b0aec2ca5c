//! Bans of a moment ago, by host. A ban takes the objects that are there: an answer that was asked for before it, and comes
//! after it, would get in. Before and after go by the numbers of invalidations ([`super::order`]).
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
    /// The number of the newest ban. A fetch that began later takes no lock.
    newest: AtomicU64,
    /// When that was, as the bits of a positive f64.
    newest_at: AtomicU64,
    bytes: AtomicUsize,
}

struct Recent<M> {
    hosts: HashMap<Box<[u8]>, Host<M>>,
    /// Of all hosts.
    bytes: usize,
    swept: f64,
    /// Bans of any host until this number are not known any more: what was asked for before may be meant by them.
    forgotten: u64,
}

struct Host<M> {
    bans: VecDeque<Ban<M>>,
    bytes: usize,
    /// The same of this host alone.
    forgotten: u64,
    /// The newest ban of the host, and when it was.
    newest: u64,
    newest_at: f64,
}

struct Ban<M> {
    number: u64,
    at: f64,
    urls: M,
}

impl<M> Default for Host<M> {
    fn default() -> Self {
        Self { bans: VecDeque::new(), bytes: 0, forgotten: 0, newest: 0, newest_at: 0.0 }
    }
}

impl<M> Default for Recent<M> {
    fn default() -> Self {
        Self { hosts: HashMap::new(), bytes: 0, swept: 0.0, forgotten: 0 }
    }
}

impl<M> Default for Bans<M> {
    fn default() -> Self {
        Self {
            recent: RwLock::default(),
            newest: AtomicU64::new(0),
            newest_at: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
        }
    }
}

impl<M: Matches> Host<M> {
    /// Forgets the oldest ban, and so takes it for one of all URLs.
    fn forget_one(&mut self) {
        if let Some(Ban { number, urls, .. }) = self.bans.pop_front() {
            self.bytes = self.bytes.saturating_sub(urls.bytes());
            self.forgotten = self.forgotten.max(number);
        }
    }

    fn forget_old(&mut self, now: f64) {
        while self.bans.front().is_some_and(|ban| now - ban.at > SECONDS) {
            self.forget_one();
        }
    }
}

impl<M: Matches> Recent<M> {
    fn forget_old(&mut self, now: f64) {
        if now - self.swept > SWEEP_SECONDS || self.hosts.len() >= MOST_HOSTS {
            self.swept = now;
            self.hosts.values_mut().for_each(|host| host.forget_old(now));
            self.hosts.retain(|_, host| now - host.newest_at <= LONGEST_FETCH);
            if self.hosts.len() >= MOST_HOSTS {
                self.forgotten = self.hosts.values().fold(self.forgotten, |last, host| last.max(host.newest));
                self.hosts = HashMap::new();
            }
            self.bytes = self.hosts.values().map(|host| host.bytes).sum();
        }
    }
}

impl<M: Matches> Bans<M> {
    /// To be called before the ban is made. `now` are seconds of one clock that never goes back.
    pub fn note(&self, host: &[u8], urls: M, number: u64, now: f64) {
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
        of_host.newest = of_host.newest.max(number);
        of_host.newest_at = now;
        if bytes > most {
            of_host.forgotten = of_host.forgotten.max(number);
        } else {
            of_host.bans.push_back(Ban { number, at: now, urls });
            of_host.bytes += bytes;
        }
        recent.bytes = others + of_host.bytes;
        self.bytes.store(recent.bytes, Ordering::Relaxed);
        self.newest.fetch_max(number, Ordering::AcqRel);
        self.newest_at.store(now.max(0.0).to_bits(), Ordering::Release);
    }

    /// The ban with this number has another one now.
    pub fn renew(&self, host: &[u8], from: u64, number: u64) {
        let mut recent = self.write();
        match recent.hosts.get_mut(host) {
            Some(of_host) => {
                of_host.newest = of_host.newest.max(number);
                match of_host.bans.iter_mut().rev().find(|ban| ban.number == from) {
                    Some(ban) => ban.number = number,
                    None => of_host.forgotten = of_host.forgotten.max(number),
                }
            }
            None => recent.forgotten = recent.forgotten.max(number),
        }
        self.newest.fetch_max(number, Ordering::AcqRel);
    }

    /// Was this URL banned after the invalidation with the number `began`?
    pub fn is_any_since(&self, host: &[u8], url: &[u8], began: u64, now: f64) -> bool {
        let newest_at = f64::from_bits(self.newest_at.load(Ordering::Acquire));
        if now - newest_at > SECONDS && self.bytes.swap(0, Ordering::AcqRel) > 0 {
            let mut recent = self.write();
            recent.forget_old(now);
            // A ban may have come meanwhile.
            self.bytes.store(recent.bytes, Ordering::Relaxed);
        }
        if began >= self.newest.load(Ordering::Acquire) {
            return false;
        }
        let recent = self.read();
        if began < recent.forgotten {
            return true;
        }
        let Some(of_host) = recent.hosts.get(host) else { return false };
        // Two bans of one host may be noted in another order than that of their numbers.
        began < of_host.forgotten
            || of_host.bans.iter().any(|ban| ban.number > began && ban.urls.matches(url))
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
