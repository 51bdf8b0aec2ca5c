//! What is left of Gateways that are gone, or no longer ours.

use std::collections::BTreeSet;

use gateway_api::gateways::Gateway;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use model::names::CONTROLLER_NAME;
use translate::{Key, Snapshot};

use crate::Error;
use crate::gateway::{FINALIZER, delete, gateway_of, set_finalizer};
use crate::owned::Owned;

/// Deletes them, and lets Gateways go that wait for it.
pub(crate) async fn sweep(client: &Client, snapshot: &Snapshot, owned: &Owned) -> Result<(), Error> {
    let gone = |key: &Key| is_gone(key, snapshot);
    macro_rules! each {
        ($($store:ident: $kind:ty),+) => {$(
            for (key, object) in owned.$store.objects() {
                let going = object.metadata.deletion_timestamp.is_some();
                if !going && gateway_of(object.as_ref()).is_some_and(|gateway| gone(&gateway)) {
                    delete::<$kind>(client, &key, object.metadata.uid.clone()).await?;
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
        let waits = is_going(gateway) && gateway.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER);
        if waits {
            set_finalizer(client, key, false).await?;
        }
    }
    Ok(())
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
