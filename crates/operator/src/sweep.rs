//! Deletes remaining objects of Gateways that were deleted or are no longer ours.

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::gateways::Gateway;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::ObjectMeta;
use model::names::controller_label;
use source::kubernetes::Cluster;
use translate::snapshot::Objects;
use translate::{INGRESS_CLASS, Key, Snapshot};

use crate::Error;
use crate::gateway::{delete, finalizer, gateway_of, has_finalizer, set_finalizer};
use crate::owned::{Owned, is_made_by_us};

/// Everything that should be served.
pub(crate) struct Known<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// Gateways that were made for IngressClasses.
    pub(crate) made: &'a Objects<Gateway>,
    /// Kinds that the cluster does not have.
    pub(crate) missing: &'a [&'static str],
}

/// Deletes them, and removes the finalizer from Gateways that wait for it. Returns the first of several errors.
pub(crate) async fn sweep(
    client: &Client,
    cluster: &Cluster,
    known: &Known<'_>,
    owned: &Owned,
) -> Result<(), Error> {
    let Known { snapshot, made, missing } = known;
    let may_sweep = may_sweep(missing);
    let unread = cluster.gateways.unread();
    let gone = |key: &Key| match unread.get(key) {
        // It exists, with a value that this release does not know.
        Some(unread) => unread.raw.pointer("/metadata/deletionTimestamp").is_some(),
        None => is_gone(key, snapshot),
    };
    let mut failed: BTreeMap<Key, Error> = BTreeMap::new();
    macro_rules! each {
        ($($store:ident: $kind:ty),+) => {$(
            for (key, object) in owned.$store.objects() {
                let going = object.metadata.deletion_timestamp.is_some();
                let class = class_of(&object.metadata);
                let is_orphan = |gateway: &Key| match class {
                    Some(class) => is_left_by_class(gateway, class, snapshot, made),
                    None => may_sweep && gone(gateway) && !made.contains_key(gateway),
                };
                let ours = !going && is_made_by_us(&object.metadata);
                let Some(gateway) = gateway_of(object.as_ref()).filter(|gateway| ours && is_orphan(gateway)) else {
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
    if !may_sweep {
        return failed.into_values().next().map_or(Ok(()), Err);
    }
    let finalizer = finalizer(controller_label(&snapshot.controllers.gateway).as_deref());
    for (key, gateway) in snapshot.gateways.iter().filter(|(key, _)| !unread.contains_key(*key)) {
        if gone(key) && !failed.contains_key(key) && has_finalizer(&gateway.metadata, &finalizer) {
            set_finalizer(client, key, &finalizer, false).await?;
        }
    }
    for (key, unread) in &unread {
        let metadata = unread.raw.get("metadata").cloned().unwrap_or_default();
        let Ok(metadata) = serde_json::from_value::<ObjectMeta>(metadata) else { continue };
        if gone(key) && !failed.contains_key(key) && has_finalizer(&metadata, &finalizer) {
            set_finalizer(client, key, &finalizer, false).await?;
        }
    }
    failed.into_values().next().map_or(Ok(()), Err)
}

/// The IngressClass that an object belongs to.
fn class_of(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.kind == INGRESS_CLASS).map(|owner| owner.name.as_str()).next()
}

/// Does its IngressClass ask for another Varnish, or for none? If only the parameters of the class are missing, the answer is no,
/// and the pods keep running. Objects of a deleted class are deleted by Kubernetes.
fn is_left_by_class(gateway: &Key, class: &str, snapshot: &Snapshot, made: &Objects<Gateway>) -> bool {
    if made.contains_key(gateway) {
        return false;
    }
    let Some(class) = snapshot.ingress_classes.get(&Key::cluster(class)) else { return true };
    let Some(spec) = &class.spec else { return true };
    let parameters = spec.parameters.as_ref().filter(|reference| {
        spec.controller.as_deref() == Some(snapshot.controllers.ingress.as_str())
            && reference.kind == "GatewayClassParameters"
    });
    // If its parameters exist, a Gateway was made for the class, under this or another name.
    parameters.is_none_or(|reference| snapshot.parameters.contains_key(&Key::cluster(&reference.name)))
}

/// The Gateway is being deleted.
pub(crate) fn is_going(gateway: &Gateway) -> bool {
    gateway.metadata.deletion_timestamp.is_some()
}

/// Is the Gateway deleted, or does it belong to another controller? If only its class is missing, the answer is no, and its pods
/// keep running.
fn is_gone(key: &Key, snapshot: &Snapshot) -> bool {
    let Some(gateway) = snapshot.gateways.get(key) else { return true };
    if is_going(gateway) {
        return true;
    }
    let class = snapshot.gateway_classes.get(&Key::cluster(&gateway.spec.gateway_class_name));
    class.is_some_and(|class| class.spec.controller_name != snapshot.controllers.gateway)
}

/// Owned objects of a kind that the cluster lost are not orphans.
fn may_sweep(missing: &[&str]) -> bool {
    let needed: BTreeSet<&str> = ["Gateway", "GatewayClass"].into();
    missing.iter().all(|kind| !needed.contains(kind))
}
