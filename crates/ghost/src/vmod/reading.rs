//! What user VCL may ask: what was decided, on whichever side of Varnish.

use std::ffi::c_char;

use router::Action;

use super::chosen_director;
use crate::ffi::{self, Ctx, Director};
use crate::guard::guarded;
use crate::object::Ghost;
use crate::task::Task;
use crate::{answer, target};

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_backend(ctx: *const Ctx, ghost: *const Ghost) -> Director {
    guarded(ctx, std::ptr::null(), || {
        // SAFETY: Varnish passes a live context and our object.
        unsafe {
            if ffi::gs_on_backend_side(ctx) == 1 {
                return ffi::gs_bereq_backend(ctx);
            }
            // Not what is hinted at now: user VCL may want to come back to it.
            let ghost = &*ghost;
            match Task::existing(ctx, ghost).and_then(|task| Some((task.table(), task.decision()?))) {
                Some((table, decision)) => chosen_director(ghost, table, decision),
                None => ffi::gs_hinted(ctx),
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_route_name(ctx: *const Ctx, ghost: *const Ghost) -> *const c_char {
    guarded(ctx, std::ptr::null(), || text(ctx, ghost, |chosen| chosen.rule.map(router::Rule::route_name)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_rule_name(ctx: *const Ctx, ghost: *const Ghost) -> *const c_char {
    guarded(ctx, std::ptr::null(), || text(ctx, ghost, |chosen| chosen.rule?.rule_name()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_listener_name(ctx: *const Ctx, ghost: *const Ghost) -> *const c_char {
    guarded(ctx, std::ptr::null(), || text(ctx, ghost, |chosen| chosen.listener))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_group_name(ctx: *const Ctx, ghost: *const Ghost) -> *const c_char {
    guarded(ctx, std::ptr::null(), || text(ctx, ghost, |chosen| chosen.group))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_rule_index(ctx: *const Ctx, ghost: *const Ghost) -> i64 {
    guarded(ctx, -1, || {
        // SAFETY: Varnish passes a live context and our object.
        unsafe { chosen(ctx, &*ghost) }.and_then(|c| c.rule).map_or(-1, |rule| i64::from(rule.rule_index()))
    })
}

/// What was decided, on whichever side of Varnish we are asked.
#[derive(Default)]
struct Chosen<'a> {
    rule: Option<&'a router::Rule>,
    listener: Option<&'a str>,
    group: Option<&'a str>,
}

/// # Safety
/// `ctx` must be a live context.
unsafe fn chosen<'a>(ctx: *const Ctx, ghost: &'a Ghost) -> Option<Chosen<'a>> {
    // SAFETY: the director lives as long as the fetch, the task's state as long as the task.
    unsafe {
        if ffi::gs_on_backend_side(ctx) == 1 {
            let director = ffi::gs_bereq_backend(ctx);
            return match target::of_director(director) {
                Some(target) => Some(Chosen {
                    rule: Some(target.rule()),
                    group: Some(target.group_name()),
                    ..Chosen::default()
                }),
                None => Some(Chosen { rule: answer::of_director(director)?.rule(), ..Chosen::default() }),
            };
        }
        let decision = Task::existing(ctx, ghost)?.decision()?;
        let rule = decision.rule();
        let group = match (decision.action(), rule) {
            (Action::Forward { group }, Some(rule)) => Some(rule.groups()[group].name()),
            _ => None,
        };
        Some(Chosen { rule, listener: decision.listener().map(router::Listener::name), group })
    }
}

fn text<'a>(
    ctx: *const Ctx,
    ghost: *const Ghost,
    of: impl FnOnce(Chosen<'a>) -> Option<&'a str>,
) -> *const c_char {
    // SAFETY: Varnish passes a live context and our object.
    let chosen = unsafe { chosen(ctx, &*ghost) };
    // SAFETY: as above.
    chosen.and_then(of).map_or(std::ptr::null(), |text| unsafe { copied(ctx, text) })
}

/// # Safety
/// `ctx` must be a live context.
unsafe fn copied(ctx: *const Ctx, text: &str) -> *const c_char {
    // SAFETY: the workspace lives as long as the task.
    unsafe { ffi::gs_ws_copy(ctx, text.as_ptr(), text.len()) }
}

/// # Safety
/// `ctx` must be a live context.
pub(super) unsafe fn director(ctx: *const Ctx) -> Director {
    // SAFETY: the caller's promise.
    unsafe {
        if ffi::gs_on_backend_side(ctx) == 1 { ffi::gs_bereq_backend(ctx) } else { ffi::gs_hinted(ctx) }
    }
}
