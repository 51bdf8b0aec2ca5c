//! Limits concurrent connections and TLS handshakes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::time::sleep;

use crate::Limits;

/// Clients without a complete ClientHello, for each concurrent handshake. Beyond this limit the one that waits longest is closed.
const SILENT_FOR_EACH: usize = 4;

/// How long a client may delay its handshake while other clients wait for a permit.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often clients that wait for a permit look for one that delays its handshake.
const LOOK: Duration = Duration::from_millis(100);

/// The limits, with the permits that are left. New limits are a new gate: running handshakes stay in the old one.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) limits: Limits,
    handshakes: Semaphore,
    connections: Arc<Semaphore>,
    /// Clients whose ClientHello is not complete.
    silent: Queue,
    /// Clients whose handshake runs.
    greeting: Queue,
}

/// Oldest first.
#[derive(Debug, Default)]
struct Queue(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    next: u64,
    taken: BTreeMap<u64, (Instant, oneshot::Sender<()>)>,
}

/// A place in a queue, freed when this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    queue: &'a Queue,
    id: u64,
    /// Answers once the place is needed for others.
    pub(crate) lost: oneshot::Receiver<()>,
}

/// Permit for one TLS handshake.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    pub(crate) place: Place<'a>,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let room = |count: usize| Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            handshakes: room(limits.concurrent_handshakes),
            connections: Arc::new(room(limits.connections)),
            silent: Queue::default(),
            greeting: Queue::default(),
            limits,
        }
    }

    /// A gate with new limits. Open connections count for it, too, unless their number is what changes.
    pub(crate) fn with(&self, limits: Limits) -> Self {
        let mut new = Self::new(limits);
        if new.limits.connections == self.limits.connections {
            new.connections = Arc::clone(&self.connections);
        }
        new
    }

    /// Waits for room. None only if the semaphore was closed, which never happens.
    pub(crate) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.connections).acquire_owned().await.ok()
    }

    /// Waits for a permit for one handshake. Called when the ClientHello is complete: a silent client uses no permit. A client
    /// that delays its handshake loses its permit.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        let mut permit = pin!(self.handshakes.acquire());
        let permit = loop {
            tokio::select! {
                biased;
                permit = &mut permit => break permit.ok(),
                () = sleep(LOOK) => self.greeting.dismiss_after(PATIENCE),
            }
        };
        Turn { _permit: permit, place: self.greeting.place() }
    }

    /// A place for a client whose ClientHello is awaited. If there are too many, the oldest one loses its place.
    pub(crate) fn place(&self) -> Place<'_> {
        let most = self.limits.concurrent_handshakes.clamp(1, 1 << 20).saturating_mul(SILENT_FOR_EACH);
        let place = self.silent.place();
        self.silent.dismiss_beyond(most);
        place
    }
}

impl Queue {
    fn place(&self) -> Place<'_> {
        let (tell, lost) = oneshot::channel();
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = places.next;
        places.next += 1;
        places.taken.insert(id, (Instant::now(), tell));
        Place { queue: self, id, lost }
    }

    /// Removes the oldest if there are more than `most`.
    fn dismiss_beyond(&self, most: usize) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.taken.len() > most
            && let Some((_, (_, oldest))) = places.taken.pop_first()
        {
            let _ = oldest.send(());
        }
    }

    /// Removes the oldest if it has had its place for at least this long.
    fn dismiss_after(&self, patience: Duration) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(oldest) = places.taken.first_entry()
            && oldest.get().0.elapsed() >= patience
        {
            let _ = oldest.remove().1.send(());
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&self.id);
    }
}
