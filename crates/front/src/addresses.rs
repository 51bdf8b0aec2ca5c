//! How many connections each client has open.
//!
//! Counted at accept alone, and only where there is a limit. An entry exists as long as its client has a connection, so there are
//! never more entries than connections.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Threads that accept at the same moment rarely meet.
const SHARDS: usize = 64;

/// One client: an address of IPv4, or the upper half of one of IPv6, as one client usually has all addresses of a /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    V4(u32),
    V6(u64),
}

impl Key {
    fn new(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.to_bits()),
            IpAddr::V6(ip) => Self::V6((ip.to_bits() >> 64) as u64),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Addresses {
    /// Clients must not know which of them share a shard.
    state: RandomState,
    shards: Vec<Mutex<HashMap<Key, u32>>>,
}

/// One connection of a client. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    addresses: &'a Addresses,
    key: Key,
}

/// The same, owned: for tasks that cannot borrow.
#[derive(Debug)]
pub(crate) struct OwnedPlace {
    addresses: Arc<Addresses>,
    key: Key,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { state: RandomState::new(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Addresses {
    /// None where the client has as many connections as it may have.
    pub(crate) fn enter(&self, address: IpAddr, most: u32) -> Option<Place<'_>> {
        let key = Key::new(address);
        self.with(key, |open| {
            let count = open.entry(key).or_insert(0);
            let has_room = *count < most.max(1);
            if has_room {
                *count += 1;
            }
            has_room
        })
        .then(|| Place { addresses: self, key })
    }

    /// As [`Self::enter`].
    pub(crate) fn enter_owned(self: &Arc<Self>, address: IpAddr, most: u32) -> Option<OwnedPlace> {
        let place = self.enter(address, most)?;
        let key = place.key;
        // The owned one gives it back.
        std::mem::forget(place);
        Some(OwnedPlace { addresses: Arc::clone(self), key })
    }

    fn leave(&self, key: Key) {
        self.with(key, |open| {
            if let Some(count) = open.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    open.remove(&key);
                }
            }
            // The memory of a crowd that has left.
            if open.capacity() > 64 && open.len() < open.capacity() / 8 {
                open.shrink_to(open.len() * 2);
            }
        });
    }

    fn with<T>(&self, key: Key, change: impl FnOnce(&mut HashMap<Key, u32>) -> T) -> T {
        let at = self.state.hash_one(key) as usize % SHARDS;
        let mut open = self.shards[at].lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut open)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.addresses.leave(self.key);
    }
}

impl Drop for OwnedPlace {
    fn drop(&mut self) {
        self.addresses.leave(self.key);
    }
}

#[cfg(test)]
mod tests;
