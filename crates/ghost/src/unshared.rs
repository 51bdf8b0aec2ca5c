//! Fields for the first client alone (`private="…"`, `no-cache="…"`), after a 304.
//!
//! Varnish merges a 304 with the stored headers, and the result goes to the client that asked now: what the stored response had for
//! another client must not be in it.

use std::ffi::CStr;

use model::names::OMIT_HEADER;
use router::cache::field_names;

use crate::ffi::{self, RawObject, RawWorker};
use crate::message::Message;

/// The cache itself works by these: without Vary, a variant would go to everybody. They have nothing of one client.
const NEEDED: [&str; 9] = [
    "cache-control",
    "cdn-cache-control",
    "surrogate-control",
    "vary",
    "etag",
    "last-modified",
    "expires",
    "date",
    "content-encoding",
];

/// Removes the fields that `beresp` has from the stored object and that the object's origin gave to one client. A field with
/// another value than the stored one came with the 304 itself, and stays.
///
/// # Safety
/// `worker` must be the thread's own, and the object alive, with its headers.
pub(crate) unsafe fn leave_out(worker: *mut RawWorker, object: *mut RawObject, beresp: Message<'_>) {
    let mut names: Vec<&[u8]> = Vec::new();
    // All lines are read here: a merge may have taken one of several X-Ghost-Omit.
    // SAFETY: the caller's promise.
    unsafe {
        each_field(worker, object, |name, value| {
            if name.eq_ignore_ascii_case(OMIT_HEADER.as_bytes()) {
                names.extend(field_names(value));
            }
        });
    }
    if names.is_empty() {
        return;
    }
    let is_needed = |name: &[u8]| NEEDED.iter().any(|needed| needed.as_bytes().eq_ignore_ascii_case(name));
    let is_unshared =
        |name: &[u8]| names.iter().any(|unshared| unshared.eq_ignore_ascii_case(name)) && !is_needed(name);
    let mut stored: Vec<(&[u8], &[u8])> = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        each_field(worker, object, |name, value| {
            if is_unshared(name) {
                stored.push((name, value));
            }
        });
    }
    beresp.survey(|name, value| {
        let is_stored = stored.iter().any(|(n, v)| n.eq_ignore_ascii_case(name) && *v == value);
        if is_stored { ffi::DROP } else { 0 }
    });
}

/// Shows name and value of each stored header.
///
/// # Safety
/// `worker` must be the thread's own, and the object alive for `'a`, with its headers.
unsafe fn each_field<'a>(
    worker: *mut RawWorker,
    object: *mut RawObject,
    mut look: impl FnMut(&'a [u8], &'a [u8]),
) {
    let mut line = std::ptr::null();
    loop {
        // SAFETY: the caller's promise; the line is the one that was given last.
        line = unsafe { ffi::gs_stored_header(worker, object, line) };
        if line.is_null() {
            return;
        }
        // SAFETY: stored headers end in a zero byte, and live as long as the object.
        let text = unsafe { CStr::from_ptr(line) }.to_bytes();
        if let Some(colon) = text.iter().position(|byte| *byte == b':') {
            look(&text[..colon], text[colon + 1..].trim_ascii());
        }
    }
}
