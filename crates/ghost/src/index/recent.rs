//! What was purged a moment ago: an answer that was asked for before that must not come into the cache after it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// So long, and up to twice as long, purges are known one by one.
const SECONDS: f64 = 60.0;
/// Of each half.
const MOST: usize = 50_000;
/// No fetch takes so long.
const LONGEST_FETCH: f64 = 3600.0;

/// Keys, and when they were purged, in two halves: the older one is forgotten as a whole.
#[derive(Default)]
pub struct Recent {
    halves: Mutex<Halves>,
    /// Most of the time there are none, and no fetch takes the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Halves {
    new: HashMap<u64, f64>,
    old: HashMap<u64, f64>,
    since: f64,
    /// Purges until then are not known any more: whatever was asked for before may be meant by them.
    forgotten: f64,
}

impl Recent {
    /// Times are seconds of one clock.
    pub fn note(&self, key: u64, now: f64) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.turn(now);
        halves.new.insert(key, now);
        self.any.store(true, Ordering::Release);
    }

    /// Was one of these purged at that time or later?
    pub fn is_any_since(&self, keys: impl FnOnce() -> Vec<u64>, then: f64, now: f64) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let keys = keys();
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.turn(now);
        if halves.new.is_empty() && halves.old.is_empty() && now - halves.forgotten > LONGEST_FETCH {
            self.any.store(false, Ordering::Release);
        }
        let after = |half: &HashMap<u64, f64>, key: &u64| half.get(key).is_some_and(|at| *at >= then);
        then <= halves.forgotten || keys.iter().any(|key| after(&halves.new, key) || after(&halves.old, key))
    }

    pub fn clear(&self) {
        *self.halves.lock().unwrap_or_else(PoisonError::into_inner) = Halves::default();
    }
}

impl Halves {
    fn turn(&mut self, now: f64) {
        if now - self.since > SECONDS || self.new.len() >= MOST {
            self.forgotten = self.old.values().fold(self.forgotten, |last, at| last.max(*at));
            self.old = std::mem::take(&mut self.new);
            self.since = now;
        }
    }
}
