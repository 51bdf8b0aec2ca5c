//! What a Gateway's pods may do in the cluster: read their own configuration, see endpoints, tell what they serve,
//! and carry out invalidations.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use model::names::API_GROUP;
use model::routing::Routing;

use super::metadata::Owner;
use super::{Options, pods_config_map, tls_secret, vcl_config_map};

const INVALIDATIONS: &str = "varnishcacheinvalidations";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn service_account(owner: &Owner<'_>) -> ServiceAccount {
    ServiceAccount {
        metadata: owner.own(),
        // The pods ask for their token themselves; no other user of this account gets one unasked.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

pub(super) fn role(owner: &Owner<'_>, options: &Options) -> Role {
    let read = ["get", "list", "watch"];
    let mut configuration = vec![vcl_config_map(owner.name)];
    configuration.extend(options.shards.iter().cloned());
    let certificates = (0..options.tls_secrets.max(1)).map(|number| tls_secret(owner.name, number)).collect();
    let pods = vec![pods_config_map(owner.name)];
    Role {
        metadata: owner.own(),
        rules: Some(vec![
            rule(&[""], "configmaps", &read, Some(configuration)),
            rule(&[""], "configmaps", &["get", "patch"], Some(pods)),
            rule(&[""], "secrets", &read, Some(certificates)),
            rule(&["discovery.k8s.io"], "endpointslices", &read, None),
            rule(&[API_GROUP], INVALIDATIONS, &read, None),
            rule(&[API_GROUP], &format!("{INVALIDATIONS}/status"), &["patch"], None),
        ]),
    }
}

fn rule(groups: &[&str], resource: &str, verbs: &[&str], names: Option<Vec<String>>) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(owned(groups)),
        resources: Some(owned(&[resource])),
        verbs: owned(verbs),
        resource_names: names,
        non_resource_urls: None,
    }
}

pub(super) fn role_binding(owner: &Owner<'_>) -> RoleBinding {
    RoleBinding {
        metadata: owner.own(),
        role_ref: role_ref("Role", owner.name),
        subjects: Some(vec![subject(owner)]),
    }
}

/// One in each namespace, other than the Gateway's, that has a Service of its routes.
pub(super) fn role_bindings(owner: &Owner<'_>, routing: &Routing, options: &Options) -> Vec<RoleBinding> {
    let namespaces = routing.service_namespaces();
    namespaces
        .iter()
        .filter(|namespace| *namespace != owner.namespace)
        .map(|namespace| RoleBinding {
            metadata: owner.at(namespace, binding_name(owner.namespace, owner.name)),
            role_ref: role_ref("ClusterRole", &options.cluster_role),
            subjects: Some(vec![subject(owner)]),
        })
        .collect()
}

/// The name of a Gateway's RoleBindings in other namespaces. Neither part holds a dot, so no two Gateways share one; 143
/// characters at most, of the 253 that are allowed.
pub fn binding_name(namespace: &str, gateway: &str) -> String {
    format!("varnish-gateway-{namespace}.{gateway}")
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some(RBAC_GROUP.to_owned()), kind: kind.to_owned(), name: name.to_owned() }
}

fn subject(owner: &Owner<'_>) -> Subject {
    Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: owner.name.to_owned(),
        namespace: Some(owner.namespace.to_owned()),
    }
}
