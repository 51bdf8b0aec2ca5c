//! All objects of one kind, as the API server said last.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
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

    /// True where it was there.
    fn remove(&mut self, key: &Key) -> bool {
        self.ignored.remove(key);
        self.kept.remove(key);
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

impl<T: Resource<DynamicType = ()> + Clone> Shared<T> {
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
                let last_good = state.now.last_good(&key, &read);
                state.coming.insert(key, read, last_good);
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
                let last_good = state.now.last_good(&key, &read);
                state.now.insert(key, read, last_good);
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

fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Key {
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
        let usable = seen.usable(|unread| Some(crate::stand_in::cache_policy(&unread.raw, &unread.why)));
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
