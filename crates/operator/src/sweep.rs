//! What is left of Gateways that are gone, or no longer ours.

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::gateways::Gateway;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::ObjectMeta;
use model::names::CONTROLLER_NAME;
use source::kubernetes::Cluster;
use translate::{Key, Snapshot};

use crate::Error;
use crate::gateway::{delete, gateway_of, has_finalizer, set_finalizer};
use crate::owned::Owned;

/// Deletes them, and lets Gateways go that wait for it. Of several failures the first is told.
pub(crate) async fn sweep(
    client: &Client,
    cluster: &Cluster,
    snapshot: &Snapshot,
    owned: &Owned,
) -> Result<(), Error> {
    let unread = cluster.gateways.unread();
    let gone = |key: &Key| match unread.get(key) {
        // It has a value that we do not know, and is there.
        Some(unread) => unread.raw.pointer("/metadata/deletionTimestamp").is_some(),
        None => is_gone(key, snapshot),
    };
    let mut failed: BTreeMap<Key, Error> = BTreeMap::new();
    macro_rules! each {
        ($($store:ident: $kind:ty),+) => {$(
            for (key, object) in owned.$store.objects() {
                let going = object.metadata.deletion_timestamp.is_some();
                let Some(gateway) = gateway_of(object.as_ref()).filter(|gateway| !going && gone(gateway)) else {
                    continue;
                };
                if let Err(e) = delete::<$kind>(client, &key, object.metadata.uid.clone()).await {
                    failed.entry(gateway).or_insert(e);
                }
            }
        )+};
    }
    each!(
        deployments: Deployment, services: Service, disruption_budgets: PodDisruptionBudget,
        config_maps: ConfigMap, secrets: Secret, role_bindings: RoleBinding, roles: Role,
        service_accounts: ServiceAccount
    );
    for (key, gateway) in &snapshot.gateways {
        if gone(key) && !failed.contains_key(key) && has_finalizer(&gateway.metadata) {
            set_finalizer(client, key, false).await?;
        }
    }
    for (key, unread) in &unread {
        let metadata = unread.raw.get("metadata").cloned().unwrap_or_default();
        let Ok(metadata) = serde_json::from_value::<ObjectMeta>(metadata) else { continue };
        if gone(key) && !failed.contains_key(key) && has_finalizer(&metadata) {
            set_finalizer(client, key, false).await?;
        }
    }
    failed.into_values().next().map_or(Ok(()), Err)
}

/// Somebody asked for its end.
pub(crate) fn is_going(gateway: &Gateway) -> bool {
    gateway.metadata.deletion_timestamp.is_some()
}

/// Is a Gateway no more, or somebody else's? One whose class vanished is neither: what runs goes on running.
fn is_gone(key: &Key, snapshot: &Snapshot) -> bool {
    let Some(gateway) = snapshot.gateways.get(key) else { return true };
    if is_going(gateway) {
        return true;
    }
    let class = snapshot.gateway_classes.get(&Key::cluster(&gateway.spec.gateway_class_name));
    class.is_some_and(|class| class.spec.controller_name != CONTROLLER_NAME)
}

/// Owned objects of a kind that the cluster lost are not orphans.
pub(crate) fn may_sweep(missing: &[&str]) -> bool {
    let needed: BTreeSet<&str> = ["Gateway", "GatewayClass"].into();
    missing.iter().all(|kind| !needed.contains(kind))
}
