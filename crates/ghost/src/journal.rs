//! What varnishd's log does not say by itself, for access logs and spans: VCL_Log records `vg_…:`, where the settings ask for
//! them. `chaperone::log` reads them.

use model::stats::CACHE_RESULTS;
use router::Action;

use crate::ffi::{self, Ctx, c_string};
use crate::message::Message;
use crate::task::Task;

/// On answers of origins, until they are delivered: the endpoint, and the seconds that it took.
pub(crate) const BACKEND_HEADER: &str = "X-Ghost-Backend";

/// In vcl_deliver, vcl_synth or vcl_pipe: the answer is known, as far as we ever know it. `cache` is a position in
/// [`CACHE_RESULTS`].
///
/// # Safety
/// `ctx` must be the live context of the client's task that this is.
pub(crate) unsafe fn log(ctx: *const Ctx, task: &Task, resp: Option<Message<'_>>, cache: u8) {
    let router = task.table().router();
    let spans = task.trace.is_some_and(|trace| trace.sampled);
    if !router.logs_requests() && !spans {
        return;
    }
    // SAFETY: the caller's promise; the text is copied into the log.
    let line = |text: String| unsafe { ffi::gs_log(ctx, c_string(&text).as_ptr()) };
    if let Some(decision) = task.decision() {
        if let Some(rule) = decision.rule() {
            line(format!("vg_route:{} {} {}", rule.kind().name(), rule.rule_index(), rule.route_name()));
            if let Action::Forward { group } = decision.action() {
                line(format!("vg_service:{}", rule.groups()[group].name()));
            }
        }
        if let Some(listener) = decision.listener() {
            line(format!("vg_listener:{} {}", listener.socket(), listener.name()));
        }
    }
    let result = CACHE_RESULTS.get(usize::from(cache)).copied().unwrap_or("other");
    line(format!("vg_cache:{result}"));
    // Cache hits involve no backend.
    let met = if matches!(result, "miss" | "pass") { resp } else { None };
    if let Some(backend) = met.and_then(|resp| resp.header(BACKEND_HEADER)) {
        line(format!("vg_backend:{}", String::from_utf8_lossy(backend)));
    }
    let of_front = task.client.and_then(|client| client.tls).map(str::as_bytes);
    // SAFETY: the caller's promise.
    if let Some(version) = of_front.or_else(|| unsafe { ffi::gs_tls_version(ctx).bytes() }) {
        line(format!("vg_tls:{}", String::from_utf8_lossy(version)));
    }
    if let Some(trace) = task.trace {
        line(format!("vg_trace:{trace}"));
    }
}
