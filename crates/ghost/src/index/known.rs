//! Every way to leave parameters out of URLs that any configuration of this process had.
//!
//! A policy that is gone may have left objects behind, and may come back: a purge has to find them.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use router::cache::Parameters;

#[derive(Default)]
pub(crate) struct Known(RwLock<HashSet<Parameters>>);

impl Known {
    pub(crate) fn learn<'a>(&self, all: impl Iterator<Item = &'a Parameters>) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<Parameters> = all.filter(|one| !known.contains(*one)).cloned().collect();
        drop(known);
        if !new.is_empty() {
            self.0.write().unwrap_or_else(PoisonError::into_inner).extend(new);
        }
    }

    /// Shows each of them, and at first that everything counts.
    pub(crate) fn each(&self, mut show: impl FnMut(Option<&Parameters>)) {
        show(None);
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|one| show(Some(one)));
    }
}
