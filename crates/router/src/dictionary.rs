//! A map from texts that is made once and then only read.
//!
//! Large configurations do not fit into the processor's caches, so a lookup costs what its cache misses cost. Therefore
//! all texts share one piece of memory and all values another, and both are small.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Values by a text and the space it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Dictionary<T> {
    items: HashTable<Item<T>>,
    texts: Box<[u8]>,
    hasher: RandomState,
}

/// Aligned, so that small ones never lie in two cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Item<T> {
    space: u32,
    start: u32,
    length: u32,
    value: T,
}

impl<T> Default for Dictionary<T> {
    fn default() -> Self {
        Self { items: HashTable::new(), texts: Box::default(), hasher: RandomState::default() }
    }
}

impl<T> Dictionary<T> {
    /// No two of one space and text.
    pub(crate) fn new(from: Vec<(u32, &[u8], T)>) -> Self {
        let mut texts = Vec::new();
        let mut starts = HashMap::new();
        for (_, text, _) in &from {
            starts.entry(*text).or_insert_with(|| {
                texts.extend_from_slice(text);
                (texts.len() - text.len()) as u32
            });
        }
        let mut new = Self { texts: texts.into(), ..Self::default() };
        let mut items = HashTable::with_capacity(from.len());
        for (space, text, value) in from {
            let item = Item { space, start: starts[text], length: text.len() as u32, value };
            items.insert_unique(new.hash(space, text), item, |item| new.hash(item.space, new.text(item)));
        }
        new.items = items;
        new
    }

    pub(crate) fn get(&self, space: u32, text: &[u8]) -> Option<&T> {
        let is_meant = |item: &Item<T>| item.space == space && self.text(item) == text;
        self.items.find(self.hash(space, text), is_meant).map(|item| &item.value)
    }

    /// Every space, text and value, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8], &T)> {
        self.items.iter().map(|item| (item.space, self.text(item), &item.value))
    }

    fn text(&self, item: &Item<T>) -> &[u8] {
        let start = item.start as usize;
        &self.texts[start..start + item.length as usize]
    }

    fn hash(&self, space: u32, text: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(space);
        hasher.write(text);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_means_something_else_in_each_space() {
        let entries = [(0, "a", 1), (1, "a", 2), (0, "", 3), (0, "ab", 4)];
        let dictionary =
            Dictionary::new(entries.map(|(space, text, value)| (space, text.as_bytes(), value)).into());
        for (space, text, value) in entries {
            assert_eq!(dictionary.get(space, text.as_bytes()), Some(&value));
        }
        assert_eq!(dictionary.get(1, b""), None);
        assert_eq!(dictionary.get(0, b"b"), None);
        assert_eq!(Dictionary::<u32>::default().get(0, b""), None);
    }
}
