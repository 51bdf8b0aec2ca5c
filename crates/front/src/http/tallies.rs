//! Requests by the way they went, and by why they failed.

use std::sync::atomic::{AtomicU64, Ordering};

use router::counters::Way;

use super::reason::Reason;
use crate::observe::{SHARDS, shard};

#[derive(Debug)]
pub(crate) struct Tallies {
    /// By thread: every request counts here.
    ways: [Ways; SHARDS],
    reasons: [AtomicU64; Reason::ALL.len()],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Ways([AtomicU64; Way::ALL.len()]);

impl Default for Tallies {
    fn default() -> Self {
        Self { ways: Default::default(), reasons: [const { AtomicU64::new(0) }; Reason::ALL.len()] }
    }
}

impl Tallies {
    pub(crate) fn finished(&self, way: Way, reason: Option<Reason>) {
        self.ways[shard()].0[way as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(reason) = reason {
            self.reasons[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn by_way(&self, way: Way) -> u64 {
        self.ways.iter().map(|ways| ways.0[way as usize].load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn by_reason(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize].load(Ordering::Relaxed)
    }
}
