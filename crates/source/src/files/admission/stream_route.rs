//! TCPRoute and UDPRoute: the CRDs' defaults, limits and rules across fields (their CEL).

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::http_route::{backend_rules, describe_backend, describe_parent, parent_rules};
use super::{format, list};

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    describe_parent(spec.at("parentRefs").items(0..=32).item());
    let rule = spec.at("rules").items(1..=1).item();
    rule.at("name").format(format::subdomain);
    let backend = rule.at("backendRefs").items(1..=16).item();
    describe_backend(backend);
    backend.at("weight").default(1).range(0..=1_000_000);
}

pub(super) fn rules(route: &Value, violations: &mut Violations) {
    let spec = &route["spec"];
    parent_rules(list(spec, "parentRefs"), violations);
    for (index, rule) in list(spec, "rules").iter().enumerate() {
        for (at, backend) in list(rule, "backendRefs").iter().enumerate() {
            backend_rules(&format!("spec.rules[{index}].backendRefs[{at}]"), backend, violations);
        }
    }
}
