//! What is counted, for the whole process.

use std::sync::atomic::{AtomicU64, Ordering};

static ANSWERED: AtomicU64 = AtomicU64::new(0);
static NO_ADDRESS: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static NAMES: AtomicU64 = AtomicU64::new(0);

/// Lookups and addresses since the process began; names now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub answered: u64,
    /// DNS says that the name does not exist, or has no address.
    pub no_address: u64,
    pub failed: u64,
    /// Addresses in answers that are not used.
    pub refused: u64,
    /// Names that are looked up.
    pub names: u64,
}

/// Of all [`crate::Names`] of this process.
pub fn counts() -> Counts {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Counts {
        answered: read(&ANSWERED),
        no_address: read(&NO_ADDRESS),
        failed: read(&FAILED),
        refused: read(&REFUSED),
        names: read(&NAMES),
    }
}

pub(crate) fn answered(refused: usize) {
    ANSWERED.fetch_add(1, Ordering::Relaxed);
    REFUSED.fetch_add(refused as u64, Ordering::Relaxed);
}

pub(crate) fn no_address() {
    NO_ADDRESS.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn failed() {
    FAILED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn names(count: usize) {
    NAMES.store(count as u64, Ordering::Relaxed);
}
