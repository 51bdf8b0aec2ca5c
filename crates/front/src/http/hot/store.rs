//! Hot objects by the hash of their key: sets of eight places each. A hit takes no lock. Storing and removing take one.
//!
//! Bounded in bytes. Where there is no room, objects that were not used since the hand of a clock was at them last make room.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::{ArcSwapOption, Guard};

use super::entry::Entry;

/// Variants of a key are in one set, so no key has more.
const PLACES: usize = 8;
/// Bytes of an object, for the number of sets.
const TYPICAL: usize = 1 << 10;
const MOST_SETS: usize = 1 << 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set {
    /// [`tag`] of what is in each place; 0: nothing.
    tags: [AtomicU64; PLACES],
    places: [ArcSwapOption<Entry>; PLACES],
}

#[derive(Debug)]
pub(crate) struct Store {
    sets: Box<[Set]>,
    /// Part of the hash, so that a client cannot choose the set by the key.
    secret: u64,
    most: usize,
    bytes: AtomicUsize,
    entries: AtomicUsize,
    evicted: AtomicU64,
    /// The set at which the hand of the clock is.
    hand: Mutex<usize>,
}

fn tag(hash: u64, gzip: bool) -> u64 {
    (hash ^ u64::from(gzip)).max(1)
}

impl Store {
    pub(crate) fn new(most: usize) -> Self {
        let sets = (most / TYPICAL / PLACES).clamp(16, MOST_SETS).next_power_of_two();
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            secret: router::random::next() | 1,
            most,
            bytes: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            hand: Mutex::new(0),
        }
    }

    pub(crate) fn places(&self) -> usize {
        self.sets.len() * PLACES
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Objects that were removed to make room for others.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Is it so full that others must go?
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() > self.most - self.most / 8
    }

    fn set(&self, hash: u64) -> &Set {
        let mixed = (hash ^ self.secret)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(self.secret);
        &self.sets[(mixed >> 32) as usize & (self.sets.len() - 1)]
    }

    /// The entry that `is_it` takes, of those with this hash.
    pub(crate) fn find(
        &self,
        hash: u64,
        gzip: bool,
        is_it: impl Fn(&Entry) -> bool,
    ) -> Option<Guard<Option<Arc<Entry>>>> {
        let (set, tag) = (self.set(hash), tag(hash, gzip));
        for (known, place) in set.tags.iter().zip(&set.places) {
            if known.load(Ordering::Acquire) == tag {
                let entry = place.load();
                if entry.as_deref().is_some_and(&is_it) {
                    return Some(entry);
                }
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In the place of one of the same key and variant, if there is one. False where it is too large.
    pub(crate) fn insert(&self, mut entry: Entry, now: Instant) -> bool {
        if entry.bytes > self.most / 4 {
            return false;
        }
        let mut hand = self.lock();
        let set = self.set(entry.name.hash);
        let taken = |is_it: &dyn Fn(&Entry) -> bool| {
            set.places.iter().position(|place| place.load().as_deref().is_some_and(is_it))
        };
        let place = taken(&|old| old.is_same(&entry))
            .or_else(|| set.places.iter().position(|place| place.load().is_none()))
            .or_else(|| taken(&|old| old.is_over(now)));
        let place = match place {
            Some(place) => {
                // Clients that read slowly hold the body. They all hold the same one while it is the same.
                if let Some(old) = set.places[place].load().as_deref()
                    && old.body == entry.body
                {
                    entry.body = old.body.clone();
                }
                place
            }
            None => {
                self.evicted.fetch_add(1, Ordering::Relaxed);
                // The first that was not used; else the first of all, and the others have a chance less.
                let is_unused = |old: &Entry| !old.used.swap(false, Ordering::Relaxed);
                taken(&is_unused).unwrap_or(0)
            }
        };
        self.put(set, place, Some(entry));
        let mut looked = 0;
        while self.bytes() > self.most && looked <= 2 * self.sets.len() {
            *hand = (*hand + 1) % self.sets.len();
            self.sweep(
                &self.sets[*hand],
                |old| old.is_over(now) || !old.used.swap(false, Ordering::Relaxed),
                true,
            );
            looked += 1;
        }
        true
    }

    /// Under the lock.
    fn put(&self, set: &Set, place: usize, entry: Option<Entry>) {
        // A reader that finds a tag looks at the entry, too.
        let tag = entry.as_ref().map_or(0, |entry| tag(entry.name.hash, entry.name.gzip));
        let bytes = entry.as_ref().map(|entry| entry.bytes);
        set.tags[place].store(tag, Ordering::Release);
        let old = set.places[place].swap(entry.map(Arc::new));
        if let Some(bytes) = bytes {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(old) = old {
            self.bytes.fetch_sub(old.bytes, Ordering::Relaxed);
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Under the lock.
    fn sweep(&self, set: &Set, goes: impl Fn(&Entry) -> bool, is_for_room: bool) {
        for place in 0..PLACES {
            if set.places[place].load().as_deref().is_some_and(&goes) {
                self.put(set, place, None);
                self.evicted.fetch_add(u64::from(is_for_room), Ordering::Relaxed);
            }
        }
    }

    /// Removes all entries of a key.
    pub(crate) fn forget(&self, hash: u64) {
        let set = self.set(hash);
        if set
            .tags
            .iter()
            .any(|known| [tag(hash, false), tag(hash, true)].contains(&known.load(Ordering::Acquire)))
        {
            let _hand = self.lock();
            self.sweep(set, |old| old.name.hash == hash, false);
        }
    }

    /// Removes what `goes` names. The lock is given away between sets.
    pub(crate) fn clean(&self, goes: impl Fn(&Entry) -> bool) {
        for set in self.sets.iter().filter(|set| set.tags.iter().any(|tag| tag.load(Ordering::Relaxed) != 0))
        {
            let _hand = self.lock();
            self.sweep(set, &goes, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use page::Page;

    use super::super::entry::{Name, Times};
    use super::*;

    fn entry(page: &Page, body: &[u8]) -> Entry {
        let name = Name { hash: 7, gzip: false, key: b"key".as_slice().into() };
        let (parts, ()) = http::Response::new(()).into_parts();
        let now = Instant::now();
        let times = Times { asked: now, read: now, ttl: Duration::from_secs(60) };
        Entry::new((name, [].into()), page.stamp(&[]), (&parts, false), body, times).unwrap()
    }

    /// A client that reads slowly holds what it was given. A renewal must not make it one more copy for each.
    #[test]
    fn a_renewed_object_keeps_the_bytes_of_its_body() {
        let (page, _file) = Page::sealed().unwrap();
        let store = Store::new(1 << 20);
        let body = |store: &Store| {
            let found = store.find(7, false, |_| true).unwrap();
            found.as_ref().unwrap().body.clone()
        };
        assert!(store.insert(entry(&page, b"body"), Instant::now()));
        let held = body(&store);
        assert!(store.insert(entry(&page, b"body"), Instant::now()));
        assert_eq!(body(&store).as_ptr(), held.as_ptr());
        assert_eq!(store.entries(), 1);
        assert!(store.insert(entry(&page, b"news"), Instant::now()));
        assert_eq!(body(&store), &b"news"[..]);
    }
}
