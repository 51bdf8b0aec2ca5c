//! VarnishCachePolicy and VarnishCacheInvalidation: what the CEL rules of their definitions say.

use serde_json::Value;

use super::super::schema::{Node, Violations};
use super::{format, list, text};

pub(super) fn describe_policy(schema: &mut Node) {
    let spec = schema.at("spec");
    let target = spec.at("targetRef");
    target.at("group").choices(&["gateway.networking.k8s.io", "networking.k8s.io"]);
    target.at("kind").choices(&["Gateway", "HTTPRoute", "Ingress"]);
    target.at("name").format(format::object_name);
    target.at("sectionName").format(format::subdomain);
    for field in ["defaultTTL", "forcedTTL", "grace", "keep"] {
        spec.at(field).format(format::duration);
    }
    let key = spec.at("cacheKey");
    key.at("headers").items(0..=16).item().format(format::header_name);
    key.at("queryParameters.include").items(0..=64).item().length(1..=256);
    key.at("queryParameters.exclude").items(1..=64).item().length(1..=256);
    let headers = spec.at("bypass.headers").items(1..=16).item();
    headers.at("name").format(format::header_name);
    headers.at("valueRegex").length(1..=1024);
    let normalized = spec.at("normalize").items(1..=8).item();
    normalized.at("header").format(format::header_name);
    normalized.at("values").items(1..=32).item().length(1..=128);
}

pub(super) fn policy_rules(policy: &mut Value, violations: &mut Violations) {
    let spec = &policy["spec"];
    let has = |value: &Value, field: &str| value.get(field).is_some();
    if has(spec, "defaultTTL") == has(spec, "forcedTTL") {
        violations.add("spec", "must have exactly one of defaultTTL and forcedTTL");
    }
    if format::millis(text(spec, "forcedTTL")) == Some(0) {
        violations.add("spec.forcedTTL", "must not be zero; write a longer time");
    }
    let target = &spec["targetRef"];
    let of_ingress = text(target, "kind") == "Ingress";
    if of_ingress != (text(target, "group") == "networking.k8s.io") {
        let what = "must be gateway.networking.k8s.io, for an Ingress networking.k8s.io";
        violations.add_value("spec.targetRef.group", text(target, "group"), what);
    }
    if has(target, "sectionName") && text(target, "kind") != "HTTPRoute" {
        violations.add("spec.targetRef.sectionName", "names a rule, which only an HTTPRoute has; remove it");
    }
    let bypassed = list(&spec["bypass"], "headers").iter().map(|header| text(header, "name"));
    if text(spec, "authorization") == "Share"
        && bypassed.into_iter().any(|name| name.eq_ignore_ascii_case("authorization"))
    {
        violations.add(
            "spec.authorization",
            "must not be Share where bypass.headers has Authorization; remove one",
        );
    }
    if text(spec, "noVarySearch") == "Obey" && has(&spec["cacheKey"], "queryParameters") {
        violations
            .add("spec.noVarySearch", "must not be Obey where cacheKey has queryParameters; remove one");
    }
    let methods: Vec<&str> = list(spec, "methods").iter().filter_map(Value::as_str).collect();
    if let Some(method) = repeated(&methods) {
        violations.add_value("spec.methods", method, "is named twice; remove one");
    }
    if methods.contains(&"POST") {
        if spec.get("invalidateOnUnsafe").and_then(Value::as_bool) == Some(false) {
            let what = "must not be false where methods has POST; remove one";
            violations.add("spec.invalidateOnUnsafe", what);
        }
        if text(spec, "noVarySearch") == "Obey" {
            violations.add("spec.noVarySearch", "must not be Obey where methods has POST; remove one");
        }
    }
    let normalized: Vec<&str> = list(spec, "normalize").iter().map(|one| text(one, "header")).collect();
    if let Some(header) = repeated(&normalized) {
        violations.add_value("spec.normalize.header", header, "is named twice; give it all values at once");
    }
    for normalized in list(spec, "normalize") {
        let header = text(normalized, "header");
        if !translate::may_be_normalized(header.as_bytes()) {
            let what =
                "says more than which variant is wanted, or is normalized always; choose another header";
            violations.add_value("spec.normalize.header", header, what);
        }
    }
    let key = &spec["cacheKey"];
    let query = &key["queryParameters"];
    if query.is_object() && has(query, "include") == has(query, "exclude") {
        violations.add("spec.cacheKey.queryParameters", "must have exactly one of include and exclude");
    }
    let keys = list(key, "headers").iter().filter_map(Value::as_str).map(|name| ("cacheKey", name));
    let bypass = list(&spec["bypass"], "headers").iter().map(|header| ("bypass", text(header, "name")));
    for (field, name) in keys.chain(bypass) {
        if name.to_ascii_lowercase().starts_with("x-ghost-") {
            let path = format!("spec.{field}.headers");
            violations.add_value(&path, name, "belongs to the gateway; choose another header");
        }
    }
}

/// The first name that comes a second time, in upper or lower case.
fn repeated<'a>(names: &[&'a str]) -> Option<&'a str> {
    let is_repeated =
        |(at, name): &(usize, &&str)| names[..*at].iter().any(|before| before.eq_ignore_ascii_case(name));
    names.iter().enumerate().find(is_repeated).map(|(_, name)| *name)
}

pub(super) fn describe_invalidation(schema: &mut Node) {
    let spec = schema.at("spec");
    spec.at("gatewayRef.name").format(format::object_name);
    spec.at("hostname").format(format::precise_hostname);
    spec.at("paths").items(1..=256).item().length(1..=2048).format(url_part);
    spec.at("tags").items(1..=256).item().length(1..=256).format(url_part);
    spec.at("ttl").format(format::duration);
}

pub(super) fn invalidation_rules(invalidation: &mut Value, violations: &mut Violations) {
    let spec = &invalidation["spec"];
    let ban = text(spec, "type") == "Ban";
    let (paths, tags) = (list(spec, "paths"), list(spec, "tags"));
    if paths.is_empty() && tags.is_empty() {
        violations.add("spec", "must have paths or tags");
    }
    if !paths.is_empty() && text(spec, "hostname").is_empty() {
        violations.add("spec.hostname", "is missing; paths need it");
    }
    if !tags.is_empty() && ban {
        violations.add("spec.tags", "need type Purge or SoftPurge");
    }
    for path in paths.iter().filter_map(Value::as_str) {
        if !ban && !path.starts_with('/') {
            violations.add_value("spec.paths", path, "must begin with a slash, as the type is not Ban");
        }
    }
}

/// What can stand in a request line, without the quotation mark that could end a ban expression's string.
fn url_part(text: &str) -> Result<(), &'static str> {
    if text.bytes().all(|b| b.is_ascii_graphic() && b != b'"') {
        Ok(())
    } else {
        Err("must be of ASCII characters without blanks and quotation marks")
    }
}
