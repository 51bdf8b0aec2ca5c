//! GRPCRoutes, TCPRoutes, UDPRoutes and ListenerSets.

use crate::support::{admitted, object, refused};
use serde_json::json;
use translate::snapshot::Key;

const V1: &str = "gateway.networking.k8s.io/v1";

fn calls(rule: &str) -> String {
    object(V1, "GRPCRoute", &format!("spec: {{parentRefs: [{{name: edge}}], rules: [{rule}]}}"))
}

#[test]
fn a_grpc_route_gets_the_defaults_of_the_crd() {
    let snapshot = admitted(&calls(
        "{matches: [{method: {service: a.B, method: C}}], backendRefs: [{name: calls, port: 9000}]}",
    ));
    let spec = serde_json::to_value(&snapshot.grpc_routes[&Key::new("default", "thing")].spec).unwrap();
    assert_eq!(
        spec["rules"],
        json!([{
            "matches": [{"method": {"type": "Exact", "service": "a.B", "method": "C"}}],
            "backendRefs": [{"group": "", "kind": "Service", "name": "calls", "port": 9000, "weight": 1}],
        }])
    );
    assert_eq!(spec["parentRefs"][0]["kind"], "Gateway");
}

#[test]
fn methods_have_names() {
    assert_eq!(
        refused(&calls("{matches: [{method: {type: Exact}}]}")),
        "spec.rules[0].matches[0].method names neither a service nor a method; add one of them, or remove it"
    );
    assert_eq!(
        refused(&calls("{matches: [{method: {service: a/b}}]}")),
        "spec.rules[0].matches[0].method.service \"a/b\" must be the name of a service such as `package.Service`"
    );
    assert_eq!(
        refused(&calls("{matches: [{method: {method: a.b}}]}")),
        "spec.rules[0].matches[0].method.method \"a.b\" must be the name of a method such as `SayHello`, without `/`"
    );
    admitted(&calls("{matches: [{method: {type: RegularExpression, service: \"a/.*\"}}]}"));
}

#[test]
fn a_grpc_route_has_no_filters_of_http() {
    let message = refused(&calls("{filters: [{type: URLRewrite, urlRewrite: {hostname: a.example}}]}"));
    assert!(message.contains("spec.rules[0].filters[0]"), "{message}");
    assert_eq!(
        refused(&calls("{backendRefs: [{name: calls}]}")),
        "spec.rules[0].backendRefs[0].port is missing; say which port of the Service \"calls\" to use"
    );
}

#[test]
fn tcp_and_udp_routes_have_one_rule_with_backends() {
    let route = |kind: &str, rules: &str| object(V1, kind, &format!("spec: {{rules: {rules}}}"));
    for kind in ["TCPRoute", "UDPRoute"] {
        let good = route(kind, "[{backendRefs: [{name: db, port: 5432}]}]");
        admitted(&good);
        admitted(&good.replace("/v1\n", "/v1alpha2\n"));
        assert!(refused(&route(kind, "[]")).starts_with("spec.rules "));
        assert!(refused(&route(kind, "[{backendRefs: []}]")).starts_with("spec.rules[0].backendRefs "));
        assert_eq!(
            refused(&route(kind, "[{backendRefs: [{name: db}]}]")),
            "spec.rules[0].backendRefs[0].port is missing; say which port of the Service \"db\" to use"
        );
    }
}

#[test]
fn a_listener_set_has_the_listeners_of_a_gateway() {
    let set = |listeners: &str| {
        object(V1, "ListenerSet", &format!("spec: {{parentRef: {{name: edge}}, listeners: [{listeners}]}}"))
    };
    let snapshot = admitted(&set("{name: http, port: 80, protocol: HTTP}"));
    let spec = serde_json::to_value(&snapshot.listener_sets[&Key::new("default", "thing")].spec).unwrap();
    assert_eq!(
        spec["parentRef"],
        json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"})
    );
    assert_eq!(spec["listeners"][0]["allowedRoutes"], json!({"namespaces": {"from": "Same"}}));
    assert!(refused(&set("")).starts_with("spec.listeners "));
    assert_eq!(
        refused(&set("{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP}")),
        "spec.listeners[1] has the port, protocol and hostname of the listener \"a\", so \"b\" could never be told from \
         it; change one of them"
    );
    assert_eq!(
        refused(&set("{name: a, port: 80, protocol: TCP, hostname: a.example}")),
        "spec.listeners[0].hostname must not be set for the protocol TCP, which has no host names; remove it"
    );
}
