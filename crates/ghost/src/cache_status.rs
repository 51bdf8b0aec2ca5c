//! Cache-Status (RFC 9211): what the cache did, behind what caches before us said.

use std::io::Write;

use model::names::FORWARD_HEADER;
use router::cache::Key;

use crate::ffi::{self, Ctx};
use crate::message::Message;
use crate::stats;

const NAME: &str = "Cache-Status";
/// Bytes of a key that are shown.
const MOST_OF_KEY: usize = 1024;

/// In vcl_backend_response: why the origin was asked, and what it said.
///
/// # Safety
/// `ctx` must be the live context of the fetch whose response `beresp` is.
pub(crate) unsafe fn note_forward(ctx: *const Ctx, beresp: Message<'_>) {
    let mut value = Line::default();
    // SAFETY: the caller's promise.
    let (why, status) = unsafe {
        let why = match (ffi::gs_replaces_stale(ctx), ffi::gs_refreshes(ctx)) {
            (1, 1) => "request",
            (1, _) => "stale",
            _ => "miss",
        };
        (why, if ffi::gs_was_304(ctx) == 1 { 304 } else { beresp.status() })
    };
    value.write(format_args!("fwd={why}; fwd-status={status}"));
    beresp.set_header(FORWARD_HEADER, value.as_bytes());
}

/// In vcl_backend_response: why the answer is not stored.
pub(crate) fn note_detail(beresp: Message<'_>, why: &str) {
    let mut value = Line::default();
    let forward = beresp.header(FORWARD_HEADER).and_then(|value| std::str::from_utf8(value).ok());
    value.write(format_args!("{}; detail={why}", forward.unwrap_or("fwd=miss")));
    beresp.set_header(FORWARD_HEADER, value.as_bytes());
}

/// In vcl_deliver, for rules with a policy. `key`: what the object was found by, for clients that may know it.
///
/// # Safety
/// `ctx` must be the live context whose messages these are.
pub(crate) unsafe fn tell(
    ctx: *const Ctx,
    result: u8,
    req: Message<'_>,
    resp: Message<'_>,
    key: Option<&Key>,
) {
    let mut value = Line::default();
    // SAFETY: the caller's promise.
    let fresh_for = || unsafe { ffi::gs_fresh_for(ctx) }.floor().clamp(-1e9, 1e9) as i64;
    // SAFETY: as above.
    let has_waited = || unsafe { ffi::gs_has_waited(ctx) } == 1;
    match result {
        // Another request has fetched it meanwhile.
        stats::HIT if has_waited() => {
            value.write(format_args!("varnish-gateway; fwd=miss; collapsed; ttl={}", fresh_for()));
        }
        stats::HIT | stats::STALE => value.write(format_args!("varnish-gateway; hit; ttl={}", fresh_for())),
        stats::MISS => {
            let forward = resp.header(FORWARD_HEADER).and_then(|value| std::str::from_utf8(value).ok());
            value.write(format_args!("varnish-gateway; {}", forward.unwrap_or("fwd=miss")));
            // SAFETY: as above.
            if unsafe { ffi::gs_is_stored(ctx) } == 1 {
                value.write(format_args!("; stored"));
                let fresh_for = fresh_for();
                if fresh_for >= 0 {
                    value.write(format_args!("; ttl={fresh_for}"));
                }
            }
        }
        _ => {
            let why = if matches!(req.method(), b"GET" | b"HEAD") { "bypass" } else { "method" };
            value.write(format_args!("varnish-gateway; fwd={why}; fwd-status={}", resp.status()));
        }
    }
    match key {
        None => resp.add_header(NAME, value.as_bytes()),
        Some(key) => resp.add_header(NAME, &with_key(value.as_bytes(), key.as_bytes())),
    }
}

/// A string of structured fields has printable ASCII only.
fn with_key(value: &[u8], key: &[u8]) -> Vec<u8> {
    let mut all = [value, b"; key=\""].concat();
    for byte in key.iter().take(MOST_OF_KEY) {
        match byte {
            b'"' | b'\\' => all.extend([b'\\', *byte]),
            b' '..=b'~' => all.push(*byte),
            _ => all.push(b'?'),
        }
    }
    all.push(b'"');
    all
}

/// Room for a value, without an allocation.
struct Line {
    bytes: [u8; 128],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 128], length: 0 }
    }
}

impl Line {
    /// What does not fit is cut off: all values are short.
    fn write(&mut self, what: std::fmt::Arguments<'_>) {
        let mut room = &mut self.bytes[self.length..];
        let before = room.len();
        let _ = room.write_fmt(what);
        self.length += before - room.len();
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
