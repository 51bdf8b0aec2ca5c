//! What is served, as the page and the command line read it.

mod certificates;
mod gateway;
mod routes;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use crate::flows::{NamedRates, Others, Picture, Rate, Rates};
pub use crate::traffic::{ByWay, Columns, Point};

pub(crate) use gateway::{arrangement, gateway, streams};
pub(crate) use routes::rows;

/// A Gateway by its desired configuration, for callers without a varnishd.
pub fn of_config(name: &str, state: &chaperone::State, config: &model::ghost::Config) -> Gateway {
    gateway(name, state, config)
}

/// All its rows. Its endpoints have not been tried.
pub fn all_rows(name: &str, config: &model::ghost::Config, in_front: bool) -> Vec<Row> {
    rows(name, config, in_front, &|_| Health::Untried).collect()
}

/// `/api/state`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub version: String,
    /// The cache engine: `Vinyl Cache 9.0.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Milliseconds since 1970.
    pub started: u64,
    pub now: u64,
    /// May the page take objects out of the cache?
    pub allow_actions: bool,
    pub gateways: Vec<Gateway>,
}

/// One Gateway and its varnishd.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    /// `namespace/name`
    pub name: String,
    pub serving: bool,
    pub draining: bool,
    /// The newest configuration is not served, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Which process carries HTTP.
    #[serde(default)]
    pub arrangement: Arrangement,
    /// The cache engine: `Vinyl Cache 9.0.1`. In a cluster, those of all pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// What else keeps it from serving all that it is to serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    pub listeners: Vec<Listener>,
    pub certificates: Vec<Certificate>,
    pub counts: Counts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<Reload>,
    /// How long the newest change took until it was served, and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<Change>,
    /// A configuration that was not taken, if one was since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Reload>,
    /// Absent until varnishd has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// TLSRoutes' names, and where their connections go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_hosts: Vec<TlsHost>,
    /// TCPRoutes and UDPRoutes, and what was counted of them since the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
}

/// What was counted of one TCPRoute or UDPRoute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// `TCPRoute` or `UDPRoute`.
    pub kind: String,
    /// `namespace/name`; empty for listeners without a route.
    pub route: String,
    /// TCP connections, or UDP sessions.
    pub connections: u64,
    pub open: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Connections that reached no endpoint, or datagrams that were dropped.
    pub lost: u64,
}

/// Which process carries HTTP, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrangement {
    /// `Front` or `Varnish`.
    pub name: String,
    pub why: String,
}

impl From<model::Arrangement> for Arrangement {
    fn from(of: model::Arrangement) -> Self {
        Self { name: of.name().to_owned(), why: of.why().to_owned() }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub hosts: usize,
    /// HTTPRoutes and Ingresses.
    pub routes: usize,
    /// Matches of their rules.
    pub rules: usize,
    pub services: usize,
    pub endpoints: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reload {
    /// Milliseconds since 1970.
    pub at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<f64>,
    pub text: String,
}

/// A change that is served.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Milliseconds since 1970.
    pub at: u64,
    pub milliseconds: f64,
    /// In their order.
    pub steps: Vec<Step>,
}

/// A part of a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// `read`, `translated`, `compiled` or `swapped`.
    pub name: String,
    /// Since the part before.
    pub milliseconds: f64,
}

impl From<&chaperone::Change> for Change {
    fn from(change: &chaperone::Change) -> Self {
        let milliseconds = |took: std::time::Duration| took.as_secs_f64() * 1e3;
        let since_1970 = change.at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let step =
            |(name, took): &(&str, _)| Step { name: (*name).to_owned(), milliseconds: milliseconds(*took) };
        Self {
            at: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            milliseconds: milliseconds(change.took),
            steps: change.steps.iter().map(step).collect(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    pub name: String,
    /// `HTTP`, `HTTPS` or `TLS`.
    pub protocol: String,
    pub port: u16,
    /// `*` for all.
    pub hostname: String,
    pub socket: String,
    /// Where its socket is open; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Secrets, `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    pub routes: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The Secret, `namespace/name`; empty where it is not known which of several.
    pub secret: String,
    /// DNS names.
    pub names: Vec<String>,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
    /// Of its first certificate.
    pub fingerprint: String,
    /// Sockets that show it.
    pub sockets: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsHost {
    pub socket: String,
    pub hostname: String,
    /// `passed through` or `decrypted`.
    pub mode: String,
    pub groups: Vec<Group>,
}

/// `/api/traffic`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds that are kept.
    pub kept: usize,
    pub gateways: Vec<MeasuredGateway>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredGateway {
    pub gateway: String,
    pub in_flight: u64,
    /// False where counting for each route is switched off.
    pub per_route: bool,
    pub total: Columns,
    /// The front carries HTTP; otherwise all requests go through varnishd.
    #[serde(default)]
    pub in_front: bool,
    pub picture: Picture,
}

/// `/api/top`: over the last seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Top {
    pub gateways: Vec<Second>,
    /// Requests are counted by way. They are not in the metrics of pods.
    #[serde(default)]
    pub by_way: bool,
    /// What is not in these numbers, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One second of one Gateway, or several as one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    pub gateway: String,
    pub total: Point,
    pub in_flight: u64,
    /// The front carries HTTP; otherwise all requests go through varnishd.
    #[serde(default)]
    pub in_front: bool,
    /// `metrics.perRoute: false` has switched counting off: the numbers say nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
    /// Those with requests, the busiest first.
    pub rules: Vec<SecondOf>,
    /// TCPRoutes and UDPRoutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamSecond>,
    /// Where requests come from, and where they go.
    #[serde(default)]
    pub picture: Picture,
}

/// One second of one TCPRoute or UDPRoute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSecond {
    /// `TCPRoute` or `UDPRoute`.
    pub kind: String,
    /// `namespace/name`; empty for listeners without a route.
    pub route: String,
    /// TCP connections, or UDP sessions, that began.
    pub connections: f64,
    /// Open now.
    pub open: u64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    /// Connections that reached no endpoint, or datagrams that were dropped.
    pub lost: f64,
}

/// … and of one rule of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondOf {
    pub kind: String,
    /// `namespace/name`
    pub route: String,
    pub rule: u32,
    #[serde(flatten)]
    pub point: Point,
}

/// `/api/routes`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// Those that fit the question, beyond what is shown, too.
    pub total: usize,
    pub rows: Vec<Row>,
}

/// One match of one rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub gateway: String,
    /// Its host, and others that have the same routes. `*` for all.
    pub hosts: Vec<String>,
    pub kind: String,
    /// `namespace/name`
    pub route: String,
    pub rule: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    /// `PathPrefix /shop, method GET`
    pub conditions: String,
    /// Names of listeners; none: all.
    pub listeners: Vec<String>,
    /// What its filters do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// The data path of its requests in the Front arrangement: `cache`, for those that the cache may answer, or `direct`; `own` where
    /// the gateway answers. Otherwise `varnishd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
    /// Its cache policy; absent: bypassed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    pub groups: Vec<Group>,
    /// Its rule's numbers, where requests have come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Columns>,
}

/// The endpoints of one Service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `namespace/name:port`; empty for a backendRef that is not valid.
    pub name: String,
    pub weight: u32,
    /// Percent of the rule's requests.
    pub share: f64,
    #[serde(default)]
    pub tls: bool,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub address: SocketAddr,
    #[serde(default)]
    pub health: Health,
}

/// What varnishd's own attempts say, and the front's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// varnishd has not needed it yet.
    #[default]
    Untried,
    /// The last attempts succeeded.
    Up,
    /// The last attempts failed, or the front avoids it.
    Failing,
}

/// How full the cache is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Bytes of all objects that are stored: `stored` and `transient`.
    pub used: u64,
    /// All objects, those in Transient, too.
    pub objects: u64,
    /// Bytes in the configured storage, and its limit; 0 where it has none.
    pub stored: u64,
    pub limit: u64,
    /// Bytes in Transient, which holds short-lived objects and uncached responses under way; and its limit, 0 where it has none.
    pub transient: u64,
    pub transient_limit: u64,
    /// Objects that were evicted because the storage was full.
    pub evicted: u64,
}
