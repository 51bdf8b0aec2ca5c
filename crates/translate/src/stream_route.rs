//! TCPRoutes and UDPRoutes: each is attached to its parents as an HTTPRoute is, and gives their TCP and UDP listeners their backends.
//!
//! A listener has the backends of one route, the oldest one. Younger ones are accepted as well, as the spec demands, and their
//! status names the route that is in their way.

use std::collections::{BTreeMap, BTreeSet};

use api::{StreamBackendRef, StreamRule};
use gateway_api::experimental::httproutes::{HttpRouteParentRefs, HttpRouteRulesBackendRefs};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::{SharedMap, TlsBackend};

use crate::attach::{Candidate, Section, attach};
use crate::backend_tls_policy::Policies;
use crate::gateway::Gateway;
use crate::grants::Grants;
use crate::http_route::backends::target;
use crate::http_route::{parents, resolved};
use crate::listener::{Fault, RouteKind};
use crate::notice::Notice;
use crate::refused;
use crate::service_port;
use crate::snapshot::{Key, Snapshot, oldest_first};
use crate::status::{ACCEPTED, Condition, ParentStatus, RouteStatus};

/// The statuses of routes, by kind.
pub(crate) struct Statuses {
    pub(crate) tcp: SharedMap<Key, RouteStatus>,
    pub(crate) udp: SharedMap<Key, RouteStatus>,
}

/// What the two kinds have in common.
struct Route<'a> {
    kind: RouteKind,
    key: &'a Key,
    metadata: &'a ObjectMeta,
    parent_refs: &'a [HttpRouteParentRefs],
    rules: &'a [StreamRule],
}

/// What all routes are translated with.
struct Context<'c> {
    snapshot: &'c Snapshot,
    grants: &'c Grants<'c>,
    backend_tls: &'c Policies<'c>,
}

/// Adds all TCPRoutes and UDPRoutes to the Gateways that they attach to, and returns their statuses.
pub(crate) fn translate(
    snapshot: &Snapshot,
    grants: &Grants<'_>,
    backend_tls: &Policies<'_>,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
    notices: &mut Vec<Notice>,
) -> Statuses {
    let context = Context { snapshot, grants, backend_tls };
    let tcp = oldest_first(&snapshot.tcp_routes, |route| &route.metadata);
    let tcp = tcp.into_iter().map(|(key, route)| Route {
        kind: RouteKind::TcpRoute,
        key,
        metadata: &route.metadata,
        parent_refs: route.spec.parent_refs.as_deref().unwrap_or_default(),
        rules: &route.spec.rules,
    });
    let udp = oldest_first(&snapshot.udp_routes, |route| &route.metadata);
    let udp = udp.into_iter().map(|(key, route)| Route {
        kind: RouteKind::UdpRoute,
        key,
        metadata: &route.metadata,
        parent_refs: route.spec.parent_refs.as_deref().unwrap_or_default(),
        rules: &route.spec.rules,
    });
    let mut add = |route: Route<'_>| {
        let status = add(&route, &context, gateways, notices)?;
        Some((route.key.clone(), status))
    };
    Statuses { tcp: tcp.filter_map(&mut add).collect(), udp: udp.filter_map(&mut add).collect() }
}

/// `None`: the route is not for us.
fn add(
    route: &Route<'_>,
    context: &Context<'_>,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
    notices: &mut Vec<Notice>,
) -> Option<RouteStatus> {
    let parents =
        parents(route.kind.name(), route.key, route.parent_refs, gateways, context.snapshot, notices);
    if parents.is_empty() {
        return None;
    }
    let refused = refused::why(route.metadata);
    let mut unresolved = Vec::new();
    // Without backends, connections are closed and datagrams dropped.
    let backends = if refused.is_some() { Vec::new() } else { backends(route, context, &mut unresolved) };
    let candidate = Candidate { kind: route.kind, namespace: &route.key.namespace, hostnames: Vec::new() };
    let generation = route.metadata.generation.unwrap_or_default();
    let mut status = RouteStatus::default();
    // A route that comes to a listener by two parentRefs is there once.
    let mut attached: BTreeMap<&Key, BTreeSet<usize>> = BTreeMap::new();
    for (gateway_key, parent) in &parents {
        let Some(gateway) = gateways.get_mut(gateway_key) else { continue };
        let section = Section::new(parent, &route.key.namespace);
        let accepted = match attach(&candidate, section, gateway, context.snapshot) {
            Ok(attachment) => {
                let listeners = attachment.listeners.iter().copied();
                attached.entry(gateway_key).or_default().extend(listeners.filter(|_| refused.is_none()));
                let taken: Vec<String> = attachment
                    .listeners
                    .iter()
                    .filter_map(|at| take(gateway, *at, route.key, &backends))
                    .collect();
                match refused {
                    Some(why) => Condition::new(
                        ACCEPTED,
                        false,
                        "UnsupportedValue",
                        format!("The route cannot be used, so nothing is served for it: {why}"),
                        generation,
                    ),
                    None => Condition::new(
                        ACCEPTED,
                        true,
                        "Accepted",
                        attached_text(route.kind, &taken),
                        generation,
                    ),
                }
            }
            Err(fault) => Condition::new(ACCEPTED, false, fault.reason, fault.message, generation),
        };
        let mut conditions = vec![accepted];
        if refused.is_none() {
            conditions.push(resolved(&unresolved, generation));
        }
        status.parents.push(ParentStatus { parent_ref: (*parent).clone(), conditions });
    }
    for (gateway_key, listeners) in attached {
        let Some(gateway) = gateways.get_mut(gateway_key) else { continue };
        for at in listeners {
            gateway.listeners[at].attached_routes += 1;
        }
    }
    Some(status)
}

fn attached_text(kind: RouteKind, taken: &[String]) -> String {
    if taken.is_empty() {
        return "The route is attached".to_owned();
    }
    format!(
        "The route is attached, but gets no traffic from {}: a listener serves only the oldest {}; attach this one to another \
         listener",
        taken.join(", "),
        kind.name(),
    )
}

/// Gives a listener its backends. If an older route has it, says so.
fn take(gateway: &mut Gateway<'_>, at: usize, route: &Key, backends: &[TlsBackend]) -> Option<String> {
    let name = gateway.listeners[at].routing_name();
    let listener = gateway.routing.stream_listeners.iter_mut().find(|listener| listener.name == name)?;
    let route = route.to_string();
    if listener.route_name.is_empty() {
        listener.route_name = route;
        listener.backends = backends.to_vec();
        return None;
    }
    (listener.route_name != route)
        .then(|| format!("listener {}, which has the older {}", listener.name, listener.route_name))
}

/// The backends of the route's rule. An invalid one keeps its weight, and its share of connections is closed.
fn backends(route: &Route<'_>, context: &Context<'_>, unresolved: &mut Vec<Fault>) -> Vec<TlsBackend> {
    // The API has one rule.
    let refs = route.rules.first().map(|rule| rule.backend_refs.as_slice()).unwrap_or_default();
    let backend = |(index, reference): (usize, &StreamBackendRef)| {
        let weight = reference.weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0));
        let reference = backend_ref(reference);
        let Context { snapshot, grants, backend_tls } = context;
        match target(route.kind, route.key, &reference, snapshot, grants, backend_tls) {
            Ok(target) => {
                let proxy_protocol = route.kind == RouteKind::TcpRoute
                    && service_port::wants_proxy_header(&target.service, target.port, snapshot);
                TlsBackend {
                    weight,
                    service: Some(target.service.name),
                    namespace: Some(target.service.namespace),
                    port: Some(target.port),
                    port_name: Some(target.port_name),
                    proxy_protocol,
                    ..TlsBackend::default()
                }
            }
            Err(fault) => {
                let message = format!("spec.rules[0].backendRefs[{index}]: {}", fault.message);
                unresolved.push(Fault { message, ..fault });
                TlsBackend { weight, ..TlsBackend::default() }
            }
        }
    };
    refs.iter().enumerate().map(backend).collect()
}

fn backend_ref(of: &StreamBackendRef) -> HttpRouteRulesBackendRefs {
    HttpRouteRulesBackendRefs {
        group: of.group.clone(),
        kind: of.kind.clone(),
        name: of.name.clone(),
        namespace: of.namespace.clone(),
        port: of.port,
        weight: of.weight,
        ..HttpRouteRulesBackendRefs::default()
    }
}
