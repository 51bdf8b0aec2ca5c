//! What is served where a fetch has failed: the object that it would have replaced, if that may be.

use model::names::RESCUE_HEADER;
use router::Rule;

use super::{RESCUE, rule};
use crate::ffi::{self, Ctx};
use crate::message::Message;
use crate::{aside, index};

/// A fetch that took this long to fail is not tried again at once: those who wait for it would wait for each other.
const SLOW_FAILURE_SECONDS: f64 = 0.5;
const HOLD_SECONDS: (f64, f64) = (1.0, 10.0);

/// A client has refused a fresh object, and what was fetched for it is no better: others keep what they have, and nothing shows that
/// the client asked.
///
/// # Safety
/// `ctx` must be the live context of a fetch.
pub(super) unsafe fn leave_fresh(ctx: *const Ctx) {
    // SAFETY: the caller's promise.
    unsafe {
        // A 304 is made whole from the object. Varnish replaces it then.
        if ffi::gs_was_304(ctx) == 0 {
            ffi::gs_let_go(ctx);
        }
        ffi::gs_keep_for(ctx, 0.0, 0.0, 0.0);
        ffi::gs_set_uncacheable(ctx);
    }
}

/// Gives a stale object time again, if there is one that may be served, and marks the failed answer for the client's side.
///
/// # Safety
/// `ctx` must be the live context of the fetch whose messages these are.
pub(super) unsafe fn rescue(ctx: *const Ctx, before: Message<'_>, beresp: Message<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        if ffi::gs_is_bgfetch(ctx) == 1 {
            return;
        }
        // Another try of a fetch that failed before.
        let mut rescued = before.header(RESCUE_HEADER).is_some();
        if !rescued && may_serve_stale(ctx) {
            let took = ffi::gs_fetch_time(ctx);
            let (least, most) = HOLD_SECONDS;
            let hold = if took < SLOW_FAILURE_SECONDS { 0.0 } else { took.clamp(least, most) };
            rescued = give_time(ctx, hold);
            if rescued {
                let owner = rule(ctx).map_or("", Rule::namespace);
                aside::RESCUED.note(owner, before.header("Host").unwrap_or_default(), before.url(), true);
                before.add_static(RESCUE);
            }
        }
        if rescued {
            ffi::gs_keep_for(ctx, 0.0, 0.0, 0.0);
            beresp.add_static(RESCUE);
        }
    }
}

/// Lets the stale object of this fetch be found again. False where it was invalidated meanwhile.
///
/// # Safety
/// `ctx` must be the live context of a fetch.
unsafe fn give_time(ctx: *const Ctx, hold: f64) -> bool {
    let mut stale_for = 0.0;
    // SAFETY: the caller's promise; the stale object lives as long as the fetch holds it.
    unsafe {
        let object = ffi::gs_stale(ctx, &mut stale_for);
        if object.is_null() {
            return false;
        }
        let most = index::rescue_seconds(ffi::gs_worker(ctx), object).unwrap_or(f64::INFINITY);
        let _invalidations_wait = index::lifetime_of(object as usize);
        ffi::gs_rescue(ctx, hold, most) == 1
    }
}

/// Is there a stale object that may take the place of a failure?
///
/// # Safety
/// `ctx` must be the live context of a fetch.
pub(super) unsafe fn may_serve_stale(ctx: *const Ctx) -> bool {
    let mut stale_for = 0.0;
    // SAFETY: the caller's promise; the stale object lives as long as the fetch holds it.
    unsafe {
        let object = ffi::gs_stale(ctx, &mut stale_for);
        !object.is_null()
            && index::rescue_seconds(ffi::gs_worker(ctx), object).is_none_or(|seconds| stale_for < seconds)
    }
}
