use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema;

/// A piece of a Pod as the user wrote it. The CRD checks only the parts that the gateway itself looks at; `translate`
/// reads it as the Kubernetes type, and says so where it is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Embedded(pub Map<String, Value>);

/// CPU and memory of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[(
    "!has(self.limits) || !has(self.requests) || self.requests.all(name, !(name in self.limits) || \
     quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",
    "a request must not be greater than the limit of the same name",
)])))]
pub struct ResourceParameters {
    /// What the container gets at most: `{cpu: "2", memory: 2Gi}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// What a node must have free for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantities")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// One of the two, as a number of pods or a percentage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[(
    "has(self.minAvailable) != has(self.maxUnavailable)",
    "give exactly one of minAvailable and maxUnavailable",
)])))]
pub struct DisruptionBudgetParameters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods")]
    pub min_available: Option<IntOrString>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods")]
    pub max_unavailable: Option<IntOrString>,
}
