//! What the chaperone asks of ghost, and how ghost answers: JSON on the loopback socket.

use serde::{Deserialize, Serialize};

/// The most paths and tags of one [`Order`]. Answers have to fit into a fetch's workspace.
pub const MOST_AT_ONCE: usize = 256;

/// What becomes of an object that is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Method {
    /// It goes.
    #[default]
    Purge,
    /// It becomes stale, and keeps its grace.
    SoftPurge,
    /// Whatever a regular expression matches goes.
    Ban,
}

/// Objects to take out of the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invalidation {
    pub method: Method,
    /// Whose objects; for tags it may be absent, which means everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Only objects of routes of this namespace: what an origin asks for, in an answer to one of its routes. Needs a hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Paths with their query; with [`Method::Ban`] regular expressions about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// One request's worth of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub invalidations: Vec<Invalidation>,
}

/// The result for one path or tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Objects that were found; none for a ban.
    #[serde(default, rename = "n", skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Why it could not be done.
    #[serde(default, rename = "e", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// In the order of the [`Order`]: of each invalidation its paths, then its tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    pub outcomes: Vec<Vec<Outcome>>,
}
