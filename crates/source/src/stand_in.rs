//! Stand-ins: replacements for objects that cannot be used and have no earlier good version. They exist for kinds whose absence
//! would allow something: a wider route, a wider cache policy, or plain text to a backend. The same for files and for a cluster.
//!
//! Takes the object as it was written. Guarantees that a stand-in claims only what can be read in the object: no host, no target
//! and no parent that is not readable. An object that is readable in part is marked, so that `translate` puts it behind the
//! routes of others.

use api::{
    PolicyTargetRef, TcpRoute, TcpRouteSpec, UdpRoute, UdpRouteSpec, VarnishCachePolicy,
    VarnishCachePolicySpec,
};
use gateway_api::backendtlspolicies::{BackendTlsPolicy, BackendTlsPolicySpec, BackendTlsPolicyTargetRefs};
use gateway_api::experimental::grpcroutes::{
    GrpcRoute, GrpcRouteRules, GrpcRouteRulesMatches, GrpcRouteRulesMatchesHeaders, GrpcRouteSpec,
};
use gateway_api::experimental::httproutes::{
    HttpRoute, HttpRouteParentRefs, HttpRouteRules, HttpRouteRulesMatches, HttpRouteRulesMatchesHeaders,
    HttpRouteRulesMatchesPath, HttpRouteRulesMatchesPathType as PathType, HttpRouteRulesMatchesQueryParams,
    HttpRouteSpec,
};
use gateway_api::listenersets::{ListenerSet, ListenerSetListeners, ListenerSetParentRef, ListenerSetSpec};
use gateway_api::tlsroutes::{TlsRoute, TlsRouteSpec};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressRule, IngressSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use translate::REFUSED_ANNOTATION;

use crate::files::admission::format;

/// A policy for the same targets, as far as they can be read, which says why it is refused. None: it names none.
pub(crate) fn backend_tls_policy(raw: &Value, why: &str) -> Option<BackendTlsPolicy> {
    let spec = raw.get("spec")?;
    let several = spec.get("targetRefs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // As in the first versions of the kind.
    let single = spec.get("targetRef");
    let target_refs: Vec<BackendTlsPolicyTargetRefs> =
        several.iter().chain(single).filter_map(service).collect();
    if target_refs.is_empty() {
        return None;
    }
    let spec = BackendTlsPolicySpec { target_refs, ..BackendTlsPolicySpec::default() };
    Some(BackendTlsPolicy { metadata: metadata(raw, why), spec, status: None })
}

fn service(raw: &Value) -> Option<BackendTlsPolicyTargetRefs> {
    Some(BackendTlsPolicyTargetRefs {
        group: text(raw, "group").unwrap_or_default(),
        kind: text(raw, "kind").unwrap_or_else(|| "Service".to_owned()),
        name: text(raw, "name")?,
        section_name: text(raw, "sectionName"),
    })
}

const POLICY_FIELDS: &[&str] = &[
    "defaultTTL",
    "forcedTTL",
    "heuristic",
    "cacheControlTargets",
    "grace",
    "keep",
    "maxObjectSize",
    "cacheKey",
    "bypass",
    "invalidateOnUnsafe",
    "clientCacheControl",
    "authorization",
    "normalize",
    "noVarySearch",
    "methods",
];

/// A policy for a GRPCRoute is refused, but its target is known: it affects nothing else.
const POLICY_TARGETS: &[&str] = &["Gateway", "HTTPRoute", "Ingress", "GRPCRoute"];

/// A policy for the same target, which says why it is refused. An empty target means that it is unknown.
pub(crate) fn cache_policy_for(raw: &Value, why: &str) -> VarnishCachePolicy {
    let target_ref = raw.pointer("/spec/targetRef").and_then(|target| {
        let kind = text(target, "kind").filter(|kind| POLICY_TARGETS.contains(&&**kind))?;
        let section_name = text(target, "sectionName").filter(|_| kind == "HTTPRoute");
        let name = text(target, "name").filter(|name| format::object_name(name).is_ok())?;
        Some(PolicyTargetRef { group: text(target, "group").unwrap_or_default(), kind, name, section_name })
    });
    // Without targetRef it is for rules that name it, unless a field that is not known may be a misspelt one.
    let spec = raw.get("spec").filter(|spec| spec.is_object());
    let is_for_rules =
        spec.is_some_and(|spec| spec.get("targetRef").is_none() && !has_others(spec, POLICY_FIELDS));
    let target_ref = (!is_for_rules).then(|| target_ref.unwrap_or_default());
    let spec = VarnishCachePolicySpec { target_ref, ..VarnishCachePolicySpec::default() };
    VarnishCachePolicy { metadata: metadata(raw, why), spec, status: None }
}

pub(crate) fn cache_policy(raw: &Value, why: &str) -> Option<VarnishCachePolicy> {
    Some(cache_policy_for(raw, why))
}

/// A route with the same parents, hosts and matches, as far as they can be read, and no backends.
pub(crate) fn http_route(raw: &Value, why: &str) -> Option<HttpRoute> {
    let none = Value::Null;
    let spec = raw.get("spec").unwrap_or(&none);
    let hostnames = hostnames(spec);
    let parents = list(spec, "parentRefs");
    // An unknown field may be a misspelt one, and its absence makes the route wider than it was meant.
    let is_doubtful = has_others(spec, &["hostnames", "parentRefs", "rules", "useDefaultGateways"])
        || parents.iter().any(|parent| has_others(parent, PARENT_FIELDS));
    let rules = match (&hostnames, spec.get("rules")) {
        // It is for hosts that cannot be read.
        (None, _) => Vec::new(),
        (_, None | Some(Value::Null)) => vec![HttpRouteRules {
            matches: is_doubtful.then(|| vec![unreadable(HttpRouteRulesMatches::default())]),
            ..HttpRouteRules::default()
        }],
        (_, Some(Value::Array(rules))) => rules.iter().map(|raw| rule(raw, is_doubtful)).collect(),
        (_, Some(_)) => vec![rule(&none, true)],
    };
    let spec = HttpRouteSpec {
        parent_refs: Some(parents.iter().filter_map(parent).collect()),
        hostnames: hostnames.filter(|names| !names.is_empty()),
        rules: Some(rules),
        use_default_gateways: None,
    };
    Some(HttpRoute { metadata: metadata(raw, why), spec, status: None })
}

/// A route with the same parents, hosts and methods, as far as they can be read, and no backends.
pub(crate) fn grpc_route(raw: &Value, why: &str) -> Option<GrpcRoute> {
    let none = Value::Null;
    let spec = raw.get("spec").unwrap_or(&none);
    let hostnames = hostnames(spec);
    let parents = list(spec, "parentRefs");
    let is_doubtful = has_others(spec, &["hostnames", "parentRefs", "rules", "useDefaultGateways"])
        || parents.iter().any(|parent| has_others(parent, PARENT_FIELDS));
    let rules = match (&hostnames, spec.get("rules")) {
        // It is for hosts that cannot be read.
        (None, _) => Vec::new(),
        (_, None | Some(Value::Null)) => vec![calls(&none, is_doubtful)],
        (_, Some(Value::Array(rules))) => rules.iter().map(|raw| calls(raw, is_doubtful)).collect(),
        (_, Some(_)) => vec![calls(&none, true)],
    };
    let spec = GrpcRouteSpec {
        parent_refs: Some(
            parents.iter().filter_map(parent).filter_map(|parent| converted(&parent)).collect(),
        ),
        hostnames: hostnames.filter(|names| !names.is_empty()),
        rules: Some(rules),
        ..GrpcRouteSpec::default()
    };
    Some(GrpcRoute { metadata: metadata(raw, why), spec, status: None })
}

/// The calls that a rule of a GRPCRoute is for. One that cannot be read is marked by a header without name.
fn calls(raw: &Value, is_doubtful: bool) -> GrpcRouteRules {
    let known = ["name", "matches", "filters", "backendRefs", "sessionPersistence"];
    let unreadable = || GrpcRouteRulesMatches {
        headers: Some(vec![GrpcRouteRulesMatchesHeaders::default()]),
        ..GrpcRouteRulesMatches::default()
    };
    let one = |raw: &Value| {
        let is_whole = !is_doubtful
            && !has_others(raw, &["method", "headers"])
            && !raw.get("method").is_some_and(|raw| has_others(raw, &["type", "service", "method"]))
            && list(raw, "headers").iter().all(|raw| !has_others(raw, &["type", "name", "value"]));
        typed::<GrpcRouteRulesMatches>(raw).filter(|_| is_whole).unwrap_or_else(unreadable)
    };
    let matches = match raw.get("matches") {
        Some(Value::Array(matches)) if !matches.is_empty() => Some(matches.iter().map(one).collect()),
        None | Some(Value::Null | Value::Array(_)) if !is_doubtful && !has_others(raw, &known) => None,
        _ => Some(vec![unreadable()]),
    };
    GrpcRouteRules { name: text(raw, "name"), matches, ..GrpcRouteRules::default() }
}

/// A route with the same parents, as far as they can be read, and no backends: its listeners serve no younger route either.
pub(crate) fn tcp_route(raw: &Value, why: &str) -> Option<TcpRoute> {
    let spec = TcpRouteSpec { parent_refs: Some(stream_parents(raw)), rules: Vec::new() };
    Some(TcpRoute { metadata: metadata(raw, why), spec, status: None })
}

/// The same for UDP.
pub(crate) fn udp_route(raw: &Value, why: &str) -> Option<UdpRoute> {
    let spec = UdpRouteSpec { parent_refs: Some(stream_parents(raw)), rules: Vec::new() };
    Some(UdpRoute { metadata: metadata(raw, why), spec, status: None })
}

/// Without a readable section, a parentRef would be for more listeners than it was meant for.
fn stream_parents(raw: &Value) -> Vec<HttpRouteParentRefs> {
    let parents = raw.pointer("/spec/parentRefs").and_then(Value::as_array);
    let parents = parents.into_iter().flatten().filter(|parent| !has_others(parent, PARENT_FIELDS));
    parents.filter_map(parent).collect()
}

/// The same in another type with the same fields.
fn converted<T: DeserializeOwned>(of: &impl Serialize) -> Option<T> {
    typed(&serde_json::to_value(of).ok()?)
}

/// A set for the same Gateway, with listeners that keep their ports and hostnames and serve nothing. Listeners of which one of these cannot
/// be read are left out, or they would be wider than they were meant.
pub(crate) fn listener_set(raw: &Value, why: &str) -> Option<ListenerSet> {
    let spec = raw.get("spec")?;
    let parent_ref: ListenerSetParentRef = typed(spec.get("parentRef")?)?;
    format::object_name(&parent_ref.name).ok()?;
    let mut listeners: Vec<ListenerSetListeners> = Vec::new();
    for listener in list(spec, "listeners").iter().filter_map(set_listener) {
        if listeners.iter().all(|known| known.name != listener.name) {
            listeners.push(listener);
        }
    }
    let spec = ListenerSetSpec { parent_ref, listeners };
    Some(ListenerSet { metadata: metadata(raw, why), spec, status: None })
}

fn set_listener(raw: &Value) -> Option<ListenerSetListeners> {
    let hostname = match raw.get("hostname") {
        // An unknown field may be a misspelt hostname.
        None | Some(Value::Null) if has_others(raw, LISTENER_FIELDS) => return None,
        None | Some(Value::Null) => None,
        Some(name) => Some(name.as_str()?.to_ascii_lowercase())
            .filter(|name| name.is_empty() || format::may_be_hostname(name))
            .map(Some)?,
    };
    Some(ListenerSetListeners {
        name: text(raw, "name").filter(|name| format::object_name(name).is_ok())?,
        port: i32::from(u16::try_from(raw.get("port")?.as_u64()?).ok().filter(|port| *port > 0)?),
        protocol: text(raw, "protocol").filter(|protocol| format::protocol(protocol).is_ok())?,
        hostname,
        ..ListenerSetListeners::default()
    })
}

/// A route with the same parents and hostnames, as far as they can be read, and no backends.
pub(crate) fn tls_route(raw: &Value, why: &str) -> Option<TlsRoute> {
    let none = Value::Null;
    let spec = raw.get("spec").unwrap_or(&none);
    let parents = list(spec, "parentRefs").iter().filter_map(parent).filter_map(|parent| converted(&parent));
    let spec = TlsRouteSpec {
        parent_refs: Some(parents.collect()),
        hostnames: hostnames(spec).unwrap_or_default(),
        ..TlsRouteSpec::default()
    };
    Some(TlsRoute { metadata: metadata(raw, why), spec, status: None })
}

/// An Ingress with the same class, hosts and paths, as far as they can be read, and no backends. Rules without host are left
/// out: they would be for every host.
pub(crate) fn ingress(raw: &Value, why: &str) -> Option<Ingress> {
    let none = Value::Null;
    let spec = raw.get("spec").unwrap_or(&none);
    let rules = list(spec, "rules").iter().filter_map(|rule| {
        let host = text(rule, "host")?.to_ascii_lowercase();
        format::may_be_hostname(&host).then_some(())?;
        let listed = rule.pointer("/http/paths").and_then(Value::as_array);
        let paths: Option<Vec<HTTPIngressPath>> =
            listed.and_then(|paths| paths.iter().map(ingress_path).collect());
        // Where one cannot be read, it may be any.
        let paths = paths.filter(|paths| !paths.is_empty()).unwrap_or_else(|| {
            let readable = listed.into_iter().flatten().filter_map(ingress_path);
            let (path, path_type) = (Some("/".to_owned()), "Prefix".to_owned());
            readable.chain([HTTPIngressPath { path, path_type, ..HTTPIngressPath::default() }]).collect()
        });
        Some(IngressRule { host: Some(host), http: Some(HTTPIngressRuleValue { paths }) })
    });
    let spec = IngressSpec {
        ingress_class_name: text(spec, "ingressClassName"),
        rules: Some(rules.collect()),
        ..IngressSpec::default()
    };
    Some(Ingress { metadata: metadata(raw, why), spec: Some(spec), status: None })
}

fn ingress_path(raw: &Value) -> Option<HTTPIngressPath> {
    let path_type = text(raw, "pathType").filter(|kind| ["Exact", "Prefix"].contains(&&**kind))?;
    let path = text(raw, "path").filter(|path| path.starts_with('/'))?;
    Some(HTTPIngressPath { path: Some(path), path_type, ..HTTPIngressPath::default() })
}

const LISTENER_FIELDS: &[&str] = &["name", "hostname", "port", "protocol", "tls", "allowedRoutes"];
const PARENT_FIELDS: &[&str] = &["group", "kind", "name", "namespace", "port", "sectionName"];

fn parent(raw: &Value) -> Option<HttpRouteParentRefs> {
    let parent: HttpRouteParentRefs = typed(raw)?;
    let good = format::object_name(&parent.name).is_ok()
        && parent.namespace.as_deref().is_none_or(|namespace| format::label(namespace).is_ok());
    good.then_some(parent)
}

/// The hostnames of a route that can be read. None: it names some, and not one can be read.
fn hostnames(spec: &Value) -> Option<Vec<String>> {
    match spec.get("hostnames") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(names)) => {
            let good = names.iter().filter_map(|name| {
                Some(name.as_str()?.to_ascii_lowercase()).filter(|name| format::may_be_hostname(name))
            });
            Some(good.collect()).filter(|good: &Vec<_>| names.is_empty() || !good.is_empty())
        }
        Some(_) => None,
    }
}

fn rule(raw: &Value, is_doubtful: bool) -> HttpRouteRules {
    let known = ["name", "matches", "filters", "backendRefs", "timeouts", "retry", "sessionPersistence"];
    let is_doubtful = is_doubtful || !raw.is_object();
    let doubtful = |one: HttpRouteRulesMatches| if is_doubtful { unreadable(one) } else { one };
    let matches = match raw.get("matches") {
        None | Some(Value::Null) if is_doubtful || has_others(raw, &known) => {
            Some(vec![unreadable(HttpRouteRulesMatches::default())])
        }
        None | Some(Value::Null) => None,
        Some(Value::Array(matches)) => {
            Some(matches.iter().map(|raw| doubtful(one_match(raw))).collect::<Vec<_>>())
        }
        Some(_) => Some(vec![unreadable(HttpRouteRulesMatches::default())]),
    };
    // An empty list is the default, which is everything.
    let matches = match matches {
        Some(none) if none.is_empty() && is_doubtful => {
            Some(vec![unreadable(HttpRouteRulesMatches::default())])
        }
        other => other,
    };
    HttpRouteRules { name: text(raw, "name"), matches, ..HttpRouteRules::default() }
}

fn one_match(raw: &Value) -> HttpRouteRulesMatches {
    let mut is_whole = raw.is_object() && !has_others(raw, &["path", "method", "headers", "queryParams"]);
    let path = match raw.get("path") {
        None | Some(Value::Null) => None,
        Some(raw) => {
            let read: Option<HttpRouteRulesMatchesPath> =
                typed(raw).filter(|_| !has_others(raw, &["type", "value"]));
            is_whole &= read.is_some();
            Some(read.unwrap_or_else(|| path(raw)))
        }
    };
    let method = match raw.get("method") {
        None | Some(Value::Null) => None,
        Some(raw) => {
            let method = typed(raw);
            is_whole &= method.is_some();
            method
        }
    };
    let fields = &["name", "type", "value"];
    let read_all = |field: &str| match raw.get(field) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(all)) => all
            .iter()
            .map(|raw| {
                let name = text(raw, "name").filter(|name| format::header_name(name).is_ok());
                (name.is_some() && !has_others(raw, fields)).then_some(raw)
            })
            .collect(),
        Some(_) => None,
    };
    let headers = read_all("headers")
        .and_then(|all| all.into_iter().map(typed).collect::<Option<Vec<HttpRouteRulesMatchesHeaders>>>());
    let query_params = read_all("queryParams").and_then(|all| {
        all.into_iter().map(typed).collect::<Option<Vec<HttpRouteRulesMatchesQueryParams>>>()
    });
    is_whole &= headers.is_some() && query_params.is_some();
    let one = HttpRouteRulesMatches { path, method, headers, query_params };
    if is_whole { one } else { unreadable(one) }
}

/// The value of a path with an unknown type, if it is unlikely to be a regular expression.
fn path(raw: &Value) -> HttpRouteRulesMatchesPath {
    let plain = |value: &String| {
        value.starts_with('/') && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-_.~%".contains(&b))
    };
    let value = text(raw, "value").filter(plain).unwrap_or_else(|| "/".to_owned());
    HttpRouteRulesMatchesPath { r#type: Some(PathType::PathPrefix), value: Some(value) }
}

/// Marks a match as readable in part: a condition without name stands for what cannot be read.
fn unreadable(mut one: HttpRouteRulesMatches) -> HttpRouteRulesMatches {
    one.headers.get_or_insert_default().push(HttpRouteRulesMatchesHeaders::default());
    one
}

/// Name, namespace, age and generation as far as they can be read. One without a name gets one.
fn metadata(raw: &Value, why: &str) -> ObjectMeta {
    let none = Value::Null;
    let of = raw.get("metadata").unwrap_or(&none);
    let mut metadata: ObjectMeta = typed(of).unwrap_or_else(|| ObjectMeta {
        creation_timestamp: of.get("creationTimestamp").and_then(typed),
        generation: of.get("generation").and_then(Value::as_i64),
        ..ObjectMeta::default()
    });
    let named = text(of, "name").filter(|name| format::object_name(name).is_ok());
    metadata.name = Some(named.unwrap_or_else(|| {
        let digest = Sha256::digest(raw.to_string());
        let short: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("unnamed-{short}")
    }));
    metadata.namespace = text(of, "namespace").filter(|namespace| format::label(namespace).is_ok());
    metadata.annotations.get_or_insert_default().insert(REFUSED_ANNOTATION.to_owned(), why.to_owned());
    metadata
}

fn typed<T: DeserializeOwned>(raw: &Value) -> Option<T> {
    T::deserialize(raw).ok()
}

/// Has it fields that are none of these?
fn has_others(raw: &Value, known: &[&str]) -> bool {
    raw.as_object().is_some_and(|object: &Map<String, Value>| {
        object.iter().any(|(field, value)| !value.is_null() && !known.contains(&field.as_str()))
    })
}

fn list<'a>(raw: &'a Value, field: &str) -> &'a [Value] {
    raw.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text(raw: &Value, field: &str) -> Option<String> {
    raw.get(field).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_it_is_for_is_kept() {
        let raw = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "shop", "sectionName": "web"}, {"name": 3}],
                     "validation": {"hostname": 7}}
        });
        let policy = backend_tls_policy(&raw, "no good").unwrap();
        assert_eq!(policy.spec.target_refs.len(), 1);
        assert_eq!(policy.spec.target_refs[0].section_name.as_deref(), Some("web"));
        assert_eq!(policy.metadata.annotations.unwrap()[REFUSED_ANNOTATION], "no good");
        assert!(backend_tls_policy(&json!({"spec": {}}), "").is_none());
        let old =
            json!({"metadata": {"name": 5}, "spec": {"targetRef": {"kind": "Service", "name": "shop"}}});
        assert_eq!(backend_tls_policy(&old, "").unwrap().spec.target_refs[0].name, "shop");
    }

    #[test]
    fn the_target_of_a_cache_policy_is_kept_or_empty() {
        let of = |target: Value| {
            let raw = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"targetRef": target, "bypas": 1}});
            cache_policy_for(&raw, "no good").spec.target_ref.unwrap()
        };
        let rule = of(json!({"kind": "HTTPRoute", "name": "shop", "sectionName": "admin"}));
        assert_eq!((rule.name.as_str(), rule.section_name.as_deref()), ("shop", Some("admin")));
        assert_eq!(of(json!({"kind": "HTTPRoute", "name": "shop", "sectionName": 5})).section_name, None);
        assert_eq!(of(json!({"kind": "GRPCRoute", "name": "calls"})).name, "calls");
        assert_eq!(of(json!({"kind": "HttpRoute", "name": "shop"})), PolicyTargetRef::default());
        assert_eq!(of(json!({"kind": "HTTPRoute", "name": ["shop"]})), PolicyTargetRef::default());
        assert_eq!(of(json!("shop")), PolicyTargetRef::default());
    }

    fn route(spec: &Value) -> HttpRouteSpec {
        http_route(&json!({"metadata": {"name": "r", "namespace": "n"}, "spec": spec}), "no good")
            .unwrap()
            .spec
    }

    /// Paths of matches that are whole, and of those that are readable in part.
    fn paths(spec: &HttpRouteSpec) -> (Vec<String>, Vec<String>) {
        let all = spec.rules.iter().flatten().flat_map(|rule| match &rule.matches {
            Some(matches) if !matches.is_empty() => matches.clone(),
            _ => vec![HttpRouteRulesMatches::default()],
        });
        let marked =
            |one: &HttpRouteRulesMatches| one.headers.iter().flatten().any(|header| header.name.is_empty());
        let (rough, exact): (Vec<_>, Vec<_>) = all.partition(marked);
        let paths = |all: Vec<HttpRouteRulesMatches>| {
            all.into_iter()
                .map(|one| one.path.and_then(|path| path.value).unwrap_or_else(|| "/".to_owned()))
                .collect()
        };
        (paths(exact), paths(rough))
    }

    #[test]
    fn readable_matches_of_a_route_are_kept_and_the_others_are_marked() {
        let spec = route(&json!({
            "parentRefs": [{"name": "web"}, {"name": 5}],
            "hostnames": ["Shop.example.com", 7],
            "rules": [
                {"matches": [{"path": {"type": "Exact", "value": "/a"}}, {"path": {"type": "Prefix", "value": "/b"}}],
                 "filters": [{"type": "Nonsense"}]},
                {"matches": [{"path": {"value": "/c"}, "headers": [{"name": "a b", "value": "x"}]}]},
                {"matches": [{"path": {"value": "/d"}, "method": "FETCH"}]},
                {"matches": [{"pth": {"value": "/e"}}]},
                {"matches": [{"path": {"type": "Regex", "value": "/f.*"}}]},
                {"matchs": [{"path": {"value": "/g"}}]},
                {"backendRefs": []},
                7
            ],
        }));
        assert_eq!(spec.hostnames, Some(vec!["shop.example.com".to_owned()]));
        assert_eq!(spec.parent_refs.as_ref().map(Vec::len), Some(1));
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(paths(&spec), (owned(&["/a", "/"]), owned(&["/b", "/c", "/d", "/", "/", "/", "/"])));
    }

    #[test]
    fn a_route_whose_hosts_cannot_be_read_claims_none() {
        assert_eq!(route(&json!({"hostnames": "shop.example.com", "rules": [{}]})).rules, Some(vec![]));
        assert_eq!(route(&json!({"hostnames": ["not a host"], "rules": [{}]})).rules, Some(vec![]));
        // It may have been for one host only.
        let misspelt = route(
            &json!({"hostname": "shop.example.com", "rules": [{"matches": [{"path": {"value": "/a"}}]}]}),
        );
        assert_eq!(paths(&misspelt), (vec![], vec!["/a".to_owned()]));
        let raw = json!({"metadata": {"name": "r"}, "spec": {"hostnames": [1, "*.example.com"], "rules": 5}});
        assert_eq!(tls_route(&raw, "").unwrap().spec.hostnames, ["*.example.com"]);
    }

    #[test]
    fn listeners_of_a_set_keep_their_place_where_it_can_be_read() {
        let raw = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {
        "parentRef": {"name": "web"},
        "listeners": [
            {"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "A.example", "tls": {"mode": "Maybe"}},
            {"name": "b", "port": 80, "protocol": "HTTP", "hostname": "b.example", "prot": 1},
            {"name": "c", "port": 80, "protocol": "HTTP", "hostnme": "c.example"},
            {"name": "d", "port": 80, "protocol": "HTTP", "hostname": ["d.example"]},
            {"name": "e", "port": 70000, "protocol": "HTTP"},
            {"name": "f", "port": 53, "protocol": "UDP"},
            7,
        ]}});
        let set = listener_set(&raw, "no good").unwrap();
        let kept: Vec<_> = set
            .spec
            .listeners
            .iter()
            .map(|one| (one.name.as_str(), one.port, one.hostname.as_deref()))
            .collect();
        assert_eq!(kept, [("a", 443, Some("a.example")), ("b", 80, Some("b.example")), ("f", 53, None)]);
        assert!(set.spec.listeners.iter().all(|one| one.tls.is_none()));
        // Its Gateway is unknown.
        assert!(listener_set(&json!({"spec": {"parentRef": {"name": 5}, "listeners": []}}), "").is_none());
    }

    #[test]
    fn one_without_a_name_gets_one() {
        let policy = cache_policy_for(&json!({"metadata": {"name": 5, "namespace": "n"}}), "no good");
        assert!(policy.metadata.name.unwrap().starts_with("unnamed-"));
        assert_eq!(policy.metadata.namespace.as_deref(), Some("n"));
    }
}
