//! Which came first, a fetch or an invalidation. Invalidations have numbers, and a fetch has the number of the newest one when it began: no
//! clock is asked, so none that is set back makes an old response a new one.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

static NEWEST: AtomicU64 = AtomicU64::new(0);

/// The number of an invalidation that is about to look for objects.
pub(crate) fn next() -> u64 {
    NEWEST.fetch_add(1, Ordering::SeqCst) + 1
}

/// What a fetch that is about to ask its origin is held against: invalidations with a higher number come after it.
pub(crate) fn newest() -> u64 {
    NEWEST.load(Ordering::SeqCst)
}

/// Seconds of a clock that never goes back.
pub(crate) fn seconds() -> f64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_secs_f64()
}
