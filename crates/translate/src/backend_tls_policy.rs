//! BackendTLSPolicies: each finds the ports of Services that it is for; the entries of routing.json that lead there get a
//! profile, by which the front verifies the backend.
//!
//! Guarantees that a port with a policy never gets plain text: if a policy cannot be carried out, requests to its port get 500.
//! If the sectionName of a policy names no port, requests to all ports of the Service without a policy get 500, except ports whose
//! appProtocol says that they are plain text. A policy for a port takes precedence over one for the whole Service; of several, the
//! oldest counts.

mod read;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::AncestorRef;
use gateway_api::backendtlspolicies::BackendTlsPolicy;
use gateway_api::experimental::httproutes::{HttpRoute, HttpRouteRulesBackendRefs};
use k8s_openapi::api::core::v1::ServicePort;
use model::routing::Routing;
use model::{BackendTls, RouteKind, SharedMap, TlsBackend};

use self::read::Validation;
use crate::attach::gateway_of;
use crate::gateway::Gateway;
use crate::grants::Grants;
use crate::grpc_route;
use crate::http_route;
use crate::infra::sha256;
use crate::listener::{Fault, GATEWAY_API_GROUP};
use crate::notice::Notice;
use crate::service_port;
use crate::snapshot::{Key, Snapshot, oldest_first};
use crate::status::{
    ACCEPTED, AncestorStatus, Condition, PolicyStatus, RESOLVED_REFS, RouteStatus, Statuses,
    UNSUPPORTED_FIELDS,
};
use crate::tls_route;

/// The API server takes no more.
const MOST_ANCESTORS: usize = 16;
/// Of a policy's name in that of its profile; the rest is the hash.
const LONGEST_NAME: usize = 100;

/// All policies, by what they are for.
#[derive(Debug)]
pub(crate) struct Policies<'a> {
    /// Oldest first.
    all: Vec<Policy<'a>>,
    /// By Service, then by the port's name; none for the whole Service. Positions in `all`, oldest first.
    targets: BTreeMap<Key, BTreeMap<Option<&'a str>, Vec<usize>>>,
    /// Ports of Services with a policy whose sectionName is none of their ports: it may be meant for any of them, unless a
    /// port says itself that it speaks plain text.
    meant: BTreeMap<Key, BTreeSet<&'a str>>,
}

#[derive(Debug)]
struct Policy<'a> {
    key: &'a Key,
    object: &'a BackendTlsPolicy,
    validation: Validation,
}

/// A port of a Service that a route leads to; its name is empty where it has none. Without a port: the Service does not exist.
pub(crate) type Used = (Key, Option<String>);

impl<'a> Policies<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, grants: &Grants<'_>) -> Self {
        let objects = oldest_first(&snapshot.backend_tls_policies, |policy| &policy.metadata);
        let mut policies = Self { all: Vec::new(), targets: BTreeMap::new(), meant: BTreeMap::new() };
        for (at, (key, object)) in objects.into_iter().enumerate() {
            for target in object.spec.target_refs.iter().filter(|t| t.group.is_empty() && t.kind == "Service")
            {
                let service = Key::new(&key.namespace, &target.name);
                let section = target.section_name.as_deref().filter(|name| !name.is_empty());
                policies.targets.entry(service).or_default().entry(section).or_default().push(at);
            }
            policies.all.push(Policy {
                key,
                object,
                validation: Validation::new(key, object, grants, snapshot),
            });
        }
        for (service, sections) in &policies.targets {
            let ports = ports_of(service, snapshot);
            let known = |section: &str| ports.iter().any(|port| port.name.as_deref() == Some(section));
            if sections.keys().flatten().any(|section| !known(section)) {
                let doubtful = ports.iter().filter(|port| !service_port::is_plain(port));
                // Of a Service without ports, every number is one without name.
                let none = ports.is_empty().then_some("");
                let names =
                    doubtful.map(|port| port.name.as_deref().unwrap_or_default()).chain(none).collect();
                policies.meant.insert(service.clone(), names);
            }
        }
        policies
    }

    /// Does any policy ask for TLS to this port?
    pub(crate) fn cover(&self, service: &Key, port_name: &str) -> bool {
        self.in_force(service, port_name).is_some() || self.may_mean(service, port_name)
    }

    /// No policy is for this port, yet one for another port that is not there: nothing may be sent in plain text.
    fn may_mean(&self, service: &Key, port_name: &str) -> bool {
        self.meant.get(service).is_some_and(|ports| ports.contains(port_name))
    }

    fn in_force(&self, service: &Key, port_name: &str) -> Option<usize> {
        let of_service = self.targets.get(service)?;
        let first = |section: Option<&str>| of_service.get(&section).and_then(|all| all.first()).copied();
        let of_port = if port_name.is_empty() { None } else { first(Some(port_name)) };
        of_port.or_else(|| first(None))
    }

    /// Gives the entries of all Gateways their profiles, and returns the statuses.
    pub(crate) fn apply(
        &self,
        snapshot: &Snapshot,
        routes: &Statuses,
        gateways: &mut BTreeMap<&Key, Gateway<'_>>,
        notices: &mut Vec<Notice>,
    ) -> SharedMap<Key, PolicyStatus> {
        if self.all.is_empty() {
            return SharedMap::new();
        }
        let mut used = used(snapshot, routes);
        for (key, gateway) in gateways.iter_mut() {
            let by_ingresses = used_by_ingresses(gateway);
            if !by_ingresses.is_empty() {
                used.entry((*key).clone()).or_default().extend(by_ingresses);
            }
            self.write(gateway);
        }
        let ancestors = used.into_iter().map(|(key, used)| {
            let made_for = gateways.get(&key).and_then(|gateway| gateway.made_for());
            (ancestor(&key, made_for), used)
        });
        self.statuses(snapshot, &ancestors.collect::<Vec<_>>(), notices)
    }

    fn write(&self, gateway: &mut Gateway<'_>) {
        let client = gateway.client_certificate.as_ref();
        let mut profiles = Profiles {
            policies: self,
            client: client.and_then(|client| client.name.clone()),
            fingerprint: client.and_then(|client| client.fingerprint.clone()),
            names: HashMap::new(),
        };
        let Routing { vhosts, default, tls_listeners, authorities, backend_tls, .. } = &mut gateway.routing;
        let of_hosts =
            vhosts.values_mut().flat_map(|vhost| vhost.routes.iter_mut().chain(&mut vhost.default_route));
        for route in of_hosts.chain(default) {
            let of_backends = route.backends.iter_mut().map(|backend| &mut backend.mirrors);
            for mirrors in of_backends.chain([&mut route.mirrors]) {
                mirrors.retain_mut(|mirror| {
                    let service = Key::new(&mirror.namespace, &mirror.service);
                    let port = mirror.port_name.as_deref().unwrap_or_default();
                    match profiles.find(&service, port, authorities, backend_tls) {
                        None => true,
                        Some(Ok(profile)) => {
                            mirror.backend_tls = Some(profile);
                            true
                        }
                        // Never in the clear: nothing is mirrored there.
                        Some(Err(())) => false,
                    }
                });
            }
            for backend in &mut route.backends {
                let (Some(namespace), Some(name)) = (&backend.namespace, &backend.service) else { continue };
                let port = backend.port_name.as_deref().unwrap_or_default();
                match profiles.find(&Key::new(&**namespace, &**name), port, authorities, backend_tls) {
                    None => {}
                    Some(Ok(profile)) => backend.backend_tls = Some(profile.into()),
                    // Never in the clear: its share of requests gets 500.
                    Some(Err(())) => backend.close(),
                }
            }
        }
        // What passes through is the client's and the backend's own.
        let hosts = tls_listeners.iter_mut().filter(|listener| listener.tls.is_some());
        for backend in hosts.flat_map(|listener| &mut listener.hosts).flat_map(|host| &mut host.backends) {
            let (Some(namespace), Some(name)) = (&backend.namespace, &backend.service) else { continue };
            let port = backend.port_name.as_deref().unwrap_or_default();
            match profiles.find(&Key::new(namespace, name), port, authorities, backend_tls) {
                None => {}
                Some(Ok(profile)) => backend.backend_tls = Some(profile),
                Some(Err(())) => *backend = TlsBackend { weight: backend.weight, ..TlsBackend::default() },
            }
        }
    }

    fn statuses(
        &self,
        snapshot: &Snapshot,
        used: &[(AncestorRef, BTreeSet<Used>)],
        notices: &mut Vec<Notice>,
    ) -> SharedMap<Key, PolicyStatus> {
        let mut statuses = SharedMap::new();
        for (at, policy) in self.all.iter().enumerate() {
            let targets: Vec<Target> = self.targets_of(at, snapshot);
            let mut ancestors = Vec::new();
            for (ancestor_ref, used) in used {
                let of_gateway: Vec<&Target> =
                    targets.iter().filter(|target| used.iter().any(|port| target.is_for(port))).collect();
                if of_gateway.is_empty() || ancestors.len() == MOST_ANCESTORS {
                    continue;
                }
                ancestors.push(AncestorStatus {
                    ancestor_ref: ancestor_ref.clone(),
                    conditions: policy.conditions(&of_gateway),
                });
            }
            if ancestors.is_empty() {
                notices.push(without_effect(policy.key, &targets));
            } else {
                statuses.insert(policy.key.clone(), PolicyStatus { ancestors });
            }
        }
        statuses
    }

    fn targets_of(&self, at: usize, snapshot: &Snapshot) -> Vec<Target> {
        let mut targets = Vec::new();
        for (service, sections) in &self.targets {
            for (section, positions) in sections {
                if !positions.contains(&at) {
                    continue;
                }
                let object = snapshot.services.get(service);
                let ports = ports_of(service, snapshot);
                let names: Vec<&str> = ports.iter().filter_map(|port| port.name.as_deref()).collect();
                let fault = match (object, section) {
                    (None, _) => Some(not_found(format!(
                        "Service {service} does not exist: create it, or correct the targetRef"
                    ))),
                    (Some(_), Some(section)) if !names.contains(section) => Some(not_found(format!(
                        "Service {service} has no port named {section} (ports: {}): correct the targetRef's \
                         sectionName. Until then ports of it without a policy get no requests (500), but those with \
                         appProtocol http",
                        if names.is_empty() { "none with a name".to_owned() } else { names.join(", ") }
                    ))),
                    _ => positions.first().filter(|first| **first != at).map(|first| Fault {
                        reason: "Conflicted",
                        message: format!(
                            "BackendTLSPolicy {} is older and has the same target, Service {service}{}: remove one of \
                             them, or change its targetRefs",
                            self.all[*first].key,
                            section.map_or_else(String::new, |section| format!(", port {section}"))
                        ),
                    }),
                };
                let section = section.map(str::to_owned);
                targets.push(Target { service: service.clone(), section, fault });
            }
        }
        targets
    }
}

/// The profiles of one Gateway, as they come to be needed.
struct Profiles<'a> {
    policies: &'a Policies<'a>,
    client: Option<String>,
    fingerprint: Option<String>,
    names: HashMap<usize, String>,
}

impl Profiles<'_> {
    /// None: plain text. An error: nothing may be sent there.
    fn find(
        &mut self,
        service: &Key,
        port_name: &str,
        authorities: &mut BTreeMap<String, String>,
        backend_tls: &mut BTreeMap<String, BackendTls>,
    ) -> Option<Result<String, ()>> {
        let Some(at) = self.policies.in_force(service, port_name) else {
            return self.policies.may_mean(service, port_name).then_some(Err(()));
        };
        let policy = &self.policies.all[at];
        let Ok(tls) = &policy.validation.tls else { return Some(Err(())) };
        let name = self.names.entry(at).or_insert_with(|| {
            let tls = BackendTls { client_certificate: self.client.clone(), ..tls.clone() };
            let hash = sha256(&(&tls, &self.fingerprint));
            let shown = policy.key.to_string();
            let shown = &shown[..shown.floor_char_boundary(LONGEST_NAME)];
            let name = format!("{shown}-{}", hash.get(..16).unwrap_or(&hash));
            for bundle in &policy.validation.bundles {
                authorities.insert(bundle.name.clone(), bundle.pem.clone());
            }
            backend_tls.insert(name.clone(), tls);
            name
        });
        Some(Ok(name.clone()))
    }
}

/// One targetRef of a policy.
struct Target {
    service: Key,
    section: Option<String>,
    /// Why it has no effect, if so.
    fault: Option<Fault>,
}

impl Target {
    fn is_for(&self, (service, port): &Used) -> bool {
        *service == self.service
            && match (&self.section, port) {
                // Of a port that is not there it is unknown whose it is.
                (None, _) | (_, None) => true,
                (Some(section), Some(port)) => section == port || self.is_lost(),
            }
    }

    fn is_lost(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.reason == "TargetNotFound")
    }
}

fn not_found(message: String) -> Fault {
    Fault { reason: "TargetNotFound", message }
}

impl Policy<'_> {
    /// As one Gateway sees the policy by those of its targets that it leads to.
    fn conditions(&self, targets: &[&Target]) -> Vec<Condition> {
        let generation = self.object.metadata.generation.unwrap_or_default();
        let faults: Vec<&Fault> = targets.iter().filter_map(|target| target.fault.as_ref()).collect();
        let accepted = match (&self.validation.tls, faults.first()) {
            (Err(fault), _) => Condition::new(ACCEPTED, false, fault.reason, &fault.message, generation),
            (Ok(_), Some(first)) if faults.len() == targets.len() => {
                let all: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
                Condition::new(ACCEPTED, false, first.reason, all.join("; "), generation)
            }
            (Ok(_), first) => {
                let but =
                    first.map_or_else(String::new, |first| format!(", but not for all: {}", first.message));
                let message = format!("The policy applies to its targets{but}");
                Condition::new(ACCEPTED, true, "Accepted", message, generation)
            }
        };
        let resolved = match &self.validation.unresolved {
            Some(fault) => Condition::new(RESOLVED_REFS, false, fault.reason, &fault.message, generation),
            None => {
                Condition::new(RESOLVED_REFS, true, "ResolvedRefs", "All references are resolved", generation)
            }
        };
        let mut conditions = vec![accepted, resolved];
        let unsupported: Vec<&str> = [(
            "spec.targetRefs of other kinds than Service",
            self.object.spec.target_refs.iter().any(|t| !t.group.is_empty() || t.kind != "Service"),
        )]
        .into_iter()
        .filter_map(|(field, set)| set.then_some(field))
        .collect();
        if !unsupported.is_empty() {
            let message = format!("Not supported yet, and without effect: {}", unsupported.join(", "));
            conditions.push(Condition::new(UNSUPPORTED_FIELDS, true, "NotSupported", message, generation));
        }
        conditions
    }
}

/// A policy that no Gateway of ours leads to may be another controller's: it has no status of ours.
fn without_effect(key: &Key, targets: &[Target]) -> Notice {
    let object = format!("BackendTLSPolicy {key}");
    let lost: Vec<&str> = targets
        .iter()
        .filter_map(|target| target.fault.as_ref())
        .filter(|fault| fault.reason == "TargetNotFound")
        .map(|fault| fault.message.as_str())
        .collect();
    if lost.is_empty() {
        return Notice::info(object, "has no effect: no route of one of our Gateways leads to its targets");
    }
    Notice::warning(object, format!("has no effect: {}", lost.join("; ")))
}

/// Is any policy for this port of a Service?
pub(crate) fn is_for(service: &Key, port: &ServicePort, snapshot: &Snapshot) -> bool {
    snapshot.backend_tls_policies.iter().any(|(key, policy)| {
        key.namespace == service.namespace
            && policy.spec.target_refs.iter().any(|target| {
                let section = target.section_name.as_deref().filter(|name| !name.is_empty());
                target.group.is_empty()
                    && target.kind == "Service"
                    && target.name == service.name
                    && section.is_none_or(|section| port.name.as_deref() == Some(section))
            })
    })
}

fn ports_of<'s>(service: &Key, snapshot: &'s Snapshot) -> &'s [ServicePort] {
    let object = snapshot.services.get(service);
    object.and_then(|object| object.spec.as_ref()?.ports.as_deref()).unwrap_or_default()
}

/// The ancestor in a policy's status: the Gateway, or the IngressClass that it was made for.
fn ancestor(gateway: &Key, made_for: Option<&str>) -> AncestorRef {
    match made_for {
        Some(class) => AncestorRef {
            group: Some("networking.k8s.io".to_owned()),
            kind: Some("IngressClass".to_owned()),
            namespace: None,
            name: class.to_owned(),
            section_name: None,
        },
        None => AncestorRef {
            group: Some(GATEWAY_API_GROUP.to_owned()),
            kind: Some("Gateway".to_owned()),
            namespace: Some(gateway.namespace.clone()),
            name: gateway.name.clone(),
            section_name: None,
        },
    }
}

/// The ports of Services that the Ingresses of a Varnish lead to.
fn used_by_ingresses(gateway: &Gateway<'_>) -> BTreeSet<Used> {
    let of_ingresses = gateway.routing.routes().filter(|route| route.kind == RouteKind::Ingress);
    of_ingresses
        .flat_map(|route| &route.backends)
        .filter_map(|backend| {
            let service = Key::new(backend.namespace.as_deref()?, backend.service.as_deref()?);
            Some((service, Some(backend.port_name.as_deref().unwrap_or_default().to_owned())))
        })
        .collect()
}

/// The ports of Services that accepted routes lead to, by Gateway.
pub(crate) fn used(snapshot: &Snapshot, routes: &Statuses) -> BTreeMap<Key, BTreeSet<Used>> {
    let mut used: BTreeMap<Key, BTreeSet<Used>> = BTreeMap::new();
    for (key, status) in &routes.grpc_routes {
        let Some(route) = snapshot.grpc_routes.get(key) else { continue };
        let ports = ports(key, &grpc_route::as_http(route), snapshot);
        for gateway in accepting(key, status, snapshot) {
            used.entry(gateway).or_default().extend(ports.iter().cloned());
        }
    }
    for (key, status) in &routes.http_routes {
        let Some(route) = snapshot.http_routes.get(key) else { continue };
        let ports = ports(key, route, snapshot);
        for gateway in accepting(key, status, snapshot) {
            used.entry(gateway).or_default().extend(ports.iter().cloned());
        }
    }
    for (key, status) in &routes.tls_routes {
        let Some(route) = snapshot.tls_routes.get(key) else { continue };
        let refs: Vec<_> = tls_route::backend_refs(route).collect();
        let ports = of_services(key, refs.iter(), snapshot);
        for gateway in accepting(key, status, snapshot) {
            used.entry(gateway).or_default().extend(ports.iter().cloned());
        }
    }
    used
}

/// Gateways that have accepted a route.
fn accepting(key: &Key, status: &RouteStatus, snapshot: &Snapshot) -> impl Iterator<Item = Key> {
    let accepted = status.parents.iter().filter(|parent| {
        parent.conditions.iter().any(|condition| condition.kind == ACCEPTED && condition.status)
    });
    accepted.filter_map(|parent| gateway_of(&parent.parent_ref, &key.namespace, snapshot))
}

/// The Services that an HTTPRoute leads to, there or not.
pub(crate) fn services(key: &Key, route: &HttpRoute) -> BTreeSet<Key> {
    let rules = || route.spec.rules.iter().flatten();
    let mirrors: Vec<_> = rules().flat_map(http_route::mirror_references).collect();
    let refs = rules().flat_map(|rule| rule.backend_refs.iter().flatten());
    refs.chain(&mirrors).filter_map(|reference| service(key, reference)).collect()
}

fn ports(key: &Key, route: &HttpRoute, snapshot: &Snapshot) -> BTreeSet<Used> {
    let rules = || route.spec.rules.iter().flatten();
    let mirrors: Vec<_> = rules().flat_map(http_route::mirror_references).collect();
    let refs = rules().flat_map(|rule| rule.backend_refs.iter().flatten());
    of_services(key, refs.chain(&mirrors), snapshot)
}

fn of_services<'r>(
    key: &Key,
    refs: impl Iterator<Item = &'r HttpRouteRulesBackendRefs>,
    snapshot: &Snapshot,
) -> BTreeSet<Used> {
    refs.filter_map(|reference| Some(port(service(key, reference)?, reference.port, snapshot))).collect()
}

/// The Service that a backendRef of a route means, if it means one.
fn service(key: &Key, reference: &HttpRouteRulesBackendRefs) -> Option<Key> {
    let is_service = reference.group.as_deref().unwrap_or_default().is_empty()
        && reference.kind.as_deref().unwrap_or("Service") == "Service";
    let namespace = reference.namespace.as_deref().unwrap_or(&key.namespace);
    is_service.then(|| Key::new(namespace, &reference.name))
}

/// The name of a port of a Service, if both are there.
fn port(service: Key, number: Option<i32>, snapshot: &Snapshot) -> Used {
    let ports = snapshot.services.get(&service).and_then(|object| object.spec.as_ref()?.ports.as_deref());
    let found = ports.unwrap_or_default().iter().find(|port| Some(port.port) == number);
    let name = found.map(|port| port.name.clone().unwrap_or_default());
    (service, name)
}
