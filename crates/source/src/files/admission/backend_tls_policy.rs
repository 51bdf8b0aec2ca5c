//! BackendTLSPolicy: the CRD's limits and rules across fields (its CEL).

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::{format, list, text};

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    spec.at("options").items(0..=16).keys(format::qualified_name).values().length(0..=4096);
    let target = spec.at("targetRefs").items(1..=16).item();
    target.at("group").format(format::group);
    target.at("kind").format(format::kind);
    target.at("name").format(format::object_name);
    target.at("sectionName").format(format::subdomain);
    let validation = spec.at("validation");
    validation.at("hostname").format(format::precise_hostname);
    validation.at("wellKnownCACertificates").length(0..=253);
    let reference = validation.at("caCertificateRefs").items(0..=8).item();
    reference.at("group").format(format::group);
    reference.at("kind").format(format::kind);
    reference.at("name").format(format::object_name);
    let name = validation.at("subjectAltNames").items(0..=5).item();
    name.at("hostname").format(format::hostname);
    name.at("uri").length(1..=253).format(uri);
}

pub(super) fn rules(policy: &Value, violations: &mut Violations) {
    let spec = &policy["spec"];
    let targets = list(spec, "targetRefs");
    for (index, target) in targets.iter().enumerate() {
        let path = format!("spec.targetRefs[{index}]");
        let same = |other: &&Value| {
            ["group", "kind", "name"].iter().all(|field| text(other, field) == text(target, field))
        };
        for earlier in targets[..index].iter().filter(same) {
            let (one, two) = (text(earlier, "sectionName"), text(target, "sectionName"));
            if one == two || one.is_empty() || two.is_empty() {
                violations
                    .add(&path, "names the same target as another one; give each a sectionName of its own");
            }
        }
    }
    let validation = &spec["validation"];
    let well_known = !text(validation, "wellKnownCACertificates").is_empty();
    if list(validation, "caCertificateRefs").is_empty() != well_known {
        let what = "must have exactly one of caCertificateRefs and wellKnownCACertificates";
        violations.add("spec.validation", what);
    }
    for (index, name) in list(validation, "subjectAltNames").iter().enumerate() {
        let path = format!("spec.validation.subjectAltNames[{index}]");
        let (needed, other) =
            if text(name, "type") == "URI" { ("uri", "hostname") } else { ("hostname", "uri") };
        if text(name, needed).is_empty() {
            violations.add(&path, format_args!("lacks {needed}, which its type needs"));
        }
        if !text(name, other).is_empty() {
            violations.add(&path, format_args!("has {other}, which its type does not have; remove it"));
        }
    }
}

fn uri(text: &str) -> Result<(), &'static str> {
    let fits = text.split_once("://").is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    if fits { Ok(()) } else { Err("must be a URI such as `spiffe://cluster.local/ns/shop/sa/backend`") }
}
