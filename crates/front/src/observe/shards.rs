//! A number for each thread, so that threads write to memory of their own.

use std::sync::atomic::{AtomicUsize, Ordering};

/// As many as there are lanes at most.
pub(crate) const SHARDS: usize = 32;

/// The shard of this thread.
pub(crate) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    // While a thread ends its own is gone.
    OWN.try_with(|own| *own).unwrap_or_default()
}
