//! Gateway: the CRD's defaults, limits and rules across fields (its CEL).

use serde_json::{Value, json};

use super::super::schema::{Node, Violations};
use super::{format, list, text};

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
const PORT: std::ops::RangeInclusive<i64> = 1..=65_535;

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    spec.at("gatewayClassName").format(format::object_name);
    describe_listeners(spec);

    let addresses = spec.at("addresses").items(0..=16);
    addresses.item().at("type").default("IPAddress").length(1..=253);
    addresses.item().at("value").length(0..=253);

    let infrastructure = spec.at("infrastructure");
    infrastructure.at("labels").items(0..=8).keys(format::qualified_name);
    infrastructure.at("labels").values().format(format::label_value);
    infrastructure.at("annotations").items(0..=16).keys(format::qualified_name);
    infrastructure.at("annotations").values().length(0..=4096);
    reference(infrastructure.at("parametersRef"));

    let allowed = spec.at("allowedListeners.namespaces").default(json!({"from": "None"}));
    allowed.at("from").default("None");

    let tls = spec.at("tls");
    let client = tls.at("backend.clientCertificateRef");
    certificate(client);
    tls.at("frontend.perPort").items(0..=64).unique("port");
    tls.at("frontend.perPort[].port").range(PORT);
    for path in ["frontend.default.validation", "frontend.perPort[].tls.validation"] {
        let validation = tls.at(path);
        validation.at("mode").default("AllowValidOnly");
        reference(validation.at("caCertificateRefs").items(1..=8).item());
        validation.at("caCertificateRefs[].namespace").format(format::label);
    }
}

pub(super) fn describe_listeners(spec: &mut Node) {
    let listener = spec.at("listeners").items(1..=64).unique("name").item();
    listener.at("name").format(format::subdomain);
    listener.at("hostname").format(format::hostname);
    listener.at("port").range(PORT);
    listener.at("protocol").format(format::protocol);

    let routes = listener.at("allowedRoutes").default(json!({"namespaces": {"from": "Same"}}));
    routes.at("namespaces").default(json!({"from": "Same"})).at("from").default("Same");
    let kinds = routes.at("kinds").items(0..=8);
    kinds.item().at("group").default(GATEWAY_GROUP).format(format::group);
    kinds.item().at("kind").format(format::kind);

    let tls = listener.at("tls");
    tls.at("mode").default("Terminate");
    certificate(tls.at("certificateRefs").items(0..=64).item());
    tls.at("options").items(0..=16).keys(format::qualified_name).values().length(0..=4096);
}

fn reference(node: &mut Node) {
    node.at("group").format(format::group);
    node.at("kind").format(format::kind);
    node.at("name").format(format::object_name);
}

fn certificate(node: &mut Node) {
    node.at("group").default("").format(format::group);
    node.at("kind").default("Secret").format(format::kind);
    node.at("name").format(format::object_name);
    node.at("namespace").format(format::label);
}

pub(super) fn rules(gateway: &Value, violations: &mut Violations) {
    let Some(spec) = gateway.get("spec") else { return };
    listeners_rules(spec, violations);
    let addresses = list(spec, "addresses");
    for (index, address) in addresses.iter().enumerate() {
        let path = format!("spec.addresses[{index}].value");
        let value = text(address, "value");
        if value.is_empty() {
            continue;
        }
        let checked = match text(address, "type") {
            "IPAddress" => format::ip_address(value),
            "Hostname" => format::hostname(value),
            _ => Ok(()),
        };
        if let Err(what) = checked {
            violations.add_value(&path, value, what);
        }
        if addresses[..index].contains(address) {
            violations.add_value(&path, value, "is there twice; remove one");
        }
    }
}

/// Of a Gateway or a ListenerSet.
pub(super) fn listeners_rules(spec: &Value, violations: &mut Violations) {
    let listeners = list(spec, "listeners");
    for (index, listener) in listeners.iter().enumerate() {
        let path = format!("spec.listeners[{index}]");
        listener_rules(&path, listener, violations);
        let same = |other: &&Value| {
            ["port", "protocol", "hostname"].iter().all(|&field| other.get(field) == listener.get(field))
        };
        if let Some(earlier) = listeners[..index].iter().find(same) {
            let (one, two) = (text(earlier, "name"), text(listener, "name"));
            let what = format_args!(
                "has the port, protocol and hostname of the listener {one:?}, so {two:?} could never be told from it; \
                 change one of them"
            );
            violations.add(&path, what);
        }
    }
}

fn listener_rules(path: &str, listener: &Value, violations: &mut Violations) {
    let protocol = text(listener, "protocol").to_ascii_uppercase();
    let tls = listener.get("tls");
    let mode = tls.map_or("", |tls| text(tls, "mode"));
    match (protocol.as_str(), tls) {
        ("HTTP" | "TCP" | "UDP", Some(_)) => {
            let what =
                format_args!("must not be set for the protocol {protocol}; remove it, or use HTTPS or TLS");
            violations.add(&format!("{path}.tls"), what);
        }
        ("HTTPS", Some(_)) if mode != "Terminate" => {
            let what = "must be Terminate for the protocol HTTPS; use the protocol TLS to pass through";
            violations.add_value(&format!("{path}.tls.mode"), mode, what);
        }
        ("TLS", None) => {
            violations.add(&format!("{path}.tls"), "is missing; TLS needs tls.mode Terminate or Passthrough");
        }
        _ => {}
    }
    if let Some(tls) = tls
        && mode == "Terminate"
        && list(tls, "certificateRefs").is_empty()
        && tls.get("options").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty)
    {
        let what = "is missing; to terminate TLS, name a Secret with the certificate";
        violations.add(&format!("{path}.tls.certificateRefs"), what);
    }
    if matches!(protocol.as_str(), "TCP" | "UDP") && !text(listener, "hostname").is_empty() {
        let what =
            format_args!("must not be set for the protocol {protocol}, which has no host names; remove it");
        violations.add(&format!("{path}.hostname"), what);
    }
}
