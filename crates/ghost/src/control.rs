//! What ghost does for those who may ask: reload, status, statistics, invalidation. Nothing of it is reachable on a public listener.

use std::sync::atomic::Ordering;

use model::names::{
    CONTROL_SOCKET_ENV, DRAIN_PATH, ERROR_HEADER, IN_USE_PATH, INVALIDATE_PATH, RELOAD_PATH, STATS_PATH,
    STATUS_PATH,
};
use serde_json::json;

use crate::answer::Said;
use crate::ffi::{Ctx, RawWorker, c_string, gs_log, gs_worker};
use crate::index;
use crate::invalidate;
use crate::message::Message;
use crate::object::{DRAINING, Ghost, IN_FLIGHT};
use crate::table::Table;

/// Kept short for human readers.
const ROOM_FOR_PROBLEMS: usize = 16 << 10;
const LONGEST_ERROR: usize = 2000;

/// What is asked for, by whichever socket.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) url: &'a [u8],
    pub(crate) body: &'a dyn Fn() -> Result<Vec<u8>, String>,
    /// For what is made for the VCL in use.
    pub(crate) ctx: *const Ctx,
    /// The thread's own.
    pub(crate) worker: *mut RawWorker,
}

/// Does what is asked for. Who asks has been looked at.
pub(crate) fn answer(ghost: &Ghost, asked: &Asked<'_>) -> Said {
    let ctx = asked.ctx;
    let path = asked.url.split(|b| *b == b'?').next().unwrap_or_default();
    let acts = [DRAIN_PATH, INVALIDATE_PATH, IN_USE_PATH].iter().any(|one| path == one.as_bytes());
    let reads = [STATS_PATH, STATUS_PATH].iter().any(|one| path == one.as_bytes());
    let is_read = matches!(asked.method, b"GET" | b"HEAD");
    if (acts && asked.method != b"POST") || (reads && !is_read) {
        return said(
            405,
            Some(format!("Allow: {}", if acts { "POST" } else { "GET" })),
            &json!({ "error": "wrong method" }),
        );
    }
    if path == RELOAD_PATH.as_bytes() {
        match ghost.reload(ctx) {
            Ok(table) => {
                for problem in table.problems() {
                    // SAFETY: ctx is live.
                    unsafe { gs_log(ctx, c_string(&format!("ghost: left out: {problem}")).as_ptr()) };
                }
                said(200, None, &status(ghost, &table))
            }
            Err(e) => {
                let why: String = e.to_string().chars().take(LONGEST_ERROR).collect();
                said(500, Some(format!("{ERROR_HEADER}: {why}")), &json!({ "error": why }))
            }
        }
    } else if path == DRAIN_PATH.as_bytes() {
        DRAINING.store(true, Ordering::Relaxed);
        said(200, None, &status(ghost, &ghost.table()))
    } else if path == IN_USE_PATH.as_bytes() {
        ghost.publish();
        said(200, None, &status(ghost, &ghost.table()))
    } else if path == INVALIDATE_PATH.as_bytes() {
        match (asked.body)()
            .and_then(|body| invalidate::carry_out(asked.worker, ghost.table().router(), &body))
        {
            Ok(outcomes) => {
                let body = serde_json::to_string(&outcomes).unwrap_or_default();
                Said { status: 200, header: None, body: format!("{body}\n") }
            }
            Err(why) => said(400, Some(format!("{ERROR_HEADER}: {why}")), &json!({ "error": why })),
        }
    } else if path == STATS_PATH.as_bytes() {
        let table = ghost.table();
        let stats = table.stats();
        let body = serde_json::to_string(&stats).unwrap_or_default();
        Said { status: 200, header: None, body: format!("{body}\n") }
    } else if path == STATUS_PATH.as_bytes() {
        let mut status = status(ghost, &ghost.table());
        // It takes a look at every object.
        if asked.url.ends_with(b"?memory") {
            status["index_bytes"] = index::bytes().into();
            let (purges, ways) = index::remembered();
            status["recent_purges"] = purges.into();
            status["parameter_lists"] = ways.into();
        }
        said(200, None, &status)
    } else {
        let paths = format!(
            "this socket knows {RELOAD_PATH}, {STATUS_PATH}, {STATS_PATH}, {INVALIDATE_PATH}, {IN_USE_PATH} and {DRAIN_PATH}"
        );
        said(404, None, &json!({ "error": paths }))
    }
}

/// Requests of a socket of varnishd's that is named `ghost-reload`: for a varnishd that is started by hand. The chaperone
/// opens none, and where the control socket is there, none is answered: a token is known there, and not here.
pub(crate) struct Control(*const Ghost);

impl Control {
    /// # Safety
    /// The object must outlive the director that this control becomes part of.
    pub(crate) unsafe fn new(ghost: *const Ghost) -> Self {
        Self(ghost)
    }

    pub(crate) fn answer(&self, ctx: *const Ctx, request: Message<'_>) -> Said {
        // SAFETY: see new().
        let ghost = unsafe { &*self.0 };
        let host = request.header("Host").unwrap_or_default();
        if std::env::var_os(CONTROL_SOCKET_ENV).is_some() || !is_loopback(host) {
            let why = format!(
                "ask by the unix socket that {CONTROL_SOCKET_ENV} names, or with a loopback name as Host"
            );
            return said(403, None, &json!({ "error": why }));
        }
        let body = || invalidate::body(ctx);
        // SAFETY: ctx is the fetch's live context.
        let worker = unsafe { gs_worker(ctx) };
        answer(ghost, &Asked { method: request.method(), url: request.url(), body: &body, ctx, worker })
    }
}

/// A Host that no other site has: what a page in a browser or a route sends has another one, unless it is made for this.
fn is_loopback(host: &[u8]) -> bool {
    let name = index::without_port(host);
    [&b"ghost"[..], b"localhost", b"127.0.0.1", b"[::1]"].iter().any(|one| name.eq_ignore_ascii_case(one))
}

pub(crate) fn said(status: u16, header: Option<String>, body: &serde_json::Value) -> Said {
    Said { status, header: header.map(String::into_bytes), body: format!("{body}\n") }
}

fn status(ghost: &Ghost, table: &Table) -> serde_json::Value {
    let (objects, keys) = index::size();
    json!({
        "indexed_objects": objects,
        "index_keys": keys,
        "varnish": env!("VARNISH_VERSION"),
        "engine": env!("ENGINE"),
        "rules": table.rule_count(),
        "backends": table.backend_count(),
        "reloads": ghost.reloads.load(Ordering::Relaxed),
        "in_flight": IN_FLIGHT.load(Ordering::Relaxed),
        "left_out": shown(&table.problems().cloned().collect::<Vec<_>>()),
    })
}

/// As many as fit.
fn shown(problems: &[String]) -> Vec<String> {
    let mut room = ROOM_FOR_PROBLEMS;
    let fits = |problem: &&String| {
        room = room.saturating_sub(problem.len());
        room > 0
    };
    let mut shown: Vec<_> = problems.iter().take_while(fits).cloned().collect();
    if shown.len() < problems.len() {
        shown.push(format!("and {} more", problems.len() - shown.len()));
    }
    shown
}
