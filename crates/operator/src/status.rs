//! Writes statuses that differ from those in the cluster, and reports changes by Events.

mod addresses;
mod by_kind;
mod class;
mod conditions;
mod ingress;
mod listeners;
mod seen;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use gateway_api::gateways::Gateway;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::Patch;
use kube::{Client, Resource};
use model::names::{GATEWAY_NAME_LABEL, INFRA_HASH_ANNOTATION};
use model::{Report, SharedMap};
use serde::Serialize;
use serde_json::{Value, json};
use source::kubernetes::{Cluster, Signal, Unread};
use tokio::sync::watch;
use translate::status::{ACCEPTED, PROGRAMMED, STORAGE};
use translate::{
    Addresses, AncestorStatus, Condition, GatewayClassStatus, GatewayStatus, Key, ParentStatus, PolicyStatus,
    RouteStatus, Statuses,
};

use crate::events::Events;
use crate::metrics::Metrics;
use crate::owned::Owned;
use crate::programmed::{Known, Pod, programmed};
use by_kind::Kind;
use conditions::{News, merge, same};
use listeners::{listener_programmed, listeners};
use seen::{Seen, changed};

/// The field manager of statuses.
const MANAGER: &str = "varnish-gateway-status";
/// The shortest time between two looks, since many changes often come together. After a longer pause the first change is handled
/// at once.
const PAUSE: Duration = Duration::from_millis(20);
/// The first and the longest pause after failures.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Statuses are looked at again after this time, because `Programmed` may change by time alone.
const LOOK_AGAIN: Duration = Duration::from_secs(11);
const AT_ONCE: usize = 8;

/// The results of the writers of all Gateways.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runtimes {
    of: Arc<Mutex<BTreeMap<Key, Runtime>>>,
    /// Gateways that have changed since the last `take_news`.
    news: Arc<Mutex<BTreeSet<Key>>>,
    changed: Signal,
}

/// What was last written of a Gateway.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    /// The generation of the Gateway at that time.
    pub(crate) generation: i64,
    /// The hash of the configuration that pods should serve, and when it was written.
    pub(crate) hash: Option<String>,
    pub(crate) since: Instant,
    pub(crate) infra_hash: Option<String>,
    /// The storages of its pods' caches.
    pub(crate) storage: Option<String>,
    pub(crate) error: Option<String>,
}

impl Runtime {
    pub(crate) fn new(generation: i64) -> Self {
        Self { generation, hash: None, since: Instant::now(), infra_hash: None, storage: None, error: None }
    }

    fn same(&self, other: &Self) -> bool {
        self.generation == other.generation
            && self.hash == other.hash
            && self.infra_hash == other.infra_hash
            && self.storage == other.storage
            && self.error == other.error
    }
}

impl Runtimes {
    pub(crate) fn set(&self, key: &Key, new: &Runtime) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let old = of.get(key);
        if old.is_some_and(|old| old.same(new)) {
            return;
        }
        let kept = old.filter(|old| old.hash == new.hash && old.infra_hash == new.infra_hash);
        let since = kept.map_or(new.since, |old| old.since);
        of.insert(key.clone(), Runtime { since, ..new.clone() });
        drop(of);
        self.news.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        self.changed.raise();
    }

    fn take_news(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.of.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn get(&self, key: &Key) -> Option<Runtime> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) owned: Arc<Owned>,
    pub(crate) runtimes: Runtimes,
    pub(crate) desired: watch::Receiver<Arc<Statuses>>,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
}

/// One status to write.
struct Write {
    kind: Kind,
    key: Key,
    patch: Patch<Value>,
    news: Vec<News>,
}

/// Statuses that could not be written: each is tried again, later and later.
#[derive(Default)]
struct Failures(HashMap<(Kind, Key), (Instant, Duration)>);

impl Failures {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn may_try(&self, kind: Kind, key: &Key) -> bool {
        self.0.get(&(kind, key.clone())).is_none_or(|(at, _)| *at <= Instant::now())
    }

    /// Objects of a kind whose failed status writes are due for a retry.
    fn due(&self, kind: Kind) -> impl Iterator<Item = Key> {
        let now = Instant::now();
        let due = self.0.iter().filter(move |((of, _), (at, _))| *of == kind && *at <= now);
        due.map(|((_, key), _)| key.clone())
    }

    fn note(&mut self, name: (Kind, Key), done: bool) {
        if done {
            self.0.remove(&name);
        } else {
            let pause = self.0.get(&name).map_or(RETRY.0, |(_, pause)| (*pause * 2).min(RETRY.1));
            self.0.insert(name, (Instant::now() + pause, pause));
        }
    }
}

impl Writer {
    pub(crate) async fn run(mut self) {
        let mut touched = self.cluster.touched();
        let mut owned = self.owned.changed();
        let mut runtimes = self.runtimes.changed.subscribe();
        let mut seen = Seen::default();
        let mut failures = Failures::default();
        let mut told = ingress::Told::default();
        let (mut looked_at_all, mut ingress_failed) = (None::<Instant>, false);
        loop {
            let statuses = Arc::clone(&self.desired.borrow_and_update());
            touched.mark_unchanged();
            owned.mark_unchanged();
            runtimes.mark_unchanged();
            let begun = Instant::now();
            // Statuses of Gateways may change by time alone.
            let all = looked_at_all.is_none_or(|at| at.elapsed() >= LOOK_AGAIN);
            if all {
                looked_at_all = Some(begun);
            }
            let look = || self.writes(&statuses, &mut seen, &failures, all);
            let (mut writes, ingresses) = tokio::task::block_in_place(look);
            let looked = begun.elapsed();
            writes.retain(|write| failures.may_try(write.kind, &write.key));
            self.write_all(writes, &mut failures).await;
            if ingresses || ingress_failed || all {
                ingress_failed = told
                    .bring(&statuses, &self.client, &self.cluster, &self.owned, &self.events, &self.metrics)
                    .await;
            }
            let pause = if failures.is_empty() && !ingress_failed { LOOK_AGAIN } else { RETRY.0 };
            tokio::select! {
                _ = self.desired.changed() => {}
                _ = touched.changed() => {}
                _ = owned.changed() => {}
                _ = runtimes.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
            // Looking must take only a part of the time.
            tokio::time::sleep_until((begun + PAUSE.max(looked * 3)).into()).await;
        }
    }

    /// The writes for everything that has changed since the last look, and whether Ingresses must be checked. With `all`, all
    /// Gateways are checked.
    fn writes(
        &self,
        statuses: &Arc<Statuses>,
        seen: &mut Seen,
        failures: &Failures,
        all: bool,
    ) -> (Vec<Write>, bool) {
        let controller = self.cluster.controllers.gateway.as_str();
        let mut writes = Vec::new();
        for (key, status) in &statuses.gateway_classes {
            if let Some(class) = self.cluster.gateway_classes.get(key) {
                writes.extend(self.gateway_class(key, &class, status));
            }
        }
        let objects = self.cluster.gateways.objects();
        let mut gateways = changed((&seen.gateways, &objects), (&seen.statuses.gateways, &statuses.gateways));
        let owned = seen.look.changed(&self.owned);
        let owned_changed = !owned.is_empty();
        gateways.extend(owned);
        gateways.extend(self.runtimes.take_news());
        gateways.extend(failures.due(Kind::Gateway));
        if all {
            gateways.extend(statuses.gateways.keys().cloned());
        }
        for key in &gateways {
            let (status, gateway) = (statuses.gateways.get(key), objects.get(key));
            let Some((status, gateway)) = status.zip(gateway) else {
                seen.programmed.remove(key);
                continue;
            };
            let (write, good) = self.gateway(key, gateway, status);
            writes.extend(write);
            seen.programmed.insert(key.clone(), good);
        }
        seen.gateways = objects;
        let objects = self.cluster.listener_sets.objects();
        let mut sets =
            changed((&seen.listener_sets, &objects), (&seen.statuses.listener_sets, &statuses.listener_sets));
        sets.extend(failures.due(Kind::ListenerSet));
        for (key, status) in &statuses.listener_sets {
            if let Some(set) = objects.get(key)
                && (sets.contains(key) || gateways.contains(&status.gateway))
            {
                let generation = set.metadata.generation.unwrap_or_default();
                let observed = to_value(&set.status);
                writes.extend(self.listener_set(key, (generation, &observed), status, statuses));
            }
        }
        seen.listener_sets = objects;
        for (key, unread) in self.cluster.listener_sets.unread() {
            let Some(status) = statuses.listener_sets.get(&key) else { continue };
            let generation = unread.raw.pointer("/metadata/generation").and_then(Value::as_i64);
            let (_, observed) = as_written(&unread.raw);
            writes.extend(self.listener_set(
                &key,
                (generation.unwrap_or_default(), &observed),
                status,
                statuses,
            ));
        }
        for (key, unread) in self.cluster.gateways.unread() {
            writes.extend(unread_gateway(&key, &unread, &statuses.gateway_classes));
        }
        let programmed = seen.programmed.values().filter(|good| **good).count();
        self.metrics.gateways_programmed.set(i64::try_from(programmed).unwrap_or(i64::MAX));
        macro_rules! add {
            ($status:ident, $none:expr, $($kind:ident: $field:ident),+) => {$(
                let objects = self.cluster.$field.objects();
                let mut keys =
                    changed((&seen.$field, &objects), (&seen.statuses.$field, &statuses.$field));
                keys.extend(failures.due(Kind::$kind));
                for key in &keys {
                    let Some(object) = objects.get(key) else { continue };
                    let status = statuses.$field.get(key).unwrap_or($none);
                    let (version, observed) = (&object.metadata.resource_version, to_value(&object.status));
                    writes.extend($status(controller, Kind::$kind, key, version, &observed, status));
                }
                seen.$field = objects;
                // Those that could not be read have a status as well.
                for (key, unread) in &self.cluster.$field.unread() {
                    let status = statuses.$field.get(key).unwrap_or($none);
                    let (version, observed) = as_written(&unread.raw);
                    writes.extend($status(controller, Kind::$kind, key, &version, &observed, status));
                }
            )+};
        }
        let none = RouteStatus::default();
        add!(
            route_status, &none,
            HttpRoute: http_routes, GrpcRoute: grpc_routes, TlsRoute: tls_routes,
            TcpRoute: tcp_routes, UdpRoute: udp_routes
        );
        let none = PolicyStatus::default();
        add!(
            policy_status, &none,
            BackendTlsPolicy: backend_tls_policies, CachePolicy: cache_policies
        );
        let ingresses = self.cluster.ingresses.objects();
        let look_at_ingresses = owned_changed
            || !ingresses.is_shared_with(&seen.ingresses)
            || !statuses.ingresses.is_shared_with(&seen.statuses.ingresses);
        seen.ingresses = ingresses;
        seen.statuses = Arc::clone(statuses);
        (writes, look_at_ingresses)
    }

    async fn write_all(&self, writes: Vec<Write>, failures: &mut Failures) {
        let write = |write: Write| async {
            let name = (write.kind, write.key.clone());
            (name, self.write(write).await)
        };
        let results: Vec<_> =
            futures::stream::iter(writes).map(write).buffer_unordered(AT_ONCE).collect().await;
        for (name, done) in results {
            failures.note(name, done);
        }
    }

    /// False: must be retried.
    async fn write(&self, write: Write) -> bool {
        let Write { kind, key, patch, news } = write;
        let done = self.patch(kind, &key, &patch).await;
        match done {
            Ok(()) => {}
            // It was changed or deleted at the same time. The watch reports it, and it is handled then.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => return true,
            Err(e) => {
                self.metrics.status_errors.inc();
                tracing::warn!("status of {kind} {key} cannot be written: {e}");
                return false;
            }
        }
        for one in &news {
            self.tell(kind, &key, one).await;
        }
        true
    }

    /// Whether a Gateway is programmed. `None`: keep the current condition, because this process has just started, or the Gateway has
    /// just changed.
    fn programmed(&self, key: &Key, gateway: &Gateway, status: &GatewayStatus) -> Option<Condition> {
        let observed = to_value(&gateway.status);
        let runtime = self.runtimes.get(key);
        let (addresses, unusable) = self.addresses(key, gateway);
        let pods = self.pods(key, runtime.as_ref());
        let accepted = status.conditions.iter().find(|condition| condition.kind == ACCEPTED);
        let invalid = accepted.filter(|accepted| !accepted.status).map(|accepted| accepted.message.as_str());
        let generation = gateway.metadata.generation.unwrap_or_default();
        let old_news = accepted.is_some_and(|accepted| accepted.observed_generation != generation)
            || (invalid.is_none() && runtime.as_ref().map(|runtime| runtime.generation) != Some(generation));
        if old_news {
            return None;
        }
        Some(programmed(&Known {
            generation,
            invalid,
            error: runtime.as_ref().and_then(|runtime| runtime.error.as_deref()),
            hash: runtime.as_ref().and_then(|runtime| runtime.hash.as_deref()),
            for_long: runtime.as_ref().map(|runtime| runtime.since.elapsed()).unwrap_or_default(),
            has_address: !addresses.is_empty(),
            unusable_address: unusable.as_deref(),
            pods: &pods,
            before: conditions::find(observed.get("conditions"), PROGRAMMED),
        }))
    }

    /// The addresses of a Gateway, and why one in `spec.addresses` cannot be used, if so.
    fn addresses(&self, key: &Key, gateway: &Gateway) -> (Vec<Value>, Option<String>) {
        let asked = Addresses::of(gateway);
        self.owned
            .services
            .get(key)
            .map(|service| addresses::for_status(&asked, &service))
            .unwrap_or_default()
    }

    /// The write for a Gateway, and whether the Gateway is programmed.
    fn gateway(&self, key: &Key, gateway: &Gateway, status: &GatewayStatus) -> (Option<Write>, bool) {
        let observed = to_value(&gateway.status);
        let (addresses, _) = self.addresses(key, gateway);
        let generation = gateway.metadata.generation.unwrap_or_default();
        let Some(programmed) = self.programmed(key, gateway, status) else {
            let before = conditions::find(observed.get("conditions"), PROGRAMMED);
            return (None, before.is_some_and(|(programmed, _)| programmed));
        };
        let good = programmed.status;

        let mut wanted = status.conditions.clone();
        wanted.push(programmed.clone());
        if let Some(storage) = self.runtimes.get(key).and_then(|runtime| runtime.storage) {
            wanted.push(Condition::new(STORAGE, true, "Configured", storage, generation));
        }
        let listeners = listeners(&status.listeners, observed.get("listeners"), |listener| {
            listener_programmed(listener, &programmed)
        });
        let addresses = Value::Array(addresses);
        let addresses_same = observed.get("addresses").unwrap_or(&json!([])) == &addresses;
        // CRDs without ListenerSets do not have the field.
        let sets = (!self.cluster.listener_sets.is_missing()).then_some(status.attached_listener_sets);
        let there = observed.get("attachedListenerSets").and_then(Value::as_i64);
        let sets_same = sets.is_none_or(|sets| there.unwrap_or_default() == i64::from(sets));
        if listeners.same && addresses_same && sets_same && same(&wanted, observed.get("conditions")) {
            return (None, good);
        }
        let (conditions, mut news) = merge(&wanted, observed.get("conditions"));
        news.extend(listeners.news);
        let mut body =
            json!({ "conditions": conditions, "listeners": listeners.entries, "addresses": addresses });
        if let (Some(sets), Some(body)) = (sets, body.as_object_mut()) {
            body.insert("attachedListenerSets".to_owned(), sets.into());
        }
        let patch = apply::<Gateway>(key, &body);
        (Some(Write { kind: Kind::Gateway, key: key.clone(), patch, news }), good)
    }

    fn pods(&self, key: &Key, runtime: Option<&Runtime>) -> Vec<Pod> {
        let reports_key = Key::new(&key.namespace, workload::pods_config_map(&key.name));
        let reports = self.owned.config_maps.get(&reports_key);
        let report = |pod: &str| -> Report {
            reports
                .as_ref()
                .and_then(|map| map.data.as_ref()?.get(pod))
                .and_then(|json| serde_json::from_str(json).ok())
                .unwrap_or_default()
        };
        let infra_hash = runtime.and_then(|runtime| runtime.infra_hash.as_deref());
        let of_gateway = |pod: &PodObject| {
            pod.metadata.namespace.as_deref() == Some(&key.namespace)
                && pod.metadata.deletion_timestamp.is_none()
                && pod.metadata.labels.as_ref().and_then(|labels| labels.get(GATEWAY_NAME_LABEL))
                    == Some(&key.name)
        };
        let pods = self.owned.pods.objects();
        pods.values()
            .filter(|pod| of_gateway(pod))
            .map(|pod| {
                let name = pod.metadata.name.clone().unwrap_or_default();
                let annotations = pod.metadata.annotations.as_ref();
                let started_with = annotations.and_then(|all| all.get(INFRA_HASH_ANNOTATION));
                let ready =
                    pod.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|all| {
                        all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
                    });
                Pod {
                    ready,
                    current: started_with.map(String::as_str) == infra_hash,
                    report: report(&name),
                    name,
                }
            })
            .collect()
    }
}

/// The status of a Gateway with an unknown value. Its pods keep running.
fn unread_gateway(key: &Key, unread: &Unread, classes: &SharedMap<Key, GatewayClassStatus>) -> Option<Write> {
    let class = unread.raw.pointer("/spec/gatewayClassName").and_then(Value::as_str)?;
    if !classes.contains_key(&Key::cluster(class)) {
        return None;
    }
    let generation = unread.raw.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let message = format!(
        "The Gateway has a value that this release does not know: {}. Its last good configuration is still served; remove the \
         value, or use a release that supports it",
        unread.why
    );
    let wanted = [ACCEPTED, PROGRAMMED]
        .map(|kind| Condition::new(kind, false, "Invalid", message.clone(), generation));
    let observed = unread.raw.pointer("/status/conditions");
    if same(&wanted, observed) {
        return None;
    }
    let (conditions, news) = merge(&wanted, observed);
    let patch = apply::<Gateway>(key, &json!({ "conditions": conditions }));
    Some(Write { kind: Kind::Gateway, key: key.clone(), patch, news })
}

/// Version and status of an object that could not be read.
fn as_written(raw: &Value) -> (Option<String>, Value) {
    let version = raw.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    (version.map(str::to_owned), raw.get("status").cloned().unwrap_or_default())
}

fn route_status(
    controller: &str,
    kind: Kind,
    key: &Key,
    version: &Option<String>,
    observed: &Value,
    status: &RouteStatus,
) -> Option<Write> {
    let entry = |parent: &ParentStatus| (to_value(&parent.parent_ref), parent.conditions.clone());
    let wanted: Vec<_> = status.parents.iter().map(entry).collect();
    entries(controller, kind, ["parents", "parentRef"], key, version, observed, &wanted)
}

fn policy_status(
    controller: &str,
    kind: Kind,
    key: &Key,
    version: &Option<String>,
    observed: &Value,
    status: &PolicyStatus,
) -> Option<Write> {
    let entry = |one: &AncestorStatus| (to_value(&one.ancestor_ref), one.conditions.clone());
    let wanted: Vec<_> = status.ancestors.iter().map(entry).collect();
    entries(controller, kind, ["ancestors", "ancestorRef"], key, version, observed, &wanted)
}

/// A status that is a list to which each controller has entries of its own: `parents` of a route, `ancestors` of a policy.
fn entries(
    controller: &str,
    kind: Kind,
    [list, reference]: [&str; 2],
    key: &Key,
    version: &Option<String>,
    observed: &Value,
    wanted: &[(Value, Vec<Condition>)],
) -> Option<Write> {
    let empty = Vec::new();
    let there = observed.get(list).and_then(Value::as_array).unwrap_or(&empty);
    let ours = |entry: &&Value| entry.get("controllerName").and_then(Value::as_str) == Some(controller);
    let mine: Vec<&Value> = there.iter().filter(ours).collect();
    let find = |named: &Value| mine.iter().copied().find(|entry| entry.get(reference) == Some(named));
    let unchanged = mine.len() == wanted.len()
        && wanted.iter().all(|(named, conditions)| {
            find(named).is_some_and(|there| same(conditions, there.get("conditions")))
        });
    if unchanged {
        return None;
    }
    let mut all: Vec<Value> = there.iter().filter(|entry| !ours(entry)).cloned().collect();
    let mut news = Vec::new();
    for (named, conditions) in wanted {
        let (conditions, new) = merge(conditions, find(named).and_then(|there| there.get("conditions")));
        news.extend(new);
        all.push(json!({ "controllerName": controller, reference: named, "conditions": conditions }));
    }
    // The list is written as a whole. The resource version prevents losing an entry of another controller.
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": { list: all } });
    Some(Write { kind, key: key.clone(), patch: Patch::Merge(patch), news })
}

fn apply<T: Resource<DynamicType = ()>>(key: &Key, status: &Value) -> Patch<Value> {
    let namespace = (!key.namespace.is_empty()).then_some(&key.namespace);
    Patch::Apply(json!({
        "apiVersion": T::api_version(&()),
        "kind": T::kind(&()),
        "metadata": { "name": key.name, "namespace": namespace },
        "status": status,
    }))
}

fn to_value<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
