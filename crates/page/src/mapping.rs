//! The file in memory. All `unsafe` of this crate is here.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{SLOTS, Slot};

/// Another layout or meaning needs another one: the page of an older chaperone is then refused.
const MAGIC: u64 = u64::from_ne_bytes(*b"ghostpg2");
const WORD: usize = size_of::<u64>();
/// In words. What is raised often (`epoch`) shares no cache line with what every hot object reads.
const MAGIC_AT: usize = 0;
const KEY_AT: usize = 1;
const EPOCH_AT: usize = 64;
const GLOBAL_AT: usize = 128;
const DIGEST_AT: usize = GLOBAL_AT + 1;
const SLOTS_AT: usize = 512;
const WORDS: usize = SLOTS_AT + SLOTS;
/// Of the whole file.
pub(crate) const BYTES: usize = WORDS * WORD;

/// The file of a new page, with the key of its slots.
pub(crate) fn empty(key: (u64, u64)) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    for (at, word) in [(MAGIC_AT, MAGIC), (KEY_AT, key.0), (KEY_AT + 1, key.1)] {
        bytes[at * WORD..][..WORD].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

pub(crate) struct Mapping(NonNull<AtomicU64>);

// SAFETY: it is memory that stays mapped until drop, and is read and written by atomics alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The file must have [`BYTES`] bytes, and keep them.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe {
            mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        }?;
        NonNull::new(at.cast()).map(Self).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(crate) fn is_page(&self) -> bool {
        self.word(MAGIC_AT).load(Ordering::Acquire) == MAGIC
    }

    pub(crate) fn key(&self) -> (u64, u64) {
        let word = |at| self.word(at).load(Ordering::Acquire);
        (word(KEY_AT), word(KEY_AT + 1))
    }

    pub(crate) fn epoch(&self) -> &AtomicU64 {
        self.word(EPOCH_AT)
    }

    pub(crate) fn global(&self) -> &AtomicU64 {
        self.word(GLOBAL_AT)
    }

    pub(crate) fn digest(&self) -> &AtomicU64 {
        self.word(DIGEST_AT)
    }

    pub(crate) fn slot(&self, slot: Slot) -> &AtomicU64 {
        self.word(SLOTS_AT + usize::from(slot.number()))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < WORDS);
        // SAFETY: within the mapping, which is aligned to pages and lives as long as `self`; other processes write to it by atomics, and any
        // bytes are a valid AtomicU64.
        unsafe { self.0.add(at).as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by new() with this length, and unmapped once.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
    }
}
