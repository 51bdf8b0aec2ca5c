//! Threads that carry connections, each with a reactor of its own.
//!
//! Tasks are not moved between threads: a connection stays with its thread, and no thread is woken for the work of another one. A
//! connection that takes long delays others no more than with nginx and hitch, which do the same.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

/// More cores than this are better left to varnishd.
const MOST: usize = 32;
/// The lowest priority that a thread can have.
const LAST: i32 = 19;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

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
        let runtime = thread_with_runtime(format!("front-{number}"), |runtime| runtime.block_on(pending()))?;
        Ok(Self { runtime, load: AtomicUsize::new(0) })
    }
}

/// Starts a thread that calls `runs` with a runtime of its own. Returns once the runtime is there.
fn thread_with_runtime(name: String, runs: impl FnOnce(Runtime) + Send + 'static) -> std::io::Result<Handle> {
    // The thread makes its runtime itself: one that comes into being here, and finds no thread, would have to be dropped here,
    // and within another runtime that is a panic.
    let (to, from) = std::sync::mpsc::sync_channel(1);
    thread::Builder::new().name(name).spawn(move || {
        match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let _ = to.send(Ok(runtime.handle().clone()));
                runs(runtime);
            }
            Err(e) => drop(to.send(Err(e))),
        }
    })?;
    from.recv().map_err(std::io::Error::other)?
}

/// Carries on with `task` on a certain thread. Sockets that it takes along must be registered there.
pub(crate) fn spawn_on(number: usize, task: impl Future<Output = ()> + Send + 'static) {
    let lanes = lanes();
    match number.checked_rem(lanes.len()).and_then(|at| lanes.get(at)) {
        Some(lane) => drop(lane.runtime.spawn(task)),
        // No thread could be started: the task runs here.
        None => drop(tokio::spawn(task)),
    }
}

/// Carries on with `task` on the thread that has the fewest. Sockets that it takes along must be registered again, there.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    let Some(lane) = lanes().iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed)) else {
        // No thread could be started: the task runs here.
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

/// Carries on with `task` on a thread of low priority: while the others need all of the processor, it hardly runs. There is one for every four
/// cores. The number of tasks that wait there is the caller's to bound.
pub(crate) fn spawn_behind(task: impl Future<Output = ()> + Send + 'static) {
    static BEHIND: OnceLock<Vec<mpsc::UnboundedSender<Task>>> = OnceLock::new();
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let queues = BEHIND.get_or_init(|| (0..count().div_ceil(4)).filter_map(|n| behind(n).ok()).collect());
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    match next.checked_rem(queues.len()).and_then(|at| queues.get(at)) {
        // Not spawned from here: that would be a system call each time, while a queue wakes its reader only where it sleeps.
        Some(queue) => drop(queue.send(Box::pin(task))),
        None => drop(tokio::spawn(task)),
    }
}

fn behind(number: usize) -> std::io::Result<mpsc::UnboundedSender<Task>> {
    let (queue, mut tasks) = mpsc::unbounded_channel::<Task>();
    thread_with_runtime(format!("mirrors-{number}"), move |runtime| {
        // Linux has a priority for each thread. Only now: a lane waits for the runtime. Where it is not granted, the thread is one among others.
        let _ = rustix::process::setpriority_process(None, LAST);
        runtime.block_on(async {
            while let Some(task) = tasks.recv().await {
                drop(tokio::spawn(task));
            }
        });
    })?;
    Ok(queue)
}
