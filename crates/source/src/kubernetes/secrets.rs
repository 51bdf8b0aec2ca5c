//! TLS Secrets: their metadata is watched, and their data is read only if an object refers to them.
//!
//! Guarantees that the data of a Secret is requested once for each of its versions, and only while an object refers to it; that
//! few requests run at a time; and that after a failed request the earlier data stays, and the request is retried.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use translate::Key;
use translate::snapshot::Objects;

use super::cluster::same_secret;
use super::scope::{Namespaces, Scope};
use super::signal::Signal;
use super::store::Store;

/// Secrets of other types hold no certificates.
const TLS_SECRETS: &str = "type=kubernetes.io/tls";
/// Requests at a time.
const AT_ONCE: usize = 8;
/// The first wait after a failure, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long to wait for a Secret that was just named, before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(3);

/// The TLS Secrets of a cluster, as far as they are wanted.
pub(super) struct Secrets {
    metadata: Store<PartialObjectMeta<Secret>>,
    namespaces: Namespaces,
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    state: Mutex<State>,
    /// Something may have to be read.
    look: Signal,
    /// What is wanted is read, as far as it is there.
    settled: watch::Sender<bool>,
    changed: Signal,
}

#[derive(Default)]
struct State {
    wanted: BTreeSet<Key>,
    read: BTreeMap<Key, Version>,
}

/// What was read when the Secret had this version.
struct Version {
    seen: Option<String>,
    /// `None`: it could not be read yet.
    secret: Option<Arc<Secret>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("read", &self.shared.lock().read.len()).finish_non_exhaustive()
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Secrets {
    /// `changed` is raised when a wanted Secret is another.
    pub(super) fn watch(client: &Client, namespaces: &Namespaces, changed: Signal) -> Self {
        let look = Signal::default();
        let apis = namespaces.apis(client);
        let metadata = Store::watch_metadata(apis, &Scope::fields(TLS_SECRETS), same_version, look.clone());
        let shared =
            Arc::new(Shared { state: Mutex::default(), look, settled: watch::Sender::new(false), changed });
        let (client, known, reading) = (client.clone(), metadata.clone(), Arc::clone(&shared));
        let task = tokio::spawn(tasks::without_end("the reading of Secrets", move || {
            follow(client.clone(), known.clone(), Arc::clone(&reading))
        }));
        Self { metadata, namespaces: namespaces.clone(), shared, task: task.abort_handle() }
    }

    /// Until it is known which Secrets there are.
    pub(super) async fn synced(&self) {
        self.metadata.synced().await;
    }

    /// Reads these from now on, and no others; returns once each was looked for.
    pub(super) async fn want(&self, names: &BTreeSet<Key>) {
        let names = names.iter().filter(|key| self.namespaces.contain(&key.namespace));
        let wanted: BTreeSet<Key> = names.cloned().collect();
        let mut settled = self.shared.settled.subscribe();
        {
            let mut state = self.shared.lock();
            if state.wanted == wanted {
                return;
            }
            state.read.retain(|key, _| wanted.contains(key));
            state.wanted = wanted;
            // Before the lock is free again: no reader may take this for settled by what was wanted before.
            self.shared.look.raise();
            self.shared.settled.send_replace(false);
        }
        let _ = tokio::time::timeout(PATIENCE, settled.wait_for(|settled| *settled)).await;
    }

    /// Those that are wanted, and were read.
    pub(super) fn objects(&self) -> Objects<Secret> {
        let state = self.shared.lock();
        let read = |(key, version): (&Key, &Version)| Some((key.clone(), version.secret.clone()?));
        state.read.iter().filter_map(read).collect()
    }
}

fn same_version(a: &PartialObjectMeta<Secret>, b: &PartialObjectMeta<Secret>) -> bool {
    a.metadata.resource_version == b.metadata.resource_version && a.metadata.uid == b.metadata.uid
}

async fn follow(client: Client, metadata: Store<PartialObjectMeta<Secret>>, shared: Arc<Shared>) {
    let mut look = shared.look.subscribe();
    metadata.synced().await;
    let mut pause = PAUSE.0;
    loop {
        look.mark_unchanged();
        let due = due(&metadata, &shared);
        let reading = futures::stream::iter(due).map(|(key, version)| read(&client, &shared, key, version));
        let failures =
            reading.buffer_unordered(AT_ONCE).filter(|done| std::future::ready(!*done)).count().await;
        // Secrets that were requested in between are handled next.
        {
            let _state = shared.lock();
            // A request that failed once must not make a Secret look missing.
            if failures == 0 && !look.has_changed().unwrap_or(false) {
                shared.settled.send_replace(true);
            }
        }
        let again = async {
            match failures {
                0 => std::future::pending().await,
                _ => tokio::time::sleep(pause).await,
            }
        };
        tokio::select! {
            changed = look.changed() => if changed.is_err() { return },
            () = again => pause = (pause * 2).min(PAUSE.1),
        }
        if failures == 0 {
            pause = PAUSE.0;
        }
    }
}

/// The Secrets to read, with the version that was last seen. Forgets Secrets that no longer exist.
fn due(metadata: &Store<PartialObjectMeta<Secret>>, shared: &Shared) -> Vec<(Key, Option<String>)> {
    let mut state = shared.lock();
    let State { wanted, read } = &mut *state;
    let mut due = Vec::new();
    let mut gone = false;
    for key in wanted.iter() {
        match metadata.get(key) {
            None => gone |= read.remove(key).is_some_and(|version| version.secret.is_some()),
            Some(there) => {
                let version = there.metadata.resource_version.clone();
                if !read.get(key).is_some_and(|known| known.seen.is_some() && known.seen == version) {
                    due.push((key.clone(), version));
                }
            }
        }
    }
    drop(state);
    if gone {
        shared.changed.raise();
    }
    due
}

/// False where it has to be tried again.
async fn read(client: &Client, shared: &Shared, key: Key, version: Option<String>) -> bool {
    let api: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
    let found = api.get_opt(&key.name).await;
    let mut state = shared.lock();
    // It may be wanted no more.
    if !state.wanted.contains(&key) {
        return true;
    }
    let known = state.read.get(&key).and_then(|known| known.secret.clone());
    let secret = match found {
        Ok(Some(mut secret)) => {
            secret.metadata.managed_fields = None;
            // It may hold the data a second time.
            secret.metadata.annotations = None;
            // Keep the same object if none of the fields in use differ: its pair is not checked again.
            known.clone().filter(|known| same_secret(known, &secret)).or_else(|| Some(Arc::new(secret)))
        }
        // The watch will report its deletion.
        Ok(None) => None,
        Err(e) => {
            match state.read.get(&key).is_some_and(|known| known.seen.is_none()) {
                true => tracing::debug!("Secret {key} cannot be read, trying again: {e}"),
                false => tracing::warn!("Secret {key} cannot be read, trying again: {e}"),
            }
            // What was read before stays in use.
            state.read.insert(key, Version { seen: None, secret: known });
            return false;
        }
    };
    let same = match (&known, &secret) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    };
    state.read.insert(key, Version { seen: version, secret });
    drop(state);
    if !same {
        shared.changed.raise();
    }
    true
}
