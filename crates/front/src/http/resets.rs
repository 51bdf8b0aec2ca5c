//! How often a client resets HTTP/2 streams (rapid reset, CVE-2023-44487).
//!
//! A stream that is reset no longer counts as open, so the limit of concurrent streams does not bound the work that a client can
//! ask for. The h2 crate bounds only the resets of streams that were not accepted yet.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Resets on one connection, counted by the second. Only the connection's own thread writes.
#[derive(Debug)]
pub(crate) struct Resets {
    most: u32,
    began: Instant,
    /// The second since `began` in the upper half, its resets in the lower.
    counted: AtomicU64,
    exceeded: AtomicBool,
}

impl Resets {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, began: Instant::now(), counted: AtomicU64::new(0), exceeded: AtomicBool::new(false) }
    }

    /// The client reset a stream before it had its whole response.
    pub(crate) fn add(&self) {
        self.add_at(self.began.elapsed().as_secs());
    }

    fn add_at(&self, second: u64) {
        let counted = self.counted.load(Ordering::Relaxed);
        let same = counted >> 32 == second & u64::from(u32::MAX);
        let resets = if same { (counted & u64::from(u32::MAX)).saturating_add(1) } else { 1 };
        if resets > u64::from(self.most) {
            self.exceeded.store(true, Ordering::Relaxed);
        }
        self.counted.store(second << 32 | resets.min(u64::from(u32::MAX)), Ordering::Relaxed);
    }

    /// The client has reset too many streams within one second. It stays so.
    pub(crate) fn are_too_many(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_counted_by_the_second() {
        let resets = Resets::new(2);
        for second in [0, 0, 1, 1, 7, 7, 8] {
            resets.add_at(second);
        }
        assert!(!resets.are_too_many());
        resets.add_at(8);
        resets.add_at(8);
        assert!(resets.are_too_many());
        resets.add_at(9);
        assert!(resets.are_too_many());
    }
}
