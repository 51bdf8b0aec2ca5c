//! What was purged a moment ago: an answer that was asked for before that must not come into the cache after it.
//!
//! Before and after go by the number of each purge ([`super::order`]), and not by a clock, which may be set back. Only how long a purge is
//! remembered goes by time. A fetch that began after the newest purge takes no lock. Others take the locks of the shards that their keys are in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So long, and up to twice as long, purges are known one by one.
const SECONDS: f64 = 60.0;
const SHARDS: usize = 64;
/// Of each half of each shard: 50,000 in all.
const MOST: usize = 50_000 / SHARDS;

/// Keys, and the numbers of their purges, in shards of two halves: the older half is forgotten as a whole.
pub struct Recent {
    /// Not inline: the stacks of varnishd's workers are small.
    shards: Box<[Mutex<Halves>]>,
    /// The number of the newest purge.
    newest: AtomicU64,
    /// When that was, as the bits of a positive f64.
    newest_at: AtomicU64,
    /// Is there anything left to forget?
    holds: AtomicBool,
}

#[derive(Default)]
struct Halves {
    new: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
    since: f64,
    /// Purges of this shard until this number are not known any more: what was asked for before may be meant by them.
    forgotten: u64,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            newest: AtomicU64::new(0),
            newest_at: AtomicU64::new(0),
            holds: AtomicBool::new(false),
        }
    }
}

impl Recent {
    /// `now` are seconds of one clock that never goes back. To be called before the purge looks for objects.
    pub fn note(&self, key: u64, number: u64, now: f64) {
        let mut halves = self.shard(key);
        halves.turn(now);
        let known = halves.new.entry(key).or_default();
        *known = number.max(*known);
        self.newest.fetch_max(number, Ordering::AcqRel);
        self.newest_at.store(now.max(0.0).to_bits(), Ordering::Release);
        self.holds.store(true, Ordering::Release);
    }

    /// Was one of these purged after the purge with the number `began`?
    pub fn is_any_since(&self, keys: impl FnOnce() -> Vec<u64>, began: u64, now: f64) -> bool {
        let newest_at = f64::from_bits(self.newest_at.load(Ordering::Acquire));
        if now - newest_at > 2.0 * SECONDS && self.holds.swap(false, Ordering::AcqRel) {
            self.shards.iter().for_each(|shard| lock(shard).forget_old(now));
        }
        if began >= self.newest.load(Ordering::Acquire) {
            return false;
        }
        keys().into_iter().any(|key| {
            let mut halves = self.shard(key);
            halves.turn(now);
            let after = |half: &HashMap<u64, u64>| half.get(&key).is_some_and(|number| *number > began);
            began < halves.forgotten || after(&halves.new) || after(&halves.old)
        })
    }

    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| *lock(shard) = Halves::default());
        self.newest.store(0, Ordering::Release);
    }

    /// How many purges are known one by one.
    pub fn len(&self) -> usize {
        self.shards.iter().map(lock).map(|halves| halves.new.len() + halves.old.len()).sum()
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Halves> {
        lock(&self.shards[(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<Halves>) -> MutexGuard<'_, Halves> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Halves {
    fn turn(&mut self, now: f64) {
        if now - self.since > SECONDS || self.new.len() >= MOST {
            self.forgotten = self.old.values().fold(self.forgotten, |last, number| last.max(*number));
            self.old = std::mem::take(&mut self.new);
            self.since = now;
        }
    }

    /// Gives the memory back, unless there was a purge meanwhile.
    fn forget_old(&mut self, now: f64) {
        self.turn(now);
        if self.new.is_empty() {
            self.forgotten = self.old.values().fold(self.forgotten, |last, number| last.max(*number));
            self.old = HashMap::new();
        }
    }
}
