//! GatewayClass and our GatewayClassParameters.

use super::super::schema::Node;
use super::format;

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
}
