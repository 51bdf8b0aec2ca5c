//! What the front reports of each finished request: lines of an access log, and spans.
//!
//! A request thread never waits for their readers. Both queues are bounded; records that do not fit are dropped and counted.

mod access_log;
mod finished;
mod shards;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

pub use self::access_log::AccessLog;
pub use self::finished::{Finished, Upstream};
pub(crate) use self::shards::{SHARDS, shard};

/// Where finished requests are reported to.
#[derive(Debug, Default)]
pub struct Observer {
    access_log: Option<Arc<AccessLog>>,
    spans: Option<mpsc::Sender<Box<Finished>>>,
    spans_dropped: AtomicU64,
}

impl Observer {
    /// `spans`: the queue of recorded requests.
    pub fn new(access_log: Option<Arc<AccessLog>>, spans: Option<mpsc::Sender<Box<Finished>>>) -> Self {
        Self { access_log, spans, spans_dropped: AtomicU64::new(0) }
    }

    pub fn access_log(&self) -> Option<&Arc<AccessLog>> {
        self.access_log.as_ref()
    }

    /// Recorded requests that the exporter did not take in time.
    pub fn spans_dropped(&self) -> u64 {
        self.spans_dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn exports_spans(&self) -> bool {
        self.spans.is_some()
    }

    pub(crate) fn record(&self, request: Box<Finished>) {
        if let Some(spans) = &self.spans
            && spans.try_send(request).is_err()
        {
            self.spans_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
