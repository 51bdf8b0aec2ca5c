//! ghost.json: routing.json with every Service replaced by its endpoints.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::difference::{bare, laid_over, listener_since, listeners_over};
use crate::filters::Filters;
use crate::{Balancing, Fraction, Listener, Paths, Protocol, Timeouts, VERSION};

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Config {
    pub version: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Listeners of protocol TLS on the sockets of HTTPS listeners. Connections for their names never come here: a request for
    /// one came by another name's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_listeners: Vec<Listener>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_status_header: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_metrics: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_log: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_sampling: Option<f64>,
    /// The same where the front carries HTTP: it makes the spans, and ghost hands traces on as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_trace_sampling: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Paths>,
    /// A file beside this one: its hosts, and the names of its listeners, are this one's, too, but for those that stand here or
    /// in `removed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Hosts of the base that are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    #[serde(default)]
    pub vhosts: BTreeMap<String, Vhost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Route>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: VERSION,
            listeners: Vec::new(),
            tls_listeners: Vec::new(),
            timeouts: None,
            trusted_proxies: Vec::new(),
            gateway_id: None,
            cache_status_header: None,
            route_metrics: None,
            request_log: None,
            trace_sampling: None,
            front_trace_sampling: None,
            paths: None,
            base: None,
            removed: Vec::new(),
            vhosts: BTreeMap::new(),
            default: None,
        }
    }
}

impl Config {
    /// This file and its base as one, without a base.
    pub fn over(mut self, base: Self) -> Self {
        let vhosts = laid_over(base.vhosts, &self.removed, std::mem::take(&mut self.vhosts));
        let listeners = listeners_over(std::mem::take(&mut self.listeners), base.listeners);
        Self { base: None, removed: Vec::new(), vhosts, listeners, ..self }
    }

    /// This file, which has no hosts but those that differ from `base`, by that difference. Hosts of `base` do not matter.
    pub fn since(mut self, base: &Self, name: &str, removed: Vec<String>) -> Self {
        let listeners = std::mem::take(&mut self.listeners);
        let below = |at: usize| base.listeners.get(at);
        self.listeners =
            listeners.iter().enumerate().map(|(at, new)| listener_since(new, below(at))).collect();
        Self { base: Some(name.to_owned()), removed, ..self }
    }

    /// All but the hosts, and the names of listeners. Two files that agree in it differ by these alone.
    pub fn frame(&self) -> Self {
        Self {
            version: self.version,
            listeners: self.listeners.iter().map(bare).collect(),
            tls_listeners: self.tls_listeners.clone(),
            timeouts: self.timeouts,
            trusted_proxies: self.trusted_proxies.clone(),
            gateway_id: self.gateway_id.clone(),
            cache_status_header: self.cache_status_header,
            route_metrics: self.route_metrics,
            request_log: self.request_log,
            trace_sampling: self.trace_sampling,
            front_trace_sampling: self.front_trace_sampling,
            paths: self.paths,
            base: None,
            removed: Vec::new(),
            vhosts: BTreeMap::new(),
            default: self.default.clone(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Vhost {
    #[serde(default)]
    pub routes: Vec<Route>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_route: Option<Route>,
    /// Another host whose routes are this one's too: many hosts of one Ingress have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
}

/// One match of one rule, with all groups that share its requests.
pub type Route = crate::Route<Group, Mirror>;

/// Endpoints that get copies of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Mirror {
    pub group: Group,
    /// All requests where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
}

/// The endpoints of one Service. Requests are split between groups by weight, then within the group evenly, so
/// that replica counts never shift the split.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Group {
    pub weight: u32,
    // Version 2 has the second name.
    #[serde(alias = "backends")]
    pub endpoints: Vec<Endpoint>,
    /// Random where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balancing: Option<Balancing>,
    /// The endpoints are reached through the front, which verifies them by the profile of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// The filters of its backendRef alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Box<Filters>>,
    /// Those of its backendRef alone; those of the rule are in [`Route::mirrors`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<Mirror>,
    #[serde(skip_serializing_if = "Protocol::is_http1")]
    pub protocol: Protocol,
    /// `namespace/name:port` of the Service, for readers, logs and `explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Endpoint {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: IpAddr,
    pub port: u16,
}
