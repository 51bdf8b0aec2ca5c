use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What clients of HTTPS and TLS listeners may take. Each is for all ports of a pod together; a change counts for those who
/// come after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsParameters {
    /// From the accepted connection to the end of the handshake. Default: 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub handshake_timeout: Option<String>,
    /// Handshakes at once. Default: 1024. Further clients wait; a client that holds a handshake for more
    /// than a second while others wait is disconnected. Four times as many clients may be connected before they send anything; beyond
    /// that the oldest of them is disconnected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_handshakes: Option<i32>,
    /// The older name of `limits.maxConnections`. One object has only one of the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_connections: Option<i32>,
    /// The most bytes of a ClientHello. Default: 16384.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 512, max = 65_536))]
    pub max_client_hello_bytes: Option<i32>,
    /// A connection of a TLSRoute on which nothing moves is closed after this time. Default: 1h. For HTTP
    /// `limits.idleTimeout` counts, or varnishd's own `timeout_idle` with `dataPath: Varnish`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub idle_timeout: Option<String>,
}
