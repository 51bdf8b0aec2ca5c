use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What pods count for `/metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsParameters {
    /// Whether requests, bytes and times are counted for each rule of each route, which is up to 40 series a rule. Default:
    /// true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_route: Option<bool>,
}

/// Where spans go, and of which requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TracingParameters {
    /// A collector that takes OTLP over HTTP: `http://collector.observability:4318`, or `https://`, by the CAs of the image. A
    /// change rolls pods.
    #[schemars(length(min = 8, max = 512), extend("pattern" = "^https?://\\S+$"))]
    pub endpoint: String,
    /// The share of requests that is recorded, from 0 to 1. Default: 0.01. Clients have no say in it; `trustedProxies`
    /// decide for their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub sampling_ratio: Option<f64>,
}
