//! Bans of a moment ago. A ban takes the objects that are there: an answer that was asked for before it, and comes after it,
//! would get in.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// So long a ban is held against answers one by one.
const SECONDS: f64 = 120.0;
const MOST: usize = 1000;
/// No fetch takes so long.
const LONGEST_FETCH: f64 = 3600.0;

/// An expression about URLs.
pub trait Matches {
    fn matches(&self, url: &[u8]) -> bool;
}

pub struct Bans<M> {
    recent: RwLock<Recent<M>>,
    /// Most of the time there are none, and no fetch takes the lock.
    any: AtomicBool,
}

struct Recent<M> {
    bans: VecDeque<(f64, Box<[u8]>, M)>,
    /// Bans until then are not known any more: whatever was asked for before may be meant by them.
    forgotten: f64,
}

impl<M> Default for Bans<M> {
    fn default() -> Self {
        let recent = Recent { bans: VecDeque::new(), forgotten: 0.0 };
        Self { recent: RwLock::new(recent), any: AtomicBool::new(false) }
    }
}

impl<M: Matches> Bans<M> {
    /// To be called before the ban is made. Times are seconds of one clock.
    pub fn note(&self, host: &[u8], urls: M, now: f64) {
        let mut recent = self.recent.write().unwrap_or_else(PoisonError::into_inner);
        while recent.bans.len() >= MOST || recent.bans.front().is_some_and(|(at, ..)| now - at > SECONDS) {
            let Some((at, ..)) = recent.bans.pop_front() else { break };
            recent.forgotten = at;
        }
        recent.bans.push_back((now, host.into(), urls));
        self.any.store(true, Ordering::Release);
    }

    /// Was this URL banned at that time or later?
    pub fn is_any_since(&self, host: &[u8], url: &[u8], then: f64, now: f64) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let recent = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        if recent.bans.back().is_none_or(|(at, ..)| now - at > LONGEST_FETCH) {
            self.any.store(false, Ordering::Release);
        }
        then <= recent.forgotten
            || recent
                .bans
                .iter()
                .rev()
                .take_while(|(at, ..)| *at >= then)
                .any(|(_, of, urls)| **of == *host && urls.matches(url))
    }

    pub fn clear(&self) {
        *self.recent.write().unwrap_or_else(PoisonError::into_inner) =
            Recent { bans: VecDeque::new(), forgotten: 0.0 };
    }
}
