//! What clients may take, and who may speak for them.

use serde::{Deserialize, Serialize};

/// Limits for clients; the front's own defaults where absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientLimits {
    /// Open connections of one address, or of one IPv6 network of 64 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_address: Option<u32>,
    /// Bytes of a request's head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<u32>,
    /// Bytes of a request's path and query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_seconds: Option<f64>,
    /// HTTP/2 streams of one connection at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// HTTP/2 streams that the client of one connection may reset within a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<u32>,
    /// Sessions of one UDP listener at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_sessions: Option<u32>,
    /// A UDP session that no datagram passes ends after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_idle_seconds: Option<f64>,
    /// The same once its client has sent a datagram after an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_established_seconds: Option<f64>,
}

/// PROXY protocol from load balancers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ProxyProtocol {
    /// Networks of the load balancers, as `10.0.0.0/8`. Headers from other addresses are not believed.
    pub trusted_sources: Vec<String>,
    /// Connections from these networks are served without a header, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}
