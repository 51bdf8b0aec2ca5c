//! HTTPRoutes, and GRPCRoutes as HTTPRoutes: each is read once, attached to its parents, and written into the routing of every
//! Gateway that takes it.

pub(crate) mod backends;
mod filters;
mod matches;
mod rules;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::experimental::httproutes::{HttpRoute, HttpRouteParentRefs};
use model::SharedMap;
use model::matches::PathMatch;

pub(crate) use self::backends::mirror_references;
use self::rules::{Context, Rules};
use crate::attach::{Attachment, Candidate, Section, attach, claim, gateway_of};
use crate::backend_tls_policy::Policies;
use crate::gateway::Gateway;
use crate::grants::Grants;
use crate::grpc_route;
use crate::hostname;
use crate::listener::{Fault, RouteKind};
use crate::notice::Notice;
use crate::patterns::Meter;
use crate::snapshot::{Key, Snapshot, age};
use crate::status::{
    ACCEPTED, Condition, PARTIALLY_INVALID, ParentStatus, RESOLVED_REFS, RouteStatus, UNSUPPORTED_FIELDS,
};

/// The statuses of routes, by kind, and what one route's translation may leave to others.
pub(crate) struct Statuses {
    pub(crate) http: SharedMap<Key, RouteStatus>,
    pub(crate) grpc: SharedMap<Key, RouteStatus>,
    pub(crate) patterns: Meter,
    pub(crate) irregular: Irregular,
}

/// Hosts by Gateway whose entries do not stand in the order of their routes' ages alone, or that a route without entries holds open.
pub(crate) type Irregular = BTreeMap<Key, BTreeSet<String>>;

/// Adds all HTTPRoutes and GRPCRoutes to the Gateways that they attach to, and returns their statuses.
pub(crate) fn translate(
    snapshot: &Snapshot,
    grants: &Grants<'_>,
    backend_tls: &Policies<'_>,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
    notices: &mut Vec<Notice>,
) -> Statuses {
    let mut context = Context::new(snapshot, grants, backend_tls);
    let (mut http_statuses, mut grpc_statuses) = (SharedMap::new(), SharedMap::new());
    let mut irregular = Irregular::new();
    let mut rough = Vec::new();
    let calls: Vec<_> =
        snapshot.grpc_routes.iter().map(|(key, route)| (key, grpc_route::as_http(route))).collect();
    let http = snapshot.http_routes.iter().map(|(key, route)| (RouteKind::HttpRoute, key, route.as_ref()));
    let mut routes: Vec<_> =
        http.chain(calls.iter().map(|(key, route)| (RouteKind::GrpcRoute, *key, route))).collect();
    // Age decides between routes whose matches are equally specific, and between the two kinds.
    routes.sort_by_cached_key(|(_, key, route)| age(key, &route.metadata));
    for (kind, key, route) in routes {
        let refs = route.spec.parent_refs.as_deref().unwrap_or_default();
        let parents = parents(kind.name(), key, refs, gateways, snapshot, notices);
        if parents.is_empty() {
            continue;
        }
        context.begin(key, kind);
        let rules = Rules::new(key, route, &mut context);
        let added = Added { rough: &mut rough, irregular: &mut irregular };
        let status = add(kind, key, route, &rules, &parents, gateways, snapshot, added);
        let of_kind = if kind == RouteKind::GrpcRoute { &mut grpc_statuses } else { &mut http_statuses };
        of_kind.insert(key.clone(), status);
    }
    for Rough { gateway, hosts, entries } in rough {
        irregular.entry(gateway.clone()).or_default().extend(hosts.keys().cloned());
        if let Some(gateway) = gateways.get_mut(&gateway) {
            write(gateway, hosts, &entries);
        }
    }
    Statuses { http: http_statuses, grpc: grpc_statuses, patterns: context.patterns, irregular }
}

/// The route's parentRefs to Gateways of ours. Other controllers judge the others, but a reference to a Gateway that
/// does not exist is reported.
pub(crate) fn parents<'r>(
    route: &str,
    key: &Key,
    refs: &'r [HttpRouteParentRefs],
    gateways: &BTreeMap<&Key, Gateway<'_>>,
    snapshot: &Snapshot,
    notices: &mut Vec<Notice>,
) -> Vec<(Key, &'r HttpRouteParentRefs)> {
    if refs.is_empty() {
        notices.push(Notice::warning(
            format!("{route} {key}"),
            "has no spec.parentRefs, so no Gateway serves it: name its Gateway",
        ));
    }
    let mut ours = Vec::new();
    for parent in refs {
        let Some(gateway) = gateway_of(parent, &key.namespace, snapshot) else {
            if parent.kind.as_deref() == Some("ListenerSet") {
                notices.push(Notice::warning(
                    format!("{route} {key}"),
                    format!(
                        "has a parentRef to ListenerSet {}, which does not exist: create it, or correct name and namespace of the \
                         parentRef",
                        Key::new(parent.namespace.as_deref().unwrap_or(&key.namespace), &parent.name)
                    ),
                ));
            }
            continue;
        };
        if gateways.contains_key(&gateway) {
            ours.push((gateway, parent));
        } else if !snapshot.gateways.contains_key(&gateway) {
            notices.push(Notice::warning(
                format!("{route} {key}"),
                format!(
                    "has a parentRef to Gateway {gateway}, which does not exist: create it, or correct name and \
                     namespace of the parentRef"
                ),
            ));
        }
    }
    ours
}

/// Hosts of one route with the listeners that receive their requests, in one Gateway.
type Hosts = BTreeMap<String, BTreeSet<usize>>;

/// Entries that go behind those of all routes.
struct Rough {
    gateway: Key,
    hosts: Hosts,
    entries: Vec<model::routing::Route>,
}

/// Collected while routes are added, and used after all of them.
struct Added<'a> {
    rough: &'a mut Vec<Rough>,
    irregular: &'a mut Irregular,
}

#[expect(clippy::too_many_arguments, reason = "what a route is, and where it goes")]
fn add(
    kind: RouteKind,
    key: &Key,
    route: &HttpRoute,
    rules: &Rules,
    parents: &[(Key, &HttpRouteParentRefs)],
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
    snapshot: &Snapshot,
    Added { rough, irregular }: Added<'_>,
) -> RouteStatus {
    let candidate = Candidate {
        kind,
        namespace: &key.namespace,
        hostnames: route
            .spec
            .hostnames
            .iter()
            .flatten()
            .filter_map(|name| hostname::normal(Some(name)))
            .collect(),
    };
    let generation = route.metadata.generation.unwrap_or_default();
    let mut status = RouteStatus::default();
    // By Gateway, so that a route that comes to a listener by two parentRefs is there once.
    let mut hosts: BTreeMap<&Key, Hosts> = BTreeMap::new();
    let mut attached: BTreeMap<&Key, BTreeSet<usize>> = BTreeMap::new();
    for (gateway_key, parent) in parents {
        let Some(gateway) = gateways.get(gateway_key) else { continue };
        let section = Section::new(parent, &key.namespace);
        let attachment = match attach(&candidate, section, gateway, snapshot) {
            Ok(_) if kind == RouteKind::GrpcRoute && !gateway.routing.http_in_front => {
                Err(no_grpc(gateway_key))
            }
            other => other,
        };
        let in_front = gateway.routing.http_in_front;
        let accepted = accepted(&attachment, rules);
        if let Ok(attachment) = attachment {
            if let Some(gateway) = gateways.get_mut(gateway_key) {
                claim(&candidate, key, &attachment.listeners, gateway);
            }
            if accepted.is_ok() {
                attached.entry(gateway_key).or_default().extend(attachment.listeners);
            }
            let hosts = hosts.entry(gateway_key).or_default();
            for (host, listener) in attachment.hosts {
                hosts.entry(host).or_default().insert(listener);
            }
        }
        status.parents.push(ParentStatus {
            parent_ref: (*parent).clone(),
            conditions: conditions(&accepted, rules, (gateway_key, in_front), generation),
        });
    }
    for (gateway_key, listeners) in attached {
        let Some(gateway) = gateways.get_mut(gateway_key) else { continue };
        for listener in listeners {
            gateway.listeners[listener].attached_routes += 1;
        }
    }
    // An entry for every path of every host would answer requests of other routes.
    let all_hosts = candidate.hostnames.is_empty();
    let is_told = |entry: &&model::routing::Route| {
        !all_hosts || entry.path_match.as_ref().is_some_and(|path| *path != PathMatch::everything())
    };
    let entries: Vec<_> = rules.rough.iter().filter(is_told).cloned().collect();
    for (gateway_key, hosts) in hosts {
        if !entries.is_empty() {
            let (gateway, hosts) = (gateway_key.clone(), hosts.clone());
            rough.push(Rough { gateway, hosts, entries: entries.clone() });
        }
        // A stand-in without hosts that can be read claims none.
        if rules.refused.is_some() && rules.entries.is_empty() {
            continue;
        }
        if rules.entries.is_empty() {
            irregular.entry(gateway_key.clone()).or_default().extend(hosts.keys().cloned());
        }
        if let Some(gateway) = gateways.get_mut(gateway_key) {
            write(gateway, hosts, &rules.entries);
        }
    }
    status
}

/// The remedy for what works only where the front carries HTTP.
const TO_THE_FRONT: &str =
    "use dataPath Auto, without user VCL and without a logging.mode that reads varnishd's log";

/// varnishd speaks HTTP/1.1 to backends.
fn no_grpc(gateway: &Key) -> Fault {
    let message = format!(
        "Gateway {gateway} passes all requests through varnishd, which cannot carry gRPC: {TO_THE_FRONT}"
    );
    Fault { reason: "UnsupportedValue", message }
}

/// The route is accepted by a parent that it attaches to, unless not one of its rules can be served.
fn accepted(attachment: &Result<Attachment, Fault>, rules: &Rules) -> Result<(), Fault> {
    if let Err(fault) = attachment {
        return Err(fault.clone());
    }
    if let Some(fault) = &rules.refused {
        return Err(fault.clone());
    }
    match rules.dropped.first() {
        Some(first) if rules.none_is_valid() => Err(Fault {
            reason: first.reason,
            message: format!("No rule can be served: {}", rules.dropped_text()),
        }),
        _ => Ok(()),
    }
}

fn conditions(
    accepted: &Result<(), Fault>,
    rules: &Rules,
    (gateway, in_front): (&Key, bool),
    generation: i64,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    match accepted {
        Ok(()) => {
            conditions.push(Condition::new(ACCEPTED, true, "Accepted", "The route is attached", generation));
            if let Some(first) = rules.dropped.first() {
                let message = format!("Dropped Rule(s): {}", rules.dropped_text());
                conditions.push(Condition::new(PARTIALLY_INVALID, true, first.reason, message, generation));
            }
        }
        Err(fault) => {
            conditions.push(Condition::new(ACCEPTED, false, fault.reason, &fault.message, generation));
        }
    }
    // Of a stand-in's references nothing is known.
    if rules.refused.is_none() {
        conditions.push(resolved(&rules.unresolved, generation));
    }
    let mut unsupported = Vec::new();
    if !rules.unsupported_fields.is_empty() {
        unsupported
            .push(format!("Not supported yet, and without effect: {}", rules.unsupported_fields.join(", ")));
    }
    if accepted.is_ok() && !in_front && !rules.sessions.is_empty() {
        unsupported.push(format!(
            "Without effect, because Gateway {gateway} passes all requests through varnishd: {}; {TO_THE_FRONT}",
            rules.sessions.join(", ")
        ));
    }
    if !unsupported.is_empty() {
        let message = unsupported.join(". ");
        conditions.push(Condition::new(UNSUPPORTED_FIELDS, true, "NotSupported", message, generation));
    }
    conditions
}

/// Do all references of a route lead somewhere?
pub(crate) fn resolved(unresolved: &[Fault], generation: i64) -> Condition {
    match unresolved.first() {
        None => {
            Condition::new(RESOLVED_REFS, true, "ResolvedRefs", "All references are resolved", generation)
        }
        Some(first) => {
            let all: Vec<&str> = unresolved.iter().map(|fault| fault.message.as_str()).collect();
            Condition::new(RESOLVED_REFS, false, first.reason, all.join("; "), generation)
        }
    }
}

/// The route's entries for every host, behind those of the routes that come before it.
fn write(gateway: &mut Gateway<'_>, hosts: Hosts, entries: &[model::routing::Route]) {
    for (host, listeners) in hosts {
        let listeners: Vec<_> = listeners.into_iter().map(|at| &gateway.listeners[at]).collect();
        let names: BTreeSet<String> = listeners.iter().map(|listener| listener.routing_name()).collect();
        let names: Vec<String> = names.into_iter().collect();
        let sockets: BTreeSet<String> = listeners.iter().map(|listener| listener.socket()).collect();
        let sockets: Vec<String> = sockets.into_iter().collect();
        let vhost = gateway.routing.vhosts.or_default(&host);
        vhost.routes.extend(entries.iter().map(|entry| model::routing::Route {
            hostname: host.clone(),
            listeners: sockets.clone(),
            listener_names: names.clone(),
            ..entry.clone()
        }));
    }
}
