//! Hot objects: responses that varnishd gave a moment ago, answered from the front's own memory.
//!
//! Takes a request that was routed and may be answered by the cache. Serves only what ghost has marked, while nothing of it was
//! invalidated ([`page`]), while ghost decides by the same table, and not longer than a lease of ten seconds. Whatever is not plain goes on to
//! varnishd. A hit takes no lock.

mod ask;
mod entry;
mod look;
mod mark;
mod sketch;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use page::Page;

use self::entry::{Entry, Name, Times, Varied};
use self::mark::Mark;
use self::sketch::Sketch;
use self::store::Store;
use crate::HotLimits;

pub(crate) use self::ask::{Asking, heard};
pub(crate) use self::look::{Look, Looked};

/// ghost is asked about a key after this number of hits; a larger number if the store is full.
const HITS: u8 = 2;
const HITS_WHEN_FULL: u8 = 3;
/// ghost is asked about a key once in this time, by one request.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSES: usize = 4096;
/// Counts of keys are halved after this number of hits for each object that fits into the store.
const PERIOD: usize = 8;
/// A shorter life is not worth a place.
const SHORTEST: Duration = Duration::from_secs(1);

/// Why a response that was a hit was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NotHot {
    /// ghost did not mark it.
    Unmarked,
    /// ghost found it by another key.
    Key,
    Size,
    /// Something was invalidated meanwhile, or the table is another one.
    Invalidated,
    /// Its head, or the headers that Vary names, cannot be stored exactly.
    Head,
    /// Its body did not come.
    Body,
}

impl NotHot {
    pub const ALL: [Self; 6] =
        [Self::Unmarked, Self::Key, Self::Size, Self::Invalidated, Self::Head, Self::Body];

    pub fn name(self) -> &'static str {
        match self {
            Self::Unmarked => "unmarked",
            Self::Key => "key",
            Self::Size => "size",
            Self::Invalidated => "invalidated",
            Self::Head => "head",
            Self::Body => "body",
        }
    }
}

/// The hot objects of one Gateway.
#[derive(Debug)]
pub struct Hot {
    page: Arc<Page>,
    store: Store,
    sketch: Sketch,
    /// Milliseconds when ghost was last asked about a key, by its hash.
    asked: Box<[AtomicU64]>,
    began: Instant,
    max_object_bytes: usize,
    refused: [AtomicU64; NotHot::ALL.len()],
    stored: AtomicU64,
}

impl Hot {
    pub(crate) fn new(page: Arc<Page>, limits: HotLimits) -> Option<Self> {
        let bytes = usize::try_from(limits.bytes).unwrap_or(usize::MAX / 2);
        if !limits.enabled || bytes == 0 {
            return None;
        }
        let store = Store::new(bytes);
        Some(Self {
            page,
            sketch: Sketch::new(store.places()),
            store,
            asked: (0..PAUSES).map(|_| AtomicU64::new(0)).collect(),
            began: Instant::now(),
            max_object_bytes: usize::try_from(limits.max_object_bytes).unwrap_or(usize::MAX),
            refused: Default::default(),
            stored: AtomicU64::new(0),
        })
    }

    /// The approximate memory of all objects.
    pub fn bytes(&self) -> usize {
        self.store.bytes()
    }

    pub fn entries(&self) -> usize {
        self.store.entries()
    }

    /// Objects that were evicted.
    pub fn evicted(&self) -> u64 {
        self.store.evicted()
    }

    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    pub fn refused(&self, why: NotHot) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    fn refuse(&self, why: NotHot) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Every mark names the slot of its host.
    pub(crate) fn end_host(&self, host: &[u8]) {
        self.page.raise(&[self.page.slots().of_host(router::NormalHost::new(host).as_bytes())]);
    }

    /// Gives back what can not be served any more. To be called now and then.
    pub fn clean(&self) {
        let now = Instant::now();
        self.store.clean(|entry| entry.is_over(now) || !self.page.holds(&entry.stamp));
    }

    /// Is it time to ask ghost whether this key may be hot? Returns true for at most one request in each pause.
    fn wants(&self, hash: u64, now: Instant) -> bool {
        let enough = if self.store.is_full() { HITS_WHEN_FULL } else { HITS };
        if self.sketch.count(hash) < enough {
            return false;
        }
        let now =
            u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX).max(1);
        let place = &self.asked[(hash >> 40) as usize % PAUSES];
        let last = place.load(Ordering::Relaxed);
        (last == 0 || now.saturating_sub(last) >= PAUSE.as_millis() as u64)
            && place.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// varnishd has answered a request for this key out of its cache.
    pub(crate) fn was_hit(&self, hash: u64) {
        // While there is room, objects requested twice in a long period are admitted.
        let objects = if self.store.is_full() { self.store.entries() } else { self.store.places() };
        self.sketch.add(hash, PERIOD * objects.max(1024));
    }

    /// varnishd has another response for this key now: the one that is stored here must not be delivered after it.
    pub(crate) fn was_replaced(&self, hash: u64) {
        self.store.forget(hash);
    }
}
