//! routing.json: what `translate` decided, with Services still by name.

mod read;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::filters::Filters;
use crate::names::{ADMIN_PORT, HEALTH_PORT, socket_parts};
use crate::{
    Arrangement, BackendTls, Balancing, ClientLimits, ClientValidation, ExternalNames, Fraction, Listener,
    ListenerTls, Paths, Protocol, ProxyProtocol, SharedMap, StreamListener, ThroughVarnishd, Timeouts,
    TlsBackend, TlsLimits, TlsListener, VERSION,
};

pub use self::read::{ReadError, rewritten};

/// The whole file. [`Routing::read`] reads earlier versions, too; `Deserialize` refuses them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Routing {
    #[serde(deserialize_with = "read::present_version")]
    pub version: u32,
    /// Where empty, a route's sockets alone decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// Networks whose X-Forwarded-* headers are believed, as `10.0.0.0/8`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<String>,
    /// What tells this Gateway from others in CDN-Loop, the same for all its pods. Where absent, loops are not noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_id: Option<String>,
    /// Whether answers say in X-Cache what the cache did; they do where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_status_header: Option<bool>,
    /// Whether ghost counts the requests of each route; it does where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_metrics: Option<bool>,
    /// Whether ghost writes into varnishd's log what access logs need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_log: Option<bool>,
    /// Whether requests are spans of traces; of those that bring no trace along, this share is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_sampling: Option<f64>,
    /// How paths are read before they are routed; the defaults where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Paths>,
    /// Those of protocol TLS, whose connections go by TLSRoutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_listeners: Vec<TlsListener>,
    /// Those of protocol TCP and UDP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stream_listeners: Vec<StreamListener>,
    /// By port: what clients must show.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub client_validation: BTreeMap<u16, ClientValidation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_limits: Option<TlsLimits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_limits: Option<ClientLimits>,
    /// Where absent no PROXY header is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Services that are names of hosts elsewhere. Absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_names: Option<ExternalNames>,
    /// How backends with TLS are verified, by the name that routes have in `backend_tls`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backend_tls: BTreeMap<String, BackendTls>,
    /// CA certificates as PEM, by a name that changes with their content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub authorities: BTreeMap<String, String>,
    /// Another file, by its SHA-256: its hosts are this one's, too, but for those that stand here or in `removed`. The same goes
    /// for names of listeners, `backend_tls` and `authorities`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Hosts of the base that are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_backend_tls: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_authorities: Vec<String>,
    /// By host in lower case: `shop.example.com`, `*.example.com`, `*`.
    #[serde(default)]
    pub vhosts: SharedMap<String, Vhost>,
    /// For hosts that no entry of `vhosts` names, and for requests that no route of an Ingress's host fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Route>,
    /// A pod that has no route to serve says that it is not ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unready_without_routes: bool,
    /// The front owns the ports of plain HTTP listeners, too, and carries HTTP. Otherwise they are varnishd's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub http_in_front: bool,
    /// Why it does not, where parameters are the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through_varnishd: Option<ThroughVarnishd>,
    /// The parameters switch hot objects off, for those who show it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hot_objects_off: bool,
}

impl Routing {
    /// Every route, of hosts and of none.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        let of_hosts = self.vhosts.values().flat_map(|host| host.routes.iter().chain(&host.default_route));
        of_hosts.chain(&self.default)
    }

    pub fn arrangement(&self) -> Arrangement {
        Arrangement {
            http_in_front: self.http_in_front,
            through_varnishd: self.through_varnishd,
            hot_objects_off: self.hot_objects_off,
        }
    }

    /// The ports of all listeners, by the names of their sockets (`https-443`).
    pub fn listener_ports(&self) -> BTreeSet<u16> {
        let http = self.listeners.iter().map(|listener| &listener.socket);
        let sockets = http.chain(self.tls_listeners.iter().map(|listener| &listener.socket));
        let sockets = sockets.chain(self.stream_listeners.iter().map(|listener| &listener.socket));
        sockets.filter_map(|socket| Some(socket_parts(socket)?.1)).collect()
    }

    /// The port that a pod opens for a listener: the listener's own, which the Service has. Where the front owns all ports, one
    /// that the pod needs for itself gets a stand-in, so that such a listener does not change the pod.
    pub fn pod_port(&self, port: u16) -> u16 {
        if !self.http_in_front || ![HEALTH_PORT, ADMIN_PORT].contains(&port) {
            return port;
        }
        let taken = self.listener_ports();
        (port + 10_000..=u16::MAX).find(|free| !taken.contains(free)).unwrap_or(port)
    }

    /// Does any HTTPRoute or Ingress have a part in it?
    pub fn has_routes(&self) -> bool {
        !self.vhosts.is_empty() || self.default.as_ref().is_some_and(|route| !route.route_name.is_empty())
    }

    /// Where the Services of all routes are: pods watch the endpoints there, and need the right to.
    pub fn service_namespaces(&self) -> BTreeSet<String> {
        let of_routes = self.routes().flat_map(Route::services).map(|(namespace, _)| namespace);
        let of_tls = self.tls_backends().filter(|backend| backend.service.is_some());
        // Thousands of routes have few namespaces: only these are copied.
        let all: BTreeSet<&str> =
            of_routes.chain(of_tls.filter_map(|backend| backend.namespace.as_deref())).collect();
        all.into_iter().map(str::to_owned).collect()
    }

    /// Of TLSRoutes, TCPRoutes and UDPRoutes.
    pub fn tls_backends(&self) -> impl Iterator<Item = &TlsBackend> {
        let of_tls =
            self.tls_listeners.iter().flat_map(|listener| &listener.hosts).flat_map(|host| &host.backends);
        of_tls.chain(self.stream_listeners.iter().flat_map(|listener| &listener.backends))
    }

    /// TLS listeners that share a port with HTTPS ones, as ghost sees them: by the socket of these.
    pub fn tls_listeners_beside_https(&self) -> Vec<Listener> {
        let https = |socket: &str| {
            let (_, port) = socket_parts(socket)?;
            let is_beside = |other: &&Listener| {
                other.tls.is_some() && socket_parts(&other.socket).is_some_and(|(_, of)| of == port)
            };
            self.listeners.iter().find(is_beside).map(|listener| listener.socket.clone())
        };
        let beside = self.tls_listeners.iter().filter_map(|listener| {
            let (name, hostname) = (listener.name.clone(), listener.hostname.clone());
            Some(Listener { name, socket: https(&listener.socket)?, hostname, tls: None })
        });
        beside.collect()
    }

    /// Sockets of all listeners, of varnishd's and of the front's; without those that wait for a certificate. May repeat.
    pub fn sockets(&self) -> impl Iterator<Item = &str> {
        self.http_sockets().chain(self.front_sockets())
    }

    /// Sockets of plain HTTP listeners: varnishd's, or the front's with `http_in_front`. May repeat.
    pub fn http_sockets(&self) -> impl Iterator<Item = &str> {
        let http = self.listeners.iter().filter(|listener| listener.tls.is_none());
        http.map(|listener| listener.socket.as_str())
    }

    /// Sockets of the front; without those that wait for a certificate. May repeat.
    pub fn front_sockets(&self) -> impl Iterator<Item = &str> {
        let has_names = |tls: &&ListenerTls| tls.names().next().is_some();
        let https = self
            .listeners
            .iter()
            .filter(move |listener| listener.tls.as_ref().filter(has_names).is_some())
            .map(|listener| listener.socket.as_str());
        let tls = self
            .tls_listeners
            .iter()
            .filter(move |listener| listener.tls.as_ref().is_none_or(|tls| has_names(&tls)))
            .map(|listener| listener.socket.as_str());
        let streams = self.stream_listeners.iter().map(|listener| listener.socket.as_str());
        let http = self.http_sockets().filter(|_| self.http_in_front);
        http.chain(https).chain(tls).chain(streams)
    }

    /// Secrets with pairs, each `namespace/name`: of listeners, and what we show to backends. May repeat.
    pub fn certificate_names(&self) -> impl Iterator<Item = &String> {
        let of_listeners = self.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let of_listeners =
            of_listeners.chain(self.tls_listeners.iter().filter_map(|listener| listener.tls.as_ref()));
        let of_clients = self.backend_tls.values().filter_map(|tls| tls.client_certificate.as_ref());
        of_listeners.flat_map(|tls| tls.names()).chain(of_clients)
    }
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            version: VERSION,
            listeners: Vec::new(),
            timeouts: None,
            trusted_proxies: Vec::new(),
            gateway_id: None,
            cache_status_header: None,
            route_metrics: None,
            request_log: None,
            trace_sampling: None,
            paths: None,
            tls_listeners: Vec::new(),
            stream_listeners: Vec::new(),
            client_validation: BTreeMap::new(),
            tls_limits: None,
            client_limits: None,
            proxy_protocol: None,
            external_names: None,
            backend_tls: BTreeMap::new(),
            authorities: BTreeMap::new(),
            base: None,
            removed: Vec::new(),
            removed_backend_tls: Vec::new(),
            removed_authorities: Vec::new(),
            vhosts: SharedMap::new(),
            default: None,
            unready_without_routes: false,
            http_in_front: false,
            through_varnishd: None,
            hot_objects_off: false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Vhost {
    /// In order of precedence: what the fields leave equal, the earlier entry wins.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// For requests of this host that no route matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_route: Option<Route>,
    /// Another host whose routes are this one's too: many hosts of one Ingress have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
}

/// One match of one rule, with Services by name.
pub type Route = crate::Route<Backend, Mirror>;

impl Route {
    /// Namespace and name of every Service that it leads to, or that gets copies. May repeat.
    pub fn services(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.backends.iter();
        let own = own.filter_map(|backend| backend.namespace.as_deref().zip(backend.service.as_deref()));
        let of_backends = self.backends.iter().flat_map(|backend| &backend.mirrors);
        let mirrors = self.mirrors.iter().chain(of_backends);
        own.chain(mirrors.map(|mirror| (&*mirror.namespace, &*mirror.service)))
    }
}

/// One backendRef of a rule, or the backend of a path of an Ingress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Backend {
    /// Absent where the reference is not valid: its share of requests gets 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Box<str>>,
    /// The Service's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// That port's name in the Service (empty for a port without name), by which EndpointSlices are searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_name: Option<Box<str>>,
    /// A name out of the file's `backend_tls`. Where absent the backend gets HTTP in the clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_tls: Option<Box<str>>,
    /// The filters of this backendRef alone. They are carried out after those of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Box<Filters>>,
    /// Copies of the requests that this backendRef gets go there as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<Mirror>,
    /// What the backend speaks.
    #[serde(skip_serializing_if = "Protocol::is_http1")]
    pub protocol: Protocol,
    /// 1 where absent, as in the Gateway API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Over the Service's endpoints; random where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balancing: Option<Balancing>,
}

impl Backend {
    /// Takes the Service away: its share of requests gets 500.
    pub fn close(&mut self) {
        *self = Self { weight: self.weight, ..Self::default() };
    }
}

/// A Service that gets copies of requests. Its responses are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Mirror {
    pub service: String,
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_name: Option<String>,
    /// A name out of the file's `backend_tls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_tls: Option<String>,
    #[serde(skip_serializing_if = "Protocol::is_http1")]
    pub protocol: Protocol,
    /// All requests where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_a_port_of_the_pod_itself_gets_another_in_the_pod() {
        let listener = |socket: &str| Listener {
            name: socket.to_owned(),
            socket: socket.to_owned(),
            hostname: None,
            tls: None,
        };
        let sockets = ["http-80", "http-8081", "https-6082", "http-18081"];
        let listeners = sockets.map(listener).to_vec();
        let routing = Routing { listeners, http_in_front: true, ..Routing::default() };
        assert_eq!([80, 8081, 6082, 18081].map(|port| routing.pod_port(port)), [80, 18082, 16082, 18081]);
        let routing = Routing { http_in_front: false, ..routing };
        assert_eq!([80, 8081, 6082].map(|port| routing.pod_port(port)), [80, 8081, 6082]);
    }

    #[test]
    fn plain_listeners_have_sockets_of_the_front_where_it_carries_http() {
        let listener = |socket: &str, tls: Option<ListenerTls>| Listener {
            name: socket.to_owned(),
            socket: socket.to_owned(),
            hostname: None,
            tls,
        };
        let pair = ListenerTls { certificates: vec!["a/pair".to_owned()], ..ListenerTls::default() };
        let listeners = vec![
            listener("http-80", None),
            listener("https-443", Some(pair)),
            listener("https-8443", Some(ListenerTls::default())),
        ];
        let mut routing = Routing { listeners, ..Routing::default() };
        assert_eq!(routing.front_sockets().collect::<Vec<_>>(), ["https-443"]);
        assert!(!serde_json::to_string(&routing).unwrap().contains("http_in_front"));
        routing.http_in_front = true;
        assert_eq!(routing.front_sockets().collect::<Vec<_>>(), ["http-80", "https-443"]);
        let all: BTreeSet<&str> = routing.sockets().collect();
        assert_eq!(all, BTreeSet::from(["http-80", "https-443"]));
    }
}
