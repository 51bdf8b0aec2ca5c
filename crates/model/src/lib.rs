//! The contracts between the stages: what the operator writes for the chaperone (`routing.json`), what the
//! chaperone writes for ghost (`ghost.json`), and the names that users see.
//!
//! This crate takes nothing and decides nothing. It guarantees that both halves of the gateway read the same
//! words, and that a file of another version is recognised before anything else in it is used.

mod data_path;
mod difference;
pub mod event;
mod external;
pub mod filters;
pub mod ghost;
pub mod host;
pub mod identity;
pub mod invalidation;
pub mod kept;
mod limits;
pub mod matches;
mod miss;
pub mod names;
pub mod notice;
mod paths;
pub mod proxy_protocol;
mod report;
mod route;
pub mod routing;
mod shared_map;
pub mod stats;
mod stream;
mod tls;
mod upstream;
mod version;

pub use data_path::{Arrangement, ThroughVarnishd};
pub use external::{ExternalName, ExternalNames, ExternalPort};
pub use limits::{ClientLimits, ProxyProtocol};
pub use miss::MissFor;
pub use paths::{DotSegments, DuplicateSlashes, EncodedSeparators, Paths};
pub use report::Report;
pub use route::Route;
pub use shared_map::{Difference, SharedMap};
pub use stream::StreamListener;
pub use tls::{
    BackendTls, ClientValidation, SubjectAltName, TlsBackend, TlsHost, TlsLimits, TlsListener, TlsOptions,
    TlsVersion,
};
pub use upstream::{Fraction, Protocol, Retry, RuleTimeouts, SessionBy, SessionPersistence};
pub use version::{OLDEST_VERSION, VERSION, Version, WrongVersion, check_version};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One listener of the Gateway as ghost must know it: the socket it shares with others, and the hostname that
/// tells it apart from them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listener {
    /// The listener's name in the Gateway.
    pub name: String,
    /// Socket name `{proto}-{port}`, for example `http-80`, `https-443`.
    pub socket: String,
    /// `shop.example.com`, `*.example.com`, or absent for every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// On an HTTPS listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTls>,
}

/// TLS as one listener ends it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListenerTls {
    /// Secrets, each `namespace/name`. One that holds no good pair now is named too: the last good one stays in use.
    #[serde(default)]
    pub certificates: Vec<String>,
    /// For single names that the listener takes, others instead. `*.example.com` is for one label only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, Vec<String>>,
    /// Names of the base's `hosts` that are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    #[serde(default, skip_serializing_if = "TlsOptions::is_default")]
    pub options: TlsOptions,
}

impl ListenerTls {
    /// Every Secret that it names; may repeat.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.certificates.iter().chain(self.hosts.values().flatten())
    }
}

/// The kind of object that a route comes from. Rules of an Ingress differ from those of an HTTPRoute: a wildcard stands for exactly
/// one label; a Service without endpoints answers 503, not 500; and requests of its hosts that match no path go to the file's
/// `default`. Only the first three kinds are in `routes` of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RouteKind {
    #[default]
    #[serde(rename = "HTTPRoute")]
    HttpRoute,
    Ingress,
    #[serde(rename = "GRPCRoute")]
    GrpcRoute,
    #[serde(skip)]
    TlsRoute,
    #[serde(skip)]
    TcpRoute,
    #[serde(skip)]
    UdpRoute,
}

impl RouteKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::HttpRoute => "HTTPRoute",
            Self::Ingress => "Ingress",
            Self::GrpcRoute => "GRPCRoute",
            Self::TlsRoute => "TLSRoute",
            Self::TcpRoute => "TCPRoute",
            Self::UdpRoute => "UDPRoute",
        }
    }

    /// The kind with this [`Self::name`], of those that files have.
    pub fn named(name: &str) -> Option<Self> {
        [Self::HttpRoute, Self::Ingress, Self::GrpcRoute].into_iter().find(|kind| kind.name() == name)
    }

    /// The status of a response where a rule has no backend to ask.
    pub fn status_without_backend(self) -> u16 {
        if self == Self::HttpRoute { 500 } else { 503 }
    }

    /// Most routes are: it is not written.
    pub fn is_http_route(&self) -> bool {
        *self == Self::HttpRoute
    }
}

/// How long varnishd waits for a backend, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timeouts {
    /// For the TCP connection to an endpoint.
    pub connect_seconds: f64,
    /// From the request's last byte to the answer's first.
    pub first_byte_seconds: f64,
    /// Between two reads of the answer's body.
    pub idle_seconds: f64,
}

impl Default for Timeouts {
    /// Varnish's own defaults.
    fn default() -> Self {
        Self { connect_seconds: 3.5, first_byte_seconds: 60.0, idle_seconds: 60.0 }
    }
}

/// How a group's requests are spread over its endpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Balancing {
    /// Each is as likely as the other.
    #[default]
    Random,
    /// One after the other, over all rules that name the same Service.
    RoundRobin,
}

/// How a route's answers are kept. Without a policy every request bypasses the cache.
///
/// Of `default_ttl_seconds` and `forced_ttl_seconds` at most one is there. With neither, an answer is kept as long as its
/// origin says, and not at all where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CachePolicy {
    /// How long an answer is fresh whose origin does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_ttl_seconds: Option<f64>,
    /// How long an answer is fresh, whatever its origin says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_ttl_seconds: Option<f64>,
    /// How long after that it is served while it is fetched again; 0 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<f64>,
    /// How long after that it is kept to be revalidated, and for an origin that fails; 0 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_seconds: Option<f64>,
    /// A larger answer is not kept. Where absent, one that takes more than an eighth of its storage; half of it is the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_object_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<CacheKey>,
    /// How long an answer is fresh whose origin says only when it changed last. Takes the place of `default_ttl_seconds` there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heuristic: Option<Heuristic>,
    /// Headers that Cache-Control gives way to (RFC 9213), the first that is there counts; CDN-Cache-Control where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control_targets: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bypass_headers: Vec<BypassHeader>,
    /// Whether a Cookie takes a request past the cache, as Varnish's builtin VCL has it. So it is for Ingresses without a
    /// VarnishCachePolicy. Unlike `bypass_headers`, user VCL may remove the Cookie first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cookies_pass: bool,
    /// Whether responses to unsafe methods (POST, PUT, …) leave what is stored of their URLs as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_unsafe_methods: bool,
    /// Whether Cache-Control of requests is obeyed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub obey_clients: bool,
    /// Whether requests with Authorization ask the cache. They share objects with each other only, and only where the origin says so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share_authorized: bool,
    /// Request headers of which one of a few values is left before the cache is asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub normalize: Vec<Normalize>,
    /// Whether No-Vary-Search of answers says which query parameters count. Not beside parameters in `cache_key`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_vary_search: bool,
    /// Whether answers to QUERY are kept, by the content of the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_queries: bool,
    /// Whether an answer to POST that names its own URL in Content-Location, and says how long it is fresh, is kept for GET.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_posts: bool,
}

/// A request header, and the values that are left of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Normalize {
    pub header: String,
    pub values: Vec<String>,
}

/// A part of the time since the last change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Heuristic {
    /// Of the time since the last change, from 0 to 1.
    pub fraction: f64,
    pub max_seconds: f64,
}

/// What beside host and URL tells two objects apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CacheKey {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_params_include: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_params_exclude: Option<Vec<String>>,
}

/// A request header that takes a request past the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BypassHeader {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_regex: Option<String>,
}
