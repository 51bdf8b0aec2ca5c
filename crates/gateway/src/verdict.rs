//! Statuses as lines that a person reads.

use std::collections::BTreeMap;

use translate::status::{
    ACCEPTED, CONFLICTED, INSECURE_FRONTEND, OVERLAPPING_TLS, PARTIALLY_INVALID, RESOLVED_REFS,
    UNSUPPORTED_FIELDS,
};
use translate::{AncestorStatus, Condition, ParentStatus, Statuses};

/// The status of one object, in one respect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Verdict {
    /// `HTTPRoute default/shop`
    pub(crate) object: String,
    pub(crate) good: bool,
    pub(crate) text: String,
}

/// All verdicts, Gateways before routes.
pub(crate) fn from_statuses(statuses: &Statuses) -> Vec<Verdict> {
    let mut all = Vec::new();
    for (key, status) in &statuses.gateway_classes {
        push(&mut all, &format!("GatewayClass {key}"), "", &status.conditions);
    }
    for (key, status) in &statuses.gateways {
        let object = format!("Gateway {key}");
        push(&mut all, &object, "", &status.conditions);
        for listener in &status.listeners {
            let about = format!("listener {}: ", listener.name);
            push_bad(&mut all, &object, &about, &listener.conditions);
        }
    }
    for (key, status) in &statuses.listener_sets {
        let object = format!("ListenerSet {key}");
        push(&mut all, &object, &format!(" by Gateway {}", status.gateway), &status.conditions);
        for listener in &status.listeners {
            push_bad(&mut all, &object, &format!("listener {}: ", listener.name), &listener.conditions);
        }
    }
    let routes =
        statuses.routes().flat_map(|(kind, all)| all.iter().map(move |(key, status)| (kind, key, status)));
    for (kind, key, status) in routes {
        for parent in &status.parents {
            push(&mut all, &format!("{kind} {key}"), &by(parent, &key.namespace), &parent.conditions);
        }
    }
    for (key, status) in &statuses.ingress_classes {
        push(&mut all, &format!("IngressClass {key}"), "", &status.conditions);
    }
    for (key, status) in &statuses.ingresses {
        let by = status.varnish_service.as_ref().map(|key| format!(" by Varnish Service {key}"));
        push(&mut all, &format!("Ingress {key}"), &by.unwrap_or_default(), &status.conditions);
    }
    let policies = statuses.cache_policies.iter().map(|(key, status)| ("VarnishCachePolicy", key, status));
    let backend_tls =
        statuses.backend_tls_policies.iter().map(|(key, status)| ("BackendTLSPolicy", key, status));
    for (policy, key, status) in policies.chain(backend_tls) {
        for AncestorStatus { ancestor_ref, conditions } in &status.ancestors {
            let kind = ancestor_ref.kind.as_deref().unwrap_or("Gateway");
            let namespace = ancestor_ref.namespace.as_deref().unwrap_or(&key.namespace);
            let by = format!(" by {kind} {namespace}/{}", ancestor_ref.name);
            push(&mut all, &format!("{policy} {key}"), &by, conditions);
        }
    }
    all
}

/// What references of routes lead nowhere, by `Ingress default/shop`.
pub(crate) fn unresolved(statuses: &Statuses) -> BTreeMap<String, String> {
    let routes = statuses
        .routes()
        .flat_map(|(kind, all)| all.iter().map(move |(key, status)| (format!("{kind} {key}"), status)));
    // Most is the same for all parents; whether a Gateway uses ExternalName Services is its own decision.
    let is_bad =
        |parent: &&ParentStatus| parent.conditions.iter().any(|one| one.kind == RESOLVED_REFS && !one.status);
    let routes =
        routes.filter_map(|(object, status)| Some((object, &status.parents.iter().find(is_bad)?.conditions)));
    let ingresses =
        statuses.ingresses.iter().map(|(key, status)| (format!("Ingress {key}"), &status.conditions));
    let fault = |(object, conditions): (String, &Vec<Condition>)| {
        let bad = conditions.iter().find(|one| one.kind == RESOLVED_REFS && !one.status)?;
        Some((object, format!("{} ({})", bad.message, bad.reason)))
    };
    routes.chain(ingresses).filter_map(fault).collect()
}

/// ` by Gateway default/web, listener http`
fn by(parent: &ParentStatus, namespace: &str) -> String {
    let ParentStatus { parent_ref, .. } = parent;
    let namespace = parent_ref.namespace.as_deref().unwrap_or(namespace);
    let section = parent_ref.section_name.as_ref().map(|s| format!(", listener {s}")).unwrap_or_default();
    let kind = parent_ref.kind.as_deref().unwrap_or("Gateway");
    format!(" by {kind} {namespace}/{}{section}", parent_ref.name)
}

fn push(all: &mut Vec<Verdict>, object: &str, by: &str, conditions: &[Condition]) {
    if let Some(accepted) = conditions.iter().find(|c| c.kind == ACCEPTED) {
        let text = if accepted.status {
            format!("accepted{by}")
        } else {
            format!("rejected{by}: {} ({})", accepted.message, accepted.reason)
        };
        all.push(Verdict { object: object.to_owned(), good: accepted.status, text });
    }
    let rest: Vec<_> = conditions.iter().filter(|c| c.kind != ACCEPTED).cloned().collect();
    push_bad(all, object, "", &rest);
}

fn push_bad(all: &mut Vec<Verdict>, object: &str, about: &str, conditions: &[Condition]) {
    for Condition { reason, message, .. } in conditions.iter().filter(|c| is_bad(c)) {
        let text = format!("{about}{message} ({reason})");
        all.push(Verdict { object: object.to_owned(), good: false, text });
    }
}

/// Most conditions are good when true; these are not.
fn is_bad(condition: &Condition) -> bool {
    // Neither good nor bad: the spec wants it said.
    if condition.kind == OVERLAPPING_TLS {
        return false;
    }
    let good_when = !matches!(
        condition.kind.as_str(),
        CONFLICTED | PARTIALLY_INVALID | UNSUPPORTED_FIELDS | INSECURE_FRONTEND
    );
    condition.status != good_when
}
