//! How many may come in at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Limits;

/// The limits, with the room that is left. New limits are a new gate: those inside stay in the old one.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) limits: Limits,
    handshakes: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

/// The right to be here.
#[derive(Debug)]
pub(crate) struct Pass {
    /// Given back after the handshake.
    pub(crate) handshake: OwnedSemaphorePermit,
    pub(crate) connection: OwnedSemaphorePermit,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let room = |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Self { handshakes: room(limits.concurrent_handshakes), connections: room(limits.connections), limits }
    }

    /// Waits for room. None only if the semaphores were closed, which nobody does.
    pub(crate) async fn enter(&self) -> Option<Pass> {
        let connection = Arc::clone(&self.connections).acquire_owned().await.ok()?;
        let handshake = Arc::clone(&self.handshakes).acquire_owned().await.ok()?;
        Some(Pass { handshake, connection })
    }
}
