//! What a client's task keeps: the table it was routed by, and the decision.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::identity::Identity;
use model::kept::Kept;
use router::counters::Way;
use router::trace::Trace;
use router::{Action, Decision, Routed, Rule, Url};

use crate::asked::Asked;
use crate::ffi::{self, Ctx};
use crate::guard::stopped;
use crate::object::{Ghost, IN_FLIGHT};
use crate::retire;
use crate::stats;
use crate::table::Table;

/// Lives in the task's workspace, so that a hit costs no allocation.
pub(crate) struct Task {
    /// Borrows from `table`, which the same task keeps alive and never replaces.
    decision: Option<Decision<'static>>,
    table: Arc<Table>,
    /// Makes the weighted pick, over restarts too: what was fetched for this request must be found again.
    random: u64,
    /// Who asks, where the front says it. Borrows from the request's workspace, which outlives the task.
    pub(crate) client: Option<Identity<'static>>,
    /// The number by which the front finds the client, where it takes 103 Early Hints.
    pub(crate) hints: Option<u64>,
    /// The front has the response to a POST, and the cache is to store it.
    pub(crate) kept: Option<Kept>,
    /// SHA-256 of the content of a QUERY that is looked up.
    pub(crate) content: Option<[u8; 32]>,
    /// The origin has failed, and a stale object must be served.
    pub(crate) rescued: bool,
    /// What the client sent that its origin may believe: bits of [`crate::sent`].
    pub(crate) sent: u32,
    /// The client has a response already, and asks whether it is still the same.
    pub(crate) has_conditions: bool,
    /// The client has sent a header in several lines.
    pub(crate) repeats: bool,
    /// These lines were joined.
    pub(crate) has_joined: bool,
    /// What the client takes of stored objects, where its rule's policy obeys it.
    pub(crate) asked: Option<Asked>,
    /// The front asks whether it may store the response.
    pub(crate) hot: bool,
    /// A trusted client wants to see the cache key.
    pub(crate) shows_key: bool,
    /// The request has been here before.
    pub(crate) loops: bool,
    /// Where spans are exported.
    pub(crate) trace: Option<Trace>,
    /// What is counted at the end; 0 until there is an answer.
    status: u16,
    /// A position in [`model::stats::CACHE_RESULTS`].
    cache: u8,
    /// The log says what an answer of user VCL is.
    pub(crate) told: bool,
}

/// A workspace gives memory that is aligned for pointers, not more.
const _: () = assert!(align_of::<Task>() <= align_of::<*const ()>());

/// As a status: the connection is handed on, and what is said by it is not looked at.
const PIPED: u16 = u16::MAX;

impl Task {
    /// The task's state, made at the first call: one configuration from the first byte to the last, over restarts too.
    ///
    /// # Safety
    /// `ctx` must be a live context of a client's task, and the reference must not outlive the call from VCL.
    pub(crate) unsafe fn of<'a>(ctx: *const Ctx, ghost: &Ghost) -> Option<&'a mut Self> {
        // SAFETY: what is kept under this id is a Task, and only this thread runs the task.
        unsafe {
            if let Some(task) = Self::existing(ctx, ghost) {
                return Some(task);
            }
            let place = ffi::gs_task_alloc(ctx, size_of::<Self>()).cast::<Self>();
            if place.is_null() {
                return None;
            }
            place.write(Self {
                decision: None,
                table: ghost.table(),
                random: router::random::next(),
                client: None,
                hints: None,
                kept: None,
                content: None,
                rescued: false,
                sent: 0,
                has_conditions: false,
                repeats: false,
                has_joined: false,
                asked: None,
                hot: false,
                shows_key: false,
                loops: false,
                trace: None,
                status: 0,
                cache: stats::OTHER,
                told: false,
            });
            IN_FLIGHT.fetch_add(1, Ordering::Relaxed);
            if ffi::gs_task_set(ctx, id(ghost), place.cast()) != 0 {
                ghost_task_fini(place.cast(), 0, 0.0);
                return None;
            }
            Some(&mut *place)
        }
    }

    /// # Safety
    /// As [`Task::of`].
    pub(crate) unsafe fn existing<'a>(ctx: *const Ctx, ghost: &Ghost) -> Option<&'a mut Self> {
        // SAFETY: as in of().
        unsafe { ffi::gs_task_get(ctx, id(ghost)).cast::<Self>().as_mut() }
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn decision(&self) -> Option<&Decision<'_>> {
        self.decision.as_ref()
    }

    pub(crate) fn rule(&self) -> Option<&Rule> {
        self.decision.as_ref()?.rule()
    }

    /// This is the answer, unless another one comes after it.
    pub(crate) fn answers(&mut self, status: u16, cache: u8) {
        self.status = status;
        self.cache = if self.decision.as_ref().is_some_and(is_ours) { stats::OTHER } else { cache };
    }

    pub(crate) fn cache_result(&self) -> u8 {
        self.cache
    }

    /// The answer that is known has another status now.
    pub(crate) fn changes_status(&mut self, status: u16) {
        self.status = status;
    }

    pub(crate) fn is_piped(&mut self) {
        self.answers(PIPED, stats::OTHER);
    }

    /// Decides by the task's own table. Also returns the URL that takes the place of the request's.
    pub(crate) fn decide(&mut self, request: &impl router::Request) -> (&Decision<'static>, Option<Url>) {
        // Rules look at single lines of a header: the lines that were joined since might choose another rule.
        if let Some(decision) = self.decision.filter(|_| self.rescued && self.has_joined) {
            return (self.decision.insert(decision), None);
        }
        let Routed { mut decision, url } = self.table.router().route(request, self.random);
        if self.loops {
            decision = decision.looped();
        }
        // SAFETY: the decision borrows from the router inside `table`; an Arc does not move what it holds, and the
        // task never replaces it, so it lives as long as the decision beside it.
        let decision = unsafe { std::mem::transmute::<Decision<'_>, Decision<'static>>(decision) };
        (self.decision.insert(decision), url)
    }
}

/// Does ghost answer itself, without the cache?
fn is_ours(decision: &Decision<'_>) -> bool {
    !matches!(decision.action(), Action::Forward { .. }) && decision.cache().is_none()
}

/// Tasks are kept by the object, so that two routers in one VCL do not mix.
fn id(ghost: &Ghost) -> *const c_void {
    (&raw const *ghost).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_task_fini(task: *mut c_void, bytes: u64, seconds: f64) {
    stopped((), || {
        IN_FLIGHT.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: written by Task::of, taken once; the memory is the workspace's.
        let Task { table, decision, status, cache, client, .. } = unsafe { task.cast::<Task>().read() };
        // std.rollback(req) ends a task's state before there is an answer. The front counts its own requests.
        if status != 0
            && client.is_none()
            && let Some(counters) = table.counters_of(decision.as_ref())
        {
            counters.answered(status, cache, bytes, seconds);
            let is_own = cache == stats::OTHER && status != PIPED;
            let way = if is_own { Way::Own } else { Way::Cache };
            counters.took(way);
            for flow in decision.iter().flat_map(|decision| table.flows_of(decision, is_own)) {
                flow.answered(way, status, cache);
            }
        }
        retire::release(table);
    });
}
