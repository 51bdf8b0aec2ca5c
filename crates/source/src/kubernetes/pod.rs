//! What the chaperone in a pod reads of its cluster: one ConfigMap, the Secrets with its certificates, and the EndpointSlices
//! of the namespaces that its routes name. It has rights for nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use tokio::sync::watch;
use translate::Key;
use workload::packing::{self, Index};
use workload::tls_secrets;

use super::cluster::{same_config_map, same_secret, same_slice};
use super::scope::Scope;
use super::signal::Signal;
use super::store::Store;

/// Endpoints of a namespace that was just named are waited for: a route must not answer 500 before they are there.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rights to read a new shard may take a moment to arrive.
const SHARD_TRIES: u32 = 20;
/// The first wait for them, and the longest.
const SHARD_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// The watches of one pod.
pub struct Pod {
    client: Client,
    namespace: String,
    gateway: String,
    config: Store<ConfigMap>,
    certificates: Store<Secret>,
    /// Further ones, from number 1 on.
    more_certificates: Mutex<Vec<Store<Secret>>>,
    slices: Mutex<BTreeMap<String, Store<EndpointSlice>>>,
    changed: Signal,
}

impl fmt::Debug for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pod of Gateway {}/{}", self.namespace, self.gateway)
    }
}

/// What the operator wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    pub main_vcl: Option<String>,
    /// routing.json: the whole, or what has changed since the base.
    pub routing: Option<String>,
    pub base: Option<Base>,
}

/// A large routing.json.
#[derive(Debug, Clone)]
pub struct Base {
    /// As routing.json calls it.
    pub sha256: String,
    /// Empty where the caller has them.
    pub bytes: Arc<[u8]>,
}

impl PartialEq for Base {
    fn eq(&self, other: &Self) -> bool {
        self.sha256 == other.sha256
    }
}

impl Eq for Base {}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Packing(#[from] packing::Error),
    #[error("ConfigMap {name} with a part of routing.json cannot be read: {why}")]
    Shard { name: String, why: String },
}

impl Pod {
    pub fn watch(client: Client, namespace: &str, gateway: &str) -> Self {
        let changed = Signal::default();
        let scope = |name: String| Scope::name(&name);
        Self {
            config: Store::watch(
                Api::namespaced(client.clone(), namespace),
                &scope(workload::vcl_config_map(gateway)),
                same_config_map,
                changed.clone(),
                Signal::default(),
            ),
            certificates: Store::watch(
                Api::namespaced(client.clone(), namespace),
                &scope(workload::tls_secret(gateway, 0)),
                same_secret,
                changed.clone(),
                Signal::default(),
            ),
            more_certificates: Mutex::default(),
            client,
            namespace: namespace.to_owned(),
            gateway: gateway.to_owned(),
            slices: Mutex::default(),
            changed,
        }
    }

    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub async fn synced(&self) {
        self.config.synced().await;
        self.certificates.synced().await;
    }

    /// main.vcl and routing.json; absent until the operator has written them. `known`: the base that the caller has read already,
    /// by its SHA-256; its bytes are not read again.
    pub async fn stored(&self, known: Option<&str>) -> Result<Stored, Error> {
        let key = Key::new(&self.namespace, workload::vcl_config_map(&self.gateway));
        loop {
            let Some(config) = self.config.get(&key) else { return Ok(Stored::default()) };
            let main_vcl = config.data.as_ref().and_then(|data| data.get(packing::MAIN_VCL)).cloned();
            let packing::Stored { json, base } = packing::stored(&config)?;
            let Some(index) = base else { return Ok(Stored { main_vcl, routing: json, base: None }) };
            if known == Some(index.sha256.as_str()) {
                let base = Some(Base { bytes: Arc::default(), sha256: index.sha256 });
                return Ok(Stored { main_vcl, routing: json, base });
            }
            let is_newest = || self.config.get(&key).is_some_and(|newest| Arc::ptr_eq(&newest, &config));
            // An old configuration may have lost its shards by now.
            if let Some(bytes) = self.join(&index, is_newest).await? {
                let base = Some(Base { bytes, sha256: index.sha256 });
                return Ok(Stored { main_vcl, routing: json, base });
            }
        }
    }

    /// `None`: it is no longer the newest.
    async fn join(&self, index: &Index, is_newest: impl Fn() -> bool) -> Result<Option<Arc<[u8]>>, Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut parts = Vec::with_capacity(index.shards.len());
        for name in &index.shards {
            match part(&api, name, &is_newest).await? {
                Some(part) => parts.push(part),
                None => return Ok(None),
            }
        }
        Ok(Some(packing::join(index, &parts)?.into()))
    }

    /// The data of all Secrets with the pairs of listeners. Those that are new are waited for.
    pub async fn certificates(&self) -> tls_secrets::Data {
        let name = |number| workload::tls_secret(&self.gateway, number);
        let data = |store: &Store<Secret>, number| {
            let secret = store.get(&Key::new(&self.namespace, name(number)));
            secret.and_then(|secret| secret.data.clone()).unwrap_or_default()
        };
        let mut all = data(&self.certificates, 0);
        let count = tls_secrets::count(&all);
        let (known, stores) = {
            let mut more = self.more_certificates.lock().unwrap_or_else(PoisonError::into_inner);
            let known = more.len();
            more.truncate(count - 1);
            for number in 1 + more.len()..count {
                let (api, scope) =
                    (Api::namespaced(self.client.clone(), &self.namespace), Scope::name(&name(number)));
                more.push(Store::watch(api, &scope, same_secret, self.changed.clone(), Signal::default()));
            }
            (known, more.clone())
        };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for (store, number) in stores.iter().zip(1..) {
            // Once, as with endpoints.
            if number > known && tokio::time::timeout_at(deadline, store.synced()).await.is_err() {
                tracing::warn!(
                    "Secret {} cannot be read yet; its certificates are missing until then",
                    name(number)
                );
            }
            all.extend(data(store, number));
        }
        all
    }

    /// All EndpointSlices of these namespaces, from now on watched, and no others.
    pub async fn endpoint_slices(&self, namespaces: &BTreeSet<String>) -> Vec<Arc<EndpointSlice>> {
        let mut new = BTreeSet::new();
        let stores: Vec<(String, Store<EndpointSlice>)> = {
            let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
            slices.retain(|namespace, _| namespaces.contains(namespace));
            for namespace in namespaces {
                slices.entry(namespace.clone()).or_insert_with(|| {
                    new.insert(namespace.clone());
                    let api = Api::namespaced(self.client.clone(), namespace);
                    Store::watch(api, &Scope::default(), same_slice, self.changed.clone(), Signal::default())
                });
            }
            slices.iter().map(|(namespace, store)| (namespace.clone(), store.clone())).collect()
        };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        // Once: a namespace that cannot be read must not slow down every change.
        for (namespace, store) in stores.iter().filter(|(namespace, _)| new.contains(namespace)) {
            if tokio::time::timeout_at(deadline, store.synced()).await.is_err() {
                tracing::warn!(
                    "EndpointSlices of namespace {namespace} cannot be read yet; its Services have no endpoints until then"
                );
            }
        }
        stores.into_iter().flat_map(|(_, store)| store.objects().into_values()).collect()
    }

    /// What [`Self::endpoint_slices`] and [`Self::certificates`] were asked for and the API server has never answered. A refusal is
    /// an answer: without rights, or in a namespace that is gone, there is nothing to wait for.
    pub fn unanswered(&self) -> Vec<String> {
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        let namespaces = slices.iter().filter(|(_, store)| is_unanswered(store));
        let mut all: Vec<String> =
            namespaces.map(|(namespace, _)| format!("EndpointSlices of namespace {namespace}")).collect();
        let more = self.more_certificates.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = more.iter().zip(1..).filter(|(store, _)| is_unanswered(store));
        all.extend(
            secrets.map(|(_, number)| format!("Secret {}", workload::tls_secret(&self.gateway, number))),
        );
        all
    }
}

fn is_unanswered<T>(store: &Store<T>) -> bool
where
    T: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + fmt::Debug
        + Send
        + Sync
        + 'static,
{
    !store.is_synced() && !store.is_forbidden()
}

async fn part(
    api: &Api<ConfigMap>,
    name: &str,
    is_newest: impl Fn() -> bool,
) -> Result<Option<ByteString>, Error> {
    let failed = |why: String| Error::Shard { name: name.to_owned(), why };
    let mut tries = 0;
    let mut pause = SHARD_PAUSE.0;
    loop {
        tries += 1;
        match api.get(name).await {
            Ok(shard) => {
                let part = shard.binary_data.and_then(|mut data| data.remove(packing::PART));
                return part.map(Some).ok_or_else(|| failed(format!("it has no key {}", packing::PART)));
            }
            Err(_) if !is_newest() => return Ok(None),
            Err(e) if tries == SHARD_TRIES => return Err(failed(e.to_string())),
            Err(_) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(SHARD_PAUSE.1);
            }
        }
    }
}
