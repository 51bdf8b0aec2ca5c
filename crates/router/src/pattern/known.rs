//! Patterns that this process has compiled, by their text. Tables share them, and so do a table and the one that replaces
//! it. Only compiling looks here, never a request.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::dfa::Dfa;
use super::{Cost, Error, compile};

/// Texts that are remembered, in bytes.
const MOST: usize = 16 << 20;

#[derive(Debug, Default)]
struct Known {
    patterns: HashMap<Box<str>, Entry>,
    /// Of all texts.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    cost: Result<Cost, Error>,
    /// As long as a table uses it.
    dfa: Weak<Dfa>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The pattern for matching.
pub(super) fn compiled(pattern: &str) -> Result<Arc<Dfa>, Error> {
    match look(pattern, |entry| (entry.cost.clone(), entry.dfa.upgrade())) {
        Some((Err(error), _)) => Err(error),
        Some((Ok(_), Some(dfa))) => Ok(dfa),
        Some((Ok(_), None)) | None => learn(pattern),
    }
}

/// What the pattern costs; without keeping it compiled.
pub(super) fn cost(pattern: &str) -> Result<Cost, Error> {
    look(pattern, |entry| entry.cost.clone()).unwrap_or_else(|| learn(pattern).map(|dfa| dfa.cost()))
}

fn look<T>(pattern: &str, of: impl FnOnce(&Entry) -> T) -> Option<T> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).patterns.get(pattern).map(of)
}

/// Compiles without the lock: a slow pattern does not hold up other threads.
fn learn(pattern: &str) -> Result<Arc<Dfa>, Error> {
    let dfa = compile(pattern).map(Arc::new);
    let entry = match &dfa {
        Ok(dfa) => Entry { cost: Ok(dfa.cost()), dfa: Arc::downgrade(dfa) },
        Err(error) => Entry { cost: Err(error.clone()), dfa: Weak::new() },
    };
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(pattern, entry);
    dfa
}

impl Known {
    fn insert(&mut self, pattern: &str, entry: Entry) {
        if self.bytes + pattern.len() > MOST {
            self.patterns.retain(|_, entry| entry.dfa.strong_count() > 0);
            self.bytes = self.patterns.keys().map(|text| text.len()).sum();
        }
        if self.patterns.insert(pattern.into(), entry).is_none() {
            self.bytes += pattern.len();
        }
    }
}
