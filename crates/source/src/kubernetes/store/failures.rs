//! How often watches have failed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

static FAILURES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

pub(super) fn failures() -> MutexGuard<'static, BTreeMap<String, u64>> {
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often watches of this process have failed, by kind.
pub fn watch_errors() -> BTreeMap<String, u64> {
    failures().clone()
}
