//! What a chaperone tells the operator, under its pod's name in ConfigMap `{gateway}-pods`.

use serde::{Deserialize, Serialize};

/// JSON, one value of the ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The hash of what it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<String>,
    /// Why it does not serve the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The cache engine that it runs: `Vinyl Cache 9.0.1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}
