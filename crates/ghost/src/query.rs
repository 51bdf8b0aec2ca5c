//! QUERY (RFC 10008), where the policy keeps its answers: the content of the request is in the key, and goes to the origin with the miss.
//!
//! Varnish keeps the content beside the request, in Transient storage, for as long as the request or its fetch takes. A request with more
//! content than [`MOST_CONTENT`], or one that does not say how much, passes as before.

use std::ffi::CStr;

use model::names::METHOD_HEADER;
use router::cache::{Cache, MOST_CONTENT};

use crate::ffi::{self, Ctx};
use crate::guard::guarded;
use crate::message::{ClientRequest, Message};
use crate::object::Ghost;
use crate::task::Task;

const MARK: &CStr = c"X-Ghost-Method: QUERY";

/// In vcl_recv: is it a QUERY that may be looked up? Its content is read then, once.
///
/// # Safety
/// `ctx` must be the live context whose request it is.
pub(crate) unsafe fn looks_up(
    ctx: *const Ctx,
    task: &mut Task,
    cache: &Cache,
    request: &ClientRequest<'_>,
) -> bool {
    if !cache.keeps_query(request) {
        return false;
    }
    if task.content.is_none() {
        let mut digest = [0; 32];
        // SAFETY: the caller's promise; there is room for a SHA-256.
        if unsafe { ffi::gs_body_digest(ctx, MOST_CONTENT as usize, digest.as_mut_ptr()) } == 0 {
            return false;
        }
        task.content = Some(digest);
    }
    // A part of an answer is for GET to ask for.
    request.message.remove_header("Range");
    // SAFETY: the line is static.
    unsafe { request.message.add_static(MARK) };
    true
}

/// In vcl_backend_fetch. `before` is the request as it was looked up.
///
/// # Safety
/// `ctx` must be the live context of the fetch.
pub(crate) unsafe fn ask(ctx: *const Ctx, before: Option<Message<'_>>) {
    if before.is_some_and(|before| before.header(METHOD_HEADER).is_some()) {
        // SAFETY: the caller's promise.
        unsafe { ffi::gs_ask_by_query(ctx) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_queries(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let task = unsafe { Task::existing(ctx, &*ghost) };
        u32::from(task.is_some_and(|task| task.content.is_some()))
    })
}
