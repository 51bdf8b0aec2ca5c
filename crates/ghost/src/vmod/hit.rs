//! What vcl_hit and vcl_miss call.

use std::ffi::CStr;

use model::names::HINTS_HEADER;

use crate::ffi::{self, Ctx};
use crate::guard::guarded;
use crate::index;
use crate::message::Message;
use crate::object::Ghost;
use crate::task::Task;

const PURGED: &CStr = c"X-Ghost-Pass: the object was invalidated meanwhile";

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_hit(ctx: *const Ctx, _ghost: *const Ghost) -> u32 {
    // What cannot be judged is not delivered.
    guarded(ctx, 1, || {
        // SAFETY: Varnish passes a live context; the request holds its object, and is this thread's.
        unsafe {
            let object = ffi::gs_hit(ctx);
            let is_overtaken = !object.is_null() && index::is_hit_overtaken(ffi::gs_worker(ctx), object);
            if is_overtaken && let Some(message) = Message::new(ffi::gs_req(ctx)) {
                message.add_static(PURGED);
            }
            u32::from(is_overtaken)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_miss(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let (ghost, task) = unsafe { (&*ghost, Task::existing(ctx, &*ghost)) };
        if let Some(number) = task.as_ref().and_then(|task| task.hints)
            // SAFETY: as above; the request is this thread's.
            && let Some(message) = unsafe { Message::new(ffi::gs_req(ctx)) }
        {
            message.set_header(HINTS_HEADER, number.to_string().as_bytes());
        }
        let Some(asked) = task.and_then(|task| task.asked.as_ref()) else { return 0 };
        if asked.wanted.only_if_cached {
            // SAFETY: as above.
            unsafe { ffi::gs_hint(ctx, ghost.not_cached.raw()) };
        }
        u32::from(asked.wanted.only_if_cached || asked.wanted.no_store)
    })
}
