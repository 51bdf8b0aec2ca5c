//! ListenerSet: the CRD's defaults, limits and rules across fields (its CEL). Its listeners are those of a Gateway.

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::{format, gateway};

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    let parent = spec.at("parentRef");
    parent.at("group").default("gateway.networking.k8s.io").format(format::group);
    parent.at("kind").default("Gateway").format(format::kind);
    parent.at("name").format(format::object_name);
    parent.at("namespace").format(format::label);
    gateway::describe_listeners(spec);
}

pub(super) fn rules(set: &Value, violations: &mut Violations) {
    if let Some(spec) = set.get("spec") {
        gateway::listeners_rules(spec, violations);
    }
}
