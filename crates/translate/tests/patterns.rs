//! Budgets of regular expressions: what exceeds them is refused in its own status, and harms no other object.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::sync::Arc;

use resolve::{EndpointIndex, resolve};
use serde_json::{Value, json};
use translate::{Condition, Key, Snapshot, Translation, translate};

/// Routes by namespace, name, hostname and rules; the first is the oldest.
fn translated(routes: &[(&str, &str, &str, Value)]) -> Translation {
    translate(&snapshot_of(routes))
}

fn snapshot_of(routes: &[(&str, &str, &str, Value)]) -> Snapshot {
    let gateway_api = "gateway.networking.k8s.io/v1";
    let mut snapshot = Snapshot::default();
    let class = json!({"apiVersion": gateway_api, "kind": "GatewayClass", "metadata": {"name": "varnish"},
        "spec": {"controllerName": "varnish-software.com/gateway"}});
    snapshot
        .gateway_classes
        .insert(Key::cluster("varnish"), Arc::new(serde_json::from_value(class).unwrap()));
    let gateway = json!({"apiVersion": gateway_api, "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "infra"},
        "spec": {"gatewayClassName": "varnish", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP",
            "allowedRoutes": {"namespaces": {"from": "All"}}}]}});
    snapshot.gateways.insert(Key::new("infra", "gw"), Arc::new(serde_json::from_value(gateway).unwrap()));
    for (age, (namespace, name, host, rules)) in routes.iter().enumerate() {
        let time = format!("2026-01-01T{:02}:{:02}:00Z", age / 60, age % 60);
        let route = json!({"apiVersion": gateway_api, "kind": "HTTPRoute",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": time},
            "spec": {"parentRefs": [{"name": "gw", "namespace": "infra"}], "hostnames": [host], "rules": rules}});
        let key = Key::new(*namespace, *name);
        snapshot.http_routes.insert(key, Arc::new(serde_json::from_value(route).unwrap()));
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "shop", "namespace": namespace}, "spec": {"ports": [{"port": 80}]}});
        let key = Key::new(*namespace, "shop");
        snapshot.services.insert(key, Arc::new(serde_json::from_value(service).unwrap()));
    }
    snapshot
}

/// One rule for these matches.
fn rule(matches: impl IntoIterator<Item = Value>) -> Value {
    let matches: Vec<Value> = matches.into_iter().collect();
    json!({"matches": matches, "backendRefs": [{"name": "shop", "port": 80}]})
}

fn regex(value: impl Into<String>) -> Value {
    json!({"path": {"type": "RegularExpression", "value": value.into()}})
}

fn prefix(value: &str) -> Value {
    json!({"path": {"type": "PathPrefix", "value": value}})
}

fn condition<'t>(
    translation: &'t Translation,
    namespace: &str,
    name: &str,
    kind: &str,
) -> Option<&'t Condition> {
    let route = &translation.statuses.http_routes[&Key::new(namespace, name)];
    route.parents[0].conditions.iter().find(|condition| condition.kind == kind)
}

/// Path and Service of all entries of a route.
fn entries<'t>(translation: &'t Translation, route: &str) -> Vec<(&'t str, bool)> {
    let routing = &translation.gateways[&Key::new("infra", "gw")].routing;
    let routes =
        routing.vhosts.values().flat_map(|vhost| &vhost.routes).filter(|entry| entry.route_name == route);
    routes
        .map(|route| (route.path_match.as_ref().unwrap().value.as_str(), !route.backends.is_empty()))
        .collect()
}

#[test]
fn a_host_takes_a_limited_number_of_patterns_and_the_oldest_keep_theirs() {
    let many = |word: &str, count: usize| rule((0..count).map(|n| regex(format!(".*/{word}{n}"))));
    let translation = translated(&[
        ("a", "old", "shared.test", json!([many("old", 20)])),
        (
            "a",
            "young",
            "shared.test",
            json!([
                rule([regex("/young.*"), prefix("/young")]),
                rule(
                    [regex("/more.*")]
                        .into_iter()
                        .chain((0..40).map(|n| regex(format!(".*/young{n}"))))
                        .chain([prefix("/admin")])
                ),
                rule([prefix("/plain")]),
            ]),
        ),
        ("b", "late", "shared.test", json!([many("late", 50)])),
        ("b", "elsewhere", "own.test", json!([many("late", 32)])),
    ]);
    assert!(condition(&translation, "a", "old", "PartiallyInvalid").is_none());
    assert_eq!(entries(&translation, "a/old").len(), 20);

    let partially = condition(&translation, "a", "young", "PartiallyInvalid").unwrap();
    assert!(partially.status && partially.reason == "UnsupportedValue");
    let expected = "Dropped Rule(s): spec.rules[1].matches: a request for shared.test would have to be matched against more \
                    than 32 regular expressions: ";
    assert!(partially.message.starts_with(expected), "{}", partially.message);
    assert!(condition(&translation, "a", "young", "Accepted").unwrap().status);
    // What can be told without a pattern falls to no wider rule; `.*/young0` may be any path.
    assert_eq!(
        entries(&translation, "a/young"),
        [("/young.*", true), ("/young", true), ("/admin", false), ("/plain", true), ("/", false)]
    );

    let accepted = condition(&translation, "b", "late", "Accepted").unwrap();
    assert!(
        !accepted.status && accepted.message.starts_with("No rule can be served: spec.rules[0]"),
        "{accepted:?}"
    );
    assert!(condition(&translation, "b", "late", "PartiallyInvalid").is_none());
    assert_eq!(entries(&translation, "b/late"), [("/", false)]);
    let gateway = &translation.statuses.gateways[&Key::new("infra", "gw")];
    assert_eq!(gateway.listeners[0].attached_routes, 3);

    assert_eq!(entries(&translation, "b/elsewhere").len(), 32);
    // And ghost takes what is left as it is.
    let routing = &translation.gateways[&Key::new("infra", "gw")].routing;
    let (config, _) = resolve(routing, &EndpointIndex::default());
    assert_eq!(router::Router::compile(&config).unwrap().problems, []);
}

#[test]
fn one_object_has_a_limited_number_of_patterns() {
    let rules: Vec<Value> = (0..5).map(|r| rule((0..60).map(|n| regex(format!("/{r}-{n}/.*"))))).collect();
    let translation = translated(&[("a", "all", "a.test", json!(rules))]);
    assert_eq!(entries(&translation, "a/all").iter().filter(|(_, served)| *served).count(), 240);
    let message = &condition(&translation, "a", "all", "PartiallyInvalid").unwrap().message;
    assert!(message.contains("too many regular expressions in one object (at most 256"), "{message}");
}

#[test]
fn patterns_that_are_refused_use_up_their_namespace_alone() {
    let bad = |r: usize| rule((0..8).map(|n| regex(format!("/{r}/{n}/.*a.{{40}}"))));
    let names: Vec<String> = (0..20).map(|n| format!("bad-{n:02}")).collect();
    let mut routes: Vec<_> =
        (0..20).map(|n| ("hostile", names[n].as_str(), "hostile.test", json!([bad(n)]))).collect();
    routes.push(("hostile", "last", "hostile.test", json!([rule([regex("/last/.*")])])));
    routes.push(("other", "fine", "other.test", json!([rule([regex("/fine/.*")])])));
    let translation = translated(&routes);
    let first = &condition(&translation, "hostile", "bad-00", "Accepted").unwrap().message;
    assert!(first.contains("is too large when compiled (limit 65536 bytes)"), "{first}");
    let last = condition(&translation, "hostile", "last", "Accepted").unwrap();
    assert!(
        !last.status && last.message.contains("too many regular expressions in namespace hostile"),
        "{last:?}"
    );
    assert!(condition(&translation, "other", "fine", "Accepted").unwrap().status);
    assert_eq!(entries(&translation, "other/fine"), [("/fine/.*", true)]);
}

#[test]
fn what_is_refused_answers_500_by_the_beginning_of_its_patterns() {
    let many = rule((0..32).map(|n| regex(format!("/shop/cart.*{n}"))));
    let translation = translated(&[
        ("a", "old", "a.test", json!([many])),
        ("a", "young", "a.test", json!([rule([regex("/shop/cart.*old"), regex("/shop/x/.*")])])),
    ]);
    // Each of them stands once, however many patterns begin so.
    assert_eq!(entries(&translation, "a/young"), [("/shop", false), ("/shop/x", false)]);
    let message = &condition(&translation, "a", "young", "Accepted").unwrap().message;
    assert!(message.ends_with("(requests that the rule can be seen to be for get 500)"), "{message}");
}

/// Ingresses by namespace, name, host and regular expressions of its paths; the first is the oldest. All go to one Varnish.
fn translated_ingresses(ingresses: &[(&str, &str, &str, Vec<String>)]) -> Translation {
    let gateway_api = "gateway.networking.k8s.io/v1";
    let mut snapshot = Snapshot::default();
    let class = json!({"apiVersion": gateway_api, "kind": "GatewayClass", "metadata": {"name": "varnish"},
        "spec": {"controllerName": "varnish-software.com/gateway"}});
    snapshot
        .gateway_classes
        .insert(Key::cluster("varnish"), Arc::new(serde_json::from_value(class).unwrap()));
    let gateway = json!({"apiVersion": gateway_api, "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "infra"},
        "spec": {"gatewayClassName": "varnish", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            "infrastructure": {"labels": {"app": "varnish-ingress"}, "parametersRef":
                {"group": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": "p"}}}});
    snapshot.gateways.insert(Key::new("infra", "gw"), Arc::new(serde_json::from_value(gateway).unwrap()));
    let parameters = json!({"apiVersion": "gateway.varnish-software.com/v1alpha1",
        "kind": "GatewayClassParameters", "metadata": {"name": "p"},
        "spec": {"ingress": {"implementationSpecific": "regular-expression"}}});
    snapshot.parameters.insert(Key::cluster("p"), Arc::new(serde_json::from_value(parameters).unwrap()));
    for (age, (namespace, name, host, patterns)) in ingresses.iter().enumerate() {
        let path = |pattern: &String| {
            json!({"path": pattern, "pathType": "ImplementationSpecific",
                "backend": {"service": {"name": "shop", "port": {"number": 80}}}})
        };
        let paths: Vec<Value> = patterns.iter().map(path).collect();
        let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "namespace": namespace,
                "creationTimestamp": format!("2026-01-01T00:{age:02}:00Z"),
                "annotations": {"kubernetes.io/ingress.class": "varnish"}},
            "spec": {"rules": [{"host": host, "http": {"paths": paths}}]}});
        let key = Key::new(*namespace, *name);
        snapshot.ingresses.insert(key, Arc::new(serde_json::from_value(ingress).unwrap()));
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "shop", "namespace": namespace}, "spec": {"ports": [{"port": 80}]}});
        let key = Key::new(*namespace, "shop");
        snapshot.services.insert(key, Arc::new(serde_json::from_value(service).unwrap()));
    }
    translate(&snapshot)
}

fn of_ingress<'t>(
    translation: &'t Translation,
    namespace: &str,
    name: &str,
    kind: &str,
) -> Option<&'t Condition> {
    let status = &translation.statuses.ingresses[&Key::new(namespace, name)];
    status.conditions.iter().find(|condition| condition.kind == kind)
}

#[test]
fn patterns_of_an_ingress_that_exceed_its_host_are_refused_and_other_ingresses_are_untouched() {
    let patterns = |word: &str, count: usize| (0..count).map(|n| format!(".*/{word}{n}")).collect::<Vec<_>>();
    let translation = translated_ingresses(&[
        ("a", "greedy", "greedy.test", patterns("greedy", 40)),
        ("b", "fine", "fine.test", patterns("fine", 32)),
        ("b", "wide", "*.test", vec!["/wide/.*".to_owned()]),
    ]);
    let refused = of_ingress(&translation, "a", "greedy", "ResolvedRefs").unwrap();
    assert!(!refused.status && refused.reason == "TooManyPatterns", "{refused:?}");
    let expected = "spec.rules[0].http.paths: a request for greedy.test would have to be matched against more than 32 regular";
    assert!(refused.message.starts_with(expected), "{}", refused.message);
    // 503, and not what a wider host has.
    assert_eq!(entries(&translation, "a/greedy"), [("/", false)]);
    for (name, count) in [("fine", 32), ("wide", 1)] {
        assert!(of_ingress(&translation, "b", name, "Accepted").unwrap().status);
        assert!(of_ingress(&translation, "b", name, "ResolvedRefs").is_none());
        let all = entries(&translation, &format!("b/{name}"));
        assert_eq!(all.iter().filter(|(_, served)| *served).count(), count, "{name}");
    }
    let routing = &translation.gateways[&Key::new("infra", "gw")].routing;
    let (config, _) = resolve(routing, &EndpointIndex::default());
    assert_eq!(router::Router::compile(&config).unwrap().problems, []);
}

#[test]
fn an_ingress_with_patterns_that_are_too_many_or_too_large_is_rejected_alone_and_answers_503() {
    let translation = translated_ingresses(&[
        ("a", "many", "many.test", (0..300).map(|n| format!("/many/{n}/.*")).collect()),
        ("a", "large", "large.test", vec!["/large/.*a.{40}".to_owned(), "/small/.*".to_owned()]),
        ("b", "fine", "fine.test", vec!["/fine/.*".to_owned()]),
        ("b", "wide", "*.test", vec!["/wide/.*".to_owned()]),
    ]);
    for (name, why, closed) in [
        ("many", "too many regular expressions in one object (at most 256", "many.test"),
        ("large", "is too large when compiled (limit 65536 bytes)", "large.test"),
    ] {
        let accepted = of_ingress(&translation, "a", name, "Accepted").unwrap();
        assert!(!accepted.status && accepted.message.contains(why), "{accepted:?}");
        let until = format!("; until it is corrected, requests for its paths of {closed} get 503");
        assert!(accepted.message.ends_with(&until), "{accepted:?}");
    }
    let closed = entries(&translation, "a/many");
    assert!(closed.len() == 300 && closed.iter().all(|(_, served)| !served), "{closed:?}");
    assert_eq!(entries(&translation, "a/large"), [("/large", false), ("/small", false)]);
    assert!(of_ingress(&translation, "b", "fine", "Accepted").unwrap().status);
    assert_eq!(entries(&translation, "b/fine"), [("(?:/fine/.*).*", true)]);
    assert_eq!(entries(&translation, "b/wide"), [("(?:/wide/.*).*", true)]);
}

#[test]
fn a_cache_policy_whose_patterns_exceed_its_gateway_says_so_and_its_target_is_not_cached() {
    // One namespace has 2 MiB for its policies, a Gateway 16 MiB.
    let namespaces: Vec<String> = (0..9).map(|n| format!("tenant-{n}")).collect();
    let host = |namespace: &String| format!("{namespace}.test");
    let hosts: Vec<String> = namespaces.iter().map(host).collect();
    let mut routes: Vec<(&str, &str, &str, Value)> = Vec::new();
    for (namespace, host) in namespaces.iter().zip(&hosts) {
        for name in ["one", "two", "three"] {
            routes.push((namespace, name, host, json!([rule([prefix(&format!("/{name}"))])])));
        }
    }
    let mut snapshot = snapshot_of(&routes);
    for (age, (namespace, name, ..)) in routes.iter().enumerate() {
        let pattern = |n: usize| format!("{age:02}{n:02}(a|b|c|d)*a(a|b|c|d|e|f){{10}}");
        let headers: Vec<Value> =
            (0..14).map(|n| json!({"name": format!("x-{n}"), "valueRegex": pattern(n)})).collect();
        let policy = json!({"apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "VarnishCachePolicy",
            "metadata": {"name": name, "namespace": namespace,
                "creationTimestamp": format!("2026-02-01T00:{age:02}:00Z")},
            "spec": {"targetRef": {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name},
                "defaultTTL": "1m", "bypass": {"headers": headers}}});
        let key = Key::new(*namespace, *name);
        snapshot.cache_policies.insert(key, Arc::new(serde_json::from_value(policy).unwrap()));
    }
    let translation = translate(&snapshot);
    let accepted = |namespace: &str, name: &str| {
        let status = &translation.statuses.cache_policies[&Key::new(namespace, name)];
        status.ancestors[0].conditions[0].clone()
    };
    let routing = &translation.gateways[&Key::new("infra", "gw")].routing;
    let mut refused = 0;
    for (namespace, name, ..) in &routes {
        let condition = accepted(namespace, name);
        let route_name = format!("{namespace}/{name}");
        let route = routing.routes().find(|route| route.route_name == route_name).unwrap();
        assert_eq!(condition.status, route.cache_policy.is_some(), "{route_name}: {condition:?}");
        if !condition.status && condition.reason == "TooManyPatterns" {
            let expected = "spec.bypass.headers: the regular expressions in cache policies of this Gateway take 16777216 bytes already: ";
            assert!(condition.message.starts_with(expected), "{condition:?}");
            assert!(
                condition.message.ends_with("its target is not cached on Gateway infra/gw"),
                "{condition:?}"
            );
            refused += 1;
        }
    }
    assert!(refused > 0);
    assert!(accepted("tenant-0", "one").status && accepted("tenant-7", "one").status);
    // ghost leaves nothing out any more.
    let (config, _) = resolve(routing, &EndpointIndex::default());
    assert_eq!(router::Router::compile(&config).unwrap().problems, []);
}
