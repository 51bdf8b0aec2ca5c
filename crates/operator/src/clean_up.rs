//! Deletes what an installation has made, before the installation itself is removed. Otherwise pods would keep serving without
//! an operator, and Gateways could not be deleted, because no operator would remove their finalizer.

use std::time::{Duration, Instant};

use gateway_api::gateways::Gateway;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource};
use model::names::controller_label;
use serde_json::json;
use source::kubernetes::Namespaces;
use translate::Key;

use crate::gateway::{delete, finalizer, has_finalizer, set_finalizer};
use crate::owned::{is_made_by_us, is_pod_of_ours, selector};
use crate::{Error, Settings};

/// Pods let requests finish first.
const FOR_PODS: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Stops the operator of the named Deployment, so that it does not make everything again; deletes what it has made; removes the
/// finalizer from Gateways.
pub async fn clean_up(client: &Client, settings: &Settings, deployment: Option<&str>) -> Result<(), Error> {
    if let Some((name, namespace)) = deployment.zip(settings.namespace.as_deref()) {
        end(client, &Key::new(namespace, name)).await?;
    }
    let everywhere = &settings.watch_namespaces;
    let ours = ListParams::default().labels(&selector(&settings.controllers.gateway));
    delete_all::<Deployment>(client, everywhere, &ours).await?;
    delete_all::<Service>(client, everywhere, &ours).await?;
    delete_all::<PodDisruptionBudget>(client, everywhere, &ours).await?;
    delete_all::<ConfigMap>(client, everywhere, &ours).await?;
    delete_all::<Secret>(client, everywhere, &ours).await?;
    delete_all::<RoleBinding>(client, everywhere, &ours).await?;
    delete_all::<Role>(client, everywhere, &ours).await?;
    delete_all::<ServiceAccount>(client, everywhere, &ours).await?;
    let finalizer = finalizer(controller_label(&settings.controllers.gateway).as_deref());
    for (key, metadata) in list::<Gateway>(client, everywhere, &ListParams::default()).await? {
        if has_finalizer(&metadata, &finalizer) {
            set_finalizer(client, &key, &finalizer, false).await?;
        }
    }
    until_no_pod(client, everywhere, &ours, is_pod_of_ours).await
}

async fn end(client: &Client, key: &Key) -> Result<(), Error> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &key.namespace);
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    let there = match api.patch(&key.name, &PatchParams::default(), &none).await {
        Ok(there) => there,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(e) => return Err(Error::write("Deployment", key)(e)),
    };
    tracing::info!("stopping Deployment {key}");
    let labels = there.spec.and_then(|spec| spec.selector.match_labels).unwrap_or_default();
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let which = ListParams::default().labels(&labels.join(","));
    let there = Namespaces::only([key.namespace.clone()]);
    until_no_pod(client, &there, &which, |pod| pod.namespace.as_deref() == Some(&key.namespace)).await
}

async fn until_no_pod(
    client: &Client,
    namespaces: &Namespaces,
    which: &ListParams,
    counts: impl Fn(&ObjectMeta) -> bool,
) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let mut pods = list::<Pod>(client, namespaces, which).await?;
        pods.retain(|(_, metadata)| counts(metadata));
        let Some((first, _)) = pods.first() else { return Ok(()) };
        if begun.elapsed() > FOR_PODS {
            let (count, patience) = (pods.len(), FOR_PODS.as_secs());
            return Err(Error::Name(format!(
                "{count} pods still exist after {patience} s, {first} among them: find out why, and try again"
            )));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn delete_all<T>(client: &Client, namespaces: &Namespaces, ours: &ListParams) -> Result<(), Error>
where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    for (key, metadata) in list::<T>(client, namespaces, ours).await? {
        if !is_made_by_us(&metadata) {
            tracing::warn!(
                "{} {key} has our labels, but no Gateway owns it: it is not deleted",
                T::kind(&())
            );
            continue;
        }
        delete::<T>(client, &key, metadata.uid).await?;
    }
    Ok(())
}

/// Returns an empty list for a kind that the cluster does not have.
async fn list<T>(
    client: &Client,
    namespaces: &Namespaces,
    which: &ListParams,
) -> Result<Vec<(Key, ObjectMeta)>, Error>
where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let mut found = Vec::new();
    for api in namespaces.apis::<T>(client) {
        match api.list_metadata(which).await {
            Ok(here) => found.extend(here.items),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(e) => return Err(Error::Name(format!("{} cannot be listed: {e}", T::plural(&())))),
        }
    }
    let key = |metadata: &ObjectMeta| {
        Key::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    };
    Ok(found.into_iter().map(|object| (key(&object.metadata), object.metadata)).collect())
}
