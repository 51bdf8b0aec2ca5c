//! Listeners of protocol TCP and UDP.

use serde::{Deserialize, Serialize};

use crate::TlsBackend;

/// A listener of protocol TCP or UDP: its connections and datagrams go to the backends of one TCPRoute or UDPRoute, without varnishd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StreamListener {
    /// The listener's name in the Gateway.
    pub name: String,
    /// Socket name `tcp-{port}` or `udp-{port}`.
    pub socket: String,
    /// `namespace/name` of the TCPRoute or UDPRoute; empty where there is none: connections are closed, datagrams dropped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub route_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<TlsBackend>,
}
