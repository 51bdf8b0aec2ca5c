//! Ingress and IngressClass of `networking.k8s.io/v1`.

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::{format, list, text};

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    spec.at("ingressClassName").format(format::subdomain);
    backend(spec.at("defaultBackend"));
    let rule = spec.at("rules").item();
    rule.at("host").format(host);
    let path = rule.at("http.paths").items(1..=100_000).item();
    path.at("pathType").choices(&["Exact", "Prefix", "ImplementationSpecific"]);
    backend(path.at("backend"));
    let tls = spec.at("tls").item();
    tls.at("hosts").item().format(host);
    tls.at("secretName").format(format::object_name);
}

fn backend(node: &mut Node) {
    node.at("service.name").format(format::label);
    node.at("service.port.number").range(0..=65_535);
    node.at("resource.kind").format(format::kind);
    node.at("resource.name").format(format::object_name);
}

/// Empty for every host.
fn host(text: &str) -> Result<(), &'static str> {
    if text.is_empty() { Ok(()) } else { format::hostname(text) }
}

pub(super) fn describe_class(schema: &mut Node) {
    schema.at("spec.controller").format(format::controller_name);
    let parameters = schema.at("spec.parameters");
    parameters.at("apiGroup").format(format::group);
    parameters.at("kind").format(format::kind);
    parameters.at("name").format(format::object_name);
    parameters.at("namespace").format(format::label);
    parameters.at("scope").default("Cluster").choices(&["Cluster", "Namespace"]);
}

pub(super) fn class_rules(class: &Value, violations: &mut Violations) {
    let Some(spec) = class.get("spec").filter(|spec| !text(spec, "controller").is_empty()) else {
        violations.add("spec.controller", "is missing; this gateway is varnish-software.com/ingress");
        return;
    };
    let Some(parameters) = spec.get("parameters").filter(|parameters| parameters.is_object()) else { return };
    let has_namespace = !text(parameters, "namespace").is_empty();
    match (text(parameters, "scope") == "Namespace", has_namespace) {
        (true, false) => violations.add("spec.parameters.namespace", "is missing, as the scope is Namespace"),
        (false, true) => {
            violations.add("spec.parameters.namespace", "is only for the scope Namespace; remove it");
        }
        _ => {}
    }
}

pub(super) fn rules(ingress: &Value, violations: &mut Violations) {
    let Some(spec) = ingress.get("spec") else {
        violations.add("spec", "is missing; write rules or a defaultBackend");
        return;
    };
    let annotations = &ingress["metadata"]["annotations"];
    if annotations.get("kubernetes.io/ingress.class").is_some() && !text(spec, "ingressClassName").is_empty()
    {
        let what = "must not be there beside the annotation kubernetes.io/ingress.class; keep one of them";
        violations.add("spec.ingressClassName", what);
    }
    let rules = list(spec, "rules");
    match spec.get("defaultBackend") {
        Some(backend) => backend_rules("spec.defaultBackend", backend, violations),
        None if rules.is_empty() => violations.add("spec", "must have rules or a defaultBackend"),
        None => {}
    }
    for (index, rule) in rules.iter().enumerate() {
        for (at, path) in list(&rule["http"], "paths").iter().enumerate() {
            let here = format!("spec.rules[{index}].http.paths[{at}]");
            path_rules(&here, path, violations);
            match path.get("backend") {
                Some(backend) => backend_rules(&format!("{here}.backend"), backend, violations),
                None => violations.add(&format!("{here}.backend"), "is missing; name a service and its port"),
            }
        }
    }
}

fn path_rules(here: &str, path: &Value, violations: &mut Violations) {
    let value = text(path, "path");
    let at = format!("{here}.path");
    let kind = text(path, "pathType");
    if kind.is_empty() {
        violations
            .add(&format!("{here}.pathType"), "is missing; write Prefix, Exact or ImplementationSpecific");
        return;
    }
    if kind == "ImplementationSpecific" {
        if !value.is_empty() && !value.starts_with('/') {
            violations.add_value(&at, value, "must begin with `/`");
        }
        return;
    }
    if !value.starts_with('/') {
        violations.add_value(&at, value, "must begin with `/`");
    }
    if let Some(part) = ["//", "/./", "/../", "%2f", "%2F"].into_iter().find(|part| value.contains(part)) {
        violations.add_value(&at, value, format_args!("must not contain `{part}`"));
    }
    if let Some(end) = ["/..", "/."].into_iter().find(|end| value.ends_with(end)) {
        violations.add_value(&at, value, format_args!("must not end with `{end}`"));
    }
}

fn backend_rules(here: &str, backend: &Value, violations: &mut Violations) {
    let service = backend.get("service").filter(|service| service.is_object());
    let Some(service) = service else {
        if backend.get("resource").is_none() {
            violations.add(here, "must have a service; name it and its port");
        }
        return;
    };
    if backend.get("resource").is_some() {
        violations.add(here, "must have a service or a resource, not both");
    }
    if text(service, "name").is_empty() {
        violations.add(&format!("{here}.service.name"), "is missing");
    }
    let port = &service["port"];
    let number = port.get("number").and_then(Value::as_i64).filter(|number| *number != 0);
    let (at, name) = (format!("{here}.service.port"), text(port, "name"));
    match (number, name) {
        (None, "") => violations.add(&at, "must have a number or a name"),
        (Some(_), name) if !name.is_empty() => violations.add(&at, "must have a number or a name, not both"),
        (None, name) => {
            if let Err(what) = format::port_name(name) {
                violations.add_value(&format!("{at}.name"), name, what);
            }
        }
        _ => {}
    }
}
