//! How requests of one rule reach its backends: timeouts, retries, mirrors, sticky sessions, and the protocol that a backend speaks.

use serde::{Deserialize, Serialize};

/// The version of HTTP that the gateway speaks to a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    #[default]
    Http1,
    /// HTTP/2: with prior knowledge in the clear (h2c), by ALPN over TLS.
    Http2,
}

impl Protocol {
    /// The default is not written.
    pub fn is_http1(&self) -> bool {
        *self == Self::Http1
    }
}

/// The timeouts of one rule, in seconds. Zero means none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RuleTimeouts {
    /// For the whole request, all tries together, until the response is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_seconds: Option<f64>,
    /// For one try, until its response is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_request_seconds: Option<f64>,
}

/// When a request is sent again to a backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Retry {
    /// Statuses of a backend that are not final.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<u16>,
    /// How often a request is sent again at most.
    pub attempts: u32,
    /// The shortest pause before a retry; the gateway's default where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_seconds: Option<f64>,
}

/// What share of requests is mirrored: `numerator` of `denominator`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fraction {
    pub numerator: u32,
    pub denominator: u32,
}

/// Requests of one client go to the same endpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SessionPersistence {
    pub by: SessionBy,
    /// The name of the cookie or header.
    pub name: String,
    /// A session ends this many seconds after it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absolute_seconds: Option<f64>,
    /// A session ends when it was not used for this many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
    /// The client keeps the cookie after it was closed, for `absolute_seconds`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionBy {
    #[default]
    Cookie,
    Header,
}
