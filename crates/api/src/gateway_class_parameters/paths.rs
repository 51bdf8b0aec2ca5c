//! How the paths of requests are read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is done about paths that programs read differently, before they are routed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathParameters {
    /// Dot segments. `Resolve`, the default: `/a/../b` becomes `/b`, and a path that leads above the root is answered with
    /// 400. `Reject`: 400. `Keep`: they are routed and sent as they came, and never cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dot_segments: Option<DotSegments>,
    /// Slashes that follow each other. `Merge`, the default: `/a//b` becomes `/a/b`. `Keep`: they are routed and sent as they
    /// came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_slashes: Option<DuplicateSlashes>,
    /// `%2F`, `%5C` and `\`. `RejectAmbiguous`, the default: 400 where the decoded path has dot segments or belongs to another
    /// rule; others are sent as they came, and never cached. `Reject`: 400. `Keep`: they are routed, sent and cached as
    /// they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded_separators: Option<EncodedSeparators>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DotSegments {
    #[default]
    Resolve,
    Reject,
    Keep,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DuplicateSlashes {
    #[default]
    Merge,
    Keep,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EncodedSeparators {
    #[default]
    RejectAmbiguous,
    Reject,
    Keep,
}
