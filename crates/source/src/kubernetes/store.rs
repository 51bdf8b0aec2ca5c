//! All objects of one kind, as the API server said last.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use translate::Key;
use translate::snapshot::Objects;

use super::client::WATCH_SECONDS;
use super::read::{Read, Unread};

/// The first wait after a failure, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Says that something changed. Whoever is late hears it once.
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

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Which objects of a kind.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl Scope {
    pub fn labels(selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), fields: None }
    }

    pub fn fields(selector: impl Into<String>) -> Self {
        Self { labels: None, fields: Some(selector.into()) }
    }

    pub fn name(name: &str) -> Self {
        Self::fields(format!("metadata.name={name}"))
    }

    fn config(self) -> watcher::Config {
        watcher::Config {
            label_selector: self.labels,
            field_selector: self.fields,
            ..watcher::Config::default().timeout(WATCH_SECONDS)
        }
    }
}

/// Does nothing differ that anybody reads?
pub type Same<T> = fn(&T, &T) -> bool;

/// Every change matters.
pub fn never_same<T>(_: &T, _: &T) -> bool {
    false
}

/// The objects of one kind that are watched. Clones share them; the watch ends with the last one.
pub struct Store<T> {
    shared: Arc<Shared<T>>,
    _task: Arc<Task>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    synced: watch::Sender<bool>,
    same: Same<T>,
    changed: Signal,
    touched: Signal,
}

struct State<T> {
    now: Seen<T>,
    /// Being listed.
    coming: Seen<T>,
    /// The cluster does not have this kind.
    missing: bool,
    /// We may not read this kind here: no rights, or the namespace is gone.
    forbidden: bool,
    failing: bool,
}

/// What the API server said of the kind.
struct Seen<T> {
    objects: Objects<T>,
    unread: BTreeMap<Key, Arc<Unread>>,
    /// Fields that we do not know, of those objects that have any.
    ignored: BTreeMap<Key, Vec<String>>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), unread: BTreeMap::new(), ignored: BTreeMap::new() }
    }
}

impl<T> Seen<T> {
    fn insert(&mut self, key: Key, ignored: Vec<String>, object: Result<T, Unread>) {
        self.remove(&key);
        if !ignored.is_empty() {
            self.ignored.insert(key.clone(), ignored);
        }
        match object {
            Ok(object) => drop(self.objects.insert(key, Arc::new(object))),
            Err(unread) => drop(self.unread.insert(key, Arc::new(unread))),
        }
    }

    /// True where it was there.
    fn remove(&mut self, key: &Key) -> bool {
        self.ignored.remove(key);
        self.objects.remove(key).is_some() | self.unread.remove(key).is_some()
    }
}

struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), _task: Arc::clone(&self._task) }
    }
}

impl<T> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("objects", &self.shared.lock().now.objects.len())
            .finish_non_exhaustive()
    }
}

impl<T> Store<T>
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    /// Watches from now on. `changed` is raised when objects change in what somebody reads, `touched` always.
    pub fn watch(api: Api<Read<T>>, scope: Scope, same: Same<T>, changed: Signal, touched: Signal) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                now: Seen::default(),
                coming: Seen::default(),
                missing: false,
                forbidden: false,
                failing: false,
            }),
            synced: watch::Sender::new(false),
            same,
            changed,
            touched,
        });
        let watched = Arc::clone(&shared);
        let task = tokio::spawn(tasks::without_end(format!("the watch of {}", T::kind(&())), move || {
            follow(api.clone(), scope.clone(), Arc::clone(&watched))
        }));
        Self { shared, _task: Arc::new(Task(task.abort_handle())) }
    }

    /// Until the first list is there, or the kind is known to be missing.
    pub async fn synced(&self) {
        // The sender lives as long as we do.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    pub fn objects(&self) -> Objects<T> {
        self.shared.lock().now.objects.clone()
    }

    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.shared.lock().now.objects.get(key).cloned()
    }

    pub fn unread(&self) -> BTreeMap<Key, Arc<Unread>> {
        self.shared.lock().now.unread.clone()
    }

    /// Fields that we do not know, by object.
    pub fn ignored(&self) -> BTreeMap<Key, Vec<String>> {
        self.shared.lock().now.ignored.clone()
    }

    /// The cluster does not have this kind.
    pub fn is_missing(&self) -> bool {
        self.shared.lock().missing
    }

    /// The API server refused the last attempt to read it: no rights, or the namespace is gone.
    pub fn is_forbidden(&self) -> bool {
        self.shared.lock().forbidden
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow<T>(api: Api<Read<T>>, scope: Scope, shared: Arc<Shared<T>>)
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    let mut events = std::pin::pin!(watcher(api, scope.config()));
    let mut pause = PAUSE.0;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if shared.apply(event) {
                    shared.changed.raise();
                }
                shared.touched.raise();
                pause = PAUSE.0;
            }
            Err(e) => {
                shared.failed(&e);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

impl<T: Resource<DynamicType = ()>> Shared<T> {
    /// True where somebody should look.
    fn apply(&self, event: Event<Read<T>>) -> bool {
        let mut state = self.lock();
        match event {
            Event::Init => {
                state.coming = Seen::default();
                false
            }
            Event::InitApply(read) => {
                let key = key(read.meta());
                state.coming.insert(key, read.ignored, read.object);
                false
            }
            Event::InitDone => {
                let coming = std::mem::take(&mut state.coming);
                let first = !self.synced.send_replace(true);
                let (old, new) = (&state.now.objects, &coming.objects);
                let same = old.len() == new.len()
                    && old.iter().zip(new).all(|((k, a), (l, b))| k == l && (self.same)(a, b))
                    && state.now.unread.is_empty()
                    && coming.unread.is_empty();
                for (key, unread) in &coming.unread {
                    tracing::warn!("{} {key} cannot be read: {}", T::kind(&()), unread.why);
                }
                if std::mem::take(&mut state.failing) {
                    tracing::info!("{}: the API server answers again", T::kind(&()));
                }
                state.missing = false;
                state.forbidden = false;
                state.now = coming;
                first || !same
            }
            Event::Apply(read) => {
                let key = key(read.meta());
                let same = match &read.object {
                    Ok(object) => state.now.objects.get(&key).is_some_and(|old| (self.same)(old, object)),
                    Err(unread) => {
                        tracing::warn!("{} {key} cannot be read: {}", T::kind(&()), unread.why);
                        false
                    }
                };
                state.now.insert(key, read.ignored, read.object);
                !same
            }
            Event::Delete(read) => state.now.remove(&key(read.meta())),
        }
    }

    /// Told once: it is tried again and again.
    fn failed(&self, error: &watcher::Error) {
        let kind = T::kind(&());
        *failures().entry(kind.to_string()).or_default() += 1;
        let mut state = self.lock();
        let forbidden = code(error) == Some(403);
        // Who waits for this kind need not wait any longer.
        let newly_forbidden = forbidden && !state.forbidden;
        state.forbidden = forbidden;
        if code(error) == Some(404) {
            if !std::mem::replace(&mut state.missing, true) {
                tracing::warn!("{kind}: the cluster does not have this kind; what needs it does not work");
                drop(state);
                self.synced.send_replace(true);
                self.changed.raise();
            }
        } else if !std::mem::replace(&mut state.failing, true) {
            tracing::warn!("{kind}: cannot be watched, trying again: {error}");
        } else {
            tracing::debug!("{kind}: cannot be watched, trying again: {error}");
        }
        if newly_forbidden {
            self.changed.raise();
        }
    }
}

static FAILURES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn failures() -> MutexGuard<'static, BTreeMap<String, u64>> {
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often watches of this process have failed, by kind.
pub fn watch_errors() -> BTreeMap<String, u64> {
    failures().clone()
}

fn code(error: &watcher::Error) -> Option<u16> {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Key {
    Key::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}
