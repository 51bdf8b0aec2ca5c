//! TLSRoutes: each is attached to its parents as an HTTPRoute is, and gives the names of their TLS listeners their backends.

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::experimental::httproutes::{HttpRouteParentRefs, HttpRouteRulesBackendRefs};
use gateway_api::tlsroutes::TlsRoute;
use model::{SharedMap, TlsBackend, TlsHost};

use crate::attach::{Candidate, Section, attach};
use crate::backend_tls_policy::Policies;
use crate::gateway::Gateway;
use crate::grants::Grants;
use crate::hostname;
use crate::http_route::backends::target;
use crate::http_route::{parents, resolved};
use crate::listener::{Fault, RouteKind};
use crate::notice::Notice;
use crate::refused;
use crate::service_port::{self, Wanted};
use crate::snapshot::{Key, Snapshot, oldest_first};
use crate::status::{ACCEPTED, Condition, ParentStatus, RouteStatus};

/// Adds all TLSRoutes to the Gateways that they attach to, and returns their statuses.
pub(crate) fn translate(
    snapshot: &Snapshot,
    grants: &Grants<'_>,
    backend_tls: &Policies<'_>,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
    notices: &mut Vec<Notice>,
) -> SharedMap<Key, RouteStatus> {
    let mut statuses = SharedMap::new();
    for (key, route) in oldest_first(&snapshot.tls_routes, |route| &route.metadata) {
        let refs: Vec<HttpRouteParentRefs> =
            route.spec.parent_refs.iter().flatten().map(parent_ref).collect();
        let parents = parents("TLSRoute", key, &refs, gateways, snapshot, notices);
        if parents.is_empty() {
            continue;
        }
        let refused = refused::why(&route.metadata);
        // Without backends, connections for its names are closed.
        let backends = match refused {
            Some(_) => Vec::new(),
            None => backends(key, route, snapshot, grants, backend_tls),
        };
        let candidate = Candidate {
            kind: RouteKind::TlsRoute,
            namespace: &key.namespace,
            hostnames: route.spec.hostnames.iter().filter_map(|name| hostname::normal(Some(name))).collect(),
        };
        let generation = route.metadata.generation.unwrap_or_default();
        let mut status = RouteStatus::default();
        // A route that comes to a listener by two parentRefs is there once.
        let mut attached: BTreeMap<&Key, BTreeSet<usize>> = BTreeMap::new();
        let mut hosts: BTreeMap<&Key, BTreeSet<(usize, String)>> = BTreeMap::new();
        for (gateway_key, parent) in &parents {
            let Some(gateway) = gateways.get(gateway_key) else { continue };
            let section = Section::new(parent, &key.namespace);
            let mut decrypted = false;
            let accepted = match attach(&candidate, section, gateway, snapshot) {
                Ok(attachment) if refused.is_some() => {
                    // Without names that can be read it claims none.
                    if !candidate.hostnames.is_empty() {
                        let of_gateway = hosts.entry(gateway_key).or_default();
                        of_gateway.extend(attachment.hosts.into_iter().map(|(host, at)| (at, host)));
                    }
                    let message = format!(
                        "The route cannot be used, so connections for its hostnames are closed: {}",
                        refused.unwrap_or_default()
                    );
                    Condition::new(ACCEPTED, false, "UnsupportedValue", message, generation)
                }
                Ok(attachment) => {
                    decrypted = attachment.listeners.iter().any(|at| gateway.listeners[*at].ends_tls());
                    attached.entry(gateway_key).or_default().extend(attachment.listeners);
                    let of_gateway = hosts.entry(gateway_key).or_default();
                    of_gateway.extend(attachment.hosts.into_iter().map(|(host, at)| (at, host)));
                    Condition::new(ACCEPTED, true, "Accepted", "The route is attached", generation)
                }
                Err(fault) => Condition::new(ACCEPTED, false, fault.reason, fault.message, generation),
            };
            let mut conditions = vec![accepted];
            if refused.is_none() {
                conditions.push(resolved(&unresolved(&backends, decrypted), generation));
            }
            status.parents.push(ParentStatus { parent_ref: (*parent).clone(), conditions });
        }
        for (gateway_key, listeners) in attached {
            let Some(gateway) = gateways.get_mut(gateway_key) else { continue };
            for at in listeners {
                gateway.listeners[at].attached_routes += 1;
            }
        }
        for (gateway_key, hosts) in hosts {
            let Some(gateway) = gateways.get_mut(gateway_key) else { continue };
            for (at, host) in hosts {
                write(gateway, at, host, key, &backends);
            }
        }
        statuses.insert(key.clone(), status);
    }
    statuses
}

/// Of two routes with the same name on a listener, the first has it.
fn write(gateway: &mut Gateway<'_>, at: usize, hostname: String, route: &Key, backends: &[Backend]) {
    let name = gateway.listeners[at].routing_name();
    let decrypted = gateway.listeners[at].ends_tls();
    let Some(listener) = gateway.routing.tls_listeners.iter_mut().find(|listener| listener.name == name)
    else {
        return;
    };
    if listener.hosts.iter().all(|host| host.hostname != hostname) {
        let backends = backends.iter().map(|backend| backend.on(decrypted)).collect();
        listener.hosts.push(TlsHost { hostname, route_name: route.to_string(), backends });
    }
}

/// One backendRef.
struct Backend {
    weight: u32,
    /// An invalid one keeps its weight, and its share of connections is closed.
    target: Result<TlsBackend, Fault>,
    /// Why nothing that was decrypted may go there, if so.
    needs_tls: Option<Fault>,
}

impl Backend {
    /// As a listener has it that ends TLS, or passes it through.
    fn on(&self, decrypted: bool) -> TlsBackend {
        match &self.target {
            Ok(target) if !decrypted || self.needs_tls.is_none() => target.clone(),
            _ => TlsBackend { weight: self.weight, ..TlsBackend::default() },
        }
    }
}

fn unresolved(backends: &[Backend], decrypted: bool) -> Vec<Fault> {
    let fault = |backend: &Backend| match &backend.target {
        Err(fault) => Some(fault.clone()),
        Ok(_) => backend.needs_tls.clone().filter(|_| decrypted),
    };
    let at = |(index, fault): (usize, Fault)| {
        let message = format!("spec.rules[0].backendRefs[{index}]: {}", fault.message);
        Fault { message, ..fault }
    };
    backends
        .iter()
        .enumerate()
        .filter_map(|(index, backend)| Some((index, fault(backend)?)))
        .map(at)
        .collect()
}

/// The backends of the route's rule.
fn backends(
    key: &Key,
    route: &TlsRoute,
    snapshot: &Snapshot,
    grants: &Grants<'_>,
    backend_tls: &Policies<'_>,
) -> Vec<Backend> {
    let backend = |reference: HttpRouteRulesBackendRefs| {
        let weight = reference.weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0));
        let target = target(RouteKind::TlsRoute, key, &reference, snapshot, grants, backend_tls);
        let needs_tls = target.as_ref().ok().and_then(|target| {
            let wanted = Some(Wanted::Number(target.port.into()));
            let port = service_port::find(&target.service, wanted, snapshot).ok()?;
            let has_policy = backend_tls.cover(&target.service, &target.port_name);
            service_port::check_tls(&target.service, &port, has_policy).err()
        });
        let target = target.map(|target| TlsBackend {
            weight,
            service: Some(target.service.name),
            namespace: Some(target.service.namespace),
            port: Some(target.port),
            port_name: Some(target.port_name),
            ..TlsBackend::default()
        });
        Backend { weight, target, needs_tls }
    };
    backend_refs(route).map(backend).collect()
}

/// The API has one rule.
pub(crate) fn backend_refs(route: &TlsRoute) -> impl Iterator<Item = HttpRouteRulesBackendRefs> {
    let refs = route.spec.rules.first().map(|rule| rule.backend_refs.as_slice()).unwrap_or_default();
    refs.iter().map(|one| HttpRouteRulesBackendRefs {
        group: one.group.clone(),
        kind: one.kind.clone(),
        name: one.name.clone(),
        namespace: one.namespace.clone(),
        port: one.port,
        weight: one.weight,
        ..HttpRouteRulesBackendRefs::default()
    })
}

fn parent_ref(of: &gateway_api::tlsroutes::TlsRouteParentRefs) -> HttpRouteParentRefs {
    HttpRouteParentRefs {
        group: of.group.clone(),
        kind: of.kind.clone(),
        name: of.name.clone(),
        namespace: of.namespace.clone(),
        port: of.port,
        section_name: of.section_name.clone(),
    }
}
