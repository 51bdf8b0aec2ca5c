//! A map from texts that is made once and then only read.
//!
//! Large configurations do not fit into the processor's caches, so a lookup costs what its cache misses cost. Here it
//! reads one line of the table, one of the value and one of the text; a `HashMap` of boxed texts scatters them over all
//! memory.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

#[derive(Debug, Clone)]
pub(crate) struct Dictionary<T> {
    items: HashTable<Item<T>>,
    texts: Box<[u8]>,
    hasher: RandomState,
}

/// Aligned, so that it does not lie in two cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Item<T> {
    start: u32,
    length: u32,
    value: T,
}

impl<T> Dictionary<T> {
    /// No text comes twice.
    pub(crate) fn new(from: Vec<(&[u8], T)>) -> Self {
        let hasher = RandomState::default();
        let texts: Box<[u8]> = from.iter().flat_map(|(text, _)| *text).copied().collect();
        let mut items = HashTable::with_capacity(from.len());
        let mut start = 0;
        for (text, value) in from {
            let item = Item { start, length: text.len() as u32, value };
            start += item.length;
            items.insert_unique(hasher.hash_one(text), item, |item| hasher.hash_one(item.text(&texts)));
        }
        Self { items, texts, hasher }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn get(&self, text: &[u8]) -> Option<&T> {
        let found = self.items.find(self.hasher.hash_one(text), |item| item.text(&self.texts) == text);
        found.map(|item| &item.value)
    }

    /// In no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.items.iter().map(|item| (item.text(&self.texts), &item.value))
    }
}

impl<T> Item<T> {
    fn text<'t>(&self, texts: &'t [u8]) -> &'t [u8] {
        &texts[self.start as usize..][..self.length as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_texts() {
        let entries = [("a", 1), ("", 2), ("ab", 3), ("b", 4)];
        let dictionary = Dictionary::new(entries.map(|(text, value)| (text.as_bytes(), value)).into());
        for (text, value) in entries {
            assert_eq!(dictionary.get(text.as_bytes()), Some(&value));
        }
        assert_eq!(dictionary.get(b"abb"), None);
        let mut all: Vec<_> = dictionary.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [(b"".as_slice(), &2), (b"a", &1), (b"ab", &3), (b"b", &4)]);
    }
}
