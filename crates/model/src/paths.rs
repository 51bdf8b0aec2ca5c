//! How the paths of requests are read before they are routed.

use serde::{Deserialize, Serialize};

/// What is done about paths that programs read differently. The defaults leave no path with two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Paths {
    /// Of `/a/../b` and `/a/./b`.
    pub dot_segments: DotSegments,
    /// Of `/a//b`.
    pub duplicate_slashes: DuplicateSlashes,
    /// Of `%2F`, `%5C`, `\`, encoded dot segments, and path parameters.
    pub encoded_separators: EncodedSeparators,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DotSegments {
    /// `/a/../b` becomes `/b`.
    #[default]
    Resolve,
    /// 400.
    Reject,
    /// They are routed and sent as they came, and never cached.
    Keep,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DuplicateSlashes {
    /// `/a//b` becomes `/a/b`.
    #[default]
    Merge,
    /// They are routed and sent as they came.
    Keep,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum EncodedSeparators {
    /// 400 where the decoded path would belong to another rule, or would have dot segments. Others are sent as they came, and never
    /// cached.
    #[default]
    RejectAmbiguous,
    /// 400.
    Reject,
    /// They are routed, sent and cached as they came.
    Keep,
}
