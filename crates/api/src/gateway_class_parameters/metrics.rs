use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What pods count for `/metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsParameters {
    /// Whether requests, bytes and times are counted for each rule of each route, which is up to 40 series a rule. They are
    /// where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_route: Option<bool>,
}
