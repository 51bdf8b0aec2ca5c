//! The id in CDN-Loop of a `serve`, or of a chaperone without a cluster.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

/// Different after each start: two machines in a row may have the same files, and must not have the same id.
pub(crate) fn for_gateway(gateway: &str) -> String {
    static OURS: OnceLock<RandomState> = OnceLock::new();
    format!("vg-{:016x}", OURS.get_or_init(RandomState::new).hash_one(gateway))
}
