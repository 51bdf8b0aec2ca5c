use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// How the pods are reached. Each field counts for itself: a Gateway that sets one keeps the others of its class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    (
        "!has(self.loadBalancerClass) || !has(self.type) || self.type == 'LoadBalancer'",
        "loadBalancerClass needs type LoadBalancer",
    ),
    (
        "!has(self.loadBalancerSourceRanges) || !has(self.type) || self.type == 'LoadBalancer'",
        "loadBalancerSourceRanges needs type LoadBalancer",
    ),
    (
        "!has(self.externalTrafficPolicy) || !has(self.type) || self.type != 'ClusterIP'",
        "externalTrafficPolicy needs type LoadBalancer or NodePort",
    ),
])))]
pub struct ServiceParameters {
    /// Default: LoadBalancer.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ServiceType>,
    /// Of the Service, beside those of the Gateway's spec.infrastructure, which win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Of the Service, beside those of the Gateway's spec.infrastructure, which win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Which load balancer takes it. Default: the cluster's own. Kubernetes does not allow changing it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub load_balancer_class: Option<String>,
    /// Networks that the load balancer lets in. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        inner(length(max = 64)),
        extend("x-kubernetes-validations" = schema::rules(&[(
            "self.all(network, isCIDR(network))",
            "each must be a network such as 192.0.2.0/24",
        )]))
    )]
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// `Local` keeps the client's address and goes only to pods of the node. Default: `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<TrafficPolicy>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    #[default]
    LoadBalancer,
    NodePort,
    ClusterIP,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TrafficPolicy {
    #[default]
    Cluster,
    Local,
}
