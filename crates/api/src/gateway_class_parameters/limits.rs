//! What clients may take, and who may speak for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Limits for clients. Each is a field of its own: a Gateway that sets one keeps the others of its class. A change applies to
/// connections that are accepted after it; nothing is restarted.
///
/// With `dataPath: Varnish` only `maxConnections`, `maxConnectionsPerAddress` and those of UDP apply, to listeners that are not HTTP. The other
/// limits are varnishd's then; the Gateway's condition `ParametersValid` names those that are not in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    (
        "!has(self.maxUrlBytes) || !has(self.maxHeaderBytes) || self.maxUrlBytes <= self.maxHeaderBytes",
        "maxUrlBytes must not be larger than maxHeaderBytes, which includes the URL",
    ),
    (
        "!has(self.maxConnectionsPerAddress) || !has(self.maxConnections) || \
         self.maxConnectionsPerAddress <= self.maxConnections",
        "maxConnectionsPerAddress must not be larger than maxConnections",
    ),
])))]
pub struct LimitParameters {
    /// Open connections of one pod, over all its listeners. Default: 100000. Further clients wait to be accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_connections: Option<i32>,
    /// Open connections of one client to one pod: one IPv4 address, or one IPv6 network of 64 bits. Further connections are
    /// closed at once. Default: no limit. With `proxyProtocol` the address is the one in the PROXY header. Behind a load
    /// balancer without PROXY protocol all clients have its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_connections_per_address: Option<i32>,
    /// Bytes of a request's head: request line and headers. Default: 65536. Larger ones get 431.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1_048_576))]
    pub max_header_bytes: Option<i32>,
    /// Headers of a request. Default: 128. Requests with more get 431.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8, max = 1024))]
    pub max_headers: Option<i32>,
    /// Bytes of a request's path and query. Default: 16384. Longer ones get 414.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 64, max = 65_535))]
    pub max_url_bytes: Option<i32>,
    /// Size of a request's body, such as `10Mi`. Default: no limit. Larger ones get 413: by their Content-Length before the
    /// backend is contacted, otherwise once the limit is passed, and the request to the backend breaks off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("pattern" = schema::SIZE))]
    pub max_body_size: Option<String>,
    /// For the head of a request, from its first byte. Default: 60s. After it the client gets 408.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub header_timeout: Option<String>,
    /// A connection without a request is closed after this time. Default: 75s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub idle_timeout: Option<String>,
    /// A client that takes nothing of its response, or sends nothing of its body, is disconnected after this time; 5m where
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub stall_timeout: Option<String>,
    /// HTTP/2 streams of one connection at once. Default: 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_concurrent_streams: Option<i32>,
    /// HTTP/2 streams that the client of one connection may reset within a second. Default: 200. Beyond, the connection is
    /// closed with ENHANCE_YOUR_CALM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_resets_per_second: Option<i32>,
    /// Sessions of one UDP listener of one pod. Default: 16384. All UDP listeners of a pod together have 20480, and a quarter of
    /// the file descriptors that it may open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20_480))]
    pub max_udp_sessions: Option<i32>,
    /// A UDP session that no datagram passes ends after this time, 1h at most. Default: 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::up_to_one_hour()))]
    pub udp_idle_timeout: Option<String>,
    /// The same once the client has sent a datagram after an answer. Default: 120s. Such sessions are never replaced by new
    /// clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::up_to_one_hour()))]
    pub udp_established_timeout: Option<String>,
}

/// PROXY protocol, version 1 or 2, from load balancers. It counts for all listeners of a Gateway, before TLS. The client's address
/// is then the one in the header: for X-Forwarded-For, trustedProxies, logs and limits. The destination in it is ignored.
/// Needs the front to own all ports: with `dataPath: Varnish`, or what implies it, it is not in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyProtocolParameters {
    /// Networks (`10.0.0.0/8`, `fd00::/8`, or one address) of the load balancers. A PROXY header from any other address is
    /// not believed: HTTP clients get 400, TLS handshakes fail. Every address in these networks can claim to be any client.
    #[schemars(
        length(min = 1, max = 64),
        inner(length(max = 64)),
        extend("x-kubernetes-validations" = schema::networks())
    )]
    pub trusted_sources: Vec<String>,
    /// `Required`, the default: connections from the trusted sources without a valid PROXY header are closed. `Optional`: they
    /// are served with the address that they come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ProxyProtocolMode>,
}

/// Must a load balancer send a PROXY header?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProxyProtocolMode {
    #[default]
    Required,
    Optional,
}
