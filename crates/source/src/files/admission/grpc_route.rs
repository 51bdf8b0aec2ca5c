//! GRPCRoute: the CRD's defaults, limits and rules across fields (its CEL).

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::http_route::{
    MAX_MATCHES, backend_rules, describe_backend, describe_parent, filter, parent_rules,
};
use super::{format, list, text};

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    spec.at("hostnames").items(0..=16).item().format(format::hostname);
    describe_parent(spec.at("parentRefs").items(0..=32).item());

    let rule = spec.at("rules").items(0..=16).unique("name").item();
    rule.at("name").format(format::subdomain);
    let matched = rule.at("matches").items(0..=64).item();
    matched.at("method.type").default("Exact");
    matched.at("method.service").length(0..=1024);
    matched.at("method.method").length(0..=1024);
    let header = matched.at("headers").items(0..=16).unique("name").item();
    header.at("type").default("Exact");
    header.at("name").format(format::header_name);
    header.at("value").length(1..=4096).format(format::header_value);
    filter::describe_shared(rule.at("filters").items(0..=16).item());

    let backend = rule.at("backendRefs").items(0..=16).item();
    describe_backend(backend);
    backend.at("weight").default(1).range(0..=1_000_000);
    filter::describe_shared(backend.at("filters").items(0..=16).item());
}

pub(super) fn rules(route: &Value, violations: &mut Violations) {
    let Some(spec) = route.get("spec") else { return };
    parent_rules(list(spec, "parentRefs"), violations);
    let rules = list(spec, "rules");
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("spec.rules[{index}]");
        for (index, matched) in list(rule, "matches").iter().enumerate() {
            if let Some(method) = matched.get("method") {
                method_rules(&format!("{path}.matches[{index}].method"), method, violations);
            }
        }
        filter::rules(&format!("{path}.filters"), list(rule, "filters"), rule, violations);
        for (index, backend) in list(rule, "backendRefs").iter().enumerate() {
            let path = format!("{path}.backendRefs[{index}]");
            backend_rules(&path, backend, violations);
            filter::rules(&format!("{path}.filters"), list(backend, "filters"), rule, violations);
        }
    }
    let matches: usize = rules.iter().map(|rule| list(rule, "matches").len()).sum();
    if matches > MAX_MATCHES {
        let what =
            format_args!("have {matches} matches together; at most {MAX_MATCHES} are allowed in one route");
        violations.add("spec.rules", what);
    }
}

fn method_rules(path: &str, method: &Value, violations: &mut Violations) {
    if method.get("service").is_none() && method.get("method").is_none() {
        violations.add(path, "names neither a service nor a method; add one of them, or remove it");
    }
    if text(method, "type") != "Exact" {
        return;
    }
    let identifier = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let service = text(method, "service");
    let is_service = |name: &str| name.strip_prefix('.').unwrap_or(name).split('.').all(identifier);
    if method.get("service").is_some() && !is_service(service) {
        let what = "must be the name of a service such as `package.Service`";
        violations.add_value(&format!("{path}.service"), service, what);
    }
    let name = text(method, "method");
    if method.get("method").is_some() && !identifier(name) {
        let what = "must be the name of a method such as `SayHello`, without `/`";
        violations.add_value(&format!("{path}.method"), name, what);
    }
}
