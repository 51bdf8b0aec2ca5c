//! GatewayClass and our GatewayClassParameters.

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::{format, text};

pub(super) fn describe(schema: &mut Node) {
    schema.at("spec.controllerName").format(format::controller_name);
    schema.at("spec.description").length(0..=64);
    let reference = schema.at("spec.parametersRef");
    reference.at("group").format(format::group);
    reference.at("kind").format(format::kind);
    reference.at("name").format(format::object_name);
    reference.at("namespace").format(format::label);
}

pub(super) fn describe_parameters(schema: &mut Node) {
    let vcl = schema.at("spec.userVCLConfigMapRef");
    vcl.at("name").format(format::object_name);
    vcl.at("namespace").format(format::label);
    vcl.at("key").format(format::data_key);
    let ingress = schema.at("spec.ingress");
    ingress.at("merge").choices(&["distinct-hosts", "same-namespace"]);
    ingress.at("hostlessRules").choices(&["reject", "allow"]);
    ingress.at("implementationSpecific").choices(&["prefix", "regular-expression"]);
    ingress.at("namespace").format(format::label);
    ingress.at("httpPort").range(1..=65_535);
    ingress.at("httpsPort").range(1..=65_535);
    for timeout in ["connect", "firstByte", "idle", "upgradeIdle", "drain"] {
        schema.at("spec.timeouts").at(timeout).format(format::duration);
    }
    for timeout in ["handshakeTimeout", "idleTimeout"] {
        schema.at("spec.tls").at(timeout).format(format::duration);
    }
    let limits = schema.at("spec.limits");
    for timeout in LIMIT_TIMEOUTS {
        limits.at(timeout).format(format::duration);
    }
    limits.at("maxBodySize").format(format::size);
    let proxy_protocol = schema.at("spec.proxyProtocol");
    proxy_protocol.at("trustedSources").items(1..=64).item().format(format::network);
    proxy_protocol.at("mode").choices(&["Required", "Optional"]);
}

const LIMIT_TIMEOUTS: [&str; 3] = ["headerTimeout", "idleTimeout", "stallTimeout"];

/// What the CEL rules of its definition say.
pub(super) fn parameter_rules(parameters: &mut Value, violations: &mut Violations) {
    let spec = &parameters["spec"];
    let limits = &spec["limits"];
    for (smaller, larger) in
        [("maxUrlBytes", "maxHeaderBytes"), ("maxConnectionsPerAddress", "maxConnections")]
    {
        if let (Some(less), Some(more)) = (limits[smaller].as_i64(), limits[larger].as_i64())
            && less > more
        {
            let what = format!("must not be larger than {larger}, which is {more}");
            violations.add_value(&format!("spec.limits.{smaller}"), less, what);
        }
    }
    for timeout in LIMIT_TIMEOUTS {
        if format::millis(text(limits, timeout)) == Some(0) {
            violations.add(&format!("spec.limits.{timeout}"), "must not be zero; write a longer time");
        }
    }
    if spec["tls"]["maxConnections"].is_i64() && limits["maxConnections"].is_i64() {
        violations.add("spec.tls.maxConnections", "is the same limit as limits.maxConnections; remove it");
    }
}
