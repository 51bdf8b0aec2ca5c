//! The page that ghost and the front share: what was invalidated, and by which table ghost decides.
//!
//! The front may answer from memory what varnishd answered a moment ago ("hot objects"). It must not do so once an invalidation
//! has been acknowledged, and it cannot ask varnishd for every request. So both map one file of fixed size. It holds counters that
//! only rise:
//!
//! - `epoch`: raised by every invalidation, and by every change of the digest;
//! - `global`: raised where all hot objects end (varnishd died, another VCL is in use, the digest has changed);
//! - [`SLOTS`] slots: a host, a URL, a tag, and a tag of a host each have one, by a hash with a random key of the page. Two may share a slot:
//!   an invalidation of one then ends hot objects of the other early, which costs one request to varnishd;
//! - `digest`: of the table that ghost decides by. No counter: 0 while there is none.
//!
//! # The protocol
//!
//! **Raiser** (ghost, chaperone). 1. It ends the objects in varnishd's cache. 2. It raises `epoch`. 3. It raises the slots, or
//! `global`. 4. It acknowledges. `epoch` comes *before* the slots: a storer that finds a slot raised already must also find
//! that `epoch` has moved. With the slots first, a storer could read both between the two steps: it would keep the old object under the new value.
//!
//! **Storer** (front). 1. [`Page::begin`]: it reads `epoch`, then `digest`, which must be its own table's. 2. It writes the request to
//! varnishd and reads the whole response, which names the slots. 3. [`Page::admit`]: it reads `global` and the slots, then `digest`, and
//! then `epoch` again. Only if `epoch` has not moved and the digest is the same, it stores the response, with the values that it read.
//!
//! **Server** (front). It serves the response while `global`, the slots and the digest are as they were: [`Page::serves`].
//!
//! Why this is enough: let an invalidation be acknowledged, and let a storer hold the old object. varnishd found the object before
//! the invalidation ended it, so the storer read `epoch` first before it was raised. If the storer stores, it read the same `epoch`
//! last, so it read the slots before they were raised. The values that it stored are then older than the raised ones,
//! and each front that serves after the acknowledgement sees this.
//!
//! **Swap** (ghost). Where a new table has another digest, ghost publishes 0 (which raises `epoch` and `global`), swaps, and publishes the new
//! digest. No thread serves or stores in between. A storer whose request was answered by another table than its own finds another digest,
//! or, if the tables have changed back meanwhile, another `epoch`. What was stored by a former table has another `global`.
//!
//! # Memory ordering
//!
//! `epoch` is raised with `Release` and slots with `Release`; all loads are `Acquire`. So:
//!
//! - a storer whose `Acquire` load of a slot sees a raise sees in its later load of `epoch` the raise before it (release to acquire);
//! - the load of `epoch` in `begin` synchronizes with the raise that it sees: what the raiser did before (the objects that it ended) happens before the
//!   request is written;
//! - the objects of varnishd, requests, responses and acknowledgements are ordered by locks and sockets, which are stronger than both;
//! - the digest is stored with `Release` after the swap of the table, and loaded with `Acquire`; 0 is stored, and `epoch` raised by `Release`, before the swap, and
//!   requests take the table by an `Acquire` load of the pointer.
//!
//! tests/interleavings.rs tries every interleaving of these steps, with every value that a load may return under these orderings,
//! and shows that weaker variants fail.
//!
//! # What a hostile writer can do
//!
//! varnishd's child reads what origins send. One that was taken over can write anything into the page: then hot objects are served
//! until their lease ends, or not at all. Nothing here is used as an index, a length or a pointer. The file is a memory file whose length is
//! sealed: it cannot be made shorter, which would end the process that reads by SIGBUS.

mod mapping;
mod sealed;
mod slot;

use std::fs::{File, OpenOptions, Permissions};
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use mapping::Mapping;
pub use sealed::{hand_over, receive};
pub use slot::{Slot, Slots};

/// How many slots a page has.
pub const SLOTS: usize = 65_536;

/// The page of one Gateway, mapped. Gives the mapping back when it is dropped.
pub struct Page(Mapping, Slots);

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page")
            .field("epoch", &self.epoch())
            .field("global", &self.global())
            .field("digest", &self.digest())
            .finish_non_exhaustive()
    }
}

/// What [`Page::begin`] read before a request was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    epoch: u64,
    digest: u64,
}

/// The values under which a response may be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    global: u64,
    /// Counters only rise: the sum is the same only while each of them is.
    sum: u64,
    slots: Box<[Slot]>,
}

impl Page {
    /// Creates a new file, which takes the place of one that is there: for tests of ghost alone. A Gateway has a page that is
    /// [sealed](Page::sealed). Its counters begin where no former page's have been, so no
    /// stamp of a former page holds. Everyone who can enter the directory may write to the file: the caller closes the directory to others.
    pub fn create(path: &Path) -> io::Result<Self> {
        let beside = beside(path);
        match std::fs::remove_file(&beside) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let new = || {
            let mut file =
                OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&beside)?;
            // Written and not only made longer: a full disk is an error here, and no SIGBUS later.
            // The slots that tests name are those of this key.
            let key = (0, 0);
            file.write_all(&mapping::empty(key))?;
            file.set_permissions(Permissions::from_mode(0o666))?;
            let page = Self::begin_new(&file, key)?;
            std::fs::rename(&beside, path)?;
            Ok(page)
        };
        new().inspect_err(|_| drop(std::fs::remove_file(&beside)))
    }

    /// Maps a page that [`Page::create`] has made. An error where it is no page, or one of another version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(no_follow.bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        Self::map(&file)
    }

    /// A new file, with the beginning of its counters.
    fn begin_new(file: &File, key: (u64, u64)) -> io::Result<Self> {
        let page = Self(Mapping::new(file)?, Slots::with_key(key));
        let begin = beginning();
        page.0.epoch().store(begin, Release);
        page.0.global().store(begin, Release);
        Ok(page)
    }

    fn map(file: &File) -> io::Result<Self> {
        check(file)?;
        let mapping = Mapping::new(file)?;
        if !mapping.is_page() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no page of this version"));
        }
        // Read once: a hostile writer makes no difference between two reads.
        let slots = Slots::with_key(mapping.key());
        Ok(Self(mapping, slots))
    }

    /// Which slot something has.
    pub fn slots(&self) -> Slots {
        self.1
    }

    /// Raised by every invalidation, and by every change of the digest.
    pub fn epoch(&self) -> u64 {
        self.0.epoch().load(Acquire)
    }

    /// Raised where all hot objects end.
    pub fn global(&self) -> u64 {
        self.0.global().load(Acquire)
    }

    /// Of the table that ghost decides by; 0: of none.
    pub fn digest(&self) -> u64 {
        self.0.digest().load(Acquire)
    }

    /// Ends the hot objects of these slots. To be called after their objects in the cache have ended, and before that is acknowledged.
    pub fn raise(&self, slots: &[Slot]) {
        self.0.epoch().fetch_add(1, AcqRel);
        for slot in slots {
            self.0.slot(*slot).fetch_add(1, AcqRel);
        }
    }

    /// Ends all hot objects.
    pub fn raise_global(&self) {
        self.0.epoch().fetch_add(1, AcqRel);
        self.0.global().fetch_add(1, AcqRel);
    }

    /// Says by which table ghost decides from now on; another one than before ends all hot objects. To be called with 0 before the table is swapped for one with another digest.
    pub fn set_digest(&self, digest: u64) {
        if self.0.digest().swap(digest, AcqRel) != digest {
            self.raise_global();
        }
    }

    /// The present values.
    pub fn stamp(&self, slots: &[Slot]) -> Stamp {
        Stamp { global: self.global(), sum: self.sum(slots), slots: slots.into() }
    }

    /// Are `global` and all slots as they were? A few loads.
    pub fn holds(&self, stamp: &Stamp) -> bool {
        self.global() == stamp.global && self.sum(&stamp.slots) == stamp.sum
    }

    /// To be called before a request is written whose response is perhaps to be stored. `digest` is that of the table by which the front
    /// has decided about the request. `None` where ghost decides by another one.
    pub fn begin(&self, digest: u64) -> Option<Ticket> {
        let epoch = self.epoch();
        (digest != 0 && self.digest() == digest).then_some(Ticket { epoch, digest })
    }

    /// To be called when the whole response is here. `None` where it must not be stored: something was invalidated meanwhile, or ghost decides
    /// by another table.
    pub fn admit(&self, ticket: &Ticket, slots: &[Slot]) -> Option<Stamp> {
        let stamp = self.stamp(slots);
        (self.digest() == ticket.digest && self.epoch() == ticket.epoch).then_some(stamp)
    }

    /// May a response with this stamp be served by the table with this digest?
    pub fn serves(&self, stamp: &Stamp, digest: u64) -> bool {
        digest != 0 && self.digest() == digest && self.holds(stamp)
    }

    fn sum(&self, slots: &[Slot]) -> u64 {
        slots.iter().fold(0, |sum: u64, slot| sum.wrapping_add(self.0.slot(*slot).load(Acquire)))
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Nanoseconds of the clock, without the lowest bits: more than any former page can have counted, unless the clock goes back, and
/// then another number.
fn beginning() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(1 << 62)
}

/// The standard library's hash maps have keys of their own, which are random.
fn random_key() -> (u64, u64) {
    let random = std::hash::RandomState::new();
    (random.hash_one(0_u8), random.hash_one(1_u8))
}

fn check(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() != mapping::BYTES as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no page: not a file of its size"));
    }
    Ok(())
}
