//! A signal that something has changed.

use std::sync::Arc;

use tokio::sync::watch;

/// Reports that something has changed. A subscriber that is late sees several changes as one.
#[derive(Debug, Clone)]
pub struct Signal(Arc<watch::Sender<u64>>);

impl Default for Signal {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Signal {
    pub fn raise(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub fn has_subscribers(&self) -> bool {
        self.0.receiver_count() > 0
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
