//! Objects that may be found already, but are not yet in the index: from vcl_backend_response until varnishd has told us of them. A
//! purge cannot find them meanwhile, so every hit looks here whether its object is one of them.
//!
//! A hit of any other object costs one load. The counters are a filter in front of the maps: two objects may share one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const COUNTERS: usize = 4096;
const SHARDS: usize = 16;

pub struct Pending<T> {
    counters: Box<[AtomicU32]>,
    shards: [Mutex<HashMap<usize, T>>; SHARDS],
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            counters: std::iter::repeat_with(AtomicU32::default).take(COUNTERS).collect(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

/// Addresses differ in their middle bits.
fn spread(object: usize) -> usize {
    ((object as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize
}

impl<T: Copy> Pending<T> {
    /// To be called before the object can be found. Another call for the same object takes the place of the first.
    pub fn enter(&self, object: usize, what: T) {
        if self.shard(object).insert(object, what).is_none() {
            self.counter(object).fetch_add(1, Ordering::Release);
        }
    }

    /// To be called once the index has the object, and it was ended if it had to be. Does nothing where it is not here.
    pub fn leave(&self, object: usize) {
        if self.shard(object).remove(&object).is_some() {
            // What was done to the object before this is seen by those who do not find it here.
            self.counter(object).fetch_sub(1, Ordering::Release);
        }
    }

    pub fn of(&self, object: usize) -> Option<T> {
        if self.counter(object).load(Ordering::Acquire) == 0 {
            return None;
        }
        self.shard(object).get(&object).copied()
    }

    fn counter(&self, object: usize) -> &AtomicU32 {
        &self.counters[spread(object) % COUNTERS]
    }

    fn shard(&self, object: usize) -> MutexGuard<'_, HashMap<usize, T>> {
        self.shards[spread(object) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
