//! Service.

use serde_json::{Value, json};

use super::super::schema::{Node, Violations};
use super::{format, list, own_endpoints, text};

const PORT: std::ops::RangeInclusive<i64> = 1..=65_535;

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    spec.at("type").default("ClusterIP").choices(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]);
    spec.at("sessionAffinity").default("None").choices(&["None", "ClientIP"]);
    spec.at("ports[].port").range(PORT);
    spec.at("ports[].nodePort").range(0..=65_535);
    spec.at("ports[].protocol").default("TCP").choices(&["TCP", "UDP", "SCTP"]);
    spec.at("ports[].name").format(format::label);
}

pub(super) fn rules(service: &mut Value, violations: &mut Violations) {
    let Some(spec) = service.get_mut("spec") else {
        violations.add("spec", "is missing; name at least one port in spec.ports");
        return;
    };
    let external = text(spec, "type") == "ExternalName";
    let headless = text(spec, "clusterIP") == "None";
    if external && format::precise_hostname(text(spec, "externalName").trim_end_matches('.')).is_err() {
        violations.add("spec.externalName", "must be a DNS name, as the type is ExternalName");
    }
    let ports = list(spec, "ports");
    if ports.is_empty() && !external && !headless {
        violations.add("spec.ports", "must not be empty; name the port that clients ask for");
    }
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = text(port, "name");
        if ports.len() > 1 && name.is_empty() {
            violations.add(&format!("{path}.name"), "is missing; with several ports each needs a name");
        } else if !name.is_empty() && ports[..index].iter().any(|earlier| text(earlier, "name") == name) {
            violations.add_value(
                &format!("{path}.name"),
                name,
                "is there twice; each port needs its own name",
            );
        }
        let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        if ports[..index].iter().any(|earlier| same(&earlier)) {
            violations.add_value(
                &format!("{path}.port"),
                port["port"].clone(),
                "is there twice for one protocol",
            );
        }
        let path = format!("{path}.targetPort");
        match port.get("targetPort") {
            Some(Value::String(name)) => {
                if let Err(what) = format::port_name(name) {
                    violations.add_value(&path, name.as_str(), what);
                }
            }
            Some(Value::Number(number)) if !number.as_i64().is_some_and(|n| PORT.contains(&n)) => {
                violations.add_value(&path, number.clone(), "must be between 1 and 65535");
            }
            _ => {}
        }
    }
    // By default, the pods listen on the port of the Service.
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if port.get("targetPort").is_none_or(|target| target == &json!(0) || target == &json!("")) {
            port["targetPort"] = port["port"].clone();
        }
    }
    own_endpoints::check(service, violations);
}
