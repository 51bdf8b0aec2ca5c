//! Gives endpoints up, aside from requests and reloads.
//!
//! With a backend's last reference Varnish ends its idle connections, and waits until the other side has done so, too.
//! A host that died without a word never does: the wait lasts until the connections time out, after a minute. Neither a
//! reload nor the request that happens to let go of the old configuration shall stand still for so long.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::backend::Cluster;
use crate::ffi::OwnedDirector;

/// A backend's director, and after it the memory of its counters.
type Retired = (OwnedDirector, Arc<Cluster>);

#[derive(Default)]
struct Retiring {
    waiting: VecDeque<Retired>,
    /// Ends when nothing waits: no thread of ours may be left when varnishd unloads us.
    running: bool,
    thread: Option<JoinHandle<()>>,
}

static RETIRING: Mutex<Option<Retiring>> = Mutex::new(None);

fn retiring() -> MutexGuard<'static, Option<Retiring>> {
    RETIRING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives it up soon.
pub(crate) fn later(director: OwnedDirector, cluster: Arc<Cluster>) {
    let mut guard = retiring();
    let state = guard.get_or_insert_default();
    state.waiting.push_back((director, cluster));
    if !state.running {
        if let Some(done) = state.thread.take() {
            let _ = done.join();
        }
        // Where none is to be had, the next one takes it along, or the end of the VCL.
        state.thread = Builder::new().name("ghost-retire".into()).spawn(work).ok();
        state.running = state.thread.is_some();
    }
}

fn work() {
    loop {
        let next = {
            let mut guard = retiring();
            let state = guard.get_or_insert_default();
            let next = state.waiting.pop_front();
            state.running = next.is_some();
            next
        };
        match next {
            Some(retired) => drop(retired),
            None => return,
        }
    }
}

/// Comes back when all is given up. A VCL that ends must have none of its backends left.
pub(crate) fn finish() {
    loop {
        let (thread, rest) = match retiring().as_mut() {
            Some(state) => (state.thread.take(), std::mem::take(&mut state.waiting)),
            None => return,
        };
        drop(rest);
        match thread {
            Some(thread) => drop(thread.join()),
            None => return,
        }
    }
}
