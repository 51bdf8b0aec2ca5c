//! HTTPRoute: the CRD's defaults, limits and rules across fields (its CEL).

pub(super) mod filter;

use serde_json::{Value, json};

use super::super::schema::{Node, Violations};
use super::{format, list, text};

const PORT: std::ops::RangeInclusive<i64> = 1..=65_535;
pub(super) const MAX_MATCHES: usize = 128;

pub(super) fn describe(schema: &mut Node) {
    let spec = schema.at("spec");
    spec.at("hostnames").items(0..=16).item().format(format::hostname);

    describe_parent(spec.at("parentRefs").items(0..=32).item());

    let everything = json!([{"path": {"type": "PathPrefix", "value": "/"}}]);
    let rules = spec.at("rules").items(1..=16).unique("name").default(json!([{"matches": everything}]));
    let rule = rules.item();
    rule.at("name").format(format::subdomain);
    describe_match(rule.at("matches").items(0..=64).default(everything).item());
    filter::describe(rule.at("filters").items(0..=16).item());

    let backend = rule.at("backendRefs").items(0..=16).item();
    describe_backend(backend);
    backend.at("weight").default(1).range(0..=1_000_000);
    filter::describe(backend.at("filters").items(0..=16).item());

    rule.at("timeouts.request").format(format::duration);
    rule.at("timeouts.backendRequest").format(format::duration);

    let retry = rule.at("retry");
    retry.at("codes").unique("").item().range(400..=599);
    retry.at("attempts").range(1..=i64::MAX);
    retry.at("backoff").format(format::duration);

    let session = rule.at("sessionPersistence");
    session.at("sessionName").length(0..=128);
    session.at("absoluteTimeout").format(format::duration);
    session.at("idleTimeout").format(format::duration);
    session.at("type").default("Cookie");
    session.at("cookieConfig.lifetimeType").default("Session");
}

pub(super) fn describe_parent(parent: &mut Node) {
    parent.at("group").default("gateway.networking.k8s.io").format(format::group);
    parent.at("kind").default("Gateway").format(format::kind);
    parent.at("name").format(format::object_name);
    parent.at("namespace").format(format::label);
    parent.at("sectionName").format(format::subdomain);
    parent.at("port").range(PORT);
}

fn describe_match(matched: &mut Node) {
    let path = matched.at("path").default(json!({"type": "PathPrefix", "value": "/"}));
    path.at("type").default("PathPrefix");
    path.at("value").default("/").length(0..=1024);
    let header = matched.at("headers").items(0..=16).unique("name").item();
    header.at("type").default("Exact");
    header.at("name").format(format::header_name);
    header.at("value").length(1..=4096).format(format::header_value);
    let parameter = matched.at("queryParams").items(0..=16).unique("name").item();
    parameter.at("type").default("Exact");
    parameter.at("name").format(format::header_name);
    parameter.at("value").length(1..=1024);
}

pub(super) fn describe_backend(backend: &mut Node) {
    backend.at("group").default("").format(format::group);
    backend.at("kind").default("Service").format(format::kind);
    backend.at("name").format(format::object_name);
    backend.at("namespace").format(format::label);
    backend.at("port").range(PORT);
}

pub(super) fn rules(route: &Value, violations: &mut Violations) {
    let Some(spec) = route.get("spec") else { return };
    parent_rules(list(spec, "parentRefs"), violations);
    let rules = list(spec, "rules");
    for (index, rule) in rules.iter().enumerate() {
        rule_rules(&format!("spec.rules[{index}]"), rule, violations);
    }
    let matches: usize = rules.iter().map(|rule| list(rule, "matches").len()).sum();
    if matches > MAX_MATCHES {
        let what =
            format_args!("have {matches} matches together; at most {MAX_MATCHES} are allowed in one route");
        violations.add("spec.rules", what);
    }
}

/// Several references to one parent must differ by sectionName or port, all in the same way.
pub(super) fn parent_rules(parents: &[Value], violations: &mut Violations) {
    for (index, parent) in parents.iter().enumerate() {
        let path = format!("spec.parentRefs[{index}]");
        let same_parent = |other: &&Value| {
            ["group", "kind", "name", "namespace"]
                .iter()
                .all(|&field| text(other, field) == text(parent, field))
        };
        for earlier in parents[..index].iter().filter(same_parent) {
            let name = text(parent, "name");
            let parts = ["sectionName", "port"];
            if parts.iter().any(|&part| earlier.get(part).is_some() != parent.get(part).is_some()) {
                let what = format_args!(
                    "refers to {name:?} again, in another way than before; give all references to it a sectionName \
                     (or all a port)"
                );
                violations.add(&path, what);
                break;
            }
            if parts.iter().all(|&part| earlier.get(part) == parent.get(part)) {
                let what =
                    format_args!("refers to {name:?} a second time; remove it, or name another sectionName");
                violations.add(&path, what);
                break;
            }
        }
    }
}

fn rule_rules(path: &str, rule: &Value, violations: &mut Violations) {
    for (index, matched) in list(rule, "matches").iter().enumerate() {
        if let Some(matched) = matched.get("path") {
            path_rules(&format!("{path}.matches[{index}].path.value"), matched, violations);
        }
    }
    let backends = list(rule, "backendRefs");
    let filters = list(rule, "filters");
    filter::rules(&format!("{path}.filters"), filters, rule, violations);
    for (index, backend) in backends.iter().enumerate() {
        let path = format!("{path}.backendRefs[{index}]");
        backend_rules(&path, backend, violations);
        filter::rules(&format!("{path}.filters"), list(backend, "filters"), rule, violations);
    }
    if !backends.is_empty() && filters.iter().any(|filter| filter.get("requestRedirect").is_some()) {
        let what = "must be absent where a RequestRedirect answers the request; remove one of both";
        violations.add(&format!("{path}.backendRefs"), what);
    }
    if let Some(session) = rule.get("sessionPersistence") {
        session_rules(&format!("{path}.sessionPersistence"), session, violations);
    }
    if let Some(timeouts) = rule.get("timeouts") {
        let limit = |name: &str| timeouts.get(name).and_then(Value::as_str).and_then(format::millis);
        if let (Some(request @ 1..), Some(backend)) = (limit("request"), limit("backendRequest"))
            && backend > request
        {
            let value = text(timeouts, "backendRequest");
            let what =
                format_args!("must not be longer than timeouts.request, {:?}", text(timeouts, "request"));
            violations.add_value(&format!("{path}.timeouts.backendRequest"), value, what);
        }
    }
}

fn session_rules(path: &str, session: &Value, violations: &mut Violations) {
    let Some(cookie) = session.get("cookieConfig") else { return };
    if text(session, "type") != "Cookie" {
        let what = "can only be set where the type is Cookie; remove it, or set the type to Cookie";
        violations.add(&format!("{path}.cookieConfig"), what);
    }
    if text(cookie, "lifetimeType") == "Permanent" && session.get("absoluteTimeout").is_none() {
        let what = "is missing; a cookie of lifetimeType Permanent needs it, as its expiry time";
        violations.add(&format!("{path}.absoluteTimeout"), what);
    }
}

pub(super) fn backend_rules(path: &str, backend: &Value, violations: &mut Violations) {
    let is_service = text(backend, "group").is_empty() && text(backend, "kind") == "Service";
    if is_service && backend.get("port").is_none() {
        let what =
            format_args!("is missing; say which port of the Service {:?} to use", text(backend, "name"));
        violations.add(&format!("{path}.port"), what);
    }
}

fn path_rules(path: &str, matched: &Value, violations: &mut Violations) {
    let kind = text(matched, "type");
    if kind == "RegularExpression" {
        return;
    }
    let value = text(matched, "value");
    if let Err(what) = plain_path(value) {
        violations.add_value(path, value, format_args!("{what} (path type {kind})"));
    }
}

/// A path as clients send it after normalisation, so that it can match at all.
fn plain_path(path: &str) -> Result<(), &'static str> {
    if !path.starts_with('/') {
        return Err("must begin with `/`");
    }
    let forbidden = [
        ("//", "must not contain `//`"),
        ("/./", "must not contain `/./`"),
        ("/../", "must not contain `/../`"),
        ("%2f", "must not contain `%2f`"),
        ("%2F", "must not contain `%2F`"),
        ("#", "must not contain `#`"),
    ];
    if let Some((_, what)) = forbidden.into_iter().find(|(part, _)| path.contains(part)) {
        return Err(what);
    }
    if path.ends_with("/..") {
        return Err("must not end in `/..`");
    }
    if path.ends_with("/.") {
        return Err("must not end in `/.`");
    }
    let bytes = path.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        let hex = |offset: usize| bytes.get(index + offset).is_some_and(u8::is_ascii_hexdigit);
        let fits = match byte {
            b'%' => hex(1) && hex(2),
            byte => byte.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(byte),
        };
        if !fits {
            return Err(
                "must contain only letters, digits, -/._~!$&'()*+,;=:@ and percent-encoded bytes such as %20",
            );
        }
    }
    Ok(())
}
