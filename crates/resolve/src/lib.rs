//! The second half of translation, for the data plane: Services become endpoints, routing.json becomes ghost.json.
//!
//! Takes the routing that `translate` made, and the EndpointSlices that the caller watches. A pure function, as `translate` is: no
//! clock, no async, no IO. The chaperone and `serve` call it for each change of endpoints; `check` and `explain` call it once.

mod endpoints;
mod external;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use model::ghost::{Config, Endpoint, Group, Mirror, Route, Vhost};
use model::names::is_udp_socket;
use model::routing::{self, Routing};
use model::{RouteKind, TlsBackend, VERSION};

use model::notice::{Notice, each_once};

pub use crate::endpoints::EndpointIndex;
use crate::endpoints::{Found, Transport};
pub use crate::external::external_slice;

/// Replaces every Service by its endpoints, and tells which Services have none. The same input gives the same bytes.
pub fn resolve(routing: &Routing, endpoints: &EndpointIndex) -> (Config, Vec<Notice>) {
    let hosts = routing.vhosts.iter().map(|(name, host)| (name.as_str(), host));
    let resolved = resolve_hosts(routing, hosts, endpoints);
    let notices = each_once(resolved.notices());
    (resolved.config, notices)
}

/// ghost.json, and what to tell people.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    pub config: Config,
    /// Of each host.
    pub of_hosts: BTreeMap<String, Vec<Notice>>,
    /// Of what no host has.
    pub others: Vec<Notice>,
}

impl Resolved {
    /// Some may come twice.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.of_hosts.values().flatten().chain(&self.others)
    }
}

/// The same for some hosts alone, with all else that the file has.
pub fn resolve_hosts<'a>(
    routing: &'a Routing,
    hosts: impl IntoIterator<Item = (&'a str, &'a routing::Vhost)>,
    endpoints: &'a EndpointIndex,
) -> Resolved {
    let mut resolver = Resolver { endpoints, known: HashMap::new(), notices: Vec::new() };
    let mut all = BTreeMap::new();
    let vhosts = hosts.into_iter().map(|(host, vhost)| {
        let resolved = Vhost {
            routes: vhost.routes.iter().map(|route| resolver.route(route)).collect(),
            default_route: vhost.default_route.as_ref().map(|route| resolver.route(route)),
            same_as: vhost.same_as.clone(),
        };
        if !resolver.notices.is_empty() {
            all.insert(host.to_owned(), each_once(&std::mem::take(&mut resolver.notices)));
        }
        (host.to_owned(), resolved)
    });
    let vhosts = vhosts.collect();
    let config = Config {
        version: VERSION,
        listeners: routing.listeners.clone(),
        tls_listeners: routing.tls_listeners_beside_https(),
        timeouts: routing.timeouts,
        trusted_proxies: routing.trusted_proxies.clone(),
        gateway_id: routing.gateway_id.clone(),
        cache_status_header: routing.cache_status_header,
        route_metrics: routing.route_metrics,
        request_log: routing.request_log.filter(|_| !routing.http_in_front),
        trace_sampling: routing.trace_sampling.filter(|_| !routing.http_in_front),
        front_trace_sampling: routing.trace_sampling.filter(|_| routing.http_in_front),
        paths: routing.paths,
        // The writer of the base knows its name.
        base: None,
        removed: routing.removed.clone(),
        vhosts,
        default: routing.default.as_ref().map(|route| resolver.route(route)),
    };
    Resolved { config, of_hosts: all, others: resolver.notices }
}

/// The groups of TLSRoutes, by [`tls_key`] of listener and host; and those of TCPRoutes and UDPRoutes, by the socket of their
/// listener.
pub type TlsGroups = BTreeMap<String, Vec<Group>>;

/// The key of a host's groups.
pub fn tls_key(listener: &str, hostname: &str) -> String {
    format!("{listener} {hostname}")
}

/// The same for TLSRoutes, TCPRoutes and UDPRoutes, whose connections do not go by ghost.
pub fn resolve_tls(routing: &Routing, endpoints: &EndpointIndex) -> (TlsGroups, Vec<Notice>) {
    let mut resolver = Resolver { endpoints, known: HashMap::new(), notices: Vec::new() };
    let mut groups = TlsGroups::new();
    for listener in &routing.tls_listeners {
        for host in &listener.hosts {
            let of_host = resolver.raw_groups(&host.backends, Without::Closed);
            groups.insert(tls_key(&listener.name, &host.hostname), of_host);
        }
    }
    for listener in &routing.stream_listeners {
        let without = if is_udp_socket(&listener.socket) { Without::Dropped } else { Without::Closed };
        groups.insert(listener.socket.clone(), resolver.raw_groups(&listener.backends, without));
    }
    (groups, each_once(&resolver.notices))
}

/// What is asked of the index: namespace, Service, port and port name; and for whom.
type Port<'a> = (&'a str, &'a str, Option<u16>, Option<&'a str>, Without);

/// What happens where a Service has no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Without {
    /// Requests get this status.
    Status(u16),
    /// Connections are closed.
    Closed,
    /// Datagrams are dropped.
    Dropped,
}

impl Without {
    fn for_requests(kind: RouteKind) -> Self {
        Self::Status(kind.status_without_backend())
    }

    fn transport(self) -> Transport {
        if self == Self::Dropped { Transport::Udp } else { Transport::Tcp }
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "requests get {status}"),
            Self::Closed => f.write_str("connections are closed"),
            Self::Dropped => f.write_str("datagrams are dropped"),
        }
    }
}

/// The endpoints of a port, or why there are none.
type Answer = Result<Vec<Endpoint>, Notice>;

struct Resolver<'a> {
    endpoints: &'a EndpointIndex,
    /// Thousands of routes may name one Service.
    known: HashMap<Port<'a>, (Answer, Vec<Notice>)>,
    notices: Vec<Notice>,
}

impl<'a> Resolver<'a> {
    /// Of bytes that are relayed, whatever they are.
    fn raw_groups(&mut self, backends: &'a [TlsBackend], without: Without) -> Vec<Group> {
        let group = |backend: &'a TlsBackend| {
            let weight = backend.weight;
            let Some(service) = backend.service.as_deref() else {
                return Group { weight, ..Group::default() };
            };
            let namespace = backend.namespace.as_deref().unwrap_or_default();
            let asked = (namespace, service, backend.port, backend.port_name.as_deref(), without);
            let endpoints = self.endpoints(asked, weight);
            let name = Some(format!("{namespace}/{service}"));
            Group { weight, endpoints, tls: backend.backend_tls.clone(), name, ..Group::default() }
        };
        backends.iter().map(group).collect()
    }

    fn route(&mut self, route: &'a routing::Route) -> Route {
        let groups = match &*route.backends {
            // A redirect leads to none.
            _ if route.redirects() => Box::default(),
            [] => [Group { weight: 1, ..Group::default() }].into(),
            backends => backends.iter().map(|backend| self.group(backend, route.kind)).collect(),
        };
        let mirrors = route.mirrors.iter().map(|mirror| self.mirror(mirror, route.kind)).collect();
        route.leading_to(groups, mirrors)
    }

    /// The backend's share of requests. One that leads nowhere has a group without endpoints.
    fn group(&mut self, backend: &'a routing::Backend, kind: RouteKind) -> Group {
        let weight = backend.weight.unwrap_or(1);
        let Some(service) = backend.service.as_deref() else {
            return Group { weight, ..Group::default() };
        };
        let namespace = backend.namespace.as_deref().unwrap_or_default();
        let (port, port_name) = (backend.port, backend.port_name.as_deref());
        let asked = (namespace, service, port, port_name, Without::for_requests(kind));
        Group {
            weight,
            endpoints: self.endpoints(asked, weight),
            balancing: backend.balancing,
            tls: backend.backend_tls.as_deref().map(str::to_owned),
            filters: backend.filters.clone(),
            mirrors: backend.mirrors.iter().map(|mirror| self.mirror(mirror, kind)).collect(),
            protocol: backend.protocol,
            name: Some(group_name(namespace, service, port, port_name)),
        }
    }

    /// Requests are served whether or not a mirror has endpoints.
    fn mirror(&mut self, from: &'a routing::Mirror, kind: RouteKind) -> Mirror {
        let asked = (
            &*from.namespace,
            &*from.service,
            from.port,
            from.port_name.as_deref(),
            Without::for_requests(kind),
        );
        let group = Group {
            weight: 1,
            endpoints: self.endpoints(asked, 0),
            tls: from.backend_tls.clone(),
            protocol: from.protocol,
            name: Some(group_name(&from.namespace, &from.service, from.port, from.port_name.as_deref())),
            ..Group::default()
        };
        Mirror { group, fraction: from.fraction }
    }

    fn endpoints(&mut self, asked: Port<'a>, weight: u32) -> Vec<Endpoint> {
        if !self.known.contains_key(&asked) {
            // Each host that leads to the Service tells what is wrong with its slices.
            let before = std::mem::take(&mut self.notices);
            let found = self.find(asked);
            let of_slices = std::mem::replace(&mut self.notices, before);
            self.known.insert(asked, (found, of_slices));
        }
        let Some((found, of_slices)) = self.known.get(&asked) else { return Vec::new() };
        self.notices.extend(of_slices.iter().cloned());
        match found {
            Ok(endpoints) => endpoints.clone(),
            Err(notice) => {
                // Without requests, missing endpoints do no harm.
                if weight > 0 {
                    self.notices.push(notice.clone());
                }
                Vec::new()
            }
        }
    }

    fn find(
        &mut self,
        (namespace, service, port, port_name, without): Port<'a>,
    ) -> Result<Vec<Endpoint>, Notice> {
        let found = self.endpoints.service(namespace, service).map_or(Found::NoSlice, |slices| {
            self.notices.extend(slices.notices.iter().cloned());
            slices.find(port, port_name, without.transport())
        });
        let external_name =
            self.endpoints.service(namespace, service).and_then(|slices| slices.external_name.clone());
        let wanted = match (port_name, port) {
            (Some(""), _) => "a port without name".to_owned(),
            (Some(name), _) => format!("a port named {name}"),
            (None, Some(port)) => format!("port {port}"),
            (None, None) => "one port".to_owned(),
        };
        let remedy = match found {
            Found::Endpoints(endpoints) => {
                let (own, others): (Vec<_>, Vec<_>) =
                    endpoints.into_iter().partition(|endpoint| self.endpoints.is_own(endpoint));
                self.notices.extend(own.iter().map(|Endpoint { address, port }| {
                    Notice::warning(
                        format!("Service {namespace}/{service}"),
                        format!(
                            "has the endpoint {address} port {port}, which is the gateway's own and is not used: name \
                             another address or port in its EndpointSlice"
                        ),
                    )
                }));
                return Ok(others);
            }
            Found::NoSlice => format!(
                "Add an EndpointSlice with the label kubernetes.io/service-name: {service} and {wanted}, or check \
                 that the Service's selector selects pods"
            ),
            Found::NoPort(names) => {
                let named = |name: &String| {
                    if name.is_empty() { "one without name".to_owned() } else { name.clone() }
                };
                let there: Vec<String> = names.iter().map(named).collect();
                let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                format!(
                    "Its EndpointSlices lack {wanted} (ports: {there}): name their ports as the Service does"
                )
            }
            Found::NoneReady if external_name.as_deref() == Some("") => {
                let message = "is of type ExternalName: its name is looked up when the Gateway runs";
                return Err(Notice::info(format!("Service {namespace}/{service}"), message));
            }
            Found::NoneReady if external_name.is_some() => format!(
                "Its externalName {} has no address that may be used: check that the name can be looked up where the Gateway runs",
                external_name.unwrap_or_default()
            ),
            Found::NoneReady => {
                "All its endpoints are unready, or its EndpointSlices are empty: check its pods".to_owned()
            }
        };
        let message = format!("has no ready endpoints: {without}. {remedy}");
        Err(Notice::warning(format!("Service {namespace}/{service}"), message))
    }
}

/// For people: the port by its number, else by its name.
fn group_name(namespace: &str, service: &str, port: Option<u16>, port_name: Option<&str>) -> String {
    match port {
        Some(port) => format!("{namespace}/{service}:{port}"),
        None => format!("{namespace}/{service}:{}", port_name.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    use super::*;

    fn slice(address: &str, port: u16) -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("web-{}", address.replace([':', '.'], "-")), "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "web"}
            },
            "addressType": if address.contains(':') { "IPv6" } else { "IPv4" },
            "endpoints": [{"addresses": [address]}],
            "ports": [{"name": "http", "port": port}],
        }))
        .unwrap()
    }

    #[test]
    fn datagrams_go_to_udp_ports_and_connections_to_tcp_ports_of_the_same_service() {
        let mut dns = slice("10.0.0.1", 53);
        let ports = json!([
            {"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": "dns-tcp", "port": 5354, "protocol": "TCP"},
        ]);
        dns.ports = serde_json::from_value(ports).unwrap();
        let backend = |name: Option<&str>| json!({"service": "web", "namespace": "shop", "port": 53, "port_name": name, "weight": 1});
        let routing: Routing = serde_json::from_value(json!({
            "version": 3,
            "stream_listeners": [
                {"name": "udp", "socket": "udp-53", "route_name": "shop/dns", "backends": [backend(Some("dns"))]},
                {"name": "tcp", "socket": "tcp-53", "route_name": "shop/dns", "backends": [backend(Some("dns-tcp"))]},
                // The only one of its protocol.
                {"name": "any", "socket": "udp-54", "route_name": "shop/dns", "backends": [backend(None)]},
                {"name": "no", "socket": "udp-55", "route_name": "shop/dns", "backends": [backend(Some("dns-tcp")), {"weight": 2}]},
            ],
        }))
        .unwrap();
        let (groups, notices) = resolve_tls(&routing, &EndpointIndex::new(&[dns]));
        let ports = |socket: &str| -> Vec<u16> {
            groups[socket].iter().flat_map(|group| &group.endpoints).map(|one| one.port).collect()
        };
        assert_eq!([ports("udp-53"), ports("tcp-53"), ports("udp-54")], [[5353], [5354], [5353]]);
        assert!(ports("udp-55").is_empty());
        assert_eq!(groups["udp-55"].iter().map(|group| group.weight).collect::<Vec<_>>(), [1, 2]);
        let texts: Vec<String> = notices.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts[0].contains("datagrams are dropped"), "{texts:?}");
    }

    #[test]
    fn a_name_of_a_service_has_its_addresses_in_place_of_slices_that_claim_to_be_its_own() {
        let routing: Routing = serde_json::from_value(json!({
            "version": 3,
            "external_names": {"services": {"shop/web": {"host": "api.example", "ports": [{"port": 8443}]}}},
            "vhosts": {"*": {"routes": [
                {"route_name": "shop/web", "backends": [{"service": "web", "namespace": "shop", "port": 8443, "port_name": "", "weight": 1}]}
            ]}},
        }))
        .unwrap();
        let name = &routing.external_names.as_ref().unwrap().services["shop/web"];
        let resolved = |addresses: Option<&[std::net::IpAddr]>| {
            let external = external_slice("shop/web", name, addresses);
            let index = EndpointIndex::new(&[slice("10.0.0.1", 80)]).replacing([&external]);
            let (config, notices) = resolve(&routing, &index);
            let backends = config.vhosts["*"].routes[0].backends[0].endpoints.clone();
            (backends, notices.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        };
        let addresses = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let (backends, notices) = resolved(Some(&addresses));
        assert_eq!(
            backends.iter().map(|one| (one.address, one.port)).collect::<Vec<_>>(),
            addresses.map(|one| (one, 8443))
        );
        assert_eq!(notices, "");
        let (backends, notices) = resolved(Some(&[]));
        assert!(
            backends.is_empty() && notices.contains("Its externalName api.example has no address"),
            "{notices}"
        );
        let (backends, notices) = resolved(None);
        assert!(backends.is_empty() && notices.contains("is looked up when the Gateway runs"), "{notices}");
    }

    #[test]
    fn ports_of_the_gateway_itself_are_no_endpoints() {
        let routing: Routing = serde_json::from_value(json!({
            "version": 3,
            "vhosts": {"*": {"routes": [
                {"route_name": "shop/web", "backends": [{"service": "web", "namespace": "shop", "port_name": "http", "weight": 1}]}
            ]}},
        }))
        .unwrap();
        let slices = [
            slice("127.0.0.1", 1969),
            slice("127.7.7.7", 1969),
            slice("::1", 1969),
            slice("::ffff:127.0.0.1", 1969),
            slice("0.0.0.0", 1969),
            slice("127.0.0.2", 8080),
            slice("10.0.0.1", 1969),
        ];
        let (config, notices) = resolve(&routing, &EndpointIndex::new(&slices).refusing([1969]));
        let used: Vec<String> = config.vhosts["*"].routes[0].backends[0]
            .endpoints
            .iter()
            .map(|one| format!("{}:{}", one.address, one.port))
            .collect();
        assert_eq!(used, ["10.0.0.1:1969", "127.0.0.2:8080"]);
        assert_eq!(notices.len(), 5, "{notices:?}");
        assert!(notices.iter().all(|notice| notice.to_string().contains("the gateway's own")), "{notices:?}");
        // Without the list they are as good as any.
        let (config, _) = resolve(&routing, &EndpointIndex::new(&slices));
        assert_eq!(config.vhosts["*"].routes[0].backends[0].endpoints.len(), 7);
    }
}
