//! What ghost counts: for each rule of each route (`router::counters`), and for all of varnishd's child.

use std::sync::atomic::{AtomicU64, Ordering};

use model::stats::{NOT_KEPT, Stats};
use router::Router;
use router::counters::{Registry, RouteCounters};

pub(crate) use router::counters::{Counters, HIT, MISS, OTHER, PASS, STALE};

use crate::events;
use crate::index;
use crate::object::IN_FLIGHT;
use crate::tunnel;

/// Of all configurations and VCLs of this process.
pub(crate) static REGISTRY: Registry = Registry::new();

/// With reloads; a new VCL has the endpoints of the old one.
pub(crate) static ENDPOINTS_ADDED: AtomicU64 = AtomicU64::new(0);
pub(crate) static ENDPOINTS_REMOVED: AtomicU64 = AtomicU64::new(0);

/// Requests that have been through this Gateway before.
pub(crate) static LOOPS: AtomicU64 = AtomicU64::new(0);

/// Positions in [`NOT_KEPT`].
pub(crate) const SIZE: usize = 0;
pub(crate) const OUTGROWN: usize = 1;
pub(crate) const INDEX: usize = 2;

static KEPT_OUT: [AtomicU64; NOT_KEPT.len()] = [const { AtomicU64::new(0) }; NOT_KEPT.len()];

/// An answer that was to be kept is not.
pub(crate) fn not_kept(why: usize) {
    KEPT_OUT[why].fetch_add(1, Ordering::Relaxed);
}

/// Everything that is known, with the counters of a base below.
pub(crate) fn read(
    counters: &RouteCounters,
    router: &Router,
    below: Option<(&RouteCounters, &Router)>,
) -> Stats {
    let (index, limit, bans) = index::budgets();
    Stats {
        not_kept: KEPT_OUT.each_ref().map(|count| count.load(Ordering::Relaxed)),
        index_bytes: index as u64,
        index_limit_bytes: limit as u64,
        ban_bytes: bans as u64,
        in_flight: u64::try_from(IN_FLIGHT.load(Ordering::Relaxed)).unwrap_or(0),
        upgraded: tunnel::OPEN.load(Ordering::Relaxed),
        upgrades_refused: tunnel::REFUSED.load(Ordering::Relaxed),
        endpoints_added: ENDPOINTS_ADDED.load(Ordering::Relaxed),
        endpoints_removed: ENDPOINTS_REMOVED.load(Ordering::Relaxed),
        loops: LOOPS.load(Ordering::Relaxed),
        writes_lost: events::WRITES_LOST.load(Ordering::Relaxed),
        ..counters.read(router, below)
    }
}
