//! The client of a request that came by the front's socket: one connection carries requests of many clients, so each says whose
//! it is.

use std::ffi::CStr;

use model::identity::Identity;
use model::names::{CLIENT_HEADER, FRONT_SOCKET, HINTS_HEADER};
use model::stats::CACHE_RESULTS;

use crate::ffi::{self, Ctx};
use crate::message::{Message, c_bytes};
use crate::task::Task;

/// A request by the front's socket that does not say so in one clear header has no client, and gets no answer but 503.
pub(crate) const NO_CLIENT: &CStr = c"ghost: the front's request does not say who its client is";

/// By position in [`CACHE_RESULTS`].
const RESULTS: [&CStr; CACHE_RESULTS.len()] = [
    c"X-Ghost-Result: hit",
    c"X-Ghost-Result: miss",
    c"X-Ghost-Result: pass",
    c"X-Ghost-Result: stale",
    c"X-Ghost-Result: other",
];

/// Did it come by the front's socket?
pub(crate) fn is_fronts(socket: &[u8]) -> bool {
    socket == FRONT_SOCKET.as_bytes()
}

/// What the front says of the client, in exactly one header.
pub(crate) fn of_request(message: Message<'_>) -> Option<Identity<'_>> {
    let mut said = message.headers(CLIENT_HEADER);
    let identity = Identity::parse(said.next()?)?;
    said.next().is_none().then_some(identity)
}

/// The number that the front gave the request, where its client takes hints.
pub(crate) fn hints_of_request(message: Message<'_>) -> Option<u64> {
    std::str::from_utf8(message.header(HINTS_HEADER)?).ok()?.parse().ok()
}

/// The client's address as text: the front's word, or the session's own.
///
/// # Safety
/// `ctx` must be the live context of the client's task that `task` is, and be so for `'a`.
pub(crate) unsafe fn address<'a>(ctx: *const Ctx, task: &Task) -> &'a [u8] {
    match task.client {
        Some(client) => client.address_text.as_bytes(),
        // SAFETY: the session outlives the task.
        None => unsafe { c_bytes(ffi::gs_client_ip(ctx)) },
    }
}

/// Tells the front what the cache did. Other clients never see it.
pub(crate) fn tell_front(task: &Task, resp: Message<'_>) {
    if task.client.is_some()
        && let Some(line) = RESULTS.get(usize::from(task.cache_result()))
    {
        // SAFETY: the line is static.
        unsafe { resp.add_static(line) };
    }
}
