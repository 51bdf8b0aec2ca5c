//! All objects of one kind, as the API server last reported them.

mod failures;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use model::SharedMap;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use translate::Key;
use translate::snapshot::Objects;

use failures::failures;
pub use failures::watch_errors;
pub(super) use seen::list;

use super::read::{Read, Unread};
use super::scope::Scope;
use super::signal::Signal;
use seen::Seen;

/// The first wait after a failure, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Are all fields that are in use the same?
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
    /// Of how many lists it is made.
    parts: usize,
    synced: watch::Sender<bool>,
    same: Same<T>,
    changed: Signal,
    touched: Signal,
}

struct State<T> {
    now: Seen<T>,
    /// Being listed, by namespace; none: all of them at once.
    coming: BTreeMap<Option<String>, Seen<T>>,
    /// Was listed.
    listed: BTreeSet<Option<String>>,
    /// The cluster does not have this kind.
    missing: bool,
    /// We may not read this kind here: no rights, or the namespace is gone.
    forbidden: bool,
    failing: bool,
}

struct Task(Vec<AbortHandle>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// One watch: its namespace, if it has one; the client to check that namespace with; its events.
type Part<T> = (Option<String>, Client, Box<dyn Fn() -> Events<T> + Send + Sync>);
type Events<T> = BoxStream<'static, Result<Event<Read<T>>, watcher::Error>>;

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
    /// Starts the watch. `changed` is raised when a field that is in use changes, `touched` at every change.
    pub fn watch(api: Api<Read<T>>, scope: &Scope, same: Same<T>, changed: Signal, touched: Signal) -> Self {
        Self::watch_each(vec![api], scope, same, changed, touched)
    }

    /// The same for objects in several namespaces, as [`Namespaces::apis`] gives them.
    pub fn watch_each(
        apis: Vec<Api<Read<T>>>,
        scope: &Scope,
        same: Same<T>,
        changed: Signal,
        touched: Signal,
    ) -> Self {
        let streams = apis.into_iter().map(|api| {
            let (namespace, client) = (api.namespace().map(str::to_owned), api.clone().into_client());
            let scope = scope.clone();
            let events = move || watcher(api.clone(), scope.clone().config()).boxed();
            (namespace, client, Box::new(events) as Box<dyn Fn() -> Events<T> + Send + Sync>)
        });
        Self::follow(streams.collect(), same, changed, touched)
    }

    fn follow(streams: Vec<Part<T>>, same: Same<T>, changed: Signal, touched: Signal) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                now: Seen::default(),
                coming: BTreeMap::new(),
                listed: BTreeSet::new(),
                missing: false,
                forbidden: false,
                failing: false,
            }),
            parts: streams.len(),
            synced: watch::Sender::new(false),
            same,
            changed,
            touched,
        });
        let follow = |(namespace, client, events): Part<T>| {
            let watched = Arc::clone(&shared);
            let name = format!("the watch of {}", T::kind(&()));
            let follow = move || follow(namespace.clone(), client.clone(), events(), Arc::clone(&watched));
            tokio::spawn(tasks::without_end(name, follow)).abort_handle()
        };
        let tasks = streams.into_iter().map(follow).collect();
        Self { shared, _task: Arc::new(Task(tasks)) }
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

    /// All objects in use. An object that cannot be read is replaced by its last good version, or by its stand-in.
    pub fn usable(&self, stand_in: impl Fn(&Unread) -> Option<T>) -> Objects<T> {
        self.shared.lock().now.usable(stand_in)
    }

    /// Is the last good version in use, because the object cannot be read?
    pub fn is_kept(&self, key: &Key) -> bool {
        self.shared.lock().now.kept.contains_key(key)
    }

    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.shared.lock().now.objects.get(key).cloned()
    }

    pub fn unread(&self) -> SharedMap<Key, Arc<Unread>> {
        self.shared.lock().now.unread.clone()
    }

    /// Fields that we do not know, by object.
    pub fn ignored(&self) -> SharedMap<Key, Vec<String>> {
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

impl<T> Store<PartialObjectMeta<T>>
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    /// Names and versions of the objects, without their content.
    pub fn watch_metadata(
        apis: Vec<Api<PartialObjectMeta<T>>>,
        scope: &Scope,
        same: Same<PartialObjectMeta<T>>,
        changed: Signal,
    ) -> Self {
        let streams = apis.into_iter().map(|api| {
            let (namespace, client) = (api.namespace().map(str::to_owned), api.clone().into_client());
            let scope = scope.clone();
            let events =
                move || watcher(api.clone(), scope.clone().config()).map(|event| event.map(bare)).boxed();
            (
                namespace,
                client,
                Box::new(events) as Box<dyn Fn() -> Events<PartialObjectMeta<T>> + Send + Sync>,
            )
        });
        Self::follow(streams.collect(), same, changed, Signal::default())
    }
}

/// Annotations may hold the whole object, as kubectl applied it.
fn bare<T>(event: Event<PartialObjectMeta<T>>) -> Event<Read<PartialObjectMeta<T>>> {
    let read = |object: PartialObjectMeta<T>| {
        let metadata = ObjectMeta {
            annotations: None,
            labels: None,
            managed_fields: None,
            owner_references: None,
            ..object.metadata
        };
        Read::known(metadata.clone(), PartialObjectMeta { metadata, ..object })
    };
    match event {
        Event::Apply(object) => Event::Apply(read(object)),
        Event::Delete(object) => Event::Delete(read(object)),
        Event::InitApply(object) => Event::InitApply(read(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow<T>(namespace: Option<String>, client: Client, mut events: Events<T>, shared: Arc<Shared<T>>)
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    let mut pause = PAUSE.0;
    let mut gone = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // The start of a list proves nothing yet: the list may fail again.
                if !matches!(event, Event::Init) {
                    pause = PAUSE.0;
                    gone = false;
                }
                if shared.apply(namespace.as_deref(), event) {
                    shared.changed.raise();
                }
                shared.touched.raise();
            }
            Err(e) => {
                // When a namespace is deleted, our rights in it are gone, too. This must not stop the watches of other namespaces.
                if code(&e) == Some(403)
                    && !gone
                    && let Some(namespace) = &namespace
                    && is_gone(&client, namespace).await
                {
                    gone = true;
                    shared.apply(Some(namespace), Event::Init);
                    if shared.apply(Some(namespace), Event::InitDone) {
                        shared.changed.raise();
                    }
                }
                shared.failed(namespace.as_deref(), &e);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

async fn is_gone(client: &Client, namespace: &str) -> bool {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    matches!(api.get_opt(namespace).await, Ok(None))
}

impl<T: Resource<DynamicType = ()> + Clone> Shared<T> {
    /// True if readers should look at the change.
    fn apply(&self, namespace: Option<&str>, event: Event<Read<T>>) -> bool {
        let mut state = self.lock();
        let part = namespace.map(str::to_owned);
        match event {
            Event::Init => {
                state.coming.insert(part, Seen::default());
                false
            }
            Event::InitApply(read) => {
                let key = key(read.meta());
                let last_good = state.now.last_good(&key, &read);
                state.coming.entry(part).or_default().insert(key, read, last_good);
                false
            }
            Event::InitDone => {
                let coming = state.coming.remove(&part).unwrap_or_default();
                state.listed.insert(part);
                let first = state.listed.len() == self.parts && !self.synced.send_replace(true);
                let is_here = |key: &Key| namespace.is_none_or(|namespace| key.namespace == namespace);
                let old: Vec<_> = state.now.objects.iter().filter(|(key, _)| is_here(key)).collect();
                let new = &coming.objects;
                let same = old.len() == new.len()
                    && old.iter().zip(new).all(|((k, a), (l, b))| *k == l && (self.same)(a, b))
                    && !state.now.unread.keys().any(is_here)
                    && coming.unread.is_empty();
                for (key, unread) in &coming.unread {
                    tracing::warn!("{} {key} cannot be read: {}", T::kind(&()), unread.why);
                }
                if std::mem::take(&mut state.failing) {
                    tracing::info!("{}: the API server answers again", T::kind(&()));
                }
                state.missing = false;
                state.forbidden = false;
                state.now.replace(is_here, coming);
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
                let last_good = state.now.last_good(&key, &read);
                state.now.insert(key, read, last_good);
                !same
            }
            Event::Delete(read) => state.now.remove(&key(read.meta())),
        }
    }

    /// Logged once, although it is retried again and again.
    fn failed(&self, namespace: Option<&str>, error: &watcher::Error) {
        let kind = T::kind(&());
        let there = namespace.map(|name| format!(" of namespace {name}")).unwrap_or_default();
        *failures().entry(kind.to_string()).or_default() += 1;
        let mut state = self.lock();
        let forbidden = code(error) == Some(403);
        // Tasks that wait for this kind need not wait any longer.
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
            tracing::warn!("{kind}{there}: cannot be watched, trying again: {error}");
        } else {
            tracing::debug!("{kind}{there}: cannot be watched, trying again: {error}");
        }
        if newly_forbidden {
            self.changed.raise();
        }
    }
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

fn key(metadata: &ObjectMeta) -> Key {
    Key::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}
