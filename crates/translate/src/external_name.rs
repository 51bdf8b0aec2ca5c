//! Services of type ExternalName: names that pods look up by DNS.
//!
//! The author of such a Service decides which hosts pods talk to, so a Gateway uses them only where its parameters say so.
//! [`enforce`] takes the finished routing: it removes names that the Gateway may not use, and the status of the route says so; it
//! lists the others in the routing. `resolve::external_slice` makes EndpointSlices of the addresses that were looked up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use api::ExternalNames as Mode;
use k8s_openapi::api::core::v1::Service;
use model::names::is_udp_socket;
use model::routing::{Mirror, Route, Routing};
use model::{ExternalName, ExternalNames, ExternalPort, SharedMap, TlsBackend};

use crate::attach::gateway_of;
use crate::gateway::Gateway;
use crate::listener::Fault;
use crate::patterns::add;
use crate::snapshot::{Key, Snapshot, age};
use crate::status::{IngressStatus, RESOLVED_REFS, Statuses};

/// Different names of one namespace, on one Gateway: no tenant uses up what a Gateway has for all.
const MOST_OF_NAMESPACE: usize = 64;
/// Different names of one Gateway.
const MOST: usize = 1024;
/// What DNS takes.
const LONGEST: usize = 253;

/// The name, if the Service is of this type. It may be empty, or no name at all.
pub(crate) fn host(service: &Service) -> Option<&str> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("ExternalName"))?;
    Some(spec.external_name.as_deref().unwrap_or_default())
}

/// A route whose backends are taken away: its kind, its name, and why.
type Told = BTreeMap<(&'static str, String), Vec<Fault>>;

/// Takes out what a Gateway does not use, and lists the rest in its routing.
pub(crate) fn enforce(
    snapshot: &Snapshot,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
    routes: &mut Statuses,
    ingresses: &mut SharedMap<Key, IngressStatus>,
) {
    if !snapshot.services.values().any(|service| host(service).is_some()) {
        return;
    }
    for (key, gateway) in gateways {
        let mode = gateway.external_names();
        let mut judge = Judge { snapshot, gateway: key, mode, judged: HashMap::new(), used: BTreeMap::new() };
        judge.all(&gateway.routing);
        let mut told = Told::new();
        judge.write(&mut gateway.routing, &mut told);
        let services = judge.used;
        gateway.routing.external_names =
            (!services.is_empty()).then_some(ExternalNames { public_only: mode != Mode::Allow, services });
        tell(snapshot, key, &told, routes, ingresses);
    }
}

struct Judge<'a> {
    snapshot: &'a Snapshot,
    gateway: &'a Key,
    mode: Mode,
    /// The name of a Service, or why it is not used. None: it is of another type.
    judged: HashMap<Key, Result<Option<String>, Fault>>,
    used: BTreeMap<String, ExternalName>,
}

impl Judge<'_> {
    /// Judges every Service of the routing. The oldest keep their places where there are too many names.
    fn all(&mut self, routing: &Routing) {
        let of_routes = routing.routes().flat_map(Route::services);
        let of_tls =
            routing.tls_backends().filter_map(|one| one.namespace.as_deref().zip(one.service.as_deref()));
        let named: BTreeSet<(&str, &str)> = of_routes.chain(of_tls).collect();
        let mut external: Vec<(Key, &Service)> = named
            .into_iter()
            .map(|(namespace, name)| Key::new(namespace, name))
            .filter_map(|key| Some((key.clone(), &**self.snapshot.services.get(&key)?)))
            .filter(|(_, service)| host(service).is_some())
            .collect();
        external.sort_by_cached_key(|(key, service)| age(key, &service.metadata));
        let mut of_namespaces: HashMap<String, BTreeSet<String>> = HashMap::new();
        let mut of_gateway: BTreeSet<String> = BTreeSet::new();
        for (key, service) in external {
            let judged = self.judge(&key, host(service).unwrap_or_default()).and_then(|name| {
                let of_namespace = of_namespaces.entry(key.namespace.clone()).or_default();
                let fits = |all: &BTreeSet<String>, most| all.contains(&name) || all.len() < most;
                if !fits(of_namespace, MOST_OF_NAMESPACE) || !fits(&of_gateway, MOST) {
                    return Err(Fault {
                        reason: "UnsupportedProtocol",
                        message: format!(
                            "Service {key} is of type ExternalName, and there are too many names already: a Gateway looks up \
                             {MOST_OF_NAMESPACE} names for one namespace, and {MOST} together; remove some"
                        ),
                    });
                }
                of_namespace.insert(name.clone());
                of_gateway.insert(name.clone());
                Ok(Some(name))
            });
            self.judged.insert(key, judged);
        }
    }

    fn judge(&self, service: &Key, name: &str) -> Result<String, Fault> {
        let fault = |why: String| {
            let message = format!("Service {service} is of type ExternalName, {why}");
            Err(Fault { reason: "UnsupportedProtocol", message })
        };
        if self.mode == Mode::Deny {
            return fault(format!(
                "which Gateway {} does not use: set externalNames: PublicOnly (or Allow, for private addresses) in its \
                 GatewayClassParameters, or use a Service with EndpointSlices",
                self.gateway
            ));
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if name.parse::<IpAddr>().is_ok() {
            return fault(format!(
                "and its externalName `{name}` is an address: use a Service with EndpointSlices for addresses"
            ));
        }
        let is_label = |label: &str| {
            let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
        };
        // Digits alone at the end are an address to some readers (127.1).
        let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit()) || label.starts_with("0x");
        let last = name.rsplit('.').next().unwrap_or_default();
        if name.len() > LONGEST || !name.split('.').all(is_label) || is_number(last) {
            return fault(format!("and its externalName `{name}` is not a name of DNS: correct it"));
        }
        Ok(name)
    }

    /// May the backend be used? A Service of another type may.
    fn find(&mut self, namespace: &str, service: &str, port: ExternalPort) -> Result<(), Fault> {
        let key = Key::new(namespace, service);
        match self.judged.get(&key) {
            None | Some(Ok(None)) => Ok(()),
            Some(Err(fault)) => Err(fault.clone()),
            Some(Ok(Some(host))) => {
                let used = self.used.entry(key.to_string()).or_default();
                used.host.clone_from(host);
                used.ports.insert(port);
                Ok(())
            }
        }
    }

    fn write(&mut self, routing: &mut Routing, told: &mut Told) {
        let Routing { vhosts, default, tls_listeners, stream_listeners, .. } = routing;
        let of_hosts =
            vhosts.values_mut().flat_map(|host| host.routes.iter_mut().chain(&mut host.default_route));
        for route in of_hosts.chain(default) {
            self.write_route(route, told);
        }
        for host in tls_listeners.iter_mut().flat_map(|listener| &mut listener.hosts) {
            self.write_backends(&mut host.backends, ("TLSRoute", &host.route_name), false, told);
        }
        for listener in stream_listeners {
            let udp = is_udp_socket(&listener.socket);
            let kind = if udp { "UDPRoute" } else { "TCPRoute" };
            self.write_backends(&mut listener.backends, (kind, &listener.route_name), udp, told);
        }
    }

    fn write_route(&mut self, route: &mut Route, told: &mut Told) {
        let (kind, status) = (route.kind.name(), route.kind.status_without_backend());
        let (name, rule) = (route.route_name.clone(), route.rule_index);
        let mut tell = |fault: Fault, effect: String| {
            let message = format!("spec.rules[{rule}]: {} ({effect})", fault.message);
            put(told, (kind, name.clone()), Fault { message, ..fault });
        };
        let mut mirrors = |mirrors: &mut Vec<Mirror>, judge: &mut Self| {
            mirrors.retain(|mirror| {
                let port = port(mirror.port, mirror.port_name.as_deref(), false);
                let found = judge.find(&mirror.namespace, &mirror.service, port);
                found.map_err(|fault| tell(fault, "no request is mirrored there".to_owned())).is_ok()
            });
        };
        mirrors(&mut route.mirrors, self);
        route.backends.iter_mut().for_each(|backend| mirrors(&mut backend.mirrors, self));
        for backend in &mut route.backends {
            let (Some(namespace), Some(service)) = (&backend.namespace, &backend.service) else { continue };
            let port = port(backend.port, backend.port_name.as_deref(), false);
            if let Err(fault) = self.find(namespace, service, port) {
                tell(fault, format!("its requests get {status}"));
                backend.close();
            }
        }
    }

    fn write_backends(
        &mut self,
        backends: &mut [TlsBackend],
        (kind, route): (&'static str, &str),
        udp: bool,
        told: &mut Told,
    ) {
        for (index, backend) in backends.iter_mut().enumerate() {
            let (Some(namespace), Some(service)) = (&backend.namespace, &backend.service) else { continue };
            let port = port(backend.port, backend.port_name.as_deref(), udp);
            if let Err(fault) = self.find(namespace, service, port) {
                let message = format!("spec.rules[0].backendRefs[{index}]: {}", fault.message);
                put(told, (kind, route.to_owned()), Fault { message, ..fault });
                *backend = TlsBackend { weight: backend.weight, ..TlsBackend::default() };
            }
        }
    }
}

fn port(number: Option<u16>, name: Option<&str>, udp: bool) -> ExternalPort {
    ExternalPort { port: number.unwrap_or_default(), name: name.unwrap_or_default().to_owned(), udp }
}

/// Each fault once: a rule stands under each of its hosts.
fn put(told: &mut Told, of: (&'static str, String), fault: Fault) {
    let faults = told.entry(of).or_default();
    if faults.iter().all(|known| known.message != fault.message) {
        faults.push(fault);
    }
}

/// Adds the faults to the statuses of their routes, for this Gateway.
fn tell(
    snapshot: &Snapshot,
    gateway: &Key,
    told: &Told,
    routes: &mut Statuses,
    ingresses: &mut SharedMap<Key, IngressStatus>,
) {
    for ((kind, name), faults) in told {
        let Some((namespace, name)) = name.split_once('/') else { continue };
        let key = Key::new(namespace, name);
        let why = faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("; ");
        let reason = faults.first().map_or("UnsupportedProtocol", |fault| fault.reason);
        let generation = |conditions: &[crate::status::Condition]| {
            conditions.first().map_or(0, |condition| condition.observed_generation)
        };
        if let Some(status) = ingresses.get_mut(&key).filter(|_| *kind == "Ingress") {
            let generation = generation(&status.conditions);
            add(&mut status.conditions, RESOLVED_REFS, false, reason, "", &why, generation);
        }
        let Some(status) = routes.routes_mut(kind).and_then(|all| all.get_mut(&key)) else { continue };
        for parent in &mut status.parents {
            if gateway_of(&parent.parent_ref, &key.namespace, snapshot).as_ref() == Some(gateway) {
                let generation = generation(&parent.conditions);
                add(&mut parent.conditions, RESOLVED_REFS, false, reason, "", &why, generation);
            }
        }
    }
}
