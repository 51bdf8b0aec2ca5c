//! The objects of one Gateway in the cluster. They are written in an order in which each finds what it needs, and again
//! whenever another client changed them.

mod pairs;
mod parts;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gateway_api::gateways::Gateway;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use model::names::INFRA_HASH_ANNOTATION;
use model::routing::Routing;
use serde_json::json;
use tokio::sync::watch;
use translate::{GatewayPlan, Key};
use workload::{Access, Objects, packing, tls_secrets};

use crate::Error;
use crate::apply::Ledger;
use crate::metrics::Metrics;
use crate::owned::{Owned, is_made_by_us};
use crate::pace::Pace;
use crate::status::{Runtime, Runtimes};

/// Owns everything but routes.
const INFRASTRUCTURE: &str = "varnish-gateway";
/// Owns routing.json in the same ConfigMap.
const ROUTES: &str = "varnish-gateway-routes";
/// On Gateways with rights in other namespaces: owner references do not cross namespaces.
const FINALIZER: &str = "gateway.varnish-software.com/role-bindings";
/// The same for an installation with a controller name of its own: each removes only its own finalizer.
const FINALIZER_OF: &str = "role-bindings.gateway.varnish-software.com";

const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// Without this, an object that was made and deleted at once would not be made again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The shortest time between two writes of one Gateway, and between two checks for changes by others. A writer that was idle
/// begins at once.
const PACE: Duration = Duration::from_millis(50);

/// The desired state of one Gateway.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) plan: Arc<GatewayPlan>,
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.gateway.metadata, &other.gateway.metadata);
        a.uid == b.uid
            && a.generation == b.generation
            && a.finalizers == b.finalizers
            && (Arc::ptr_eq(&self.plan, &other.plan) || self.plan == other.plan)
    }
}

pub(crate) struct Actor {
    pub(crate) client: Client,
    pub(crate) key: Key,
    pub(crate) owned: Arc<Owned>,
    pub(crate) options: workload::Options,
    pub(crate) runtimes: Runtimes,
    pub(crate) metrics: Arc<Metrics>,
    /// The secret of varnishd's CLI, if we made it.
    pub(crate) secret: OnceLock<Vec<u8>>,
    /// The last desired main.vcl.
    pub(crate) last_vcl: Mutex<Option<Arc<str>>>,
}

/// What is computed from one [`Work`], and is expensive.
struct Prepared {
    work: Arc<Work>,
    packed: packing::Packed,
    /// What the base was made of, if there is one.
    base: Of,
    hash: String,
    /// The configurations that were written for pods recently, the newest last: hashes, and the parts of the base of each.
    lately: VecDeque<(String, Arc<[String]>)>,
    /// The data of Secrets with certificates.
    pairs: Vec<tls_secrets::Data>,
}

/// What a base was made of: by us, or by the operator before us.
#[derive(Clone)]
enum Of {
    Ours(Arc<Work>),
    Adopted(Arc<Routing>),
}

impl Of {
    fn routing(&self) -> &Routing {
        match self {
            Self::Ours(work) => &work.plan.routing,
            Self::Adopted(routing) => routing,
        }
    }
}

/// The starting point: what was prepared last, or what is in the cluster.
#[derive(Default)]
struct Before {
    base: Option<(packing::Base, Of)>,
    pairs: Vec<tls_secrets::Data>,
    lately: VecDeque<(String, Arc<[String]>)>,
}

/// Configurations that are older than these are forgotten.
const LATELY: usize = 256;

impl Prepared {
    fn new(work: &Arc<Work>, main_vcl: &str, before: Before) -> Result<Self, Error> {
        let begun = Instant::now();
        let Before { base, pairs, mut lately } = before;
        let plan = &work.plan;
        let pairs = tls_secrets::place(plan.routing.certificate_names(), &plan.certificates, &pairs);
        let name = work.gateway.metadata.name.as_deref().unwrap_or_default();
        let packed =
            packing::pack(name, &plan.routing, base.as_ref().map(|(base, of)| (base, of.routing())))?;
        let same = base.filter(|(base, _)| packed.base.as_ref() == Some(base)).map(|(_, of)| of);
        let hash = packing::hash(main_vcl, packed.json.as_bytes());
        let shards = packed.shards().map(|(name, _)| name.clone()).collect();
        lately.retain(|(known, _)| *known != hash);
        lately.push_back((hash.clone(), shards));
        lately.drain(..lately.len().saturating_sub(LATELY));
        tracing::debug!("routing.json of {name} made in {:?}, {} bytes", begun.elapsed(), packed.json.len());
        let base = same.unwrap_or_else(|| Of::Ours(Arc::clone(work)));
        Ok(Self { work: Arc::clone(work), base, packed, hash, lately, pairs })
    }

    /// For the one after it.
    fn before(&mut self) -> Before {
        Before {
            base: self.packed.base.clone().map(|base| (base, self.base.clone())),
            pairs: std::mem::take(&mut self.pairs),
            lately: std::mem::take(&mut self.lately),
        }
    }
}

/// Until there is something to do: new work, at `may_write` at the earliest; a change of our objects by others, at `may_look` at the
/// earliest; or `again` has passed. Where the writer was idle, that is at once. False: the Gateway is gone.
async fn wait<T>(
    work: &mut watch::Receiver<T>,
    owned: &mut watch::Receiver<u64>,
    again: Duration,
    (may_write, may_look): (tokio::time::Instant, tokio::time::Instant),
) -> bool {
    let mut due = tokio::time::Instant::now() + again;
    let (mut has_work, mut has_changes) = (false, false);
    loop {
        tokio::select! {
            changed = work.changed(), if !has_work => {
                if changed.is_err() {
                    return false;
                }
                has_work = true;
                due = due.min(may_write);
            }
            // The signal lives as long as its subscribers.
            _ = owned.changed(), if !has_changes => {
                has_changes = true;
                due = due.min(may_look);
            }
            () = tokio::time::sleep_until(due) => return true,
        }
    }
}

fn generation(work: &Work) -> i64 {
    work.gateway.metadata.generation.unwrap_or_default()
}

impl Actor {
    pub(crate) async fn run(&self, mut work: watch::Receiver<Arc<Work>>) {
        let mut ledger = Ledger::new(self.client.clone(), self.key.clone(), self.options.controller.clone());
        let mut owned = self.owned.by_gateway.subscribe(&self.key);
        let mut prepared: Option<Prepared> = None;
        let mut pause = RETRY.0;
        let (mut writing, mut looking) = (Pace::new(PACE), Pace::new(PACE));
        loop {
            let now = Arc::clone(&work.borrow_and_update());
            owned.mark_unchanged();
            let begun = Instant::now();
            let written = ledger.count();
            let brought = self.bring(&now, &mut prepared, &mut ledger).await;
            looking.written();
            if ledger.count() != written {
                writing.written();
            }
            let again = match brought {
                Ok(()) => {
                    if !work.has_changed().unwrap_or(false) {
                        self.metrics.brought(&self.key);
                    }
                    pause = RETRY.0;
                    LOOK_AGAIN
                }
                Err(e) => {
                    self.metrics.apply_errors.inc();
                    tracing::warn!("Gateway {}: {e}", self.key);
                    // A temporary error does not change the status of the Gateway.
                    if e.is_lasting() {
                        let error = Some(e.to_string());
                        self.runtimes.set(&self.key, &Runtime { error, ..Runtime::new(generation(&now)) });
                    }
                    pause = (pause * 2).min(RETRY.1);
                    pause
                }
            };
            self.metrics.apply_seconds.observe(begun.elapsed().as_secs_f64());
            if !wait(&mut work, &mut owned, again, (writing.next(), looking.next())).await {
                return;
            }
        }
    }

    async fn bring(
        &self,
        work: &Arc<Work>,
        prepared: &mut Option<Prepared>,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let Work { gateway, plan } = work.as_ref();
        workload::check_name(&self.key.name).map_err(|e| Error::Name(e.to_string()))?;
        let nothing = Runtime::new(generation(work));
        // Without parameters the routing is not what its owner configured; without VCL, access rules may be missing. If both are
        // known from before, changes of routes and certificates are still applied.
        let (Some(parameters), Some(main_vcl)) = (&plan.parameters, self.main_vcl(work)) else {
            self.runtimes.set(&self.key, &nothing);
            return Ok(());
        };
        if prepared.as_ref().is_none_or(|prepared| !Arc::ptr_eq(&prepared.work, work)) {
            let new = tokio::task::block_in_place(|| {
                let before = prepared.as_mut().map_or_else(|| self.found(), Prepared::before);
                Prepared::new(work, &main_vcl, before)
            });
            // If it fails, the next try starts from what is in the cluster.
            let new = new.inspect_err(|_| *prepared = None)?;
            let old = prepared.replace(new);
            // Thousands of hosts take a while to be forgotten, and the new ones need not wait for that.
            tokio::task::spawn_blocking(move || drop(old));
        }
        let Some(Prepared { packed, hash, lately, pairs, .. }) = prepared else { return Ok(()) };
        // Pods that are one behind still read the old parts.
        let old = self.shards().into_iter().map(|(key, _)| key.name);
        let shards: BTreeSet<String> = packed.shards().map(|(name, _)| name.clone()).chain(old).collect();
        let options = workload::Options {
            shards: shards.into_iter().collect(),
            tls_secrets: pairs.len().max(self.tls_secret_count()),
            ..self.options.clone()
        };
        let objects = workload::objects(gateway, plan, &options);
        let routing = &plan.routing;
        let listens = !routing.listeners.is_empty()
            || !routing.tls_listeners.is_empty()
            || !routing.stream_listeners.is_empty();
        // With parameters and no objects, no listener is valid. Without parameters, Deployment and Service stay as they are.
        if objects.is_none() && (plan.workload.is_some() || !listens) {
            self.runtimes.set(&self.key, &nothing);
            return Ok(());
        }
        let access = workload::access(gateway, plan, &options);
        // Labels, annotations and owner are the same on everything.
        let meta = |name: String| ObjectMeta { name: Some(name), ..access.service_account.metadata.clone() };

        ledger.apply(&self.owned.service_accounts, INFRASTRUCTURE, &access.service_account).await?;
        ledger.apply(&self.owned.roles, INFRASTRUCTURE, &access.role).await?;
        ledger.apply(&self.owned.role_bindings, INFRASTRUCTURE, &access.role_binding).await?;
        // A namespace that refuses its RoleBinding must not delay the routes of all others.
        let bound = self.bindings(gateway, &access, ledger).await;
        self.admin_secret(&meta, ledger).await?;
        self.tls_secrets(&meta, pairs, ledger).await?;
        let pods =
            ConfigMap { metadata: meta(workload::pods_config_map(&self.key.name)), ..ConfigMap::default() };
        ledger.apply(&self.owned.config_maps, INFRASTRUCTURE, &pods).await?;
        for (name, part) in packed.shards() {
            if self.has_shard(name) {
                continue;
            }
            let shard = parts::shard(meta(name.clone()), part);
            ledger.apply(&self.owned.config_maps, INFRASTRUCTURE, &shard).await?;
        }
        let name = workload::vcl_config_map(&self.key.name);
        let vcl = ConfigMap {
            metadata: meta(name.clone()),
            data: Some(
                [(packing::MAIN_VCL, &main_vcl), (packing::PARAMETERS, parameters)]
                    .map(|(key, text)| (key.to_owned(), text.to_string()))
                    .into(),
            ),
            ..ConfigMap::default()
        };
        ledger.apply(&self.owned.config_maps, INFRASTRUCTURE, &vcl).await?;
        let routes = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(self.key.namespace.clone()),
                ..ObjectMeta::default()
            },
            data: Some(packed.data()?),
            ..ConfigMap::default()
        };
        if ledger.apply(&self.owned.config_maps, ROUTES, &routes).await? {
            tracing::debug!(event = "change.applied", configuration = %hash, "routes of {} written", self.key);
        }
        let there = self.owned.deployments.get(&self.key);
        let deployment = objects.as_ref().map(|objects| &objects.deployment).or(there.as_deref());
        let template = deployment.and_then(|deployment| deployment.spec.as_ref()?.template.metadata.as_ref());
        let infra_hash =
            template.and_then(|meta| meta.annotations.as_ref()?.get(INFRA_HASH_ANNOTATION)).cloned();
        let hash_wanted = Some(hash.clone());
        let storage = workload::storages(plan);
        self.runtimes.set(&self.key, &Runtime { hash: hash_wanted, infra_hash, storage, ..nothing });

        if let Some(objects) = &objects {
            self.infrastructure(objects, ledger).await?;
        }
        self.tidy(lately, ledger).await?;
        bound.map_err(|e| Error::Binding(Box::new(e)))
    }

    async fn infrastructure(&self, objects: &Objects, ledger: &mut Ledger) -> Result<(), Error> {
        ledger.apply(&self.owned.services, INFRASTRUCTURE, &objects.service).await?;
        ledger.apply(&self.owned.deployments, INFRASTRUCTURE, &objects.deployment).await?;
        match &objects.pod_disruption_budget {
            Some(budget) => {
                ledger.apply(&self.owned.disruption_budgets, INFRASTRUCTURE, budget).await?;
            }
            None if self.owned.disruption_budgets.get(&self.key).is_some() => {
                delete::<PodDisruptionBudget>(&self.client, &self.key, None).await?;
                ledger.forget("PodDisruptionBudget", &self.key);
            }
            None => {}
        }
        Ok(())
    }

    /// The main.vcl for the pods. If it cannot be decided, the last one that was written, by this process or by the operator before it.
    fn main_vcl(&self, work: &Work) -> Option<Arc<str>> {
        let mut last = self.last_vcl.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(new) = &work.plan.main_vcl
            && last.as_deref() != Some(new)
        {
            *last = Some(new.as_str().into());
        }
        if last.is_none() {
            *last = written(&self.owned, &self.key, &work.gateway, packing::MAIN_VCL);
        }
        last.clone()
    }

    /// Writes RoleBindings in other namespaces: the finalizer first, so that they cannot be left behind. After an error it still tries the
    /// others.
    async fn bindings(&self, gateway: &Gateway, access: &Access, ledger: &mut Ledger) -> Result<(), Error> {
        // Objects of an IngressClass are deleted with it, in all namespaces.
        let of_class = is_of_class(&gateway.metadata);
        let finalizer = finalizer(self.options.controller.as_deref());
        let has = has_finalizer(&gateway.metadata, &finalizer);
        if !of_class && !access.role_bindings.is_empty() && !has {
            set_finalizer(&self.client, &self.key, &finalizer, true).await?;
        }
        let mut done = Ok(());
        let mut wanted = BTreeSet::new();
        for binding in &access.role_bindings {
            let key = Key::new(
                binding.metadata.namespace.clone().unwrap_or_default(),
                binding.metadata.name.clone().unwrap_or_default(),
            );
            // What a binding refers to cannot be changed: another ClusterRole needs another binding.
            let there = self.owned.role_bindings.get(&key);
            if let Some(old) = there.filter(|old| old.role_ref != binding.role_ref) {
                done = done.and(delete::<RoleBinding>(&self.client, &key, old.metadata.uid.clone()).await);
                ledger.forget("RoleBinding", &key);
            }
            let applied = ledger.apply(&self.owned.role_bindings, INFRASTRUCTURE, binding).await;
            done = done.and(applied.map(|_| ()));
            wanted.insert(key);
        }
        for (key, binding) in self.owned.role_bindings.objects() {
            let elsewhere = key.namespace != self.key.namespace && is_made_by_us(&binding.metadata);
            if elsewhere && gateway_of(binding.as_ref()).as_ref() == Some(&self.key) && !wanted.contains(&key)
            {
                done =
                    done.and(delete::<RoleBinding>(&self.client, &key, binding.metadata.uid.clone()).await);
                ledger.forget("RoleBinding", &key);
            }
        }
        if access.role_bindings.is_empty() && has && done.is_ok() {
            set_finalizer(&self.client, &self.key, &finalizer, false).await?;
        }
        done
    }

    /// Made once, and then never read again: the watch says that it is there.
    async fn admin_secret(
        &self,
        meta: &impl Fn(String) -> ObjectMeta,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let key = Key::new(&self.key.namespace, workload::admin_secret(&self.key.name));
        let there = self.owned.secrets.get(&key).and_then(|secret| secret.data.clone());
        let data = match there {
            Some(data) if data.get("secret").is_some_and(|secret| !secret.0.is_empty()) => data,
            _ => {
                // The same until the watch shows it.
                let secret = match self.secret.get() {
                    Some(secret) => secret.clone(),
                    None => {
                        let new = varnishadm::Secret::generate()?.as_bytes().to_vec();
                        self.secret.get_or_init(|| new).clone()
                    }
                };
                [("secret".to_owned(), ByteString(secret))].into()
            }
        };
        let secret = Secret { metadata: meta(key.name), data: Some(data), ..Secret::default() };
        ledger.apply(&self.owned.secrets, INFRASTRUCTURE, &secret).await.map(|_| ())
    }
}

pub(crate) async fn delete<T>(client: &Client, key: &Key, uid: Option<String>) -> Result<(), Error>
where
    T: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<T> = Api::namespaced(client.clone(), &key.namespace);
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
    let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
    match api.delete(&key.name, &parameters).await {
        Ok(_) => {
            tracing::info!("{} {key} deleted", T::kind(&()));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(e) => Err(Error::write(T::kind(&()), key)(e)),
    }
}

fn is_of_class(metadata: &ObjectMeta) -> bool {
    metadata.owner_references.iter().flatten().any(|owner| owner.kind == translate::INGRESS_CLASS)
}

/// The finalizer of the installation with this label.
pub(crate) fn finalizer(controller: Option<&str>) -> String {
    controller.map_or_else(|| FINALIZER.to_owned(), |controller| format!("{FINALIZER_OF}/{controller}"))
}

pub(crate) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|other| other == finalizer)
}

/// Adds our finalizer to a Gateway, or removes it. Finalizers of other controllers stay.
pub(crate) async fn set_finalizer(
    client: &Client,
    key: &Key,
    finalizer: &str,
    there: bool,
) -> Result<(), Error> {
    let api: Api<Gateway> = Api::namespaced(client.clone(), &key.namespace);
    // Read again: with an old version the write would be refused, and without a version the finalizer of another controller
    // could be lost.
    let Some(now) = api.get_metadata_opt(&key.name).await.map_err(Error::write("Gateway", key))? else {
        return Ok(());
    };
    if has_finalizer(&now.metadata, finalizer) == there {
        return Ok(());
    }
    let others = now.metadata.finalizers.iter().flatten().filter(|other| *other != finalizer);
    let all: Vec<&str> = others.map(String::as_str).chain(there.then_some(finalizer)).collect();
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": now.metadata.resource_version, "finalizers": all },
    }));
    match api.patch_metadata(&key.name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(e) => Err(Error::write("Gateway", key)(e)),
    }
}

/// The Gateway that an object of ours was made for.
pub(crate) fn gateway_of<T: Resource>(object: &T) -> Option<Key> {
    use model::names::{GATEWAY_NAME_LABEL, GATEWAY_NAMESPACE_LABEL};
    let labels = object.meta().labels.as_ref()?;
    let namespace = labels.get(GATEWAY_NAMESPACE_LABEL).or(object.meta().namespace.as_ref())?;
    Some(Key::new(namespace, labels.get(GATEWAY_NAME_LABEL)?))
}

/// The content of the ConfigMap `{gateway}-vcl` of this Gateway, not of an earlier Gateway with the same name.
pub(crate) fn written(owned: &Owned, key: &Key, gateway: &Gateway, entry: &str) -> Option<Arc<str>> {
    let map = owned.config_maps.get(&Key::new(&key.namespace, workload::vcl_config_map(&key.name)))?;
    let owners = map.metadata.owner_references.iter().flatten();
    let is_owned = owners.map(|owner| Some(&owner.uid)).any(|uid| uid == gateway.metadata.uid.as_ref());
    let is_ours = is_made_by_us(&map.metadata) && gateway_of(map.as_ref()).as_ref() == Some(key);
    let text = map.data.as_ref()?.get(entry)?;
    (is_owned && is_ours).then(|| text.as_str().into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A Gateway whose pods and routes change all the time, and another one: how often each was woken.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_gateway_that_flaps_is_paced_and_delays_no_other() {
        let (flapping, calm) = (watch::Sender::new(0), watch::Sender::new(0));
        let (flapping_objects, calm_objects) = (watch::Sender::new(0), watch::Sender::new(0));
        let stop = AtomicBool::new(false);
        let follow = async |work: &watch::Sender<i32>, objects: &watch::Sender<u64>| {
            let (mut work, mut objects) = (work.subscribe(), objects.subscribe());
            let (mut writing, mut looking) = (Pace::new(PACE), Pace::new(PACE));
            let mut woken = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let times = (writing.next(), looking.next());
                assert!(wait(&mut work, &mut objects, Duration::from_millis(500), times).await);
                woken.push((Instant::now(), *work.borrow_and_update()));
                objects.mark_unchanged();
                writing.written();
                looking.written();
            }
            woken
        };
        let changes = async {
            let begun = Instant::now();
            let mut last = 0_i32;
            // A route that changes every two milliseconds, for half a second.
            while begun.elapsed() < Duration::from_millis(500) {
                last += 1;
                flapping.send_replace(last);
                flapping_objects.send_replace(last.unsigned_abs().into());
                if last == 20 {
                    calm.send_replace(1);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            tokio::time::sleep(PACE * 2).await;
            stop.store(true, Ordering::Relaxed);
            flapping.send_replace(last);
            calm.send_replace(1);
            (begun, last)
        };
        let (of_flapping, of_calm, (begun, last)) =
            tokio::join!(follow(&flapping, &flapping_objects), follow(&calm, &calm_objects), changes);
        // One for every 50 ms, and the newest state at the end.
        assert!(of_flapping.len() <= 14, "{}", of_flapping.len());
        assert!(of_flapping.iter().any(|(_, value)| *value == last));
        // The first at once, and not behind the other one.
        let (first, value) = of_calm[0];
        assert_eq!(value, 1);
        assert!(
            first.duration_since(begun) < Duration::from_millis(400),
            "{:?}",
            first.duration_since(begun)
        );
        drop((flapping, calm, calm_objects));
    }

    #[tokio::test]
    async fn a_gateway_that_is_gone_ends_its_writer() {
        let (work, objects) = (watch::Sender::new(0), watch::Sender::new(0));
        let (mut work_of, mut objects_of) = (work.subscribe(), objects.subscribe());
        // In the middle of a burst.
        work.send_replace(1);
        objects.send_replace(1);
        let later = tokio::time::Instant::now() + Duration::from_millis(20);
        assert!(wait(&mut work_of, &mut objects_of, Duration::from_secs(60), (later, later)).await);
        drop(work);
        assert!(!wait(&mut work_of, &mut objects_of, Duration::from_secs(60), (later, later)).await);
    }
}
