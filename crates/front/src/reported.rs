//! Failures that were reported already: the same reason is reported once, until it is resolved or another reason follows.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// More are not remembered: then all are reported again.
const MOST: usize = 10_000;

/// The last reason for each key.
#[derive(Debug)]
pub(crate) struct Reported<K>(Mutex<HashMap<K, String>>);

impl<K> Default for Reported<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Reported<K> {
    /// Notes the reason. True where it must be reported.
    pub(crate) fn is_news(&self, key: K, why: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, why.to_owned()).is_none_or(|before| before != why)
    }

    /// It works: the next failure is news. The key is made only where there are any.
    pub(crate) fn works<const N: usize>(&self, keys: impl FnOnce() -> [K; N]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.is_empty() {
            keys().iter().for_each(|key| drop(known.remove(key)));
        }
    }

    /// After a change of the configuration every failure is reported again.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_once_until_it_works_or_changes() {
        let reported = Reported::default();
        assert!(reported.is_news("a", "refused") && !reported.is_news("a", "refused"));
        assert!(reported.is_news("b", "refused"), "another key");
        assert!(reported.is_news("a", "timeout"), "another reason");
        reported.works(|| ["a"]);
        assert!(reported.is_news("a", "timeout") && !reported.is_news("b", "refused"));
        reported.clear();
        assert!(reported.is_news("b", "refused"));
    }
}
