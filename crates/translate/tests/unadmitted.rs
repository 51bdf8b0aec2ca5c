//! What the API server, and the file source, would never let in. Should it come in all the same, its status says what is
//! wrong with it, and harms nothing else.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::sync::Arc;

use serde_json::{Value, json};
use translate::{Condition, Key, Snapshot, Translation, translate};

fn snapshot(listeners: &Value, rules: &Value) -> Snapshot {
    let class =
        json!({"metadata": {"name": "varnish"}, "spec": {"controllerName": "varnish-software.com/gateway"}});
    let gateway = json!({"metadata": {"name": "gw", "namespace": "default"},
        "spec": {"gatewayClassName": "varnish", "listeners": listeners}});
    let route = json!({"metadata": {"name": "shop", "namespace": "default"},
        "spec": {"parentRefs": [{"name": "gw"}], "rules": rules}});
    let service =
        json!({"metadata": {"name": "shop", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    let typed = |mut object: Value, version: &str, kind: &str| {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object
    };
    let gateway_api = "gateway.networking.k8s.io/v1";
    let key = |name: &str| Key::new("default", name);
    Snapshot {
        gateway_classes: [(
            Key::cluster("varnish"),
            Arc::new(serde_json::from_value(typed(class, gateway_api, "GatewayClass")).unwrap()),
        )]
        .into(),
        gateways: [(
            key("gw"),
            Arc::new(serde_json::from_value(typed(gateway, gateway_api, "Gateway")).unwrap()),
        )]
        .into(),
        http_routes: [(
            key("shop"),
            Arc::new(serde_json::from_value(typed(route, gateway_api, "HTTPRoute")).unwrap()),
        )]
        .into(),
        services: [(key("shop"), Arc::new(serde_json::from_value(typed(service, "v1", "Service")).unwrap()))]
            .into(),
        ..Snapshot::default()
    }
}

fn one_rule(rule: &Value) -> Translation {
    translate(&snapshot(&json!([{"name": "http", "port": 80, "protocol": "HTTP"}]), &json!([rule])))
}

fn accepted(translation: &Translation) -> &Condition {
    let route = &translation.statuses.http_routes[&Key::new("default", "shop")];
    route.parents[0].conditions.iter().find(|condition| condition.kind == "Accepted").unwrap()
}

/// The backends of the route's matches: path, and whether a Service is behind it. A match without backends counts as one without a Service.
fn entries(translation: &Translation) -> Vec<(&str, bool)> {
    let routing = &translation.gateways[&Key::new("default", "gw")].routing;
    let routes = routing.vhosts.values().flat_map(|vhost| &vhost.routes);
    let of_route = |route: &'_ model::routing::Route| {
        let services: Vec<bool> = route.backends.iter().map(|backend| backend.service.is_some()).collect();
        if services.is_empty() { vec![false] } else { services }
    };
    routes
        .flat_map(|route| {
            let path = route.path_match.as_ref().unwrap().value.as_str();
            of_route(route).into_iter().map(move |has_service| (path, has_service))
        })
        .collect()
}

#[test]
fn filters_that_make_no_sense_answer_500_and_say_why() {
    let header = |name: &str, value: &str| {
        json!([{"type": "RequestHeaderModifier",
            "requestHeaderModifier": {"set": [{"name": name, "value": value}]}}])
    };
    let redirect = |spec: Value| json!([{"type": "RequestRedirect", "requestRedirect": spec}]);
    let rewrite = |path: Value| json!([{"type": "URLRewrite", "urlRewrite": {"path": path}}]);
    let backend = json!([{"name": "shop", "port": 80}]);
    for (filters, backends, reason, part) in [
        (
            json!([{"type": "RequestRedirect", "requestRedirect": {}}, {"type": "URLRewrite", "urlRewrite": {}}]),
            json!([]),
            "IncompatibleFilters",
            "exclude each other",
        ),
        (redirect(json!({})), backend.clone(), "IncompatibleFilters", "sends nothing to backends"),
        (
            json!([{"type": "URLRewrite", "urlRewrite": {}}, {"type": "URLRewrite", "urlRewrite": {}}]),
            backend.clone(),
            "IncompatibleFilters",
            "one filter of each type",
        ),
        (json!([{"type": "URLRewrite"}]), backend.clone(), "UnsupportedValue", "urlRewrite is missing"),
        (
            rewrite(json!({"type": "ReplaceFullPath"})),
            backend.clone(),
            "UnsupportedValue",
            "replaceFullPath is missing",
        ),
        (
            rewrite(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/x"})),
            backend.clone(),
            "UnsupportedValue",
            "needs matches of type PathPrefix",
        ),
        (
            rewrite(json!({"type": "ReplaceFullPath", "replaceFullPath": "/a b\r\n"})),
            backend.clone(),
            "UnsupportedValue",
            r"`/a b\r\n` holds a blank",
        ),
        (redirect(json!({"statusCode": 200})), json!([]), "UnsupportedValue", "status code 200"),
        (redirect(json!({"port": 0})), json!([]), "UnsupportedValue", "port must be from 1 to 65535"),
        (redirect(json!({"hostname": "a/b"})), json!([]), "UnsupportedValue", "`a/b` is not a hostname"),
        (header("X-A", "a\r\nX-B: b"), backend.clone(), "UnsupportedValue", "control character"),
        (header("X A", "a"), backend.clone(), "UnsupportedValue", "`X A` is not the name of a header"),
        (header("", "a"), backend.clone(), "UnsupportedValue", "`` is not the name of a header"),
        (header("X-GHOST-Pass", "a"), backend.clone(), "UnsupportedValue", "belongs to the gateway"),
        (header("transfer-encoding", "chunked"), backend, "UnsupportedValue", "is Varnish's to set"),
    ] {
        let matches = json!([{"path": {"type": "Exact", "value": "/a"}}]);
        let translation = one_rule(&json!({"matches": matches, "filters": filters, "backendRefs": backends}));
        let accepted = accepted(&translation);
        assert!(!accepted.status && accepted.reason == reason, "{filters}: {accepted:?}");
        assert!(accepted.message.contains(part), "{filters}: {accepted:?}");
        assert!(accepted.message.starts_with("No rule can be served: spec.rules[0]"), "{accepted:?}");
        assert_eq!(entries(&translation), [("/a", false)], "{filters}");
    }
}

#[test]
fn a_path_without_slash_is_refused() {
    let translation = one_rule(&json!({"matches": [{"path": {"type": "Exact", "value": "login"}}]}));
    let accepted = accepted(&translation);
    assert_eq!(
        accepted.message,
        "No rule can be served: spec.rules[0].matches[0].path: `login` does not begin with a slash: write `/login` \
         (requests that the rule can be seen to be for get 500)"
    );
    assert_eq!(entries(&translation), []);
}

#[test]
fn a_backend_without_port_or_with_a_negative_weight_harms_only_itself() {
    let backends = json!([{"name": "shop"}, {"name": "shop", "port": 80, "weight": -1}]);
    let translation = one_rule(&json!({"backendRefs": backends}));
    assert_eq!(entries(&translation), [("/", false), ("/", true)]);
    let route = &translation.statuses.http_routes[&Key::new("default", "shop")];
    assert_eq!(
        route.parents[0].conditions[1].message,
        "spec.rules[0].backendRefs[0]: port is missing: Service default/shop has ports 80, name one of them"
    );
    let routing = &translation.gateways[&Key::new("default", "gw")].routing;
    assert_eq!(routing.vhosts["*"].routes[0].backends[1].weight, Some(0));
}

#[test]
fn listeners_that_cannot_be_told_apart_do_not_serve() {
    let listeners = json!([
        {"name": "a", "port": 80, "protocol": "HTTP", "hostname": "shop.example.com"},
        {"name": "b", "port": 80, "protocol": "HTTP", "hostname": "Shop.Example.com"},
        {"name": "zero", "port": 0, "protocol": "HTTP"},
        {"name": "ok", "port": 81, "protocol": "HTTP", "hostname": ""},
    ]);
    let translation =
        translate(&snapshot(&listeners, &json!([{"backendRefs": [{"name": "shop", "port": 80}]}])));
    let gateway = &translation.statuses.gateways[&Key::new("default", "gw")];
    let reasons = |kind: &str| -> Vec<&str> {
        let of = |conditions: &'_ [Condition]| conditions.iter().position(|c| c.kind == kind);
        gateway.listeners.iter().map(|l| l.conditions[of(&l.conditions).unwrap()].reason.as_str()).collect()
    };
    assert_eq!(reasons("Accepted"), ["Invalid", "Invalid", "PortUnavailable", "Accepted"]);
    assert_eq!(reasons("Conflicted"), ["HostnameConflict", "HostnameConflict", "NoConflicts", "NoConflicts"]);
    assert_eq!(
        gateway.conditions[0].message,
        "Served: ok. Not served: listener a: listener b has the same port 80 and hostname shop.example.com: give one \
         of them another hostname or port; listener b: listener a has the same port 80 and hostname \
         shop.example.com: give one of them another hostname or port; listener zero: port 0 does not exist: use \
         one from 1 to 65535"
    );
    let plan = &translation.gateways[&Key::new("default", "gw")];
    let sockets: Vec<&str> = plan.routing.listeners.iter().map(|listener| listener.socket.as_str()).collect();
    assert_eq!(sockets, ["http-81"]);
    assert_eq!(plan.routing.vhosts.keys().collect::<Vec<_>>(), ["*"]);
}
