//! Sessions by client address, in the order of their last datagram.
//!
//! Pure: time is a number of milliseconds. Each operation takes constant time, whatever the number of sessions.
//!
//! A session is `New` until its endpoint has answered, then `Answered`, and `Established` once its client has sent another
//! datagram after an answer. A client with a forged address never sees an answer, so only real clients establish sessions, unless
//! one guesses well. When there is no room, a new client takes the place of the session that is silent for the longest time,
//! first among the new ones, then among the answered ones, and only if it is silent for long enough. An established session is
//! never replaced.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A session whose endpoint has not answered can be replaced when it is silent for this time. It also limits how many sessions
/// a flood can open in a second: as many as the table holds.
pub(super) const NEW_KEEPS: u64 = 1_000;
/// The same for one that was answered once.
pub(super) const ANSWERED_KEEPS: u64 = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    New,
    Answered,
    Established,
}

const CLASSES: usize = 3;

/// No slot.
const NONE: u32 = u32::MAX;

/// How long sessions may be silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silence {
    pub(super) first: u64,
    pub(super) established: u64,
}

impl Silence {
    pub(super) fn new(first: Duration, established: Duration) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { first: millis(first), established: millis(established) }
    }

    fn of(&self, class: usize) -> u64 {
        if class == Class::Established as usize { self.established } else { self.first }
    }
}

/// A session's place. Ids are used again, so it is checked by its client.
#[derive(Debug)]
struct Slot<T> {
    client: SocketAddr,
    class: Class,
    /// When the last datagram passed, in either direction.
    last: u64,
    before: u32,
    after: u32,
    session: T,
}

/// First is the session that is silent for the longest time.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

/// The sessions of one thread. How many there may be is the caller's to decide.
#[derive(Debug)]
pub(super) struct Table<T> {
    by_client: HashMap<SocketAddr, u32>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<u32>,
    lists: [List; CLASSES],
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let empty = List { first: NONE, last: NONE };
        Self { by_client: HashMap::new(), slots: Vec::new(), free: Vec::new(), lists: [empty; CLASSES] }
    }
}

impl<T> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.by_client.len()
    }

    /// A datagram of the client came: its session, if it has one.
    pub(super) fn client_sent(&mut self, client: &SocketAddr, now: u64) -> Option<&mut T> {
        let id = *self.by_client.get(client)?;
        let class = self.slot(id)?.class;
        self.touch(id, if class == Class::New { Class::New } else { Class::Established }, now);
        self.slots.get_mut(id as usize)?.as_mut().map(|slot| &mut slot.session)
    }

    /// The endpoint answered. True if it is the first answer. None where the session is gone.
    pub(super) fn endpoint_sent(&mut self, client: &SocketAddr, now: u64) -> Option<(bool, &mut T)> {
        let id = *self.by_client.get(client)?;
        let class = self.slot(id)?.class;
        self.touch(id, if class == Class::New { Class::Answered } else { class }, now);
        let session = &mut self.slots.get_mut(id as usize)?.as_mut()?.session;
        Some((class == Class::New, session))
    }

    pub(super) fn get(&self, client: &SocketAddr) -> Option<&T> {
        self.slot(*self.by_client.get(client)?).map(|slot| &slot.session)
    }

    /// The client must have no session yet.
    pub(super) fn insert(&mut self, client: SocketAddr, session: T, now: u64) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.by_client.insert(client, id);
        let slot = Slot { client, class: Class::New, last: now, before: NONE, after: NONE, session };
        if let Some(place) = self.slots.get_mut(id as usize) {
            *place = Some(slot);
        }
        self.append(id, Class::New);
    }

    pub(super) fn remove(&mut self, client: &SocketAddr) -> Option<T> {
        let id = self.by_client.remove(client)?;
        self.unlink(id);
        let slot = self.slots.get_mut(id as usize)?.take()?;
        self.free.push(id);
        if self.by_client.is_empty() {
            // The memory of a flood that is over.
            *self = Self::default();
        }
        Some(slot.session)
    }

    /// Takes out the session whose place a new client may have.
    pub(super) fn replace(&mut self, now: u64) -> Option<(SocketAddr, T)> {
        for (class, keeps) in [(Class::New, NEW_KEEPS), (Class::Answered, ANSWERED_KEEPS)] {
            if let Some(client) = self.silent_for(class as usize, keeps, now) {
                return self.remove(&client).map(|session| (client, session));
            }
        }
        None
    }

    /// Takes out one session that was silent for too long.
    pub(super) fn expire(&mut self, silence: Silence, now: u64) -> Option<(SocketAddr, T)> {
        let client = (0..CLASSES).find_map(|class| self.silent_for(class, silence.of(class), now))?;
        self.remove(&client).map(|session| (client, session))
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = (&SocketAddr, &T)> {
        self.slots.iter().flatten().map(|slot| (&slot.client, &slot.session))
    }

    fn silent_for(&self, class: usize, least: u64, now: u64) -> Option<SocketAddr> {
        let first = self.slot(self.lists.get(class)?.first)?;
        (now.saturating_sub(first.last) >= least).then_some(first.client)
    }

    fn slot(&self, id: u32) -> Option<&Slot<T>> {
        self.slots.get(id as usize)?.as_ref()
    }

    fn touch(&mut self, id: u32, class: Class, now: u64) {
        self.unlink(id);
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            slot.class = class;
            slot.last = now;
        }
        self.append(id, class);
    }

    fn append(&mut self, id: u32, class: Class) {
        let list = &mut self.lists[class as usize];
        let before = std::mem::replace(&mut list.last, id);
        if before == NONE {
            list.first = id;
        }
        if let Some(Some(slot)) = self.slots.get_mut(before as usize) {
            slot.after = id;
        }
        if let Some(Some(slot)) = self.slots.get_mut(id as usize) {
            (slot.before, slot.after) = (before, NONE);
        }
    }

    fn unlink(&mut self, id: u32) {
        let Some(slot) = self.slot(id) else { return };
        let (before, after, class) = (slot.before, slot.after, slot.class);
        match self.slots.get_mut(before as usize) {
            Some(Some(slot)) => slot.after = after,
            _ => self.lists[class as usize].first = after,
        }
        match self.slots.get_mut(after as usize) {
            Some(Some(slot)) => slot.before = before,
            _ => self.lists[class as usize].last = before,
        }
    }
}

#[cfg(test)]
mod tests;
