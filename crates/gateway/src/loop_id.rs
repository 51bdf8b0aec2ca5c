//! What tells a `serve` or a chaperone without a cluster from others in CDN-Loop.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

/// Another at each start: files may say the same on two machines in a row.
pub(crate) fn of(gateway: &str) -> String {
    static OURS: OnceLock<RandomState> = OnceLock::new();
    format!("vg-{:016x}", OURS.get_or_init(RandomState::new).hash_one(gateway))
}
