//! VarnishCacheInvalidation: takes objects out of the cache of all pods of a Gateway, once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What to take out of the cache, of all pods of one Gateway, once. It is removed by itself some time after it is done.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gateway.varnish-software.com",
    version = "v1alpha1",
    kind = "VarnishCacheInvalidation",
    plural = "varnishcacheinvalidations",
    shortname = "vcinv",
    category = "gateway-api",
    namespaced,
    status = "VarnishCacheInvalidationStatus",
    doc = "What to take out of the cache, of all pods of one Gateway, once.",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Gateway", type_ = "string", json_path = ".spec.gatewayRef.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Hostname", type_ = "string", json_path = ".spec.hostname"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("self == oldSelf", "an invalidation is carried out once, and cannot be changed: make another one"),
    ("has(self.paths) || has(self.tags)", "give paths or tags"),
    ("!has(self.paths) || has(self.hostname)", "paths need a hostname"),
    ("!has(self.tags) || self.type != 'Ban'", "tags need type Purge or SoftPurge"),
    (
        "!has(self.paths) || self.type == 'Ban' || self.paths.all(p, p.startsWith('/'))",
        "a path begins with a slash (only those of type Ban are regular expressions)",
    ),
])))]
pub struct VarnishCacheInvalidationSpec {
    pub gateway_ref: GatewayRef,
    #[serde(rename = "type")]
    pub kind: InvalidationType,
    /// Whose objects. Needed with paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = schema::HOSTNAME))]
    pub hostname: Option<String>,
    /// Paths with their query; with type Ban, regular expressions about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 2048), regex(pattern = schema::URL_PART)))]
    pub paths: Option<Vec<String>>,
    /// Surrogate keys that origins gave to their answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 256), regex(pattern = schema::URL_PART)))]
    pub tags: Option<Vec<String>>,
    /// How long after its end this object stays to be looked at. Default: 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION))]
    pub ttl: Option<String>,
}

/// A Gateway of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayRef {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// `Purge` takes all variants of a URL away, `SoftPurge` makes them stale (they are served within their grace), `Ban` takes
/// away whatever a regular expression matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InvalidationType {
    #[default]
    Purge,
    SoftPurge,
    Ban,
}

/// How far it has got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VarnishCacheInvalidationStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<InvalidationPhase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completed_at: Option<Time>,
    /// The pods that count: those that were ready when it began. One that comes later has nothing old in its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub pods: Option<Vec<String>>,
    /// What each pod has done. Pods that do not count may be among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["podName"]))]
    pub pod_results: Option<Vec<PodResult>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InvalidationPhase {
    #[default]
    Pending,
    InProgress,
    Complete,
    Failed,
}

impl InvalidationPhase {
    /// Nothing happens after it.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodResult {
    pub pod_name: String,
    pub success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub completed_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_results: Option<Vec<PathResult>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathResult {
    /// The path or tag.
    pub path: String,
    pub success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
