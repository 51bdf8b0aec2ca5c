use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The page of each pod. Each field counts for itself: a Gateway that sets one keeps the other of its class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[(
    "!has(self.allowActions) || !self.allowActions || !has(self.enabled) || self.enabled",
    "allowActions needs a dashboard: remove enabled: false, or allowActions",
)])))]
pub struct DashboardParameters {
    /// Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether clients that reach the page may remove objects from the pod's cache. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_actions: Option<bool>,
}
