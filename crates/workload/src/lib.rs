//! The Kubernetes objects that run one Gateway, and its configuration as they hold it: [`packing`] for routing.json in ConfigMaps,
//! [`tls_secrets`] for certificates in Secrets.
//!
//! Takes a Gateway and its plan; returns typed objects, complete, ready to be applied. Guarantees that the same input
//! gives the same bytes, and that the pod template changes only with what pods need at their start: neither routes,
//! certificates and listeners of the front, which change live, nor replicas and the Service. Never asks the cluster anything.

mod access;
mod deployment;
mod logging;
mod metadata;
pub mod packing;
mod ports;
mod service;
pub mod tls_secrets;

use gateway_api::gateways::Gateway;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::Serialize;

use translate::pods::CONTAINER;
pub use translate::pods::{LOGGING_CONTAINER, check_name};
use translate::{GatewayPlan, storage};

pub use self::access::binding_name;

/// The ClusterRole that is bound in other namespaces, unless the options name another.
pub const CHAPERONE_CLUSTER_ROLE: &str = "varnish-gateway-chaperone";

/// What the operator decides for all Gateways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The pods' image where parameters name none.
    pub image: String,
    /// The same for parameters with `engine: vinyl-9`.
    pub vinyl_image: String,
    /// Secrets in the Gateway's namespace.
    pub image_pull_secrets: Vec<String>,
    /// `LOG_LEVEL` of the chaperone.
    pub log_level: Option<String>,
    pub cluster_role: String,
    /// What the label of our controller says; none for the default one.
    pub controller: Option<String>,
    /// Further ConfigMaps that the Gateway's pods may read: what did not fit into the first.
    pub shards: Vec<String>,
    /// How many Secrets hold the Gateway's certificates.
    pub tls_secrets: usize,
}

impl Options {
    /// The same image for all engines.
    pub fn new(image: impl Into<String>) -> Self {
        let image = image.into();
        Self {
            vinyl_image: image.clone(),
            image,
            image_pull_secrets: Vec::new(),
            log_level: None,
            cluster_role: CHAPERONE_CLUSTER_ROLE.to_owned(),
            controller: None,
            shards: Vec::new(),
            tls_secrets: 1,
        }
    }
}

/// All objects of a Gateway, but those that hold its configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Objects {
    pub service_account: ServiceAccount,
    pub role: Role,
    pub role_binding: RoleBinding,
    pub service: Service,
    pub deployment: Deployment,
    /// Absent: there should be none.
    pub pod_disruption_budget: Option<PodDisruptionBudget>,
    /// In other namespaces, one in each that has a Service of the Gateway's routes.
    pub role_bindings: Vec<RoleBinding>,
}

/// What a Gateway's pods may do: of [`Objects`], what needs no parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Access {
    pub service_account: ServiceAccount,
    pub role: Role,
    pub role_binding: RoleBinding,
    pub role_bindings: Vec<RoleBinding>,
}

/// The rights of `gateway`'s pods, which follow its routes.
pub fn access(gateway: &Gateway, plan: &GatewayPlan, options: &Options) -> Access {
    let owner = metadata::Owner::new(gateway, options);
    Access {
        service_account: access::service_account(&owner),
        role: access::role(&owner, options),
        role_binding: access::role_binding(&owner),
        role_bindings: access::role_bindings(&owner, &plan.routing, options),
    }
}

/// The objects of `gateway`. `None`: parameters are missing, or no listener is valid, so that there is nothing to listen
/// on. Then nothing is made, and what is there stays as it is: neither address nor cache is lost for a slip.
pub fn objects(gateway: &Gateway, plan: &GatewayPlan, options: &Options) -> Option<Objects> {
    let settings = plan.workload.as_ref()?;
    let infra = plan.infra.as_ref()?;
    let ports = ports::Ports::new(infra, &plan.routing);
    if ports.public.is_empty() && ports.datagrams.is_empty() {
        return None;
    }
    let owner = metadata::Owner::new(gateway, options);
    let Access { service_account, role, role_binding, role_bindings } = access(gateway, plan, options);
    Some(Objects {
        service_account,
        role,
        role_binding,
        service: service::service(&owner, settings, &ports),
        deployment: deployment::deployment(&owner, settings, infra, &ports, options),
        pod_disruption_budget: deployment::disruption_budget(&owner, settings),
        role_bindings,
    })
}

/// The storages of the pods' varnishd, with their sizes, for people. `None` where there is nothing to run.
pub fn storages(plan: &GatewayPlan) -> Option<String> {
    let (settings, infra) = (plan.workload.as_ref()?, plan.infra.as_ref()?);
    Some(storage::told(&infra.varnishd_args, [&settings.default_storage, &settings.default_transient]))
}

/// The ConfigMap with main.vcl and routing.json.
pub fn vcl_config_map(gateway: &str) -> String {
    format!("{gateway}-vcl")
}

/// The ConfigMap in which pods tell what they serve.
pub fn pods_config_map(gateway: &str) -> String {
    format!("{gateway}-pods")
}

/// The Secret by which varnishd and the chaperone know each other.
pub fn admin_secret(gateway: &str) -> String {
    format!("{gateway}-admin")
}

/// The Secrets with the certificates of all listeners, by number: `{gateway}-varnish-tls`, and more where one does not hold
/// them. `{gateway}-tls` is what people call their own.
pub fn tls_secret(gateway: &str, number: usize) -> String {
    match number {
        0 => format!("{gateway}-varnish-tls"),
        number => format!("{gateway}-varnish-tls-{number}"),
    }
}

/// The number of such a Secret; `None` for others.
pub fn tls_secret_number(gateway: &str, name: &str) -> Option<usize> {
    let rest = name.strip_prefix(gateway)?.strip_prefix("-varnish-tls")?;
    let number = if rest.is_empty() { 0 } else { rest.strip_prefix('-')?.parse().ok()? };
    (tls_secret(gateway, number) == name && number < tls_secrets::MOST).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_certificates_are_known_by_their_names() {
        for number in [0, 1, 12] {
            assert_eq!(tls_secret_number("gw", &tls_secret("gw", number)), Some(number));
        }
        for other in [
            "gw-tls",
            "gw-varnish-tls-",
            "gw-varnish-tls-01",
            "gw-varnish-tls-x",
            "gw2-varnish-tls",
            "gw-varnish-tls-9999999",
        ] {
            assert_eq!(tls_secret_number("gw", other), None, "{other}");
        }
    }
}
