//! The WebSockets of one client connection. They outlive the HTTP on it, and the connection's place among others stays taken
//! until the last one is over.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    open: AtomicUsize,
    ended: Notify,
}

/// One of them. It is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Open(Arc<Tunnels>);

impl Tunnels {
    pub(crate) fn begin(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(Arc::clone(self))
    }

    pub(crate) fn are_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Waits until none is open.
    pub(crate) async fn over(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Before the look: an end after it is noticed.
            ended.as_mut().enable();
            if !self.are_open() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}
