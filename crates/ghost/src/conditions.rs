//! Conditions of a request, before Varnish looks at them: Varnish compares one entity tag, and knows neither lists nor `*`. What
//! `router` decides is written so that Varnish comes to the same result.

use router::cache::{Conditions, Stored, Verdict, holds_if_range};

use crate::ffi::{self, Ctx};
use crate::message::Message;

const IF_NONE_MATCH: &str = "If-None-Match";
const IF_MODIFIED_SINCE: &str = "If-Modified-Since";

/// In vcl_deliver, for responses that the cache keeps or could have kept. An origin judges for itself what passes.
///
/// # Safety
/// `ctx` must be the live context whose messages these are.
pub(crate) unsafe fn apply(ctx: *const Ctx, req: Message<'_>, resp: Message<'_>) {
    if resp.status() != 200 {
        return;
    }
    // SAFETY: the caller's promise.
    let now = unsafe { ffi::gs_now(ctx) };
    let stored = Stored {
        etag: resp.header("ETag"),
        last_modified: resp.header("Last-Modified"),
        date: resp.header("Date"),
    };
    if let Some(validator) = req.header("If-Range") {
        if !holds_if_range(validator, &stored, now) {
            req.remove_header("Range");
        }
        req.remove_header("If-Range");
    }
    let has_tags = req.header(IF_NONE_MATCH).is_some();
    if !has_tags && req.header(IF_MODIFIED_SINCE).is_none() {
        return;
    }
    let conditions = Conditions {
        if_none_match: has_tags.then(|| req.headers(IF_NONE_MATCH)),
        if_modified_since: req.header(IF_MODIFIED_SINCE),
    };
    let verdict = conditions.judge(&stored, now);
    req.remove_header(IF_NONE_MATCH);
    req.remove_header(IF_MODIFIED_SINCE);
    if verdict == Verdict::NotModified {
        match stored.etag {
            Some(etag) => req.add_header(IF_NONE_MATCH, etag),
            // SAFETY: the caller's promise.
            None => unsafe { ffi::gs_set_resp_status(ctx, 304) },
        }
    }
}
