//! The objects that this operator has made, as they are in the cluster, and their pods.

mod look;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Client};
use model::names::{
    CONTROLLER_LABEL, GATEWAY_NAME_LABEL, GATEWAY_NAMESPACE_LABEL, MANAGED_BY, MANAGED_BY_LABEL,
    controller_label,
};
use source::kubernetes::{Namespaces, Scope, Signal, Store, never_same};
use tokio::sync::watch;

use crate::definition::Definition;
pub(crate) use look::{Look, Signals};

/// Says which version of the Gateway API is installed.
const GATEWAY_API_CRD: &str = "gatewayclasses.gateway.networking.k8s.io";
const HTTP_ROUTES_CRD: &str = "httproutes.gateway.networking.k8s.io";

#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) deployments: Store<Deployment>,
    pub(crate) services: Store<Service>,
    pub(crate) config_maps: Store<ConfigMap>,
    pub(crate) secrets: Store<Secret>,
    pub(crate) service_accounts: Store<ServiceAccount>,
    pub(crate) roles: Store<Role>,
    pub(crate) role_bindings: Store<RoleBinding>,
    pub(crate) disruption_budgets: Store<PodDisruptionBudget>,
    pub(crate) pods: Store<Pod>,
    /// The CRD of GatewayClasses: without GatewayClasses no status needs its version.
    pub(crate) gateway_api: Store<Definition>,
    /// The CRD of HTTPRoutes, which differs by channel.
    pub(crate) http_routes: Store<Definition>,
    changed: Signal,
    /// Without pods.
    made_changed: Signal,
    pub(crate) by_gateway: Signals,
}

/// A label selector for the objects of this installation only.
pub(crate) fn selector(controller: &str) -> String {
    let whose = match controller_label(controller) {
        Some(name) => format!("{CONTROLLER_LABEL}={name}"),
        None => format!("!{CONTROLLER_LABEL}"),
    };
    format!("{MANAGED_BY_LABEL}={MANAGED_BY},{whose}")
}

/// Did this operator make the object? Labels alone do not prove it: users may copy an object with our labels. What we make also
/// has its Gateway or IngressClass as owner, or is a RoleBinding in another namespace with a name that only we use.
pub(crate) fn is_made_by_us(metadata: &ObjectMeta) -> bool {
    let label = |name: &str| metadata.labels.as_ref()?.get(name).map(String::as_str);
    let Some(gateway) = label(GATEWAY_NAME_LABEL) else { return false };
    let namespace = metadata.namespace.as_deref();
    let of = label(GATEWAY_NAMESPACE_LABEL).or(namespace).unwrap_or_default();
    let is_owner = |owner: &OwnerReference| match owner.kind.as_str() {
        "Gateway" => namespace == Some(of) && owner.name == gateway,
        kind => kind == translate::INGRESS_CLASS,
    };
    let binding = workload::binding_name(of, gateway);
    metadata.owner_references.iter().flatten().any(is_owner)
        || (namespace != Some(of) && metadata.name.as_ref() == Some(&binding))
}

/// The same for a pod, which belongs to a ReplicaSet of the Gateway's Deployment.
pub(crate) fn is_pod_of_ours(metadata: &ObjectMeta) -> bool {
    let gateway = metadata.labels.as_ref().and_then(|labels| labels.get(GATEWAY_NAME_LABEL));
    let of_gateway = |owner: &OwnerReference, gateway: &String| {
        owner.kind == "ReplicaSet"
            && owner.name.strip_prefix(gateway).is_some_and(|rest| rest.starts_with('-'))
    };
    gateway
        .is_some_and(|name| metadata.owner_references.iter().flatten().any(|owner| of_gateway(owner, name)))
}

impl Owned {
    pub(crate) fn watch(client: &Client, namespaces: &Namespaces, controller: &str) -> Self {
        let (changed, made_changed) = (Signal::default(), Signal::default());
        let selector = selector(controller);
        let ours = Scope::labels(&selector);
        macro_rules! all {
            ($touched:expr) => {
                Store::watch_each(namespaces.apis(client), &ours, never_same, changed.clone(), $touched)
            };
        }
        let definition = |name: &str| {
            Store::watch(
                Api::all(client.clone()),
                &Scope::name(name),
                never_same,
                changed.clone(),
                Signal::default(),
            )
        };
        Self {
            deployments: all!(made_changed.clone()),
            services: all!(made_changed.clone()),
            config_maps: all!(made_changed.clone()),
            secrets: all!(made_changed.clone()),
            service_accounts: all!(made_changed.clone()),
            roles: all!(made_changed.clone()),
            role_bindings: all!(made_changed.clone()),
            disruption_budgets: all!(made_changed.clone()),
            pods: all!(Signal::default()),
            gateway_api: definition(GATEWAY_API_CRD),
            http_routes: definition(HTTP_ROUTES_CRD),
            changed,
            made_changed,
            by_gateway: Signals::default(),
        }
    }

    pub(crate) async fn synced(&self) {
        self.deployments.synced().await;
        self.services.synced().await;
        self.config_maps.synced().await;
        self.secrets.synced().await;
        self.service_accounts.synced().await;
        self.roles.synced().await;
        self.role_bindings.synced().await;
        self.disruption_budgets.synced().await;
        self.pods.synced().await;
        self.gateway_api.synced().await;
        self.http_routes.synced().await;
    }

    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Of what we have made, without pods.
    pub(crate) fn made_changed(&self) -> watch::Receiver<u64> {
        self.made_changed.subscribe()
    }

    /// Wakes the writer of each Gateway whose objects or pods have changed. Works until it is dropped.
    pub(crate) async fn wake_writers(&self) {
        let mut changed = self.changed();
        let mut look = Look::default();
        loop {
            changed.mark_unchanged();
            self.by_gateway.raise(&look.changed(self));
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn metadata(namespace: &str, name: &str, owners: &Value) -> ObjectMeta {
        serde_json::from_value(json!({
            "namespace": namespace, "name": name, "ownerReferences": owners,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY, GATEWAY_NAME_LABEL: "web", GATEWAY_NAMESPACE_LABEL: "shop",
            },
        }))
        .unwrap()
    }

    fn owner(kind: &str, name: &str) -> Value {
        json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": "1" }])
    }

    #[test]
    fn labels_alone_make_nothing_ours() {
        let none = json!([]);
        let is_ours = |namespace, name, owners: &Value| is_made_by_us(&metadata(namespace, name, owners));
        assert!(is_ours("shop", "web", &owner("Gateway", "web")));
        assert!(is_ours("shop", "web-vcl", &owner(translate::INGRESS_CLASS, "varnish")));
        assert!(is_ours("other", "varnish-gateway-shop.web", &none));
        for (namespace, name, owners) in [
            ("shop", "copy-of-web", &none),
            ("other", "web", &none),
            ("shop", "varnish-gateway-shop.web", &none),
            ("other", "web", &owner("Gateway", "web")),
            ("shop", "web", &owner("Gateway", "other")),
            ("shop", "web", &owner("Deployment", "web")),
        ] {
            assert!(!is_ours(namespace, name, owners), "{namespace}/{name} {owners}");
        }
        let unlabelled = ObjectMeta { labels: None, ..metadata("shop", "web", &owner("Gateway", "web")) };
        assert!(!is_made_by_us(&unlabelled));
    }

    #[test]
    fn pods_are_those_of_the_gateways_deployment() {
        let is_ours = |owners: &Value| is_pod_of_ours(&metadata("shop", "web-1", owners));
        assert!(is_ours(&owner("ReplicaSet", "web-5d9f")));
        assert!(!is_ours(&owner("ReplicaSet", "website-5d9f")));
        assert!(!is_ours(&json!([])));
    }
}
