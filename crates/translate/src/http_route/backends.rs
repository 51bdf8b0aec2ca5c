//! Where a rule sends its requests.

use gateway_api::httproutes::{HttpRouteRules, HttpRouteRulesBackendRefs};
use k8s_openapi::api::core::v1::{Service, ServicePort};

use super::rules::Context;
use crate::grants::{From, To};
use crate::listener::{Fault, GATEWAY_API_GROUP, RouteKind};
use crate::snapshot::Key;

/// Application protocols that HTTP/1.1 in the clear does not serve. Names that nobody knows are taken for HTTP.
const UNSUPPORTED_APP_PROTOCOLS: [&str; 6] =
    ["kubernetes.io/h2c", "kubernetes.io/wss", "h2c", "http2", "grpc", "https"];

/// One backendRef of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Backend {
    pub(super) weight: u32,
    /// `None` where the reference is not valid: its share of requests gets 500.
    pub(super) target: Option<Target>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) service: Key,
    pub(super) port: u16,
    /// Empty for a port without name.
    pub(super) port_name: String,
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
        let target = target(route, reference, context).map_err(|fault| {
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

fn target(
    route: &Key,
    reference: &HttpRouteRulesBackendRefs,
    context: &Context<'_>,
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
    permit(route, &service, context)?;
    let Some(object) = context.snapshot.services.get(&service) else {
        return Err(Fault {
            reason: "BackendNotFound",
            message: format!("Service {service} does not exist: create it, or correct the name"),
        });
    };
    if object.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName")) {
        // The spec advises against them: they lead to wherever their owner points (CVE-2021-25740).
        return Err(Fault {
            reason: "UnsupportedProtocol",
            message: format!(
                "Service {service} is of type ExternalName, which is not supported: \
                 use a Service with EndpointSlices"
            ),
        });
    }
    let port = port(&service, object, reference)?;
    Ok(Target {
        service,
        port: u16::try_from(port.port).unwrap_or_default(),
        port_name: port.name.clone().unwrap_or_default(),
    })
}

fn permit(route: &Key, service: &Key, context: &Context<'_>) -> Result<(), Fault> {
    let kind = RouteKind::HttpRoute.name();
    let from = From { group: GATEWAY_API_GROUP, kind, namespace: &route.namespace };
    let to = To { group: "", kind: "Service", namespace: &service.namespace, name: &service.name };
    if context.grants.permit(from, to) {
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

/// The port that the reference names: by number, and TCP where the number stands for two protocols.
fn port<'a>(
    service: &Key,
    object: &'a Service,
    reference: &HttpRouteRulesBackendRefs,
) -> Result<&'a ServicePort, Fault> {
    let ports = object.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let listed: Vec<String> = ports.iter().map(|port| port.port.to_string()).collect();
    let listed =
        if listed.is_empty() { "no ports".to_owned() } else { format!("ports {}", listed.join(", ")) };
    let not_found = |message: String| Fault { reason: "BackendNotFound", message };
    let Some(number) = reference.port else {
        return Err(not_found(format!("port is missing: Service {service} has {listed}, name one of them")));
    };
    let of_number = || ports.iter().filter(|port| port.port == number && u16::try_from(port.port).is_ok());
    let tcp = of_number().find(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let Some(port) = tcp else {
        return Err(if of_number().next().is_some() {
            let message =
                format!("port {number} of Service {service} is not TCP, which HTTP needs: use another port");
            Fault { reason: "UnsupportedProtocol", message }
        } else {
            not_found(format!("Service {service} has no port {number}, it has {listed}: correct the port"))
        });
    };
    match port.app_protocol.as_deref() {
        Some(protocol) if UNSUPPORTED_APP_PROTOCOLS.contains(&protocol) => Err(Fault {
            reason: "UnsupportedProtocol",
            message: format!(
                "port {number} of Service {service} has appProtocol {protocol}, which is not supported yet: \
                 offer HTTP/1.1 in the clear on a port of its own"
            ),
        }),
        _ => Ok(port),
    }
}
