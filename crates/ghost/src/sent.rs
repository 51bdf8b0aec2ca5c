//! What clients send that origins may believe: dropped before anything is decided, kept from trusted proxies, or part of the
//! cache key. Which names these are, `router::sent` says.

use router::Rule;
use router::sent::{Kind, OwnWord, kind};

use crate::ffi::DROP;
use crate::message::Message;

/// Rare headers that need handling when present, as bits.
pub(crate) const CONNECTION: u32 = 1;
pub(crate) const RANGE: u32 = 1 << 1;
/// What Varnish makes of HTTP/2's `:scheme`. No client has sent it as a header, and no origin asks for it.
pub(crate) const SCHEME: u32 = 1 << 2;
pub(crate) const CDN_LOOP: u32 = 1 << 3;
/// A trusted proxy's, beside X-Forwarded-For.
pub(crate) const FORWARDED: u32 = 1 << 4;
/// Frameworks may take URL, host, scheme or method from it.
pub(crate) const OVERRIDE: u32 = 1 << 5;
/// The client's address, from a peer that is not trusted.
pub(crate) const ADDRESS: u32 = 1 << 6;

/// A condition: If-None-Match, If-Modified-Since, If-Range.
pub(crate) const CONDITION: u32 = 1 << 7;
pub(crate) const CACHE_CONTROL: u32 = 1 << 8;
/// [`model::names::DEBUG_HEADER`]
pub(crate) const DEBUG: u32 = 1 << 9;

/// A name that may have come before.
pub(crate) const REPEATED: u32 = 1 << 10;

/// Names that were seen, by one bit of a hash for each.
#[derive(Default)]
pub(crate) struct Names([u64; 16]);

impl Names {
    /// [`REPEATED`] where this name, or another one with the same bit, was here before.
    pub(crate) fn note(&mut self, name: &[u8]) -> u32 {
        let hash = name.iter().fold(0_u32, |hash, byte| {
            (hash ^ u32::from(byte | 0x20)).wrapping_mul(0x0100_0193).rotate_left(5)
        });
        let bit = (hash >> 16) % 1024;
        let word = &mut self.0[bit as usize / 64];
        let is_known = *word >> (bit % 64) & 1 == 1;
        *word |= 1 << (bit % 64);
        if is_known { REPEATED } else { 0 }
    }
}

/// A header of a request as the client sent it.
pub(crate) fn of_client(name: &[u8], trusted: bool) -> u32 {
    match kind(name) {
        Some(Kind::Own) => DROP,
        // Varnish has appended to it.
        Some(Kind::Forwarded) if name.eq_ignore_ascii_case(b"X-Forwarded-For") => 0,
        // No proxy spells it with `_`: its client did.
        Some(Kind::Forwarded) if !trusted || name.contains(&b'_') => DROP,
        Some(Kind::Forwarded) => FORWARDED,
        Some(Kind::Override) => OVERRIDE,
        Some(Kind::Address) if !trusted => ADDRESS,
        Some(Kind::Address) => 0,
        None => match name.len() {
            5 if name.eq_ignore_ascii_case(b"Range") => RANGE,
            6 if name.eq_ignore_ascii_case(b"scheme") => SCHEME,
            8 if name.eq_ignore_ascii_case(b"CDN-Loop") => CDN_LOOP,
            8 if name.eq_ignore_ascii_case(b"If-Range") => CONDITION,
            10 if name.eq_ignore_ascii_case(b"Connection") => CONNECTION,
            11 if name.eq_ignore_ascii_case(b"Cache-Debug") => DEBUG,
            13 if name.eq_ignore_ascii_case(b"If-None-Match") => CONDITION,
            13 if name.eq_ignore_ascii_case(b"Cache-Control") => CACHE_CONTROL,
            17 if name.eq_ignore_ascii_case(b"If-Modified-Since") => CONDITION,
            _ => 0,
        },
    }
}

/// A header of a request that the gateway has seen before.
pub(crate) fn of_restart(name: &[u8]) -> u32 {
    if kind(name) == Some(Kind::Own) { DROP } else { 0 }
}

/// The request asks the cache: what overrides it goes, unless the rule looks at it. Returns what is left, as `sent` is.
pub(crate) fn leave_out_overrides(message: Message<'_>, rule: Option<&Rule>, sent: u32) -> u32 {
    let left = message.survey(|name, _| {
        let bit = match kind(name) {
            Some(Kind::Override) => OVERRIDE,
            Some(Kind::Address) => ADDRESS & sent,
            _ => 0,
        };
        if bit == 0 || rule.is_some_and(|rule| rule.looks_at_header(name)) { bit } else { DROP }
    });
    sent & FORWARDED | left
}

/// Shows name and value of everything that tells this request's answer from those of others.
pub(crate) fn keyed(message: Message<'_>, sent: u32, own: &OwnWord<'_>, mut show: impl FnMut(&[u8], &[u8])) {
    message.survey(|name, value| {
        match kind(name) {
            Some(Kind::Forwarded) if sent & FORWARDED != 0 => {
                if let Some(value) = router::sent::keyed(name, value, own) {
                    show(name, &value);
                }
            }
            Some(Kind::Override) if sent & OVERRIDE != 0 => show(name, value),
            Some(Kind::Address) if sent & ADDRESS != 0 => show(name, value),
            _ => {}
        }
        0
    });
}
