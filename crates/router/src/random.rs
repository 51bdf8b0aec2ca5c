//! Random numbers, and the picks that are made by them: one generator a thread, so that no request waits for another.

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

/// A number below `limit`, by a random one; 0 where the limit is 0. Uses the upper bits first.
pub fn below(limit: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// The position of one weight, each as likely as it is heavy. `None` where nothing has weight.
pub fn by_weight(weights: impl Iterator<Item = u32> + Clone, random: u64) -> Option<usize> {
    let total: u64 = weights.clone().map(u64::from).sum();
    if total == 0 {
        return None;
    }
    let mut left = below(total, random);
    for (at, weight) in weights.enumerate() {
        match left.checked_sub(u64::from(weight)) {
            Some(rest) => left = rest,
            None => return Some(at),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_split_and_zero_gets_nothing() {
        let weights = [0, 1, 0, 3, 0];
        let mut hits = [0; 5];
        for i in 0..4000u64 {
            hits[by_weight(weights.into_iter(), i << 52).unwrap()] += 1;
        }
        assert_eq!(hits, [0, 1024, 0, 2976, 0]);
        assert_eq!(by_weight(weights.into_iter(), u64::MAX), Some(3));
        assert_eq!(by_weight([0].into_iter(), 7), None);
        assert_eq!(by_weight([].into_iter(), 7), None);
    }
}
