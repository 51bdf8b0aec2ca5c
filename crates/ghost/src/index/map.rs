//! Which objects have which key, without any of Varnish in it.
//!
//! Takes addresses of objects and hashes of keys. Guarantees that what is found under a key is inside, and stays inside
//! while it is looked at. Never looks at all objects for one key.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks are short and many: a miss waits for no other.
const SHARDS: usize = 64;
/// More objects than this are no longer searched one by one.
const FEW: usize = 16;
/// So many are looked at before others get their turn.
const AT_ONCE: usize = 128;
/// The objects of a host are spread over so many keys: new ones of a busy host do not wait for each other.
const PARTS: u64 = 16;

/// About how many bytes each takes, with its share of free places in tables: an object, one of its keys, a key that no other
/// object has, and one more object of a key.
const OBJECT: usize = 48;
const KEY_OF_OBJECT: usize = 8;
const KEY: usize = 72;
const HOLDER: usize = 16;
/// A table may have so many free places for each that is taken, and a few beside, before it is made smaller.
const SPARSE: usize = 8;
const SMALL: usize = 64;

/// Keys and addresses are spread well enough by a multiplication.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

type Spreading = BuildHasherDefault<Spread>;

/// The keys of one object. Most have one.
enum Keys {
    One(u64),
    More(Box<[u64]>),
}

impl Keys {
    fn all(&self) -> &[u64] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::More(keys) => keys,
        }
    }
}

/// The objects of one key. Most keys have one.
enum Holders {
    One(usize),
    Few(Vec<usize>),
    Many(HashSet<usize, Spreading>),
}

impl Holders {
    fn insert(&mut self, object: usize) {
        match self {
            Self::One(one) if *one == object => {}
            Self::One(one) => *self = Self::Few(vec![*one, object]),
            Self::Few(few) if few.contains(&object) => {}
            Self::Few(few) if few.len() < FEW => few.push(object),
            Self::Few(few) => {
                let mut many: HashSet<_, _> = few.drain(..).collect();
                many.insert(object);
                *self = Self::Many(many);
            }
            Self::Many(many) => drop(many.insert(object)),
        }
    }

    /// True where nothing is left.
    fn remove(&mut self, object: usize) -> bool {
        match self {
            Self::One(one) => *one == object,
            Self::Few(few) => {
                few.retain(|one| *one != object);
                few.is_empty()
            }
            Self::Many(many) => {
                many.remove(&object);
                // What was large for a while must not stay so.
                if many.len() * 8 < many.capacity() {
                    many.shrink_to(many.len() * 2);
                }
                many.is_empty()
            }
        }
    }

    fn contains(&self, object: usize) -> bool {
        match self {
            Self::One(one) => *one == object,
            Self::Few(few) => few.contains(&object),
            Self::Many(many) => many.contains(&object),
        }
    }

    fn all(&self) -> Vec<usize> {
        match self {
            Self::One(one) => vec![*one],
            Self::Few(few) => few.clone(),
            Self::Many(many) => many.iter().copied().collect(),
        }
    }
}

/// Objects by key, and keys by object.
pub struct Map {
    holders: [Mutex<HashMap<u64, Holders, Spreading>>; SHARDS],
    keys: [Mutex<HashMap<usize, Keys, Spreading>>; SHARDS],
    /// No client can make two keys meet.
    hash: RandomState,
    /// About how many bytes all of it takes.
    charged: AtomicUsize,
}

impl Default for Map {
    fn default() -> Self {
        Self {
            holders: std::array::from_fn(|_| Mutex::default()),
            keys: std::array::from_fn(|_| Mutex::default()),
            hash: RandomState::new(),
            charged: AtomicUsize::new(0),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table that was large for a while does not stay so.
fn give_back<K: Eq + Hash, V>(table: &mut HashMap<K, V, Spreading>) {
    if table.len() * SPARSE + SMALL < table.capacity() {
        table.shrink_to(table.len() * 2);
    }
}

/// The standard library's tables have one byte for each place beside what is in it, and an eighth of the places is free.
fn table_bytes<T>(capacity: usize) -> usize {
    capacity * 8 / 7 * (size_of::<T>() + 1)
}

fn shard(n: u64) -> usize {
    (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}

impl Map {
    /// The key of a URL of a host. `kept_as` says how the URL came to be what it is, so that two that only look the same are
    /// told apart.
    pub fn url_key(&self, host: &[u8], kept_as: u64, url: &[u8]) -> u64 {
        self.hash.hash_one((0_u8, host, kept_as, url))
    }

    /// Zero for nothing.
    pub fn kept_as(&self, what: Option<&impl Hash>) -> u64 {
        what.map_or(0, |what| self.hash.hash_one((3_u8, what)))
    }

    pub fn tag_key(&self, tag: &[u8]) -> u64 {
        self.hash.hash_one((1_u8, tag))
    }

    /// No object is found by it: it stands for the tag's objects of one host.
    pub fn host_tag_key(&self, host: &[u8], tag: &[u8]) -> u64 {
        self.hash.hash_one((2_u8, host, tag))
    }

    /// Stands for those objects of another key that belong to one namespace. A namespace's objects of one host and tag are found by it.
    pub fn owned_key(&self, owner: &[u8], key: u64) -> u64 {
        self.hash.hash_one((6_u8, owner, key))
    }

    /// The key by which a host's object is found among all of the host.
    pub fn host_key(&self, host: &[u8], object: usize) -> u64 {
        self.host_part(host, shard(object as u64) as u64 % PARTS)
    }

    /// All keys of a host.
    pub fn host_keys(&self, host: &[u8]) -> impl Iterator<Item = u64> {
        (0..PARTS).map(move |part| self.host_part(host, part))
    }

    fn host_part(&self, host: &[u8], part: u64) -> u64 {
        self.hash.hash_one((4_u8, host, part))
    }

    /// The key by which an object is found among all that were kept in the same way.
    pub fn way_key(&self, kept_as: u64, object: usize) -> u64 {
        self.way_part(kept_as, shard(object as u64) as u64 % PARTS)
    }

    /// All keys of a way.
    pub fn way_keys(&self, kept_as: u64) -> impl Iterator<Item = u64> {
        (0..PARTS).map(move |part| self.way_part(kept_as, part))
    }

    fn way_part(&self, kept_as: u64, part: u64) -> u64 {
        self.hash.hash_one((5_u8, kept_as, part))
    }

    /// Has any object this key?
    pub fn has(&self, key: u64) -> bool {
        lock(&self.holders[shard(key)]).contains_key(&key)
    }

    /// From now on the object is found under these keys, and no others.
    pub fn insert(&self, object: usize, mut keys: Vec<u64>) {
        self.remove(object);
        keys.sort_unstable();
        keys.dedup();
        let new = match keys.as_slice() {
            [] => return,
            [one] => Keys::One(*one),
            more => Keys::More(more.into()),
        };
        lock(&self.keys[shard(object as u64)]).insert(object, new);
        let mut charge = OBJECT + keys.len() * KEY_OF_OBJECT;
        for key in keys {
            match lock(&self.holders[shard(key)]).entry(key) {
                Entry::Occupied(mut there) => {
                    there.get_mut().insert(object);
                    charge += HOLDER;
                }
                Entry::Vacant(none) => {
                    none.insert(Holders::One(object));
                    charge += KEY;
                }
            }
        }
        self.charged.fetch_add(charge, Ordering::Relaxed);
    }

    /// When it returns, no thread looks at the object any more.
    pub fn remove(&self, object: usize) {
        let keys = {
            let mut of_shard = lock(&self.keys[shard(object as u64)]);
            let Some(keys) = of_shard.remove(&object) else { return };
            give_back(&mut of_shard);
            keys
        };
        let mut charge = OBJECT + keys.all().len() * KEY_OF_OBJECT;
        for key in keys.all() {
            let mut of_shard = lock(&self.holders[shard(*key)]);
            let Entry::Occupied(mut there) = of_shard.entry(*key) else { continue };
            if there.get_mut().remove(object) {
                there.remove();
                give_back(&mut of_shard);
                charge += KEY;
            } else {
                charge += HOLDER;
            }
        }
        let less = |now: usize| Some(now.saturating_sub(charge));
        let _ = self.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// About how many bytes all of it takes, without a look at it.
    pub fn charged(&self) -> usize {
        self.charged.load(Ordering::Relaxed)
    }

    /// Shows every object of the key, a part of them at a time, and counts those that `look` says true of. None of them is
    /// removed while it is looked at.
    pub fn each(&self, key: u64, mut look: impl FnMut(usize) -> bool) -> u64 {
        let of_key = &self.holders[shard(key)];
        let all = lock(of_key).get(&key).map(Holders::all).unwrap_or_default();
        let mut count = 0;
        for part in all.chunks(AT_ONCE) {
            let shard = lock(of_key);
            let Some(holders) = shard.get(&key) else { break };
            for object in part {
                if holders.contains(*object) && look(*object) {
                    count += 1;
                }
            }
        }
        count
    }

    pub fn clear(&self) {
        self.keys.iter().for_each(|shard| *lock(shard) = HashMap::default());
        self.holders.iter().for_each(|shard| *lock(shard) = HashMap::default());
        self.charged.store(0, Ordering::Relaxed);
    }

    /// About how many bytes all of it takes. Looks at everything: not for every second.
    pub fn bytes(&self) -> usize {
        let of_keys = |keys: &Keys| match keys {
            Keys::One(_) => 0,
            Keys::More(more) => size_of_val::<[u64]>(more),
        };
        let of_holders = |holders: &Holders| match holders {
            Holders::One(_) => 0,
            Holders::Few(few) => few.capacity() * size_of::<usize>(),
            Holders::Many(many) => table_bytes::<usize>(many.capacity()),
        };
        let keys = self.keys.iter().map(|shard| {
            let shard = lock(shard);
            table_bytes::<(usize, Keys)>(shard.capacity()) + shard.values().map(of_keys).sum::<usize>()
        });
        let holders = self.holders.iter().map(|shard| {
            let shard = lock(shard);
            table_bytes::<(u64, Holders)>(shard.capacity()) + shard.values().map(of_holders).sum::<usize>()
        });
        keys.sum::<usize>() + holders.sum::<usize>()
    }

    /// How many objects and how many keys there are.
    pub fn len(&self) -> (usize, usize) {
        let objects = self.keys.iter().map(|shard| lock(shard).len()).sum();
        (objects, self.holders.iter().map(|shard| lock(shard).len()).sum())
    }
}
