//! EndpointSlices of the namespaces that routing.json names, for a chaperone whose other configuration is in files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use tokio::sync::watch;

use super::cluster::same_slice;
use super::scope::Scope;
use super::signal::Signal;
use super::store::Store;

/// Endpoints of a namespace that was just named are waited for: a route must not answer 500 before they are there.
const PATIENCE: Duration = Duration::from_secs(5);

/// The watches of some namespaces.
pub struct EndpointSlices {
    client: Client,
    stores: BTreeMap<String, Store<EndpointSlice>>,
    changed: Signal,
}

impl fmt::Debug for EndpointSlices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSlices").field("stores", &self.stores).finish_non_exhaustive()
    }
}

impl EndpointSlices {
    pub fn new(client: Client) -> Self {
        Self { client, stores: BTreeMap::new(), changed: Signal::default() }
    }

    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Watches exactly these namespaces. Returns their EndpointSlices.
    pub async fn of_namespaces(&mut self, namespaces: &BTreeSet<String>) -> Vec<Arc<EndpointSlice>> {
        self.stores.retain(|namespace, _| namespaces.contains(namespace));
        let new: Vec<&String> = namespaces.iter().filter(|name| !self.stores.contains_key(*name)).collect();
        for namespace in &new {
            let api = Api::namespaced(self.client.clone(), namespace);
            let changed = self.changed.clone();
            let store = Store::watch(api, &Scope::default(), same_slice, changed, Signal::default());
            self.stores.insert((*namespace).clone(), store);
        }
        let deadline = tokio::time::Instant::now() + PATIENCE;
        // Once: a namespace that cannot be read must not slow down every change.
        for store in new.into_iter().filter_map(|namespace| self.stores.get(namespace)) {
            let _ = tokio::time::timeout_at(deadline, store.synced()).await;
        }
        self.stores.values().flat_map(|store| store.objects().into_values()).collect()
    }

    /// The namespaces that were never listed, each with whether the API server refuses it: then there is nothing to wait for.
    pub fn unlisted(&self) -> Vec<(&str, bool)> {
        let unlisted = self.stores.iter().filter(|(_, store)| !store.is_synced());
        unlisted.map(|(namespace, store)| (namespace.as_str(), store.is_forbidden())).collect()
    }
}
