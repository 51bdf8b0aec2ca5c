//! How large an answer may be that is kept, and which answers turned out to be larger.
//!
//! An answer that does not say how long it is goes into its storage until it has outgrown the limit. Then its fetch ends. For an
//! hour after that, answers to the same request go through and are not kept, so that they are delivered whole.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use router::Rule;

use crate::guard::stopped;
use crate::target::Target;
use crate::{ffi, stats, storage};

/// By default an answer may take one part of so many of its storage.
const DEFAULT_SHARE: u64 = 8;
/// And whatever the policy says, one of so many: it would drive out everything else, or break off.
const LARGEST_SHARE: u64 = 2;

/// In bytes. No limit where neither the policy nor the one who started varnishd says anything.
pub(crate) fn most(rule: Option<&Rule>, storage: &str) -> u64 {
    let given = rule.and_then(Rule::cache).and_then(router::cache::Cache::max_object_bytes);
    match (given, storage::size(storage)) {
        (Some(given), size) => given.min(size.map_or(u64::MAX, |size| size / LARGEST_SHARE)),
        (None, Some(size)) => size / DEFAULT_SHARE,
        (None, None) => u64::MAX,
    }
}

const PLACES: usize = 4096;
const MINUTES: u64 = 60;
const MINUTE_BITS: u32 = 24;

/// A part of the digest, and the minute, in one number each. What falls on the same place replaces what was there.
static OUTGROWN: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

fn place(digest: &[u8; 32]) -> (&'static AtomicU64, u64) {
    let [a, b, c, d, e, f, g, h, i, j, ..] = *digest;
    let part = u64::from_be_bytes([c, d, e, f, g, h, i, j]) >> MINUTE_BITS;
    (&OUTGROWN[usize::from(u16::from_be_bytes([a, b])) % PLACES], part)
}

fn minute() -> u64 {
    // SAFETY: it takes nothing.
    let seconds = unsafe { ffi::gs_real_time() };
    (seconds / 60.0) as u64 & ((1 << MINUTE_BITS) - 1)
}

/// Did an answer to this request outgrow the limit within the last hour?
pub(crate) fn has_outgrown(digest: &[u8; 32]) -> bool {
    let (place, part) = place(digest);
    let there = place.load(Ordering::Relaxed);
    let age = minute().wrapping_sub(there & ((1 << MINUTE_BITS) - 1));
    there != 0 && there >> MINUTE_BITS == part && age <= MINUTES
}

/// The C side asks once for each fetch. Never 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_most_bytes(target: *const c_void, storage: *const c_char) -> u64 {
    stopped(1, || {
        // SAFETY: the shim passes a director's private part, and Varnish's own name for the storage.
        let (target, storage) = unsafe {
            let storage = if storage.is_null() { c"" } else { CStr::from_ptr(storage) };
            (&*target.cast::<Target>(), storage)
        };
        most(Some(target.rule()), storage.to_str().unwrap_or_default()).max(1)
    })
}

/// A fetch was ended because its answer is too large.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_outgrown(digest: *const u8) {
    stopped((), || {
        stats::not_kept(stats::OUTGROWN);
        // SAFETY: the shim passes the 32 bytes of the fetch's digest.
        let (place, part) = place(unsafe { &*digest.cast::<[u8; 32]>() });
        place.store(part << MINUTE_BITS | minute(), Ordering::Relaxed);
    });
}
