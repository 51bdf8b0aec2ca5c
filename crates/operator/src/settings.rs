//! The operator's environment variables.

use std::net::SocketAddr;

use api::DataPath;
use model::names::{CONTROLLER_NAME, DEFAULT_DATA_PATH_ENV, is_controller_name};
use source::kubernetes::Namespaces;
use translate::snapshot::Controllers;
use workload::CHAPERONE_CLUSTER_ROLE;

use crate::Error;

/// Images of the same release.
const IMAGE: &str = concat!("ghcr.io/varnish/gateway-chaperone:", env!("CARGO_PKG_VERSION"));
const VINYL_IMAGE: &str = concat!("ghcr.io/varnish/gateway-chaperone-vinyl-9:", env!("CARGO_PKG_VERSION"));
const LEASE: &str = "varnish-gateway-operator";

#[derive(Debug, Clone)]
pub struct Settings {
    /// `GATEWAY_IMAGE`: the data plane, unless GatewayClassParameters name another.
    pub image: String,
    /// `GATEWAY_IMAGE_VINYL_9`: the same for GatewayClassParameters with `engine: vinyl-9`.
    pub vinyl_image: String,
    /// `IMAGE_PULL_SECRETS`, by comma.
    pub image_pull_secrets: Vec<String>,
    /// `POD_NAMESPACE`: where the Lease is; without it there is no leader election.
    pub namespace: Option<String>,
    /// `POD_NAME`: who holds the Lease.
    pub identity: String,
    /// `HEALTH_ADDR`, by default `:8081`.
    pub health_address: SocketAddr,
    /// `METRICS_ADDR`, by default `:8080`.
    pub metrics_address: SocketAddr,
    /// `CHAPERONE_LOG_LEVEL`: of the pods. Never the operator's own `LOG_LEVEL`: a change of it would roll all Gateways.
    pub log_level: Option<String>,
    /// `INGRESS_CLASS`, by default `varnish`: what the annotation kubernetes.io/ingress.class of our Ingresses says.
    pub ingress_class: String,
    /// `CONTROLLER_NAME` and `INGRESS_CONTROLLER_NAME`: whose classes are ours. Each installation in a cluster has its own.
    pub controllers: Controllers,
    /// `CHAPERONE_CLUSTER_ROLE`: what pods of Gateways are bound to in other namespaces.
    pub cluster_role: String,
    /// `LEASE_NAME`: the Lease for leader election.
    pub lease: String,
    /// `WATCH_NAMESPACES`, by comma: Gateways, routes and all they refer to count in these namespaces only; if
    /// empty, in all.
    pub watch_namespaces: Namespaces,
    /// For tests: the `dataPath` of Gateways whose parameters have none.
    pub default_data_path: Option<DataPath>,
}

impl Settings {
    pub fn from_environment() -> Result<Self, Error> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::from_variables(get)
    }

    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let list = |name: &str| -> Vec<String> {
            let value = get(name).unwrap_or_default();
            value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let namespace = get("POD_NAMESPACE");
        Ok(Self {
            image: get("GATEWAY_IMAGE").unwrap_or_else(|| IMAGE.to_owned()),
            vinyl_image: get("GATEWAY_IMAGE_VINYL_9").unwrap_or_else(|| VINYL_IMAGE.to_owned()),
            image_pull_secrets: list("IMAGE_PULL_SECRETS"),
            watch_namespaces: Namespaces::only(list("WATCH_NAMESPACES")),
            namespace,
            identity: get("POD_NAME").unwrap_or_else(|| format!("operator-{}", std::process::id())),
            health_address: address("HEALTH_ADDR", get("HEALTH_ADDR"), ":8081")?,
            metrics_address: address("METRICS_ADDR", get("METRICS_ADDR"), ":8080")?,
            log_level: get("CHAPERONE_LOG_LEVEL"),
            ingress_class: get("INGRESS_CLASS").unwrap_or_else(|| "varnish".to_owned()),
            controllers: controllers(&get)?,
            cluster_role: get("CHAPERONE_CLUSTER_ROLE").unwrap_or_else(|| CHAPERONE_CLUSTER_ROLE.to_owned()),
            lease: get("LEASE_NAME").unwrap_or_else(|| LEASE.to_owned()),
            default_data_path: default_data_path(&get)?,
        })
    }
}

impl Settings {
    /// The Varnish of an IngressClass runs beside us, unless its parameters say otherwise.
    pub(crate) fn ingress(&self) -> translate::snapshot::IngressSettings {
        let default = translate::snapshot::IngressSettings::default();
        translate::snapshot::IngressSettings {
            class: self.ingress_class.clone(),
            namespace: self.namespace.clone().unwrap_or(default.namespace),
        }
    }
}

fn default_data_path(get: impl Fn(&str) -> Option<String>) -> Result<Option<DataPath>, Error> {
    let parsed = get(DEFAULT_DATA_PATH_ENV).map(|value| value.parse()).transpose();
    parsed.map_err(|problem| Error::Setting { variable: DEFAULT_DATA_PATH_ENV, problem })
}

fn controllers(get: impl Fn(&str) -> Option<String>) -> Result<Controllers, Error> {
    let name = |variable: &'static str| match get(variable) {
        Some(name) if !is_controller_name(&name) => Err(Error::Setting {
            variable,
            problem: format!(
                "`{name}` is not a controller's name; write `domain/name`, 63 characters at most, after the `/` letters, \
                 digits, `-` and `.`, as in `example.com/blue`"
            ),
        }),
        name => Ok(name),
    };
    let default = Controllers::default();
    let gateway = name("CONTROLLER_NAME")?.unwrap_or(default.gateway);
    // An installation with its own controller name must not serve the Ingresses of others either.
    let own = if gateway == CONTROLLER_NAME { default.ingress } else { format!("{gateway}-ingress") };
    Ok(Controllers { ingress: name("INGRESS_CONTROLLER_NAME")?.unwrap_or(own), gateway })
}

/// `:8081` means all addresses.
fn address(variable: &'static str, value: Option<String>, default: &str) -> Result<SocketAddr, Error> {
    let value = value.unwrap_or_else(|| default.to_owned());
    let full = if value.starts_with(':') { format!("[::]{value}") } else { value.clone() };
    full.parse().map_err(|_| Error::Setting {
        variable,
        problem: format!("`{value}` is not an address; write `:8081` or `127.0.0.1:8081`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::from_variables(|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn defaults_and_lists() {
        let set = settings(&[("IMAGE_PULL_SECRETS", "a, b,"), ("GATEWAY_IMAGE", "gw:1")]).unwrap();
        assert_eq!(set.image, "gw:1");
        assert_eq!(set.vinyl_image, VINYL_IMAGE);
        assert_eq!(settings(&[("GATEWAY_IMAGE_VINYL_9", "vinyl:1")]).unwrap().vinyl_image, "vinyl:1");
        assert_eq!(set.image_pull_secrets, ["a", "b"]);
        assert_eq!(set.health_address.port(), 8081);
        assert_eq!(settings(&[]).unwrap().image, IMAGE);
        assert!(settings(&[]).unwrap().watch_namespaces.contain("anywhere"));
        let set = settings(&[("WATCH_NAMESPACES", "web, shop")]).unwrap();
        assert!(set.watch_namespaces.contain("shop") && !set.watch_namespaces.contain("other"));
    }

    #[test]
    fn the_pods_log_level_is_not_the_operators() {
        let set = settings(&[("LOG_LEVEL", "debug")]).unwrap();
        assert_eq!(set.log_level, None);
        let set = settings(&[("LOG_LEVEL", "debug"), ("CHAPERONE_LOG_LEVEL", "warn")]).unwrap();
        assert_eq!(set.log_level.as_deref(), Some("warn"));
    }

    #[test]
    fn a_second_installation_has_names_of_its_own() {
        assert_eq!(settings(&[]).unwrap().controllers, Controllers::default());
        let set = settings(&[("CONTROLLER_NAME", "example.com/blue"), ("LEASE_NAME", "blue")]).unwrap();
        assert_eq!(set.controllers.gateway, "example.com/blue");
        assert_eq!(set.controllers.ingress, "example.com/blue-ingress");
        assert_eq!(set.lease, "blue");
        let e = settings(&[("CONTROLLER_NAME", "blue")]).unwrap_err().to_string();
        assert!(e.contains("CONTROLLER_NAME") && e.contains("example.com/blue"), "{e}");
    }

    #[test]
    fn tests_choose_another_default_data_path() {
        assert_eq!(settings(&[]).unwrap().default_data_path, None);
        let set = settings(&[(DEFAULT_DATA_PATH_ENV, "Auto")]).unwrap();
        assert_eq!(set.default_data_path, Some(DataPath::Auto));
        let e = settings(&[(DEFAULT_DATA_PATH_ENV, "auto")]).unwrap_err().to_string();
        assert!(e.contains(DEFAULT_DATA_PATH_ENV) && e.contains("`auto`"), "{e}");
    }

    #[test]
    fn a_bad_address_is_named() {
        let e = settings(&[("HEALTH_ADDR", "here")]).unwrap_err().to_string();
        assert!(e.contains("HEALTH_ADDR") && e.contains("here"), "{e}");
    }
}
