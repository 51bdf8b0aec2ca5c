//! Idle connections to varnishd, kept by each thread for itself. They are shared by all clients of the thread.
//!
//! The connection that was used last is used next: few connections stay busy, and a worker thread of varnishd that has just
//! answered is still there when the next request comes (timeout_linger).

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::net::UnixStream;
use tokio::time::sleep;

/// A connection that is idle for longer is closed.
const IDLE: Duration = Duration::from_secs(30);
const SWEEP: Duration = Duration::from_secs(5);
/// Idle connections to one varnishd, for each thread.
const MOST_IDLE: usize = 512;

#[derive(Debug)]
struct Idle {
    stream: UnixStream,
    since: Instant,
}

/// By the start of varnishd that they belong to.
#[derive(Debug, Default)]
struct Pool {
    idle: HashMap<u64, Vec<Idle>, RandomState>,
    is_swept: bool,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// A connection that varnishd has not closed, as far as is known.
pub(crate) fn take(home: u64) -> Option<UnixStream> {
    POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let idle = pool.idle.get_mut(&home)?;
        while let Some(Idle { stream, .. }) = idle.pop() {
            if is_quiet(&stream) {
                return Some(stream);
            }
        }
        None
    })
    .ok()
    .flatten()
}

/// Nothing can be read: neither EOF nor unexpected bytes. The reactor knows; a system call is rare.
fn is_quiet(stream: &UnixStream) -> bool {
    stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// For the next request of this thread.
pub(crate) fn keep(home: u64, stream: UnixStream) {
    let begin = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let idle = pool.idle.entry(home).or_default();
        if idle.len() < MOST_IDLE {
            idle.push(Idle { stream, since: Instant::now() });
        }
        !std::mem::replace(&mut pool.is_swept, true)
    });
    if begin == Ok(true) {
        drop(tokio::spawn(sweep()));
    }
}

/// Closes connections that are idle for too long or that varnishd has closed, until none is left.
async fn sweep() {
    loop {
        sleep(SWEEP).await;
        let is_empty = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            pool.idle.retain(|_, idle| {
                idle.retain(|one| one.since.elapsed() < IDLE && is_quiet(&one.stream));
                !idle.is_empty()
            });
            if pool.idle.is_empty() {
                pool.is_swept = false;
            }
            pool.idle.is_empty()
        });
        if is_empty != Ok(false) {
            return;
        }
    }
}
