//! The namespaces that have had objects in the cache.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

/// More are not told apart: who looks for the objects of all has to look elsewhere.
pub const MOST: usize = 4096;

#[derive(Default)]
pub struct Owners(RwLock<HashSet<Box<[u8]>>>);

impl Owners {
    pub fn add(&self, owner: &[u8]) {
        if self.0.read().unwrap_or_else(PoisonError::into_inner).contains(owner) {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST {
            all.insert(owner.into());
        }
    }

    /// `None` where there may be more than are known.
    pub fn all(&self) -> Option<Vec<Box<[u8]>>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (all.len() < MOST).then(|| all.iter().cloned().collect())
    }

    pub fn clear(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
