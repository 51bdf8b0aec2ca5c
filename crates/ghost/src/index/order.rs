//! Which came first, a fetch or an invalidation. Invalidations have numbers, and a fetch has the number of the newest one when it began: no
//! clock is asked, so none that is set back makes an old response a new one.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

static NEWEST: AtomicU64 = AtomicU64::new(0);
/// Invalidations that have begun, and have not noted all that they are about.
static AT_WORK: AtomicU64 = AtomicU64::new(0);
static PROCESS: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(random()));

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// The number of an invalidation that is about to look for objects.
pub(crate) fn next() -> u64 {
    MADE.set(MADE.get() + 1);
    NEWEST.fetch_add(1, Ordering::SeqCst) + 1
}

/// What a fetch that is about to ask its origin is held against: invalidations with a higher number come after it.
pub(crate) fn newest() -> u64 {
    NEWEST.load(Ordering::SeqCst)
}

/// How many numbers this thread has taken.
pub(super) fn made() -> u64 {
    MADE.get()
}

/// An invalidation is at work until this is dropped: after its last note.
pub(super) struct AtWork(());

impl AtWork {
    /// To be called before its first number is taken.
    pub(super) fn begin() -> Self {
        AT_WORK.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn is_any_at_work() -> bool {
    AT_WORK.load(Ordering::SeqCst) != 0
}

/// Numbers of another process, or of before [`forget`], mean nothing.
pub(crate) fn process() -> u64 {
    PROCESS.load(Ordering::SeqCst)
}

/// What was noted is forgotten: nothing that was asked for before can be judged any more.
pub(super) fn forget() {
    PROCESS.store(random(), Ordering::SeqCst);
}

/// The standard library seeds its hash maps from the operating system.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Seconds of a clock that never goes back.
pub(crate) fn seconds() -> f64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_secs_f64()
}
