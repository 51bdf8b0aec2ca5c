//! Threads that carry connections, each with a reactor of its own.
//!
//! A connection stays with its thread: nobody steals it, and no thread is woken for what another one does. Whoever is served long is
//! no more in the way of others than with nginx and hitch, which do the same.

use std::future::{Future, pending};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

use tokio::runtime::{Builder, Handle};

/// More cores than this are better left to varnishd.
const MOST: usize = 32;

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    /// Connections that it carries.
    load: AtomicUsize,
}

/// Counts until it is dropped, however its task ends.
struct Load(&'static AtomicUsize);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One for each core, for all fronts of the process, until it ends.
fn lanes() -> &'static [Lane] {
    static LANES: OnceLock<Vec<Lane>> = OnceLock::new();
    LANES.get_or_init(|| {
        let count = available_parallelism().map_or(1, usize::from).min(MOST);
        (0..count).filter_map(|number| Lane::new(number).ok()).collect()
    })
}

/// How many threads there are.
pub(crate) fn count() -> usize {
    lanes().len().max(1)
}

impl Lane {
    fn new(number: usize) -> std::io::Result<Self> {
        // The thread makes its runtime itself: one that comes into being here, and finds no thread, would have to be dropped here,
        // and within another runtime that is a panic.
        let (to, from) = std::sync::mpsc::sync_channel(1);
        thread::Builder::new().name(format!("front-{number}")).spawn(move || {
            let built = Builder::new_current_thread().enable_all().build();
            match built {
                Ok(runtime) => {
                    let _ = to.send(Ok(runtime.handle().clone()));
                    runtime.block_on(pending::<()>());
                }
                Err(e) => drop(to.send(Err(e))),
            }
        })?;
        let runtime = from.recv().map_err(std::io::Error::other)??;
        Ok(Self { runtime, load: AtomicUsize::new(0) })
    }
}

/// Carries on with `task` on a certain thread. Sockets that it takes along must be registered there.
pub(crate) fn spawn_on(number: usize, task: impl Future<Output = ()> + Send + 'static) {
    let lanes = lanes();
    match number.checked_rem(lanes.len()).and_then(|at| lanes.get(at)) {
        Some(lane) => drop(lane.runtime.spawn(task)),
        // No thread was to be had: it is done here.
        None => drop(tokio::spawn(task)),
    }
}

/// Carries on with `task` on the thread that has the fewest. Sockets that it takes along must be registered again, there.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    let Some(lane) = lanes().iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed)) else {
        // No thread was to be had: it is done here.
        drop(tokio::spawn(task));
        return;
    };
    lane.load.fetch_add(1, Ordering::Relaxed);
    let load = Load(&lane.load);
    drop(lane.runtime.spawn(async move {
        let _load = load;
        task.await;
    }));
}
