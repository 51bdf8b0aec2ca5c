//! W3C Trace Context in the headers of a request. Where the front carries HTTP, it does this, and ghost.json asks for none of it.
//!
//! Not part of a cache key, and never of an answer: a cached answer holds no client's trace.

use router::trace::{PARENT, STATE, Trace};

use crate::message::Message;

/// The client's trace goes on, or a new one begins: see [`Trace::begin`].
pub(crate) fn begin(message: Message<'_>, ratio: f64, trusted: bool) -> Trace {
    let trace = Trace::begin(message.header(PARENT), ratio, trusted);
    if trace.is_new() {
        // A trace header that cannot be read is of no use.
        message.remove_header(STATE);
    }
    message.set_header(PARENT, trace.header(trace.span).as_bytes());
    trace
}
