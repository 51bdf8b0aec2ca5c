//! Endpoints that a Service names itself, by an annotation of ours that only files may have.
//!
//! In a cluster Kubernetes writes the EndpointSlices; on one machine they would be the user's to write. What the annotation says becomes
//! EndpointSlices beside the Service, so that later stages need no code for it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::super::schema::Violations;
use super::{list, text};

const ANNOTATION: &str = "gateway.varnish-software.com/endpoints";
/// An EndpointSlice may have as many.
const MOST: usize = 1000;

/// An address, and its port where it is not the Service's `targetPort`.
type Endpoint = (IpAddr, Option<u16>);

fn annotation(service: &Value) -> Option<&Value> {
    service.get("metadata")?.get("annotations")?.get(ANNOTATION)
}

fn parse(said: &Value) -> Result<Vec<Endpoint>, String> {
    let said = said.as_str().ok_or("must be a string: put quotes round it")?;
    let words = said.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let endpoints: Vec<_> = words.map(endpoint).collect::<Result<_, _>>()?;
    match endpoints.len() {
        0 => Err("names no endpoint: write addresses such as 127.0.0.1:9001, separated by commas".to_owned()),
        1..=MOST => Ok(endpoints),
        many => Err(format!("names {many} endpoints; at most {MOST} are read")),
    }
}

fn endpoint(word: &str) -> Result<Endpoint, String> {
    let with_port = word.parse().ok().filter(|at: &SocketAddr| at.port() > 0);
    let plain = || word.trim_start_matches('[').trim_end_matches(']').parse().ok();
    with_port.map(|at| (at.ip(), Some(at.port()))).or_else(|| Some((plain()?, None))).ok_or_else(|| {
        format!(
            "has `{word}`, which is no IP address: write addresses such as 127.0.0.1, 127.0.0.1:9001 or [::1]:9001; \
             for a name use type ExternalName"
        )
    })
}

/// What is wrong with the annotation of a Service whose fields are valid.
pub(super) fn check(service: &Value, violations: &mut Violations) {
    let Some(said) = annotation(service) else { return };
    let path = format!("metadata.annotations[{ANNOTATION}]");
    let endpoints = match parse(said) {
        Ok(endpoints) => endpoints,
        Err(what) => return violations.add(&path, &what),
    };
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let ports = list(spec, "ports");
    if text(spec, "type") == "ExternalName" {
        violations
            .add(&path, "cannot be, as the type is ExternalName: its name is looked up; remove one of them");
    } else if ports.len() != 1 && endpoints.iter().any(|(_, port)| port.is_some()) {
        violations
            .add(&path, "has ports, but the Service has not one port: leave them out, and write targetPort");
    } else if endpoints.iter().any(|(_, port)| port.is_none())
        && ports.iter().any(|port| port.get("targetPort").is_some_and(Value::is_string))
    {
        violations.add(&path, "needs ports, as targetPort is a name here: write a number, or ADDRESS:PORT");
    }
}

/// The EndpointSlices that the annotation stands for: one for each kind of address and each port. None where it is invalid: the
/// Service is refused then.
pub(super) fn slices(service: &Value) -> Vec<Value> {
    if (text(service, "apiVersion"), text(service, "kind")) != ("v1", "Service") {
        return Vec::new();
    }
    let Some(endpoints) = annotation(service).and_then(|said| parse(said).ok()) else { return Vec::new() };
    let (metadata, spec) = (&service["metadata"], &service["spec"]);
    let mut groups: BTreeMap<(bool, Option<u16>), Vec<Value>> = BTreeMap::new();
    for (address, port) in endpoints {
        groups.entry((address.is_ipv6(), port)).or_default().push(json!({"addresses": [address]}));
    }
    let name = text(metadata, "name");
    let mut slices = Vec::with_capacity(groups.len());
    for (nth, ((is_ipv6, own_port), endpoints)) in groups.into_iter().enumerate() {
        let port = |of: &Value| {
            let target = of.get("targetPort").filter(|target| target.as_i64().is_some_and(|port| port > 0));
            let number = own_port.map_or_else(|| target.unwrap_or(&of["port"]).clone(), Value::from);
            let mut port = json!({"port": number});
            for field in ["name", "protocol", "appProtocol"] {
                if let Some(said) = of.get(field) {
                    port[field] = said.clone();
                }
            }
            port
        };
        let mut slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{name}-own-endpoints-{nth}"),
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": if is_ipv6 { "IPv6" } else { "IPv4" },
            "ports": list(spec, "ports").iter().map(port).collect::<Vec<_>>(),
            "endpoints": endpoints,
        });
        if let Some(namespace) = metadata.get("namespace") {
            slice["metadata"]["namespace"] = namespace.clone();
        }
        slices.push(slice);
    }
    slices
}

#[cfg(test)]
mod tests;
