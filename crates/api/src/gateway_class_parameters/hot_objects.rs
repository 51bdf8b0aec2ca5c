//! Hits that the front answers from its own memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hot objects: hits that the front answers from its own memory, without varnishd. Each setting is a field of its own: a Gateway that sets one
/// keeps the others of its class. A change restarts varnishd.
///
/// With `dataPath: Varnish`, or what implies it, no object is hot; the Gateway's condition `ParametersValid` says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HotObjectParameters {
    /// Whether there are hot objects. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Memory of one pod for all hot objects. Where absent a sixteenth of the container's memory limit, at most 256 MiB; 64 MiB where
    /// there is no limit. More than a quarter of the memory limit is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_048_576, max = 68_719_476_736_i64))]
    pub bytes: Option<i64>,
    /// The largest body of a hot object. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1_048_576))]
    pub max_object_bytes: Option<i32>,
}
