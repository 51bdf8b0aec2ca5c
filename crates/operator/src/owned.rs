//! What we have made, as it stands in the cluster, and the pods that run.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use model::names::{CONTROLLER_LABEL, MANAGED_BY, MANAGED_BY_LABEL, controller_label};
use source::kubernetes::{Scope, Signal, Store, never_same};
use tokio::sync::watch;

/// Tells which Gateway API is installed.
const GATEWAY_API_CRD: &str = "gatewayclasses.gateway.networking.k8s.io";

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
    pub(crate) gateway_api: Store<CustomResourceDefinition>,
    changed: Signal,
}

/// What an installation has made, and no other.
pub(crate) fn selector(controller: &str) -> String {
    let whose = match controller_label(controller) {
        Some(name) => format!("{CONTROLLER_LABEL}={name}"),
        None => format!("!{CONTROLLER_LABEL}"),
    };
    format!("{MANAGED_BY_LABEL}={MANAGED_BY},{whose}")
}

impl Owned {
    pub(crate) fn watch(client: &Client, controller: &str) -> Self {
        let changed = Signal::default();
        let selector = selector(controller);
        let ours = || Scope::labels(&selector);
        macro_rules! all {
            ($scope:expr) => {
                Store::watch(Api::all(client.clone()), $scope, never_same, changed.clone(), Signal::default())
            };
        }
        Self {
            deployments: all!(ours()),
            services: all!(ours()),
            config_maps: all!(ours()),
            secrets: all!(ours()),
            service_accounts: all!(ours()),
            roles: all!(ours()),
            role_bindings: all!(ours()),
            disruption_budgets: all!(ours()),
            pods: all!(ours()),
            gateway_api: all!(Scope::name(GATEWAY_API_CRD)),
            changed,
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
    }

    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
