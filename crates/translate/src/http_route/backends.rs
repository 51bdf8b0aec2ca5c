//! Where a rule sends its requests.

use gateway_api::experimental::httproutes::{
    HttpRouteRules, HttpRouteRulesBackendRefs, HttpRouteRulesFiltersRequestMirror,
    HttpRouteRulesFiltersRequestMirrorBackendRef,
};
use model::Protocol;
use model::filters::Filters;
use model::routing::Mirror;

use super::rules::Context;
use crate::backend_tls_policy::Policies;
use crate::grants::{From, Grants, To};
use crate::listener::{Fault, GATEWAY_API_GROUP, RouteKind};
use crate::service_port::{self, Wanted};
use crate::snapshot::{Key, Snapshot};

/// One backendRef of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Backend {
    pub(super) weight: u32,
    /// `None` where the reference is not valid: its share of requests gets 500.
    pub(super) target: Option<Target>,
    /// What its own filters do; they come after those of the rule.
    pub(super) filters: Filters,
    pub(super) mirrors: Vec<Mirror>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) service: Key,
    pub(crate) port: u16,
    /// Empty for a port without name.
    pub(crate) port_name: String,
    pub(crate) protocol: Protocol,
}

/// All backendRefs of the rule at `rule`; invalid ones are added to `unresolved`.
pub(super) fn resolve(
    route: &Key,
    rule: &str,
    spec: &HttpRouteRules,
    context: &Context<'_>,
    unresolved: &mut Vec<Fault>,
) -> Vec<Backend> {
    let refs = spec.backend_refs.iter().flatten().enumerate();
    refs.map(|(index, reference)| {
        let found =
            target(context.kind, route, reference, context.snapshot, context.grants, context.backend_tls);
        let target = found.map_err(|fault| {
            let message = format!("{rule}.backendRefs[{index}]: {}", fault.message);
            unresolved.push(Fault { message, ..fault });
        });
        Backend {
            weight: reference.weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0)),
            target: target.ok(),
            filters: Filters::default(),
            mirrors: Vec::new(),
        }
    })
    .collect()
}

/// The Service that a RequestMirror filter copies requests to.
pub(super) fn mirror(
    route: &Key,
    spec: &HttpRouteRulesFiltersRequestMirror,
    context: &Context<'_>,
) -> Result<Mirror, Fault> {
    let reference = mirror_reference(&spec.backend_ref);
    let target =
        target(context.kind, route, &reference, context.snapshot, context.grants, context.backend_tls)?;
    Ok(Mirror {
        service: target.service.name,
        namespace: target.service.namespace,
        port: Some(target.port),
        port_name: Some(target.port_name),
        protocol: target.protocol,
        ..Mirror::default()
    })
}

/// All references of RequestMirror filters of a rule and its backendRefs.
pub(crate) fn mirror_references(rule: &HttpRouteRules) -> Vec<HttpRouteRulesBackendRefs> {
    let of_rule = rule.filters.iter().flatten().filter_map(|filter| filter.request_mirror.as_ref());
    let of_rule = of_rule.map(|mirror| mirror_reference(&mirror.backend_ref));
    let of_backends =
        rule.backend_refs.iter().flatten().flat_map(|reference| reference.filters.iter().flatten());
    let of_backends = of_backends
        .filter_map(|filter| Some(&filter.request_mirror.as_ref()?.backend_ref))
        .map(|of| HttpRouteRulesBackendRefs {
            group: of.group.clone(),
            kind: of.kind.clone(),
            name: of.name.clone(),
            namespace: of.namespace.clone(),
            port: of.port,
            ..HttpRouteRulesBackendRefs::default()
        });
    of_rule.chain(of_backends).collect()
}

/// A mirror's reference is a backendRef without weight and filters.
fn mirror_reference(of: &HttpRouteRulesFiltersRequestMirrorBackendRef) -> HttpRouteRulesBackendRefs {
    HttpRouteRulesBackendRefs {
        group: of.group.clone(),
        kind: of.kind.clone(),
        name: of.name.clone(),
        namespace: of.namespace.clone(),
        port: of.port,
        ..HttpRouteRulesBackendRefs::default()
    }
}

/// The port of a Service that a backendRef of a route means.
pub(crate) fn target(
    route_kind: RouteKind,
    route: &Key,
    reference: &HttpRouteRulesBackendRefs,
    snapshot: &Snapshot,
    grants: &Grants<'_>,
    backend_tls: &Policies<'_>,
) -> Result<Target, Fault> {
    let group = reference.group.as_deref().unwrap_or_default();
    let kind = reference.kind.as_deref().unwrap_or("Service");
    if !group.is_empty() || kind != "Service" {
        let of_group = if group.is_empty() { String::new() } else { format!(" of group {group}") };
        return Err(Fault {
            reason: "InvalidKind",
            message: format!(
                "{kind} {}{of_group} cannot be a backend here: refer to a Service",
                reference.name
            ),
        });
    }
    let service = Key::new(reference.namespace.as_deref().unwrap_or(&route.namespace), &reference.name);
    // Before anything else: an owner that may not refer to a Service must not learn whether it exists.
    permit(route_kind, route, &service, grants)?;
    let transport = if route_kind == RouteKind::UdpRoute { "UDP" } else { "TCP" };
    let port = service_port::find_for(transport, &service, reference.port.map(Wanted::Number), snapshot)?;
    // What the bytes of a TLSRoute are is not for us to know.
    let has_policy = backend_tls.cover(&service, port.name.as_deref().unwrap_or_default());
    let protocol = match route_kind {
        RouteKind::HttpRoute => service_port::check_protocol(&service, &port, has_policy)?,
        // Backends of calls speak HTTP/2, whatever appProtocol says.
        RouteKind::GrpcRoute => {
            service_port::check_protocol(&service, &port, has_policy)?;
            Protocol::Http2
        }
        _ => Protocol::default(),
    };
    Ok(Target {
        service,
        protocol,
        port: u16::try_from(port.port).unwrap_or_default(),
        port_name: port.name.clone().unwrap_or_default(),
    })
}

fn permit(kind: RouteKind, route: &Key, service: &Key, grants: &Grants<'_>) -> Result<(), Fault> {
    let kind = kind.name();
    let from = From { group: GATEWAY_API_GROUP, kind, namespace: &route.namespace };
    let to = To { group: "", kind: "Service", namespace: &service.namespace, name: &service.name };
    if grants.permit(from, to) {
        return Ok(());
    }
    Err(Fault {
        reason: "RefNotPermitted",
        message: format!(
            "no ReferenceGrant in namespace {} lets {kind}s of namespace {} refer to Service {}: create one there",
            service.namespace, route.namespace, service.name
        ),
    })
}
