//! Cache-Status (RFC 9211): what the cache did, behind what caches before us said.

use std::io::Write;

use model::names::FORWARD_HEADER;

use crate::ffi::{self, Ctx};
use crate::message::Message;
use crate::stats;

const NAME: &str = "Cache-Status";

/// In vcl_backend_response: why the origin was asked, and what it said.
///
/// # Safety
/// `ctx` must be the live context of the fetch whose response `beresp` is.
pub(crate) unsafe fn note_forward(ctx: *const Ctx, beresp: Message<'_>) {
    let mut value = Line::default();
    // SAFETY: the caller's promise.
    let (why, status) = unsafe {
        let why = if ffi::gs_replaces_stale(ctx) == 1 { "stale" } else { "miss" };
        (why, if ffi::gs_was_304(ctx) == 1 { 304 } else { beresp.status() })
    };
    value.write(format_args!("fwd={why}; fwd-status={status}"));
    beresp.set_header(FORWARD_HEADER, value.as_bytes());
}

/// In vcl_deliver. Nothing is said of what passes: the cache was not asked.
///
/// # Safety
/// `ctx` must be the live context whose response `resp` is.
pub(crate) unsafe fn tell(ctx: *const Ctx, result: u8, resp: Message<'_>) {
    let mut value = Line::default();
    match result {
        stats::HIT | stats::STALE => {
            // SAFETY: the caller's promise.
            let fresh_for = unsafe { ffi::gs_fresh_for(ctx) }.floor().clamp(-1e9, 1e9) as i64;
            value.write(format_args!("varnish-gateway; hit; ttl={fresh_for}"));
        }
        stats::MISS => {
            let forward = resp.header(FORWARD_HEADER).and_then(|value| std::str::from_utf8(value).ok());
            value.write(format_args!("varnish-gateway; {}", forward.unwrap_or("fwd=miss")));
            // SAFETY: the caller's promise.
            if unsafe { ffi::gs_is_stored(ctx) } == 1 {
                value.write(format_args!("; stored"));
            }
        }
        _ => return,
    }
    resp.add_header(NAME, value.as_bytes());
}

/// Room for a value, without an allocation.
struct Line {
    bytes: [u8; 96],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 96], length: 0 }
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
