//! W3C Trace Context: the request is a span of ours, between the client's and the origin's.
//!
//! Not part of a cache key, and never of an answer: a cached answer freezes nobody's trace.

use std::fmt::Write;

use router::random;

use crate::message::Message;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// This request in its trace.
#[derive(Clone, Copy)]
pub(crate) struct Trace {
    /// Two halves: it lies in a workspace, which is aligned for 8 bytes.
    trace: (u64, u64),
    span: u64,
    /// 0: the trace begins here.
    parent: u64,
    pub(crate) sampled: bool,
}

impl Trace {
    /// The client's trace goes on; without one a new one begins. The given share is recorded, whatever clients ask for:
    /// they could have everything recorded. A trusted proxy has decided already.
    pub(crate) fn begin(message: Message<'_>, ratio: f64, trusted: bool) -> Self {
        let span = random::next().max(1);
        let ours = || (random::next() as f64 / u64::MAX as f64) < ratio;
        let trace = match message.header(PARENT).and_then(parse) {
            Some((trace, parent, sampled)) => {
                Self { trace, span, parent, sampled: if trusted { sampled } else { ours() } }
            }
            None => {
                // What somebody says of a trace that cannot be read is of no use.
                message.remove_header(STATE);
                Self { trace: (random::next().max(1), random::next()), span, parent: 0, sampled: ours() }
            }
        };
        let Self { trace: (high, low), sampled, .. } = trace;
        let mut line = Buffer { bytes: [0; 64], length: 0 };
        let _ = write!(line, "00-{high:016x}{low:016x}-{span:016x}-{:02x}", u8::from(sampled));
        message.set_header(PARENT, line.bytes());
        trace
    }
}

/// For the log: trace, span, parent, and whether it is recorded.
impl std::fmt::Display for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { trace: (high, low), span, parent, sampled } = *self;
        write!(f, "{high:016x}{low:016x} {span:016x} {parent:016x} {:02x}", u8::from(sampled))
    }
}

/// Trace, span and whether it is recorded. Newer versions may say more behind it.
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

/// As long as the header is, and a bit.
struct Buffer {
    bytes: [u8; 64],
    length: usize,
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
