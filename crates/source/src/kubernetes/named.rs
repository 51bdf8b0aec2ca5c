//! Objects of one kind by name, as they are referred to: a watch for each, so that nothing else is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use translate::Key;
use translate::snapshot::Objects;

use super::scope::{Namespaces, Scope};
use super::signal::Signal;
use super::store::{Same, Store};

/// How long to wait for an object that was just named, before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(3);

pub struct Named<T> {
    client: Client,
    namespaces: Namespaces,
    same: Same<T>,
    changed: Signal,
    watched: Mutex<BTreeMap<Key, Store<T>>>,
}

impl<T> fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").finish_non_exhaustive()
    }
}

impl<T> Named<T>
where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + fmt::Debug
        + Send
        + Sync
        + 'static,
{
    /// Names of other namespaces are not looked for.
    pub fn new(client: Client, namespaces: &Namespaces, same: Same<T>, changed: Signal) -> Self {
        Self { client, namespaces: namespaces.clone(), same, changed, watched: Mutex::default() }
    }

    /// Watches these from now on, and no others; returns once each was looked for.
    pub async fn want(&self, names: &BTreeSet<Key>) {
        let new: Vec<Store<T>> = {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|key, _| names.contains(key));
            for key in names.iter().filter(|key| self.namespaces.contain(&key.namespace)) {
                watched.entry(key.clone()).or_insert_with(|| {
                    let api = Api::namespaced(self.client.clone(), &key.namespace);
                    let scope = Scope::name(&key.name);
                    Store::watch(api, &scope, self.same, self.changed.clone(), Signal::default())
                });
            }
            watched.values().filter(|store| !store.is_synced()).cloned().collect()
        };
        let all = async {
            for store in new {
                store.synced().await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, all).await;
    }

    pub fn objects(&self) -> Objects<T> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.values().flat_map(Store::objects).collect()
    }
}
