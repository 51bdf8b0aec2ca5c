//! How many retries a group may get: retries must never finish an origin that has too much to do already.
//!
//! Each request of a rule with retries adds a fifth of a retry; [`FLOOR`] are added each second, so that single requests can be
//! sent again, too. At most [`MOST`] are saved up. No lock: two atomic numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of one retry that each request adds: together with [`RETRY`], 20 %.
const REQUEST: u64 = 200;
/// One retry, in parts.
const RETRY: u64 = 1_000;
/// Retries that are added each second.
const FLOOR: u64 = 5;
/// Retries that can be saved up.
const MOST: u64 = 100;

/// Of one group, for all rules of one namespace.
#[derive(Debug)]
pub(crate) struct Budget {
    parts: AtomicU64,
    /// Up to when the floor was added, in milliseconds.
    added: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { parts: AtomicU64::new(MOST * RETRY), added: AtomicU64::new(0) }
    }
}

impl Budget {
    fn add(&self, parts: u64) {
        let add = |now: u64| (now < MOST * RETRY).then(|| (now + parts).min(MOST * RETRY));
        let _ = self.parts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// A request is sent for the first time.
    pub(crate) fn request(&self) {
        self.add(REQUEST);
    }

    /// May one be sent again? `now`: milliseconds that only grow.
    pub(crate) fn retry(&self, now: u64) -> bool {
        let before = self.added.load(Ordering::Relaxed);
        if now > before
            && self.added.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // Parts are thousandths, as milliseconds are.
            self.add((now - before).saturating_mul(FLOOR));
        }
        self.parts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |parts| parts.checked_sub(RETRY))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(budget: &Budget, now: u64) -> u64 {
        (0..).take_while(|_| budget.retry(now)).count() as u64
    }

    #[test]
    fn a_fifth_of_all_requests_may_be_sent_again() {
        let budget = Budget::default();
        assert_eq!(retries(&budget, 1), MOST);
        for _ in 0..50 {
            budget.request();
        }
        assert_eq!(retries(&budget, 1), 10);
    }

    #[test]
    fn a_few_retries_come_back_each_second_and_no_more_than_the_most_are_saved() {
        let budget = Budget::default();
        retries(&budget, 1);
        assert_eq!(retries(&budget, 1_001), FLOOR);
        assert_eq!(retries(&budget, 1_001), 0);
        assert_eq!(retries(&budget, 10_000_000), MOST);
        for _ in 0..100_000 {
            budget.request();
        }
        assert_eq!(retries(&budget, 10_000_000), MOST);
    }
}
