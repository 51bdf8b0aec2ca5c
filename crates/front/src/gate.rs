//! How many may come in at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};

use crate::Limits;

/// Clients that have not said hello yet, for each handshake that may run: beyond it the one that waits longest has to go.
const SILENT_FOR_EACH: usize = 4;

/// The limits, with the room that is left. New limits are a new gate: those inside stay in the old one.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) limits: Limits,
    handshakes: Semaphore,
    connections: Arc<Semaphore>,
    silent: Mutex<Silent>,
}

/// Those whose hello is not complete, oldest first.
#[derive(Debug, Default)]
struct Silent {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A place among those who have not said hello. Given back with it.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    id: u64,
    /// Answers once the place is needed for others.
    pub(crate) lost: oneshot::Receiver<()>,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let room = |count: usize| Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            handshakes: room(limits.concurrent_handshakes),
            connections: Arc::new(room(limits.connections)),
            silent: Mutex::default(),
            limits,
        }
    }

    /// Waits for room. None only if the semaphore was closed, which nobody does.
    pub(crate) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.connections).acquire_owned().await.ok()
    }

    /// Room for one handshake. Asked for when the hello is there: a silent client takes nobody's turn.
    pub(crate) async fn handshake(&self) -> Option<SemaphorePermit<'_>> {
        self.handshakes.acquire().await.ok()
    }

    /// A place to say hello from. Where there are too many, the oldest loses his.
    pub(crate) fn place(self: &Arc<Self>) -> Place {
        let most = self.limits.concurrent_handshakes.clamp(1, 1 << 20).saturating_mul(SILENT_FOR_EACH);
        let (tell, lost) = oneshot::channel();
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let id = silent.next;
        silent.next += 1;
        silent.waiting.insert(id, tell);
        if silent.waiting.len() > most
            && let Some((_, oldest)) = silent.waiting.pop_first()
        {
            let _ = oldest.send(());
        }
        drop(silent);
        Place { gate: Arc::clone(self), id, lost }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.silent.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&self.id);
    }
}
