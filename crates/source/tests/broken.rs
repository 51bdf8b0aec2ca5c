//! Whatever one tenant writes, in files or in a cluster: nothing panics, and all other tenants are served as before.

#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use resolve::EndpointIndex;
use serde_json::{Value, json};
use translate::{Key, Snapshot, Translation};

/// What belongs to no tenant: two Gateways, of which `a` shares the first.
fn shared() -> Vec<Value> {
    let all = json!({"namespaces": {"from": "All"}});
    vec![
        gateway_api("GatewayClass", "", "varnish", json!({"controllerName": "varnish-software.com/gateway"})),
        gateway_api(
            "Gateway",
            "infra",
            "web",
            json!({"gatewayClassName": "varnish", "listeners": [
                {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": all},
                {"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}, "allowedRoutes": all},
            ], "infrastructure": {"labels": {"app": "varnish-ingress"}}}),
        ),
        ours(
            "VarnishCachePolicy",
            "infra",
            "wide",
            json!({"targetRef":
            {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}, "defaultTTL": "50s"}),
        ),
        object(
            "networking.k8s.io/v1",
            "IngressClass",
            "",
            "varnish",
            json!({"controller": "varnish-software.com/ingress"}),
        ),
    ]
}

/// One object of every kind, as each tenant has them.
fn of_tenant(tenant: &str) -> Vec<Value> {
    let named = |suffix: &str| format!("{tenant}{suffix}");
    let parents = json!([{"name": "web", "namespace": "infra"}, {"name": "own"}]);
    let backend = json!([{"name": "app", "port": 80, "weight": 3}, {"name": "app", "port": 80}]);
    let backend_other = json!([{"name": "app", "namespace": named("-other"), "port": 80}]);
    let target =
        |kind: &str, name: &str| json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": name});
    let service = json!({"ports": [{"name": "http", "port": 80}]});
    let mut all = vec![
        object("v1", "Namespace", "", tenant, json!({})),
        gateway_api(
            "GatewayClass",
            "",
            &named("-class"),
            json!({"controllerName": "varnish-software.com/gateway",
            "parametersRef": {"group": "gateway.varnish-software.com", "kind": "GatewayClassParameters",
                "name": named("-parameters")}}),
        ),
        ours(
            "GatewayClassParameters",
            "",
            &named("-parameters"),
            json!({
            "userVCLConfigMapRef": {"name": "vcl", "namespace": tenant}, "trustedProxies": ["10.0.0.0/8"]}),
        ),
        gateway_api(
            "Gateway",
            tenant,
            "own",
            json!({"gatewayClassName": named("-class"), "listeners": [
            {"name": "http", "port": 8080, "protocol": "HTTP"},
            {"name": "https", "port": 8443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "pair"}]}},
        ], "tls": {"frontend": {"default": {"validation": {"caCertificateRefs":
            [{"group": "", "kind": "ConfigMap", "name": "vcl"}]}}}}}),
        ),
        gateway_api(
            "HTTPRoute",
            tenant,
            "app",
            json!({"parentRefs": parents,
            "hostnames": [named(".example.com"), "shared.example.com"], "rules": [
            {"name": "paths", "matches": [{"path": {"type": "PathPrefix", "value": format!("/{tenant}")}, "method": "GET"},
                {"path": {"type": "RegularExpression", "value": format!("/{tenant}/[a-z]+")},
                 "headers": [{"name": "X-Canary", "value": "yes"}], "queryParams": [{"name": "q", "value": "1"}]}],
             "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "A", "value": "b"}]}},
                {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/x"}}}],
             "backendRefs": backend},
            {"matches": [{"path": {"type": "PathPrefix", "value": format!("/{tenant}-other")}}], "backendRefs": backend_other}]}),
        ),
        gateway_api(
            "TLSRoute",
            tenant,
            "tls",
            json!({"parentRefs": [{"name": "web", "namespace": "infra", "sectionName": "tls"}],
            "hostnames": [named(".tls.example.com")], "rules": [{"backendRefs": [{"name": "app", "port": 80}]}]}),
        ),
        gateway_api(
            "BackendTLSPolicy",
            tenant,
            "tls",
            json!({"targetRefs": [{"group": "", "kind": "Service", "name": "secure"}],
            "validation": {"hostname": "secure.example.com", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "vcl"}]}}),
        ),
        gateway_api(
            "ReferenceGrant",
            &named("-other"),
            "grant",
            json!({
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": tenant}],
            "to": [{"group": "", "kind": "Service"}]}),
        ),
        ours(
            "VarnishCachePolicy",
            tenant,
            "narrow",
            json!({"targetRef": target("HTTPRoute", "app"), "forcedTTL": "1m",
            "grace": "1h", "cacheKey": {"headers": ["Accept-Language"], "queryParameters": {"exclude": ["utm"]}},
            "bypass": {"headers": [{"name": "Cookie", "valueRegex": ".*session.*"}]}}),
        ),
        ours(
            "VarnishCacheInvalidation",
            tenant,
            "purge",
            json!({"gatewayRef": {"name": "own"}, "type": "Purge",
            "hostname": named(".example.com"), "paths": ["/x"]}),
        ),
        object("v1", "Service", tenant, "app", service.clone()),
        object("v1", "Service", tenant, "secure", service.clone()),
        object("v1", "Service", &named("-other"), "app", service),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            tenant,
            "site",
            json!({"ingressClassName": "varnish",
            "rules": [{"host": named(".ingress.example.com"), "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "app", "port": {"number": 80}}}}]}}]}),
        ),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "app", "namespace": tenant, "labels": {"kubernetes.io/service-name": "app"}},
            "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vcl", "namespace": tenant},
            "data": {"user.vcl": "sub vcl_recv {}", "ca.crt": "no certificate"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pair", "namespace": tenant},
            "type": "kubernetes.io/tls", "data": {"tls.crt": "eA==", "tls.key": "eA=="}}),
    ];
    // There are several to choose from.
    for ingress in all.iter_mut().filter(|object| object["kind"] == "Ingress") {
        ingress["metadata"]["annotations"] = json!({"ingress.varnish-cache.org/varnish-svc": "infra/web"});
    }
    all.push(object("networking.k8s.io/v1", "IngressClass", "", &named("-ingress"), json!({
        "controller": "varnish-software.com/ingress", "parameters": {"apiGroup": "gateway.varnish-software.com",
            "kind": "GatewayClassParameters", "name": named("-parameters")}})));
    all
}

#[allow(clippy::needless_pass_by_value, reason = "json! is written where it is called")]
fn object(api_version: &str, kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

fn gateway_api(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    object("gateway.networking.k8s.io/v1", kind, namespace, name, spec)
}

fn ours(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    object("gateway.varnish-software.com/v1alpha1", kind, namespace, name, spec)
}

/// All places in a value, the deeper ones too.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                let at = format!("{at}/{}", escaped(key));
                places(inner, &at, found);
                found.push(at);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let at = format!("{at}/{index}");
                places(inner, &at, found);
                found.push(at);
            }
        }
        _ => {}
    }
}

/// One way to spoil a value.
#[derive(Debug, Clone)]
enum Damage {
    Remove,
    Rename,
    Beside,
    Wrap,
    Repeat,
    Replace(Value),
}

fn damage() -> impl Strategy<Value = Damage> {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(5),
        json!(i64::MAX),
        json!(1.5),
        json!(""),
        json!("Bogus"),
        json!("*"),
        json!("not a name\u{0}"),
        json!("(".repeat(3)),
        json!("[01]*1[01]{6000}"),
        json!("a".repeat(20_000)),
        json!([]),
        json!([null]),
        json!({}),
        json!({"name": "x"}),
    ];
    prop_oneof![
        2 => Just(Damage::Remove),
        2 => Just(Damage::Rename),
        1 => Just(Damage::Beside),
        1 => Just(Damage::Wrap),
        1 => Just(Damage::Repeat),
        6 => proptest::sample::select(values.to_vec()).prop_map(Damage::Replace),
    ]
}

fn spoil(object: &mut Value, place: &str, damage: &Damage) {
    let (parent, key) = place.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/").replace("~0", "~");
    match (damage, object.pointer_mut(parent).unwrap()) {
        (Damage::Remove, Value::Object(parent)) => drop(parent.remove(&key)),
        (Damage::Remove, Value::Array(parent)) => drop(parent.remove(key.parse().unwrap())),
        (Damage::Rename, Value::Object(parent)) => {
            let value = parent.remove(&key).unwrap();
            parent.insert(format!("{key}z"), value);
        }
        (Damage::Beside, Value::Object(parent)) => {
            drop(parent.insert("newer".to_owned(), json!({"field": 1})));
        }
        (Damage::Repeat, parent) => {
            let inner = if let Value::Object(parent) = parent {
                &mut parent[&key]
            } else {
                &mut parent[key.parse::<usize>().unwrap()]
            };
            if let Value::Array(items) = inner {
                *items = items.iter().cycle().take(items.len() * 300).cloned().collect();
            }
        }
        (_, parent) => {
            let inner = if let Value::Object(parent) = parent {
                &mut parent[&key]
            } else {
                &mut parent[key.parse::<usize>().unwrap()]
            };
            *inner = match damage {
                Damage::Replace(value) => value.clone(),
                _ => json!([inner.take()]),
            };
        }
    }
}

fn from_files(objects: &[Value]) -> Snapshot {
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    source::files::parse_str("all.json", &text).0
}

/// All that the tenant `b` gets, and that the shared Gateway says of itself.
fn seen_by_b(snapshot: &Snapshot) -> Value {
    let Translation { gateways, statuses, .. } = translate::translate(snapshot);
    let index = EndpointIndex::new(snapshot.endpoint_slices.values().map(AsRef::as_ref));
    let is_b = |name: &str| name.starts_with("b/");
    let plans = gateways.iter().filter(|(key, _)| key.namespace != "a" && key.namespace != "default");
    let plans = plans.map(|(key, plan)| {
        let ghost = resolve::resolve(&plan.routing, &index).0;
        let vhosts = ghost.vhosts.iter().map(|(host, vhost)| {
            // A host that is b's alone has no entries but b's.
            let of_b = |route: &&model::ghost::Route| is_b(&route.route_name) || host.starts_with("b.");
            (host, vhost.routes.iter().filter(of_b).collect::<Vec<_>>())
        });
        let vhosts: Vec<_> = vhosts.filter(|(_, routes)| !routes.is_empty()).collect();
        let tls: Vec<_> = plan.routing.tls_listeners.iter().flat_map(|listener| &listener.hosts).collect();
        let tls: Vec<_> = tls.into_iter().filter(|host| is_b(&host.route_name)).collect();
        let certificates: Vec<_> = plan.certificates.keys().filter(|name| is_b(name)).collect();
        let value = json!({"vhosts": vhosts, "tls": tls, "certificates": certificates,
            "listeners": ghost.listeners, "vcl": plan.main_vcl, "infra": plan.infra});
        (key.to_string(), value)
    });
    let mut all = serde_json::to_value(&statuses).unwrap();
    for kind in all.as_object_mut().unwrap().values_mut() {
        let kind = kind.as_object_mut().unwrap();
        kind.retain(|key, _| {
            is_b(key) || key.starts_with("b-") || key.starts_with("infra/") || key == "varnish"
        });
        // Routes of others count.
        for listener in
            kind.values_mut().filter_map(|status| status.get_mut("listeners")?.as_array_mut()).flatten()
        {
            listener.as_object_mut().unwrap().remove("attachedRoutes");
        }
    }
    json!({"plans": plans.collect::<serde_json::Map<_, _>>(), "statuses": all})
}

/// Where two values differ first, and how.
fn difference(is: &Value, was: &Value, at: &str) -> Option<String> {
    match (is, was) {
        (Value::Object(is), Value::Object(was)) if is.len() == was.len() => {
            is.iter().find_map(|(key, is)| {
                difference(is, was.get(key).unwrap_or(&Value::Null), &format!("{at}/{key}"))
            })
        }
        (Value::Array(is), Value::Array(was)) if is.len() == was.len() => {
            let pairs = is.iter().zip(was).enumerate();
            pairs.into_iter().find_map(|(index, (is, was))| difference(is, was, &format!("{at}/{index}")))
        }
        _ => (is != was).then(|| format!("{at} was {was} and is {is}")),
    }
}

fn everything() -> Vec<Value> {
    [shared(), of_tenant("a"), of_tenant("b")].concat()
}

static UNHARMED: LazyLock<(Value, Value)> = LazyLock::new(|| {
    let all = everything();
    (seen_by_b(&from_files(&all)), seen_by_b(&source::kubernetes::snapshot_of(&all)))
});

#[test]
fn the_whole_is_read_without_a_problem() {
    let text: String = everything().iter().map(|object| format!("{object}\n")).collect();
    let (snapshot, problems) = source::files::parse_str("all.json", &text);
    assert_eq!(problems, []);
    let plan = &UNHARMED.0["plans"]["infra/web"];
    let hosts: Vec<&str> =
        plan["vhosts"].as_array().unwrap().iter().map(|of| of[0].as_str().unwrap()).collect();
    assert_eq!(hosts, ["b.example.com", "b.ingress.example.com", "shared.example.com"]);
    assert_eq!(plan["tls"].as_array().unwrap().len(), 1);
    assert_eq!(snapshot.http_routes.len(), 2);
    assert!(snapshot.http_routes.contains_key(&Key::new("a", "app")));
    assert_eq!(UNHARMED.0["plans"], UNHARMED.1["plans"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tenants_broken_object_harms_no_other(object: Index, place: Index, damages in prop::collection::vec(damage(), 1..3)) {
        let own = of_tenant("a");
        let at = object.index(own.len());
        let mut broken = own[at].clone();
        for damage in &damages {
            let mut all = Vec::new();
            places(&broken, "", &mut all);
            if all.is_empty() {
                break;
            }
            let place = &all[place.index(all.len())];
            spoil(&mut broken, place, damage);
        }
        let objects = |broken: Value| {
            let mut own = own.clone();
            own[at] = broken;
            [shared(), own, of_tenant("b")].concat()
        };
        let difference = difference(&seen_by_b(&from_files(&objects(broken.clone()))), &UNHARMED.0, "");
        prop_assert_eq!(difference, None, "files: {}", broken);
        // The API server sees to identities.
        for field in ["apiVersion", "kind", "metadata"] {
            broken[field] = own[at][field].clone();
        }
        let snapshot = source::kubernetes::snapshot_of(&objects(broken.clone()));
        prop_assert_eq!(self::difference(&seen_by_b(&snapshot), &UNHARMED.1, ""), None, "cluster: {}", broken);
    }
}
