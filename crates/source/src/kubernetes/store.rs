//! All objects of one kind, as the API server said last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
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

/// Where objects of namespaced kinds are watched: everywhere, or in these namespaces alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces(BTreeSet<String>);

impl Namespaces {
    /// In no namespace but these; everywhere where there are none.
    pub fn only(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    pub fn contain(&self, namespace: &str) -> bool {
        self.0.is_empty() || self.0.contains(namespace)
    }

    /// One for each namespace, or one for all of them.
    pub fn apis<T>(&self, client: &Client) -> Vec<Api<T>>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self.0.is_empty() {
            true => vec![Api::all(client.clone())],
            false => self.0.iter().map(|name| Api::namespaced(client.clone(), name)).collect(),
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

/// What the API server said of the kind.
struct Seen<T> {
    objects: Objects<T>,
    unread: BTreeMap<Key, Arc<Unread>>,
    /// The last good version of those, where there was one, with the metadata of now.
    kept: Objects<T>,
    /// Fields that we do not know, of those objects that have any.
    ignored: BTreeMap<Key, Vec<String>>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unread: BTreeMap::new(),
            kept: BTreeMap::new(),
            ignored: BTreeMap::new(),
        }
    }
}

impl<T: Resource + Clone> Seen<T> {
    /// `last_good`: what counts where this one cannot be read.
    fn insert(&mut self, key: Key, read: Read<T>, last_good: Option<T>) {
        self.remove(&key);
        if !read.ignored.is_empty() {
            self.ignored.insert(key.clone(), read.ignored);
        }
        match read.object {
            Ok(object) => drop(self.objects.insert(key, Arc::new(object))),
            Err(unread) => {
                self.unread.insert(key.clone(), Arc::new(unread));
                self.kept.extend(last_good.map(|object| (key, Arc::new(object))));
            }
        }
    }

    /// The last version of this very object that could be read, for one that cannot.
    fn last_good(&self, key: &Key, read: &Read<T>) -> Option<T> {
        if read.object.is_ok() {
            return None;
        }
        let known = self.objects.get(key).or_else(|| self.kept.get(key))?;
        (known.meta().uid == read.meta().uid).then(|| {
            let mut object = known.as_ref().clone();
            *object.meta_mut() = read.meta().clone();
            object
        })
    }

    /// What counts: all objects as they are, the last good version of those that cannot be read, else a stand-in.
    fn usable(&self, stand_in: impl Fn(&Unread) -> Option<T>) -> Objects<T> {
        let mut all = self.objects.clone();
        all.extend(self.kept.iter().map(|(key, object)| (key.clone(), Arc::clone(object))));
        for (key, unread) in self.unread.iter().filter(|(key, _)| !self.kept.contains_key(*key)) {
            all.extend(stand_in(unread).map(|object| (key.clone(), Arc::new(object))));
        }
        all
    }

    /// What is here for what was here.
    fn replace(&mut self, is_here: impl Fn(&Key) -> bool, coming: Self) {
        self.objects.retain(|key, _| !is_here(key));
        self.unread.retain(|key, _| !is_here(key));
        self.kept.retain(|key, _| !is_here(key));
        self.ignored.retain(|key, _| !is_here(key));
        self.objects.extend(coming.objects);
        self.unread.extend(coming.unread);
        self.kept.extend(coming.kept);
        self.ignored.extend(coming.ignored);
    }

    /// True where it was there.
    fn remove(&mut self, key: &Key) -> bool {
        self.ignored.remove(key);
        self.kept.remove(key);
        self.objects.remove(key).is_some() | self.unread.remove(key).is_some()
    }
}

struct Task(Vec<AbortHandle>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// One watch: its namespace, if it is one; whom to ask about that; what it says.
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
    /// Watches from now on. `changed` is raised when objects change in what somebody reads, `touched` always.
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

    /// All that counts: also the last good version of objects that cannot be read, else what stands for them.
    pub fn usable(&self, stand_in: impl Fn(&Unread) -> Option<T>) -> Objects<T> {
        self.shared.lock().now.usable(stand_in)
    }

    /// Does the last good version of an object that cannot be read count?
    pub fn is_kept(&self, key: &Key) -> bool {
        self.shared.lock().now.kept.contains_key(key)
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

impl<T> Store<PartialObjectMeta<T>>
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    /// Which objects there are, and in which version; nothing that is in them.
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
                // A list that starts says nothing yet: it may fail again.
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
                // The rights in a namespace go with it. It must not keep the others from being looked after.
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
    /// True where somebody should look.
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

    /// Told once: it is tried again and again.
    fn failed(&self, namespace: Option<&str>, error: &watcher::Error) {
        let kind = T::kind(&());
        let there = namespace.map(|name| format!(" of namespace {name}")).unwrap_or_default();
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
            tracing::warn!("{kind}{there}: cannot be watched, trying again: {error}");
        } else {
            tracing::debug!("{kind}{there}: cannot be watched, trying again: {error}");
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

/// The objects of a kind among these, as a watch would have them.
pub(super) fn list<T>(objects: &[Value], stand_in: impl Fn(&Unread) -> Option<T>) -> Objects<T>
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let mut seen = Seen::default();
    let of_kind = |object: &&Value| {
        let is = |field: &str, wanted: &str| object.get(field).and_then(Value::as_str) == Some(wanted);
        is("kind", &T::kind(&())) && is("apiVersion", &T::api_version(&()))
    };
    for read in objects.iter().filter(of_kind).filter_map(|object| Read::<T>::deserialize(object).ok()) {
        seen.insert(key(read.meta()), read, None);
    }
    seen.usable(stand_in)
}

fn key(metadata: &ObjectMeta) -> Key {
    Key::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::VarnishCachePolicy;
    use serde_json::json;

    use super::*;

    fn read(uid: &str, generation: i64, ttl: &Value) -> (Key, Read<VarnishCachePolicy>) {
        let raw = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": uid, "generation": generation},
            "spec": {"targetRef": {"group": "", "kind": "HTTPRoute", "name": "shop"}, "defaultTTL": ttl},
        });
        (Key::new("n", "p"), serde_json::from_value(raw).unwrap())
    }

    fn take(seen: &mut Seen<VarnishCachePolicy>, (key, read): (Key, Read<VarnishCachePolicy>)) {
        let last_good = seen.last_good(&key, &read);
        seen.insert(key, read, last_good);
    }

    fn ttl(seen: &Seen<VarnishCachePolicy>) -> Option<String> {
        let usable = seen.usable(|unread| crate::stand_in::cache_policy(&unread.raw, &unread.why));
        usable[&Key::new("n", "p")].spec.default_ttl.clone()
    }

    #[test]
    fn an_object_that_becomes_unreadable_counts_as_it_last_was() {
        let mut seen = Seen::default();
        take(&mut seen, read("1", 1, &json!("1m")));
        take(&mut seen, read("1", 2, &json!(["1m"])));
        assert_eq!(ttl(&seen).as_deref(), Some("1m"));
        assert_eq!(seen.kept[&Key::new("n", "p")].metadata.generation, Some(2));
        assert!(seen.objects.is_empty(), "statuses are not written for it as for a good one");
        take(&mut seen, read("1", 3, &json!(7)));
        assert_eq!(ttl(&seen).as_deref(), Some("1m"));
        take(&mut seen, read("1", 4, &json!("2m")));
        assert_eq!(ttl(&seen).as_deref(), Some("2m"));
        assert!(seen.kept.is_empty() && seen.unread.is_empty());
    }

    #[test]
    fn one_that_never_was_good_or_is_another_gets_a_stand_in() {
        let mut seen = Seen::default();
        take(&mut seen, read("1", 1, &json!(7)));
        assert_eq!(ttl(&seen), None);
        take(&mut seen, read("1", 2, &json!("1m")));
        take(&mut seen, read("2", 1, &json!(7)));
        assert_eq!(ttl(&seen), None);
        assert!(seen.remove(&Key::new("n", "p")));
        assert!(seen.usable(|_| None).is_empty());
    }
}
