//! Where a rule sends its requests.

use gateway_api::httproutes::{HttpRouteRules, HttpRouteRulesBackendRefs};

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
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) service: Key,
    pub(crate) port: u16,
    /// Empty for a port without name.
    pub(crate) port_name: String,
}

/// All backendRefs of the rule at `rule`; those that lead nowhere are added to `unresolved`.
pub(super) fn resolve(
    route: &Key,
    rule: &str,
    spec: &HttpRouteRules,
    context: &Context<'_>,
    unresolved: &mut Vec<Fault>,
) -> Vec<Backend> {
    let refs = spec.backend_refs.iter().flatten().enumerate();
    refs.map(|(index, reference)| {
        let kind = RouteKind::HttpRoute;
        let found = target(kind, route, reference, context.snapshot, context.grants, context.backend_tls);
        let target = found.map_err(|fault| {
            let message = format!("{rule}.backendRefs[{index}]: {}", fault.message);
            unresolved.push(Fault { message, ..fault });
        });
        Backend {
            weight: reference.weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0)),
            target: target.ok(),
        }
    })
    .collect()
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
    // Before anything else: whoever may not refer to a Service shall not learn whether it is there.
    permit(route_kind, route, &service, grants)?;
    let port = service_port::find(&service, reference.port.map(Wanted::Number), snapshot)?;
    // What the bytes of a TLSRoute are is not for us to know.
    if route_kind == RouteKind::HttpRoute {
        let has_policy = backend_tls.cover(&service, port.name.as_deref().unwrap_or_default());
        service_port::check_protocol(&service, port, has_policy)?;
    }
    Ok(Target {
        service,
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
