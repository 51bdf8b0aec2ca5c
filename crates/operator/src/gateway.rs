//! One Gateway's objects in the cluster: written in an order in which each finds what it needs, and again whenever
//! somebody else changed them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_api::gateways::Gateway;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use model::names::INFRA_HASH_ANNOTATION;
use serde_json::json;
use tokio::sync::watch;
use translate::workload::{self, Objects};
use translate::{GatewayPlan, Key, packing};

use crate::Error;
use crate::apply::Ledger;
use crate::metrics::Metrics;
use crate::owned::Owned;
use crate::status::Runtimes;

/// Owns everything but routes.
const INFRASTRUCTURE: &str = "varnish-gateway";
/// Owns routing.json in the same ConfigMap.
const ROUTES: &str = "varnish-gateway-routes";
/// Owns the finalizer on Gateways.
const FINALIZERS: &str = "varnish-gateway-finalizer";
/// On Gateways with rights in other namespaces: owner references do not cross namespaces.
pub(crate) const FINALIZER: &str = "gateway.varnish-software.com/role-bindings";
/// On the parts of a large routing.json.
const SHARD_LABEL: &str = "gateway.varnish-software.com/routing-shard";

const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// What one Gateway is to be.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) plan: GatewayPlan,
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.gateway.metadata, &other.gateway.metadata);
        a.uid == b.uid
            && a.generation == b.generation
            && a.finalizers == b.finalizers
            && self.plan == other.plan
    }
}

pub(crate) struct Actor {
    pub(crate) client: Client,
    pub(crate) key: Key,
    pub(crate) owned: Arc<Owned>,
    pub(crate) options: workload::Options,
    pub(crate) runtimes: Runtimes,
    pub(crate) metrics: Arc<Metrics>,
}

impl Actor {
    pub(crate) async fn run(self, mut work: watch::Receiver<Arc<Work>>) {
        let mut ledger = Ledger::new(self.client.clone(), self.key.clone());
        let mut owned = self.owned.changed();
        let mut pause = RETRY.0;
        loop {
            let now = Arc::clone(&work.borrow_and_update());
            owned.mark_unchanged();
            let begun = Instant::now();
            let brought = self.bring(&now, &mut ledger).await;
            let failed = brought.is_err();
            match brought {
                Ok(()) => pause = RETRY.0,
                Err(e) => {
                    self.metrics.apply_errors.inc();
                    tracing::warn!("Gateway {}: {e}", self.key);
                    self.runtimes.set(&self.key, None, None, Some(e.to_string()));
                }
            }
            self.metrics.apply_seconds.observe(begun.elapsed().as_secs_f64());
            tokio::select! {
                changed = work.changed() => if changed.is_err() { return },
                _ = owned.changed() => {}
                () = tokio::time::sleep(pause), if failed => pause = (pause * 2).min(RETRY.1),
            }
        }
    }

    async fn bring(&self, work: &Work, ledger: &mut Ledger) -> Result<(), Error> {
        let Work { gateway, plan } = work;
        workload::check_name(&self.key.name).map_err(Error::Name)?;
        // What cannot be decided now stays as it is.
        let Some(main_vcl) = &plan.main_vcl else {
            self.runtimes.set(&self.key, None, None, None);
            return Ok(());
        };
        let routing = serde_json::to_string(&plan.routing)?;
        let packed = packing::pack(&self.key.name, &routing)?;
        let hash = packing::hash(main_vcl, routing.as_bytes());
        let shards = packed.shards.keys().cloned().collect();
        let options = workload::Options { shards, ..self.options.clone() };
        let Some(objects) = workload::objects(gateway, plan, &options) else {
            self.runtimes.set(&self.key, None, None, None);
            return Ok(());
        };
        // Labels, annotations and owner are the same on everything.
        let meta = |name: String| ObjectMeta { name: Some(name), ..objects.service_account.metadata.clone() };

        ledger.apply(&self.owned.service_accounts, INFRASTRUCTURE, &objects.service_account).await?;
        ledger.apply(&self.owned.roles, INFRASTRUCTURE, &objects.role).await?;
        ledger.apply(&self.owned.role_bindings, INFRASTRUCTURE, &objects.role_binding).await?;
        self.bindings(gateway, &objects, ledger).await?;
        self.admin_secret(&meta, ledger).await?;
        ledger.apply(&self.owned.secrets, INFRASTRUCTURE, &self.tls_secret(&meta, plan)).await?;
        let pods =
            ConfigMap { metadata: meta(workload::pods_config_map(&self.key.name)), ..ConfigMap::default() };
        ledger.apply(&self.owned.config_maps, INFRASTRUCTURE, &pods).await?;
        for (name, part) in &packed.shards {
            let mut metadata = meta(name.clone());
            metadata.labels.get_or_insert_default().insert(SHARD_LABEL.to_owned(), "true".to_owned());
            let binary_data = Some([(packing::PART.to_owned(), part.clone())].into());
            let shard = ConfigMap { metadata, binary_data, immutable: Some(true), ..ConfigMap::default() };
            ledger.apply(&self.owned.config_maps, INFRASTRUCTURE, &shard).await?;
        }
        let name = workload::vcl_config_map(&self.key.name);
        let vcl = ConfigMap {
            metadata: meta(name.clone()),
            data: Some([(packing::MAIN_VCL.to_owned(), main_vcl.clone())].into()),
            ..ConfigMap::default()
        };
        ledger.apply(&self.owned.config_maps, INFRASTRUCTURE, &vcl).await?;
        let routes = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(self.key.namespace.clone()),
                ..ObjectMeta::default()
            },
            data: Some(packed.data.clone()).filter(|data| !data.is_empty()),
            binary_data: Some(packed.binary_data.clone()).filter(|data| !data.is_empty()),
            ..ConfigMap::default()
        };
        ledger.apply(&self.owned.config_maps, ROUTES, &routes).await?;
        let template = objects.deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let infra_hash =
            template.and_then(|meta| meta.annotations.as_ref()?.get(INFRA_HASH_ANNOTATION)).cloned();
        self.runtimes.set(&self.key, Some(hash.clone()), infra_hash, None);

        ledger.apply(&self.owned.services, INFRASTRUCTURE, &objects.service).await?;
        ledger.apply(&self.owned.deployments, INFRASTRUCTURE, &objects.deployment).await?;
        match &objects.pod_disruption_budget {
            Some(budget) => {
                ledger.apply(&self.owned.disruption_budgets, INFRASTRUCTURE, budget).await?;
            }
            None if self.owned.disruption_budgets.get(&self.key).is_some() => {
                self.delete::<PodDisruptionBudget>(&self.key, None).await?;
                ledger.forget("PodDisruptionBudget", &self.key);
            }
            None => {}
        }
        self.tidy(&packed, &hash).await
    }

    /// Rights in other namespaces: the finalizer first, so that they cannot be left behind.
    async fn bindings(&self, gateway: &Gateway, objects: &Objects, ledger: &mut Ledger) -> Result<(), Error> {
        let has = gateway.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if !objects.role_bindings.is_empty() && !has {
            set_finalizer(&self.client, &self.key, true).await?;
        }
        let mut wanted = BTreeSet::new();
        for binding in &objects.role_bindings {
            ledger.apply(&self.owned.role_bindings, INFRASTRUCTURE, binding).await?;
            wanted.insert(Key::new(
                binding.metadata.namespace.clone().unwrap_or_default(),
                binding.metadata.name.clone().unwrap_or_default(),
            ));
        }
        for (key, binding) in self.owned.role_bindings.objects() {
            let elsewhere = key.namespace != self.key.namespace;
            if elsewhere && gateway_of(binding.as_ref()).as_ref() == Some(&self.key) && !wanted.contains(&key)
            {
                self.delete::<RoleBinding>(&key, binding.metadata.uid.clone()).await?;
                ledger.forget("RoleBinding", &key);
            }
        }
        if objects.role_bindings.is_empty() && has {
            set_finalizer(&self.client, &self.key, false).await?;
        }
        Ok(())
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
            _ => [("secret".to_owned(), ByteString(random_secret()?))].into(),
        };
        let secret = Secret { metadata: meta(key.name), data: Some(data), ..Secret::default() };
        ledger.apply(&self.owned.secrets, INFRASTRUCTURE, &secret).await.map(|_| ())
    }

    fn tls_secret(&self, meta: &impl Fn(String) -> ObjectMeta, plan: &GatewayPlan) -> Secret {
        let mut data = BTreeMap::new();
        let secret = Key::new(&self.key.namespace, workload::tls_secret(&self.key.name));
        let there =
            self.owned.secrets.get(&secret).and_then(|secret| secret.data.clone()).unwrap_or_default();
        let listeners = plan.routing.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        for name in listeners.flat_map(|tls| &tls.certificates) {
            let Some(keys) = model::names::certificate_keys(name) else { continue };
            let pair = match plan.certificates.get(name) {
                Some(pem) => Some((pem.chain.clone(), pem.key.clone())),
                // It broke: a pod that starts now gets the last good one, too.
                None => there.get(&keys.0).zip(there.get(&keys.1)).map(|(c, k)| (c.0.clone(), k.0.clone())),
            };
            if let Some((chain, key)) = pair {
                data.insert(keys.0, ByteString(chain));
                data.insert(keys.1, ByteString(key));
            }
        }
        Secret { metadata: meta(workload::tls_secret(&self.key.name)), data: Some(data), ..Secret::default() }
    }

    /// Old parts of routing.json, once no pod needs them, and reports of pods that are gone.
    async fn tidy(&self, packed: &packing::Packed, hash: &str) -> Result<(), Error> {
        let pods: BTreeSet<String> = self
            .owned
            .pods
            .objects()
            .values()
            .filter(|pod| gateway_of(pod.as_ref()).as_ref() == Some(&self.key))
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        let reports_key = Key::new(&self.key.namespace, workload::pods_config_map(&self.key.name));
        let reports =
            self.owned.config_maps.get(&reports_key).and_then(|map| map.data.clone()).unwrap_or_default();
        let gone: serde_json::Map<String, serde_json::Value> = reports
            .keys()
            .filter(|pod| !pods.contains(*pod))
            .map(|pod| (pod.clone(), serde_json::Value::Null))
            .collect();
        if !gone.is_empty() {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.key.namespace);
            let patch = Patch::Merge(json!({ "data": gone }));
            let done = api.patch(&reports_key.name, &PatchParams::default(), &patch).await;
            done.map_err(Error::write("ConfigMap", &reports_key))?;
        }
        let all_serve = pods.iter().all(|pod| reports.get(pod).is_some_and(|report| report.contains(hash)));
        if !all_serve {
            return Ok(());
        }
        for (key, map) in self.owned.config_maps.objects() {
            let shard = map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(SHARD_LABEL));
            if shard
                && gateway_of(map.as_ref()).as_ref() == Some(&self.key)
                && !packed.shards.contains_key(&key.name)
            {
                self.delete::<ConfigMap>(&key, map.metadata.uid.clone()).await?;
            }
        }
        Ok(())
    }

    async fn delete<T>(&self, key: &Key, uid: Option<String>) -> Result<(), Error>
    where
        T: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        delete::<T>(&self.client, key, uid).await
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

/// Our finalizer, and no other.
pub(crate) async fn set_finalizer(client: &Client, key: &Key, there: bool) -> Result<(), Error> {
    let finalizers: Vec<&str> = if there { vec![FINALIZER] } else { Vec::new() };
    let api: Api<Gateway> = Api::namespaced(client.clone(), &key.namespace);
    let patch = Patch::Apply(json!({
        "apiVersion": Gateway::api_version(&()), "kind": "Gateway",
        "metadata": { "name": key.name, "namespace": key.namespace, "finalizers": finalizers },
    }));
    match api.patch(&key.name, &PatchParams::apply(FINALIZERS).force(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 && !there => Ok(()),
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

/// For varnishd's CLI, which nobody outside of the pod can reach.
fn random_secret() -> Result<Vec<u8>, Error> {
    use std::io::Read;
    let mut bytes = [0_u8; 32];
    let mut random = std::fs::File::open("/dev/urandom").map_err(|e| Error::Name(e.to_string()))?;
    random.read_exact(&mut bytes).map_err(|e| Error::Name(e.to_string()))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{hex}\n").into_bytes())
}
