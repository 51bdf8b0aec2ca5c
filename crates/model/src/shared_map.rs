//! An ordered map whose copies share what is the same in them.
//!
//! A copy costs a pointer for every 64 entries, a change of a copy the 64 entries around it. [`SharedMap::differences`] skips what two
//! maps share, so comparing a map with a changed copy costs what has changed.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries of a part, at most.
const MOST: usize = 64;

/// Sorted by key, never empty.
type Part<K, V> = Arc<Vec<(K, V)>>;

/// See the module.
pub struct SharedMap<K, V> {
    parts: Vec<Part<K, V>>,
    len: usize,
}

/// A key that two maps differ in: what the first has for it, and what the second has.
pub type Difference<'m, K, V> = (&'m K, Option<&'m V>, Option<&'m V>);

impl<K, V> SharedMap<K, V> {
    pub const fn new() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { at: self.position_at(0, 0), left: self.len }
    }

    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// All entries from this key on.
    pub fn starting_at<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
    {
        let part = self.part_of(key);
        let within = self.parts.get(part).map_or(0, |part| part.partition_point(|(k, _)| k.borrow() < key));
        let mut at = self.position_at(part, within);
        std::iter::from_fn(move || at.next())
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let part = self.parts.get(self.part_of(key))?;
        let at = part.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        Some(&part[at].1)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The keys that the two maps have different values for, in order, by `same`. Parts that both have are not looked at.
    pub fn differences<'m>(
        &'m self,
        other: &'m Self,
        same: impl Fn(&V, &V) -> bool + 'm,
    ) -> impl Iterator<Item = Difference<'m, K, V>>
    where
        K: Ord,
    {
        let (mut old, mut new) = (self.position_at(0, 0), other.position_at(0, 0));
        std::iter::from_fn(move || {
            loop {
                while let (Some(a), Some(b)) = (old.whole_part(), new.whole_part())
                    && Arc::ptr_eq(a, b)
                {
                    old.skip_part();
                    new.skip_part();
                }
                let order = match (old.peek(), new.peek()) {
                    (None, None) => return None,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((a, _)), Some((b, _))) => a.cmp(b),
                };
                match order {
                    Ordering::Less => return old.next().map(|(key, value)| (key, Some(value), None)),
                    Ordering::Greater => return new.next().map(|(key, value)| (key, None, Some(value))),
                    Ordering::Equal => {
                        if let (Some((key, a)), Some((_, b))) = (old.next(), new.next())
                            && !same(a, b)
                        {
                            return Some((key, Some(a), Some(b)));
                        }
                    }
                }
            }
        })
    }

    /// Do both have the very same parts? Then they are equal, and nothing was compared.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    fn position_at(&self, part: usize, within: usize) -> Position<'_, K, V> {
        Position { parts: &self.parts, part, within }
    }

    /// The part that has the key, if one has.
    fn part_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        let begins_after = |part: &Part<K, V>| part.first().is_none_or(|(first, _)| first.borrow() <= key);
        self.parts.partition_point(begins_after).saturating_sub(1)
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let number = self.part_of(&key);
        let is_last = number + 1 == self.parts.len();
        let Some(part) = self.parts.get_mut(number) else {
            self.parts.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return None;
        };
        match part.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => Some(std::mem::replace(&mut Arc::make_mut(part)[at].1, value)),
            Err(at) => {
                self.len += 1;
                // What comes in order fills parts.
                if at == MOST && is_last {
                    self.parts.push(Arc::new(vec![(key, value)]));
                    return None;
                }
                let part = Arc::make_mut(part);
                part.insert(at, (key, value));
                if part.len() > MOST {
                    let behind = part.split_off(MOST / 2);
                    self.parts.insert(number + 1, Arc::new(behind));
                }
                None
            }
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let number = self.part_of(key);
        let part = self.parts.get_mut(number)?;
        let at = part.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        let part = Arc::make_mut(part);
        let (_, value) = part.remove(at);
        self.len -= 1;
        let left = part.len();
        if left == 0 {
            self.parts.remove(number);
        } else if self.parts.get(number + 1).is_some_and(|next| left + next.len() <= MOST / 2) {
            let next = self.parts.remove(number + 1);
            Arc::make_mut(&mut self.parts[number]).extend(next.iter().cloned());
        }
        Some(value)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let number = self.part_of(key);
        let part = self.parts.get_mut(number)?;
        let at = part.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        Some(&mut Arc::make_mut(part)[at].1)
    }

    /// What stands for the key; where nothing does, the default does from now on.
    pub fn or_default(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        if !self.contains_key(key) {
            self.insert(key.clone(), V::default());
        }
        let number = self.part_of(key);
        let part = Arc::make_mut(&mut self.parts[number]);
        let at = part.partition_point(|(k, _)| k < key);
        &mut part[at].1
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.parts.iter_mut().flat_map(|part| Arc::make_mut(part).iter_mut().map(|(k, v)| (&*k, v)))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// The same entries, sharing with `old` what is equal in both.
    #[must_use]
    pub fn sharing(&self, old: &Self) -> Self
    where
        V: PartialEq,
    {
        let mut shared = old.clone();
        for (key, _, new) in old.differences(self, V::eq) {
            match new {
                Some(value) => drop(shared.insert(key.clone(), value.clone())),
                None => drop(shared.remove(key)),
            }
        }
        shared
    }

    /// Parts that lose nothing stay shared.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        for part in &mut self.parts {
            let kept: Vec<bool> = part.iter().map(|(key, value)| keep(key, value)).collect();
            if kept.iter().any(|kept| !kept) {
                let mut kept = kept.into_iter();
                Arc::make_mut(part).retain(|_| kept.next().unwrap_or(true));
            }
        }
        self.parts.retain(|part| !part.is_empty());
        self.len = self.parts.iter().map(|part| part.len()).sum();
    }

    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.into_iter().map(|(_, value)| value)
    }

    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.into_iter().map(|(key, _)| key)
    }
}

/// A place between entries.
#[derive(Debug)]
struct Position<'m, K, V> {
    parts: &'m [Part<K, V>],
    part: usize,
    within: usize,
}

impl<'m, K, V> Position<'m, K, V> {
    fn peek(&self) -> Option<(&'m K, &'m V)> {
        self.parts.get(self.part)?.get(self.within).map(|(key, value)| (key, value))
    }

    fn next(&mut self) -> Option<(&'m K, &'m V)> {
        let part = self.parts.get(self.part)?;
        let found = part.get(self.within).map(|(key, value)| (key, value));
        self.within += 1;
        if self.within >= part.len() {
            (self.part, self.within) = (self.part + 1, 0);
        }
        // `starting_at` may begin behind the last entry of a part.
        found.or_else(|| if self.part < self.parts.len() { self.next() } else { None })
    }

    /// The part that begins here.
    fn whole_part(&self) -> Option<&'m Part<K, V>> {
        self.parts.get(self.part).filter(|_| self.within == 0)
    }

    fn skip_part(&mut self) {
        self.part += 1;
    }
}

/// All entries in order.
#[derive(Debug)]
pub struct Iter<'m, K, V> {
    at: Position<'m, K, V>,
    left: usize,
}

impl<K, V> Clone for Position<'_, K, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { at: self.at.clone(), left: self.left }
    }
}

impl<'m, K, V> Iterator for Iter<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.at.next();
        self.left = self.left.saturating_sub(1);
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}

impl<'m, K, V> IntoIterator for &'m SharedMap<K, V> {
    type Item = (&'m K, &'m V);
    type IntoIter = Iter<'m, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Clone, V: Clone> IntoIterator for SharedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        let mut all = Vec::with_capacity(self.len);
        for part in self.parts {
            all.extend(Arc::try_unwrap(part).unwrap_or_else(|shared| shared.as_ref().clone()));
        }
        all.into_iter()
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for SharedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord + Clone, V: Clone> From<BTreeMap<K, V>> for SharedMap<K, V> {
    fn from(map: BTreeMap<K, V>) -> Self {
        map.into_iter().collect()
    }
}

impl<K: Ord + Clone, V: Clone, const N: usize> From<[(K, V); N]> for SharedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Borrow<Q> + Ord, Q: Ord + ?Sized, V> Index<&Q> for SharedMap<K, V> {
    type Output = V;

    /// Panics where there is no such key, as all maps do.
    #[expect(clippy::expect_used, reason = "an index that is not there is a bug of the caller")]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no entry for this key")
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), len: self.len }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Ord, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.differences(other, V::eq).next().is_none()
    }
}

impl<K: Ord, V: Eq> Eq for SharedMap<K, V> {}

impl<K: Serialize, V: Serialize> Serialize for SharedMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, K: Ord + Clone + Deserialize<'de>, V: Clone + Deserialize<'de>> Deserialize<'de>
    for SharedMap<K, V>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Ord + Clone + Deserialize<'de>, V: Clone + Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = SharedMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut map = SharedMap::new();
                while let Some((key, value)) = entries.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(feature = "schema")]
impl<K: schemars::JsonSchema, V: schemars::JsonSchema> schemars::JsonSchema for SharedMap<K, V> {
    fn inline_schema() -> bool {
        BTreeMap::<K, V>::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        BTreeMap::<K, V>::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        BTreeMap::<K, V>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of numbers that looks random.
    fn numbers(seed: u64) -> impl Iterator<Item = u64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        })
    }

    fn check(map: &SharedMap<u64, u64>, expected: &BTreeMap<u64, u64>) {
        assert!(map.iter().eq(expected.iter()));
        assert_eq!((map.len(), map.keys().len()), (expected.len(), expected.len()));
        assert!(map.parts.iter().all(|part| (1..=MOST).contains(&part.len())));
    }

    #[test]
    fn it_does_what_an_ordered_map_does() {
        let (mut map, mut expected) = (SharedMap::new(), BTreeMap::new());
        let mut copies = Vec::new();
        for (at, number) in numbers(1).take(20_000).enumerate() {
            let key = number % 700;
            match number % 5 {
                // Rarely more than it grows.
                0 | 1 => assert_eq!(map.remove(&key), expected.remove(&key)),
                2 => {
                    *map.or_default(&key) += number;
                    *expected.entry(key).or_default() += number;
                }
                3 => {
                    let (one, other) = (map.get_mut(&key), expected.get_mut(&key));
                    assert_eq!(one, other);
                    one.into_iter().chain(other).for_each(|value| *value += 1);
                }
                _ => assert_eq!(map.insert(key, number), expected.insert(key, number)),
            }
            assert!(map.starting_at(&key).eq(expected.range(key..)), "{key}");
            if at % 500 == 0 {
                check(&map, &expected);
                copies.push((map.clone(), expected.clone()));
            }
        }
        map.retain(|key, _| key % 3 == 0);
        expected.retain(|key, _| key % 3 == 0);
        check(&map, &expected);
        for (copy, as_it_was) in &copies {
            check(copy, as_it_was);
            let found: Vec<_> = copy.differences(&map, u64::eq).collect();
            let keys: std::collections::BTreeSet<&u64> = as_it_was.keys().chain(expected.keys()).collect();
            let wanted = keys.into_iter().map(|key| (key, as_it_was.get(key), expected.get(key)));
            let wanted: Vec<_> = wanted.filter(|(_, old, new)| old != new).collect();
            assert_eq!(found, wanted);
            assert_eq!(*copy == map, *as_it_was == expected);
            check(&map.sharing(copy), &expected);
        }
    }

    #[test]
    fn what_two_maps_share_is_not_compared() {
        let old: SharedMap<u64, u64> = (0..10_000).map(|key| (key, key)).collect();
        let mut new = old.clone();
        assert!(new.is_shared_with(&old));
        new.insert(5_000, 0);
        new.remove(&7_000);
        assert!(!new.is_shared_with(&old));
        let compared = std::cell::Cell::new(0);
        let same = |a: &u64, b: &u64| {
            compared.set(compared.get() + 1);
            a == b
        };
        let found: Vec<_> = old.differences(&new, same).map(|(key, ..)| *key).collect();
        assert_eq!(found, [5_000, 7_000]);
        assert!(compared.get() <= 2 * MOST, "{}", compared.get());
    }

    #[test]
    fn it_is_written_and_read_as_a_map() {
        let map: SharedMap<String, u64> = (0..200).map(|key| (format!("k{key}"), key)).collect();
        let same: BTreeMap<String, u64> = map.clone().into_iter().collect();
        let text = serde_json::to_string(&map).unwrap();
        assert_eq!(text, serde_json::to_string(&same).unwrap());
        assert_eq!(serde_json::from_str::<SharedMap<String, u64>>(&text).unwrap(), map);
    }
}
