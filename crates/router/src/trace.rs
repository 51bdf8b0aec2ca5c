//! W3C Trace Context: a request is a span of ours, between the client's and the origin's.
//!
//! Pure: the carrier of the request reads and writes its headers.

use std::fmt::{self, Write};

use crate::random;

pub const PARENT: &str = "traceparent";
pub const STATE: &str = "tracestate";

/// One request in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// Two halves: ghost keeps it in a workspace, which is aligned for 8 bytes.
    pub trace: (u64, u64),
    pub span: u64,
    /// 0: the trace begins here.
    pub parent: u64,
    pub sampled: bool,
}

impl Trace {
    /// Continues the trace that `given` names. Starts a new one where that is absent or invalid; then
    /// [`Trace::is_new`] is true, and `tracestate` must be removed.
    ///
    /// The share `ratio` of all requests is recorded, whatever clients ask for: any client could have everything recorded.
    /// A trusted proxy has decided already.
    pub fn begin(given: Option<&[u8]>, ratio: f64, trusted: bool) -> Self {
        let span = random::next().max(1);
        let ours = || (random::next() as f64 / u64::MAX as f64) < ratio;
        match given.and_then(parse) {
            Some((trace, parent, sampled)) => {
                Self { trace, span, parent, sampled: if trusted { sampled } else { ours() } }
            }
            None => Self { trace: (random::next().max(1), random::next()), span, parent: 0, sampled: ours() },
        }
    }

    /// No trace was given that could be continued.
    pub fn is_new(&self) -> bool {
        self.parent == 0
    }

    /// The value of `traceparent` for the next hop, whose parent is `span`.
    pub fn header(&self, span: u64) -> HeaderText {
        let Self { trace: (high, low), sampled, .. } = *self;
        let mut text = HeaderText { bytes: [0; 55], length: 0 };
        // It has exactly this length.
        let _ = write!(text, "00-{high:016x}{low:016x}-{span:016x}-{:02x}", u8::from(sampled));
        text
    }
}

/// Trace, span, parent, and whether it is recorded.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace: (high, low), span, parent, sampled } = *self;
        write!(f, "{high:016x}{low:016x} {span:016x} {parent:016x} {:02x}", u8::from(sampled))
    }
}

/// The value of a `traceparent` header.
#[derive(Debug, Clone, Copy)]
pub struct HeaderText {
    bytes: [u8; 55],
    length: usize,
}

impl HeaderText {
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Write for HeaderText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Trace, span and whether it is recorded. Newer versions may add more at the end.
fn parse(value: &[u8]) -> Option<((u64, u64), u64, bool)> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let mut parts = text.splitn(5, '-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (parent, flags) = (parts.next()?, parts.next()?);
    let hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let fits = hex(version, 2) && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    if !fits || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let half = |text| u64::from_str_radix(text, 16).ok();
    let trace = (half(&trace[..16])?, half(&trace[16..])?);
    if trace == (0, 0) {
        return None;
    }
    let parent = u64::from_str_radix(parent, 16).ok().filter(|id| *id != 0)?;
    Some((trace, parent, u8::from_str_radix(flags, 16).ok()? & 1 == 1))
}

#[cfg(test)]
mod tests;
