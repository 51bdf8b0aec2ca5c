//! The filters of a rule or of one of its backends: the same in both places.

use serde_json::Value;

use super::super::super::schema::{Node, Violations};
use super::super::{format, list, text};
use super::{PORT, backend_rules, describe_backend};

/// A filter's type and the field that goes with it.
const FIELDS: [(&str, &str); 8] = [
    ("RequestHeaderModifier", "requestHeaderModifier"),
    ("ResponseHeaderModifier", "responseHeaderModifier"),
    ("RequestMirror", "requestMirror"),
    ("RequestRedirect", "requestRedirect"),
    ("URLRewrite", "urlRewrite"),
    ("ExtensionRef", "extensionRef"),
    ("CORS", "cors"),
    ("ExternalAuth", "externalAuth"),
];
/// At most one of each in a list.
const ONCE: [&str; 5] =
    ["RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "CORS"];
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*"];

pub(super) fn describe(filter: &mut Node) {
    describe_shared(filter);

    let redirect = filter.at("requestRedirect");
    redirect.at("hostname").format(format::precise_hostname);
    redirect.at("port").range(PORT);
    redirect.at("statusCode").default(302).one_of(&[301, 302, 303, 307, 308]);
    describe_path(redirect.at("path"));

    let rewrite = filter.at("urlRewrite");
    rewrite.at("hostname").format(format::precise_hostname);
    describe_path(rewrite.at("path"));

    let cors = filter.at("cors");
    cors.at("allowOrigins").items(0..=64).unique("").item().length(1..=253).format(origin);
    cors.at("allowMethods").items(0..=9).unique("").item().choices(&METHODS);
    cors.at("allowHeaders").items(0..=64).unique("").item().format(format::header_name);
    cors.at("exposeHeaders").items(0..=64).unique("").item().format(format::header_name);
    cors.at("maxAge").default(5).range(1..=i64::from(i32::MAX));
}

/// Filters that GRPCRoutes have, too.
pub(in super::super) fn describe_shared(filter: &mut Node) {
    for modifier in ["requestHeaderModifier", "responseHeaderModifier"] {
        let modifier = filter.at(modifier);
        for action in ["set", "add"] {
            let header = modifier.at(action).items(0..=16).unique("name").item();
            header.at("name").format(format::header_name);
            header.at("value").length(1..=4096).format(format::header_value);
        }
        modifier.at("remove").items(0..=16).unique("").item().format(format::header_name);
    }

    let mirror = filter.at("requestMirror");
    describe_backend(mirror.at("backendRef"));
    mirror.at("percent").range(0..=100);
    mirror.at("fraction.numerator").range(0..=i64::from(i32::MAX));
    mirror.at("fraction.denominator").default(100).range(1..=i64::from(i32::MAX));

    let extension = filter.at("extensionRef");
    extension.at("group").format(format::group);
    extension.at("kind").format(format::kind);
    extension.at("name").format(format::object_name);
}

fn describe_path(path: &mut Node) {
    path.at("replaceFullPath").length(0..=1024);
    path.at("replacePrefixMatch").length(0..=1024);
}

/// `https://*.example.com:8443`, or `*` for all.
fn origin(text: &str) -> Result<(), &'static str> {
    const WHAT: &str = "must be an origin such as `https://www.example.com`, without a path, or `*`";
    if text == "*" {
        return Ok(());
    }
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).ok_or(WHAT)?;
    let (host, port) = rest.rsplit_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    let host_fits =
        host == "*" || format::hostname(host).is_ok() || host.parse::<std::net::Ipv4Addr>().is_ok();
    if port_fits && host_fits { Ok(()) } else { Err(WHAT) }
}

/// `rule` is the rule that the filters belong to, directly or through a backend.
pub(in super::super) fn rules(path: &str, filters: &[Value], rule: &Value, violations: &mut Violations) {
    let kinds: Vec<&str> = filters.iter().map(|filter| text(filter, "type")).collect();
    for (index, (filter, &kind)) in filters.iter().zip(&kinds).enumerate() {
        let path = format!("{path}[{index}]");
        if ONCE.contains(&kind) && kinds[..index].contains(&kind) {
            violations.add(&path, format_args!("is a second {kind}; put both into one filter"));
        }
        union_rules(&path, kind, filter, violations);
        for name in ["requestRedirect", "urlRewrite"] {
            if let Some(change) = filter.get(name).and_then(|filter| filter.get("path")) {
                path_rules(&format!("{path}.{name}.path"), change, rule, violations);
            }
        }
        if let Some(mirror) = filter.get("requestMirror") {
            mirror_rules(&format!("{path}.requestMirror"), mirror, violations);
        }
        for name in ["allowOrigins", "allowMethods", "allowHeaders"] {
            let values = filter.get("cors").map_or(&[][..], |cors| list(cors, name));
            if values.len() > 1 && values.iter().any(|value| value == "*") {
                let what = "has `*` beside other entries; leave `*` alone, or remove it";
                violations.add(&format!("{path}.cors.{name}"), what);
            }
        }
    }
    if kinds.contains(&"RequestRedirect") && kinds.contains(&"URLRewrite") {
        violations.add(
            path,
            "has both RequestRedirect and URLRewrite; a request is redirected or rewritten, not both",
        );
    }
}

/// Exactly the field that the type names.
fn union_rules(path: &str, kind: &str, filter: &Value, violations: &mut Violations) {
    for (name, field) in FIELDS {
        let present = filter.get(field).is_some();
        if name == kind && !present {
            violations.add(&format!("{path}.{field}"), format_args!("is missing; the type {kind} needs it"));
        } else if name != kind && present {
            let what = format_args!(
                "must not be set where the type is {kind}; remove it, or set the type to {name}"
            );
            violations.add(&format!("{path}.{field}"), what);
        }
    }
}

fn path_rules(path: &str, change: &Value, rule: &Value, violations: &mut Violations) {
    let kind = text(change, "type");
    for (name, field) in
        [("ReplaceFullPath", "replaceFullPath"), ("ReplacePrefixMatch", "replacePrefixMatch")]
    {
        let present = change.get(field).is_some();
        if name == kind && !present {
            violations.add(&format!("{path}.{field}"), format_args!("is missing; the type {kind} needs it"));
        } else if name != kind && present {
            let what = format_args!("must not be set where the type is {kind}; set the type to {name}");
            violations.add(&format!("{path}.{field}"), what);
        }
    }
    let matches = list(rule, "matches");
    let one_prefix = matches.len() == 1
        && matches[0].get("path").is_some_and(|matched| text(matched, "type") == "PathPrefix");
    if kind == "ReplacePrefixMatch" && !one_prefix {
        let what = "needs a rule with exactly one match, of the path type PathPrefix; split the rule";
        violations.add(&format!("{path}.replacePrefixMatch"), what);
    }
}

fn mirror_rules(path: &str, mirror: &Value, violations: &mut Violations) {
    if let Some(backend) = mirror.get("backendRef") {
        backend_rules(&format!("{path}.backendRef"), backend, violations);
    }
    if mirror.get("percent").is_some() && mirror.get("fraction").is_some() {
        violations.add(path, "has both percent and fraction; keep one");
    }
    if let Some(fraction) = mirror.get("fraction") {
        let number = |name: &str| fraction.get(name).and_then(Value::as_i64);
        if let (Some(numerator), Some(denominator)) = (number("numerator"), number("denominator"))
            && numerator > denominator
        {
            let what = format_args!("must not be larger than the denominator, {denominator}");
            violations.add_value(&format!("{path}.fraction.numerator"), numerator, what);
        }
    }
}
