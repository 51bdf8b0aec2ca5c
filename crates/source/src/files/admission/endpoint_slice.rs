//! EndpointSlice. Unlike the API server's, its addresses may be loopback ones: in files they are the usual case.

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::{format, list, text};

pub(super) fn describe(schema: &mut Node) {
    schema.at("addressType").choices(&["IPv4", "IPv6", "FQDN"]);
    schema.at("endpoints").items(0..=1000);
    schema.at("endpoints[].addresses").items(1..=100);
    schema.at("ports").items(0..=20_000);
    schema.at("ports[].name").default("").length(0..=63);
    schema.at("ports[].port").range(1..=65_535);
    schema.at("ports[].protocol").default("TCP").choices(&["TCP", "UDP", "SCTP"]);
}

pub(super) fn rules(slice: &Value, violations: &mut Violations) {
    let address_type = text(slice, "addressType");
    for (index, endpoint) in list(slice, "endpoints").iter().enumerate() {
        for (number, address) in list(endpoint, "addresses").iter().filter_map(Value::as_str).enumerate() {
            let (fits, what) = match address_type {
                "IPv4" => (address.parse::<std::net::Ipv4Addr>().is_ok(), "must be an IPv4 address"),
                "IPv6" => (address.parse::<std::net::Ipv6Addr>().is_ok(), "must be an IPv6 address"),
                _ => (format::subdomain(address).is_ok(), "must be a DNS name"),
            };
            if !fits {
                let path = format!("endpoints[{index}].addresses[{number}]");
                violations.add_value(
                    &path,
                    address,
                    format_args!("{what}, as addressType is {address_type}"),
                );
            }
        }
    }
    let ports = list(slice, "ports");
    for (index, port) in ports.iter().enumerate() {
        let name = text(port, "name");
        if ports[..index].iter().any(|earlier| text(earlier, "name") == name) {
            let path = format!("ports[{index}].name");
            violations.add_value(&path, name, "is there twice; each port needs its own name");
        }
        if !name.is_empty()
            && let Err(what) = format::label(name)
        {
            violations.add_value(&format!("ports[{index}].name"), name, what);
        }
    }
}
