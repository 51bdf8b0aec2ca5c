//! The ways to leave parameters out of URLs that configurations of this process had, as long as objects may be kept by them.
//!
//! A policy that is gone may have left objects behind, and may come back: a purge has to find them. So a way is forgotten only
//! when no configuration has named it for longer than any fetch takes, and no object is left that was kept by it; where
//! there are too many, the objects of the oldest are ended first.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

/// Beyond what the newest configuration names. A purge looks once for each.
pub const MOST: usize = 200;
/// No fetch takes so long.
const LONGEST_FETCH: f64 = 3600.0;

/// By the hash that objects carry in their keys.
pub struct Known<P>(RwLock<HashMap<u64, Way<P>>>);

struct Way<P> {
    parameters: P,
    /// The newest invalidation then: it, and those before it, did not know this way.
    learned: u64,
    /// When a configuration last named it.
    named: f64,
    /// A configuration has named it, and not only an origin.
    is_configured: bool,
}

impl<P> Default for Known<P> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<P: Hash + Eq + Clone> Known<P> {
    /// A configuration has these, and no others. Gives back those that are forgotten: the caller must end their objects, if
    /// there are any. `has_objects` says whether there are.
    pub fn learn<'a>(
        &self,
        all: impl Iterator<Item = (u64, &'a P)>,
        (newest, now): (u64, f64),
        has_objects: impl Fn(u64) -> bool,
    ) -> Vec<u64>
    where
        P: 'a,
    {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut current = HashSet::new();
        for (hash, parameters) in all {
            if current.insert(hash) {
                let new = || Way {
                    parameters: parameters.clone(),
                    learned: newest,
                    named: now,
                    is_configured: true,
                };
                let way = known.entry(hash).or_insert_with(new);
                way.named = now;
                way.is_configured = true;
            }
        }
        let mut former: Vec<(f64, u64)> = known
            .iter()
            .filter(|(hash, _)| !current.contains(hash))
            .map(|(hash, way)| (way.named, *hash))
            .collect();
        // The oldest last.
        former.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut forgotten = former.split_off(former.len().min(MOST));
        forgotten.extend(
            former.into_iter().filter(|(named, hash)| now - named > LONGEST_FETCH && !has_objects(*hash)),
        );
        forgotten.iter().for_each(|(_, hash)| drop(known.remove(hash)));
        known.shrink_to(2 * MOST);
        forgotten.into_iter().map(|(_, hash)| hash).collect()
    }

    /// An origin has named one. `newest` gives the number of the newest invalidation. False where there are too many that no configuration names: it is not known then.
    pub fn learn_one(
        &self,
        hash: u64,
        parameters: &P,
        (newest, now): (impl Fn() -> u64, f64),
        most: usize,
    ) -> bool {
        if self.contains(hash) {
            return true;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= most {
            return false;
        }
        // Invalidations look at all ways under this lock: none is at it now.
        let learned = newest();
        let new = || Way { parameters: parameters.clone(), learned, named: now, is_configured: false };
        known.entry(hash).or_insert_with(new);
        true
    }

    /// Have all invalidations after this one known it?
    pub fn has_known(&self, hash: u64, since: u64) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&hash).is_some_and(|way| way.learned <= since)
    }

    /// False for what was forgotten: an object that was kept so is found by no purge.
    pub fn contains(&self, hash: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&hash)
    }

    /// Shows each of them, and at first that everything counts; and whether it is more than the word of an origin.
    pub fn each(&self, mut show: impl FnMut(Option<&P>, bool)) {
        show(None, true);
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.values().for_each(|way| show(Some(&way.parameters), way.is_configured));
    }

    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
