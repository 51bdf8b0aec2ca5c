//! Gives endpoints and old configurations up, aside from requests and reloads.
//!
//! With a backend's last reference Varnish ends its idle connections, and waits until the other side has done so, too.
//! A host that died without a word never does: the wait lasts until the connections time out, after a minute. Neither a
//! reload nor the request that happens to let go of the old configuration shall stand still for so long. Nor shall that
//! request free 10,000 directors, which takes longer than all else that is done for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::ffi;
use crate::table::Table;

/// Whatever is given up by dropping it.
type Retired = Box<dyn Send>;

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
pub(crate) fn later(retired: impl Send + 'static) {
    let mut guard = retiring();
    let state = guard.get_or_insert_default();
    state.waiting.push_back(Box::new(retired));
    if !state.running {
        if let Some(done) = state.thread.take() {
            let _ = done.join();
        }
        // Where no thread can be started, the next one takes it along, or the end of the VCL.
        state.thread = Builder::new().name("ghost-retire".into()).spawn(work).ok();
        state.running = state.thread.is_some();
    }
}

fn work() {
    let mut freed = false;
    loop {
        let next = {
            let mut guard = retiring();
            let state = guard.get_or_insert_default();
            let next = state.waiting.pop_front();
            state.running = next.is_some() || freed;
            next
        };
        match next {
            Some(retired) => {
                drop(retired);
                freed = true;
            }
            // SAFETY: it takes nothing.
            None if std::mem::take(&mut freed) => unsafe { ffi::gs_give_memory_back() },
            None => return,
        }
    }
}

/// Lets go of a configuration; the last one to do so gives it up.
pub(crate) fn release(table: Arc<Table>) {
    if let Some(table) = Arc::into_inner(table) {
        later(table);
    }
}

/// Comes back when all is given up. A VCL that ends must have none of its backends left.
pub(crate) fn finish() {
    loop {
        let (thread, rest) = match retiring().as_mut() {
            Some(state) => (state.thread.take(), std::mem::take(&mut state.waiting)),
            None => return,
        };
        if thread.is_none() && rest.is_empty() {
            return;
        }
        // A configuration leaves its backends to give up.
        drop(rest);
        thread.map(JoinHandle::join);
    }
}
