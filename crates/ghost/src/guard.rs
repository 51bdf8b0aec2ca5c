//! Stops panics where C calls us: across that border, varnishd's child would abort.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ffi::{self, Ctx};

/// For what VCL calls: the task fails, and no other.
pub(crate) fn guarded<T>(ctx: *const Ctx, otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // SAFETY: ctx is the caller's live context.
        unsafe { ffi::gs_fail(ctx, c"ghost panicked: this is a bug in ghost".as_ptr()) };
        otherwise
    })
}

/// For all other callbacks.
pub(crate) fn stopped<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}
