//! TLS on both sides: how listeners end it, and how backends are verified.

use serde::{Deserialize, Serialize};

use crate::ListenerTls;

/// How one kind of backend is verified. Its name in routing.json changes with its content, so that connections that were made
/// by the old one are not used for the new one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BackendTls {
    /// Sent as SNI; the name to verify, where `names` is empty.
    pub hostname: String,
    /// One of them must be in the backend's certificate. The hostname then does not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<SubjectAltName>,
    /// CAs to trust, by their names in `authorities`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<String>,
    /// Trust the CAs of the operating system.
    #[serde(skip_serializing_if = "is_false")]
    pub system: bool,
    /// `namespace/name` of the Secret with the pair that we show to a backend that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<String>,
    #[serde(skip_serializing_if = "TlsOptions::is_default")]
    pub options: TlsOptions,
}

/// What is asked of TLS beyond certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TlsOptions {
    /// 1.2 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<TlsVersion>,
    /// Names of IANA's registry; all that the gateway has where empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cipher_suites: Vec<String>,
}

impl TlsOptions {
    /// Most ask for nothing: it is not written.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TlsVersion {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// A name in a backend's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SubjectAltName {
    Dns(String),
    Uri(String),
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// A listener of protocol TLS: what it takes goes on by TLSRoutes, without varnishd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TlsListener {
    pub name: String,
    /// Socket name `tls-{port}`.
    pub socket: String,
    /// `db.example.com`, `*.example.com`, or absent for every name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Where present TLS ends here; else the backend ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
    /// Names that routes have; others are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<TlsHost>,
    /// Names of the base's `hosts` that are no more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// Where one name leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TlsHost {
    /// `db.example.com`, `*.example.com`, or `*`.
    pub hostname: String,
    /// `namespace/name` of the TLSRoute.
    pub route_name: String,
    pub backends: Vec<TlsBackend>,
}

/// One backendRef of a TLSRoute, TCPRoute or UDPRoute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TlsBackend {
    pub weight: u32,
    /// Absent where the backendRef is not valid: its share of connections is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_name: Option<String>,
    /// A name out of the file's `backend_tls`: what was decrypted is encrypted again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_tls: Option<String>,
    /// The backend wants a PROXY v2 header before the bytes of each connection. For TCPRoutes.
    #[serde(skip_serializing_if = "is_false")]
    pub proxy_protocol: bool,
}

/// What clients of a port must show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientValidation {
    /// CAs to trust, by their names in `authorities`.
    pub authorities: Vec<String>,
    /// Clients without a valid certificate are served all the same.
    #[serde(skip_serializing_if = "is_false")]
    pub insecure_fallback: bool,
}

/// What clients of the front may take; the front's own defaults where absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TlsLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_hello_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
}
