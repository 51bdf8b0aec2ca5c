//! Random numbers for the picks: one generator a thread, so that no request waits for another.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};

thread_local! {
    static STATE: Cell<u64> = Cell::new(seed());
}

/// The standard library seeds its hash maps from the operating system.
fn seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Good enough to spread load, not for secrets (splitmix64).
pub fn next() -> u64 {
    STATE.with(|state| {
        let s = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(s);
        let z = (s ^ (s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}
