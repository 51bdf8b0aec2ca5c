//! Translating what has changed gives what translating everything gives, after any sequence of changes.

#![allow(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::sync::Arc;

use model::names::{VARNISH_SERVICE_ANNOTATION, VARNISH_SERVICE_LABEL};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use translate::incremental::{Extent, Incremental};
use translate::{Key, Snapshot, translate};

const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";

fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn metadata(namespace: &str, name: &str, age: u8) -> Value {
    let mut metadata =
        json!({"namespace": namespace, "name": name, "generation": 1, "uid": format!("{namespace}-{name}")});
    if age < 4 {
        metadata["creationTimestamp"] = json!(format!("2026-01-0{}T00:00:00Z", age + 1));
    }
    metadata
}

/// What a route may be. Numbers choose among few values, so that routes meet.
#[derive(Debug, Clone)]
struct Route {
    age: u8,
    parents: Vec<u8>,
    hosts: Vec<u8>,
    rules: Vec<(u8, u8, u8)>,
}

const HOSTS: [&str; 5] =
    ["shop.example.com", "*.example.com", "x.example.net", "y.example.net", "*.shop.example.com"];

impl Route {
    fn parents(&self) -> Value {
        let parent = |number: &u8| match number {
            0 => json!({"name": "one", "namespace": "a"}),
            1 => json!({"name": "two", "namespace": "a"}),
            2 => json!({"name": "one", "namespace": "a", "sectionName": "wide"}),
            3 => json!({"name": "more", "namespace": "a", "kind": "ListenerSet"}),
            4 => json!({"name": "ingress", "namespace": "a"}),
            _ => json!({"name": "nobody", "namespace": "a"}),
        };
        self.parents.iter().map(parent).collect()
    }

    fn hostnames(&self) -> Value {
        self.hosts
            .iter()
            .filter_map(|number| HOSTS.get(usize::from(*number)))
            .map(|name| json!(name))
            .collect()
    }

    fn http(&self, name: &str) -> Value {
        let rules: Vec<Value> = self
            .rules
            .iter()
            .map(|(matching, backend, special)| {
                let path = |kind: &str, value: &str| json!({"path": {"type": kind, "value": value}});
                let matches = match matching {
                    0 => vec![path("PathPrefix", "/")],
                    1 => vec![path("PathPrefix", "/a")],
                    2 => vec![path("Exact", "/a"), path("PathPrefix", "/b")],
                    3 => vec![path("RegularExpression", "/c/[0-9]+")],
                    // Two such rules exceed what one host may have.
                    4 => (0..20).map(|at| path("RegularExpression", &format!("/d.*{at}"))).collect(),
                    // Cannot be used.
                    5 => vec![path("RegularExpression", "/(")],
                    _ => vec![json!({"headers": [{"name": "x", "value": "(", "type": "RegularExpression"}]})],
                };
                let service = format!("s{}", backend % 5);
                let namespace = if *backend > 4 { "b" } else { "a" };
                let mut rule = json!({"matches": matches, "backendRefs": [{"name": service, "namespace": namespace, "port": 80}]});
                let policy = |name: &str| {
                    json!([{"type": "ExtensionRef", "extensionRef": {
                        "group": "gateway.varnish-software.com", "kind": "VarnishCachePolicy", "name": name}}])
                };
                match special {
                    0 => rule["name"] = json!("named"),
                    1 => rule["filters"] = policy("p0"),
                    2 => rule["filters"] = policy("p1"),
                    3 => {
                        rule["filters"] = json!([{"type": "RequestRedirect", "requestRedirect": {"hostname": "z.example"}}]);
                        rule.as_object_mut().unwrap().remove("backendRefs");
                    }
                    4 => {
                        rule["filters"] = json!([{"type": "RequestMirror", "requestMirror": {
                            "backendRef": {"name": "s1", "port": 80}}}]);
                    }
                    _ => {}
                }
                rule
            })
            .collect();
        json!({"metadata": metadata("a", name, self.age),
            "spec": {"parentRefs": self.parents(), "hostnames": self.hostnames(), "rules": rules}})
    }

    fn grpc(&self, name: &str) -> Value {
        let rules = self.rules.iter().map(|(matching, backend, _)| {
            let matches = match matching {
                0..=2 => json!([{"method": {"service": "a.B"}}]),
                _ => json!([{"method": {"type": "RegularExpression", "service": "a.*"}}]),
            };
            json!({"matches": matches, "backendRefs": [{"name": format!("s{}", backend % 5), "port": 80}]})
        });
        json!({"metadata": metadata("a", name, self.age),
            "spec": {"parentRefs": self.parents(), "hostnames": self.hostnames(), "rules": rules.collect::<Vec<_>>()}})
    }
}

#[derive(Debug, Clone)]
enum Change {
    Http(u8, Option<Route>),
    Grpc(u8, Option<Route>),
    /// Which, and what it becomes.
    Service(u8, u8),
    Policy(u8, u8),
    BackendTls(u8),
    Set(bool),
    Gateway(u8, u8),
    Ingress(u8, Option<Ingress>),
    Grant(bool),
}

/// What an Ingress may be.
#[derive(Debug, Clone)]
struct Ingress {
    age: u8,
    hosts: Vec<u8>,
    backend: u8,
    special: u8,
}

impl Ingress {
    fn value(&self, name: &str) -> Value {
        let backend = json!({"service": {"name": format!("s{}", self.backend), "port": {"number": 80}}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
        let host = |number: &u8| HOSTS.get(usize::from(*number)).copied();
        let rule = |number: &u8| json!({"host": host(number), "http": {"paths": [path]}});
        let rules: Vec<Value> = self.hosts.iter().map(rule).collect();
        let mut spec = json!({"ingressClassName": "varnish", "rules": rules});
        let mut metadata = metadata("a", name, self.age);
        match self.special {
            0 => {
                spec["tls"] = json!([{"secretName": "none", "hosts": self.hosts.iter().filter_map(host).collect::<Vec<_>>()}]);
            }
            1 => spec["tls"] = json!([{"secretName": "none", "hosts": [HOSTS[2], HOSTS[1]]}]),
            2 => spec["defaultBackend"] = backend,
            3 => spec["rules"][0]["http"] = Value::Null,
            4 => metadata["annotations"] = json!({VARNISH_SERVICE_ANNOTATION: "nobody"}),
            5 => spec["ingressClassName"] = json!("other"),
            6 => {
                spec["rules"][0]["http"]["paths"] = json!([path, {"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "s4", "port": {"number": 80}}}}]);
            }
            7 => spec["rules"][0]["http"]["paths"][0]["path"] = json!("no-slash"),
            _ => {}
        }
        json!({"metadata": metadata, "spec": spec})
    }
}

fn gateway(number: u8, kind: u8) -> Option<Value> {
    let from_all = json!({"namespaces": {"from": "All"}});
    let http = |name: &str, port: u16, host: Option<&str>| json!({"name": name, "port": port, "protocol": "HTTP", "hostname": host, "allowedRoutes": from_all});
    let (name, listeners) = match number {
        0 => ("one", vec![http("wide", 80, None), http("narrow", 8080, Some("*.example.com"))]),
        1 => ("two", vec![http("wide", 80, Some("shop.example.com"))]),
        _ => ("ingress", vec![http("wide", 80, None)]),
    };
    let listeners = if kind == 1 { vec![http("wide", 81, None)] } else { listeners };
    let mut spec = json!({"gatewayClassName": "varnish", "listeners": listeners,
        "allowedListeners": {"namespaces": {"from": "All"}}});
    if number == 2 {
        spec["infrastructure"] = json!({"labels": {VARNISH_SERVICE_LABEL.0: VARNISH_SERVICE_LABEL.1}});
    }
    (kind < 2).then(|| json!({"metadata": metadata("a", name, 0), "spec": spec}))
}

fn policy(name: &str, kind: u8) -> Option<Value> {
    let target = |kind: &str, name: &str, section: Option<&str>| json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": name, "sectionName": section});
    let target = match kind {
        0 => return None,
        1 => Value::Null,
        2 => target("HTTPRoute", "r0", None),
        3 => target("HTTPRoute", "r1", Some("named")),
        4 => target("Gateway", "one", None),
        5 => target("GRPCRoute", "g0", None),
        8 => json!({"group": "networking.k8s.io", "kind": "Ingress", "name": "i0"}),
        9 => target("Gateway", "ingress", None),
        _ => target("HTTPRoute", "r2", None),
    };
    let mut spec = json!({"targetRef": target, "defaultTTL": "1m"});
    match kind {
        6 => spec["defaultTTL"] = json!("nonsense"),
        7 => spec["bypass"] = json!({"headers": [{"name": "cookie", "valueRegex": "a.*"}]}),
        _ => {}
    }
    Some(json!({"metadata": metadata("a", name, kind % 4), "spec": spec}))
}

macro_rules! put {
    ($map:expr, $name:expr, $value:expr) => {
        match $value {
            Some(value) => drop($map.insert(Key::new("a", $name), object(value))),
            None => drop($map.remove(&Key::new("a", $name))),
        }
    };
}

fn carry_out(change: &Change, snapshot: &mut Snapshot) {
    match change {
        Change::Http(number, route) => {
            let name = format!("r{number}");
            put!(snapshot.http_routes, name.as_str(), route.as_ref().map(|route| route.http(&name)));
        }
        Change::Grpc(number, route) => {
            let name = format!("g{number}");
            put!(snapshot.grpc_routes, name.as_str(), route.as_ref().map(|route| route.grpc(&name)));
        }
        Change::Service(number, kind) => {
            let name = format!("s{number}");
            let port = match kind {
                2 => json!({"name": "web", "port": 80, "appProtocol": "https"}),
                3 => json!({"name": "web", "port": 81}),
                4 => json!({"name": "other", "port": 80}),
                _ => json!({"name": "web", "port": 80}),
            };
            let mut spec = json!({"ports": [port]});
            if *kind == 5 {
                spec = json!({"type": "ExternalName", "externalName": "elsewhere.example", "ports": [port]});
            }
            let service = (*kind > 0).then(|| json!({"metadata": metadata("a", &name, 0), "spec": spec}));
            put!(snapshot.services, name.as_str(), service);
        }
        Change::Policy(number, kind) => {
            let name = format!("p{number}");
            put!(snapshot.cache_policies, name.as_str(), policy(&name, *kind));
        }
        Change::BackendTls(kind) => {
            let validation = json!({"hostname": "s3.example", "wellKnownCACertificates": "System"});
            let policy = (*kind > 0).then(|| {
                json!({"metadata": metadata("a", "t0", 0), "spec": {"validation": validation,
                    "targetRefs": [{"group": "", "kind": "Service", "name": format!("s{}", kind + 2)}]}})
            });
            put!(snapshot.backend_tls_policies, "t0", policy);
        }
        Change::Set(there) => {
            let set = there.then(|| {
                json!({"metadata": metadata("a", "more", 0), "spec": {
                    "parentRef": {"name": "one"},
                    "listeners": [{"name": "set", "port": 8090, "protocol": "HTTP", "hostname": "*.example.net"}]}})
            });
            put!(snapshot.listener_sets, "more", set);
        }
        Change::Gateway(number, kind) => {
            let name = ["one", "two", "ingress"][usize::from(*number)];
            put!(snapshot.gateways, name, gateway(*number, *kind));
        }
        Change::Ingress(number, ingress) => {
            let name = format!("i{number}");
            put!(snapshot.ingresses, name.as_str(), ingress.as_ref().map(|ingress| ingress.value(&name)));
        }
        Change::Grant(there) => {
            let key = Key::new("b", "grant");
            let grant = json!({"metadata": metadata("b", "grant", 0), "spec": {
                "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "a"}],
                "to": [{"group": "", "kind": "Service"}]}});
            match there {
                true => drop(snapshot.reference_grants.insert(key, object(grant))),
                false => drop(snapshot.reference_grants.remove(&key)),
            }
        }
    }
}

fn first_snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let class = json!({"apiVersion": GATEWAY_API, "kind": "GatewayClass", "metadata": {"name": "varnish"},
        "spec": {"controllerName": "varnish-software.com/gateway"}});
    snapshot.gateway_classes.insert(Key::cluster("varnish"), object(class));
    let class =
        json!({"metadata": {"name": "varnish"}, "spec": {"controller": snapshot.controllers.ingress}});
    snapshot.ingress_classes.insert(Key::cluster("varnish"), object(class));
    for number in 0..3 {
        carry_out(&Change::Gateway(number, 0), &mut snapshot);
    }
    for number in 0..5 {
        carry_out(&Change::Service(number, 1), &mut snapshot);
    }
    let service = json!({"metadata": metadata("b", "s0", 0), "spec": {"ports": [{"port": 80}]}});
    snapshot.services.insert(Key::new("b", "s0"), object(service));
    snapshot
}

fn check(incremental: &mut Incremental, snapshot: &Snapshot) -> Extent {
    let outcome = incremental.update(snapshot);
    let expected = translate(snapshot);
    assert_eq!(
        serde_json::to_string_pretty(&outcome.statuses).unwrap(),
        serde_json::to_string_pretty(&expected.statuses).unwrap()
    );
    assert_eq!(outcome.statuses, expected.statuses);
    assert!(outcome.gateways.keys().eq(expected.gateways.keys()));
    for (key, plan) in &outcome.gateways {
        let expected = &expected.gateways[key];
        assert_eq!(
            serde_json::to_string_pretty(plan.as_ref()).unwrap(),
            serde_json::to_string_pretty(expected).unwrap()
        );
        assert_eq!(**plan, *expected);
    }
    assert_eq!(outcome.made, expected.made);
    outcome.extent
}

fn route() -> impl Strategy<Value = Route> {
    let parents = prop::collection::vec(
        prop_oneof![8 => Just(0_u8), 4 => Just(1), 2 => Just(2), 2 => Just(3), 1 => Just(4), 1 => Just(5)],
        1..3,
    );
    let hosts = prop::collection::vec(0_u8..6, 0..3);
    let matching = prop_oneof![8 => 0_u8..3, 2 => Just(3_u8), 1 => 4_u8..7];
    let backend = prop_oneof![8 => 0_u8..3, 2 => 3_u8..7];
    let special = prop_oneof![4 => Just(9_u8), 4 => 0_u8..5];
    let rules = prop::collection::vec((matching, backend, special), 0..3);
    (0_u8..5, parents, hosts, rules).prop_map(|(age, parents, hosts, rules)| Route {
        age,
        parents,
        hosts,
        rules,
    })
}

fn ingress() -> impl Strategy<Value = Ingress> {
    let hosts = prop::collection::vec(0_u8..6, 1..4);
    let special = prop_oneof![6 => Just(9_u8), 3 => 0_u8..8];
    (0_u8..5, hosts, 0_u8..5, special).prop_map(|(age, hosts, backend, special)| Ingress {
        age,
        hosts,
        backend,
        special,
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        40 => (0_u8..6, prop::option::weighted(0.8, route())).prop_map(|(at, route)| Change::Http(at, route)),
        6 => (0_u8..2, prop::option::weighted(0.5, route())).prop_map(|(at, route)| Change::Grpc(at, route)),
        8 => (0_u8..5, 0_u8..6).prop_map(|(at, kind)| Change::Service(at, kind)),
        8 => (0_u8..3, 0_u8..10).prop_map(|(at, kind)| Change::Policy(at, kind)),
        2 => (0_u8..3).prop_map(Change::BackendTls),
        2 => any::<bool>().prop_map(Change::Set),
        2 => (0_u8..3, 0_u8..3).prop_map(|(at, kind)| Change::Gateway(at, kind)),
        12 => (0_u8..5, prop::option::weighted(0.8, ingress()))
            .prop_map(|(at, ingress)| Change::Ingress(at, ingress)),
        1 => any::<bool>().prop_map(Change::Grant),
    ]
}

/// Mostly Ingresses, with what they meet.
fn change_of_ingresses() -> impl Strategy<Value = Change> {
    let beside = || route().prop_map(|route| Route { parents: vec![4], ..route });
    prop_oneof![
        20 => (0_u8..5, prop::option::weighted(0.8, ingress()))
            .prop_map(|(at, ingress)| Change::Ingress(at, ingress)),
        3 => (0_u8..5, 0_u8..6).prop_map(|(at, kind)| Change::Service(at, kind)),
        2 => (0_u8..3, prop_oneof![Just(0_u8), 8_u8..10]).prop_map(|(at, kind)| Change::Policy(at, kind)),
        2 => (0_u8..2, prop::option::weighted(0.5, beside())).prop_map(|(at, route)| Change::Http(at, route)),
        1 => (0_u8..2).prop_map(|kind| Change::Gateway(2, kind)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_has_changed_gives_what_everything_gives(
        batches in prop::collection::vec(prop::collection::vec(change(), 1..3), 1..30)
    ) {
        follow(&batches);
    }

    #[test]
    fn changed_ingresses_give_what_all_ingresses_give(
        batches in prop::collection::vec(prop::collection::vec(change_of_ingresses(), 1..3), 1..30)
    ) {
        follow(&batches);
    }
}

fn follow(batches: &[Vec<Change>]) {
    let mut snapshot = first_snapshot();
    let mut incremental = Incremental::default();
    for batch in batches {
        for change in batch {
            carry_out(change, &mut snapshot);
        }
        check(&mut incremental, &snapshot);
    }
    assert!(incremental.verify());
}

fn plain(hosts: &[u8], backend: u8) -> Route {
    Route { age: 1, parents: vec![0], hosts: hosts.to_vec(), rules: vec![(1, backend, 9)] }
}

/// That the test above does not test whole translations alone.
#[test]
fn routes_services_and_policies_of_routes_are_translated_alone() {
    let mut snapshot = first_snapshot();
    let mut incremental = Incremental::default();
    for number in 0..4 {
        carry_out(&Change::Http(number, Some(plain(&[number], number % 2))), &mut snapshot);
    }
    assert_eq!(check(&mut incremental, &snapshot), Extent::Everything);
    assert_eq!(check(&mut incremental, &snapshot), Extent::Nothing);
    let mut then = |change: Change, extent: Extent| {
        carry_out(&change, &mut snapshot);
        assert_eq!(check(&mut incremental, &snapshot), extent, "{change:?}");
    };
    let one = Extent::Routes(1);
    then(Change::Http(4, Some(plain(&[2, 3], 1))), one);
    then(Change::Http(4, Some(Route { age: 0, ..plain(&[2], 2) })), one);
    then(Change::Http(4, None), one);
    then(Change::Http(5, Some(Route { parents: vec![0, 1], ..plain(&[], 1) })), one);
    then(Change::Http(5, Some(Route { parents: vec![3], ..plain(&[], 1) })), one);
    then(Change::Http(5, None), one);
    then(Change::Service(0, 4), Extent::Routes(2));
    then(Change::Service(4, 0), Extent::Routes(0));
    then(Change::Policy(0, 2), one);
    then(Change::Policy(0, 0), one);
    then(Change::Policy(1, 1), Extent::Routes(0));
    then(Change::Http(3, Some(Route { rules: vec![(0, 0, 2)], ..plain(&[3], 1) })), one);
    then(Change::Http(3, Some(Route { rules: vec![(3, 0, 9)], ..plain(&[3], 1) })), one);
    then(Change::Grpc(0, Some(plain(&[0], 1))), Extent::Everything);
    then(Change::Http(3, Some(plain(&[3], 1))), one);
    then(Change::BackendTls(1), Extent::Everything);
    // It leads to a Service with TLS for the first time, then by another path.
    then(Change::Http(2, Some(plain(&[2], 3))), Extent::Everything);
    then(Change::Http(2, Some(Route { rules: vec![(2, 3, 9)], ..plain(&[2], 3) })), one);
    then(Change::Gateway(0, 1), Extent::Everything);
}

#[test]
fn ingresses_with_hosts_of_their_own_are_translated_alone() {
    let mut snapshot = first_snapshot();
    let mut incremental = Incremental::default();
    let plain = |hosts: &[u8], backend: u8| Ingress { age: 1, hosts: hosts.to_vec(), backend, special: 9 };
    carry_out(&Change::Ingress(0, Some(plain(&[0], 0))), &mut snapshot);
    assert_eq!(check(&mut incremental, &snapshot), Extent::Everything);
    let mut then = |changes: &[Change], extent: Extent| {
        for change in changes {
            carry_out(change, &mut snapshot);
        }
        assert_eq!(check(&mut incremental, &snapshot), extent, "{changes:?}");
    };
    let one = Extent::Routes(1);
    then(&[Change::Ingress(1, Some(plain(&[1, 2], 1)))], one);
    then(&[Change::Ingress(1, Some(plain(&[2, 3], 0)))], one);
    // With its Service, and with a route of another Gateway.
    then(&[Change::Service(4, 0)], Extent::Routes(0));
    let new = [Change::Service(4, 1), Change::Ingress(2, Some(plain(&[1], 4)))];
    then(&new, one);
    then(&[Change::Service(4, 4)], one);
    let route = Route { age: 1, parents: vec![0], hosts: vec![3], rules: vec![(1, 0, 9)] };
    then(&[Change::Http(0, Some(route)), Change::Ingress(2, None)], Extent::Routes(2));
    then(&[Change::Policy(0, 9)], Extent::Everything);
    then(&[Change::Ingress(2, Some(plain(&[1], 1)))], one);
    // In conflict with another, which has the host as soon as that one goes.
    then(&[Change::Ingress(3, Some(plain(&[2], 1)))], Extent::Everything);
    then(&[Change::Ingress(1, None)], Extent::Everything);
    then(&[Change::Ingress(1, Some(plain(&[4], 1)))], one);
    // The last.
    then(&[Change::Ingress(0, None), Change::Ingress(2, None), Change::Ingress(3, None)], Extent::Routes(3));
    then(&[Change::Ingress(1, None)], Extent::Everything);
}

#[test]
fn a_status_is_no_change() {
    let mut snapshot = first_snapshot();
    carry_out(&Change::Http(0, Some(plain(&[0], 0))), &mut snapshot);
    let mut incremental = Incremental::default();
    check(&mut incremental, &snapshot);
    let plans = incremental.update(&snapshot).gateways.clone();
    let mut route = snapshot.http_routes[&Key::new("a", "r0")].as_ref().clone();
    route.metadata.resource_version = Some("7".to_owned());
    snapshot.http_routes.insert(Key::new("a", "r0"), Arc::new(route));
    let mut gateway = snapshot.gateways[&Key::new("a", "one")].as_ref().clone();
    gateway.status = Some(serde_json::from_value(json!({"addresses": []})).unwrap());
    snapshot.gateways.insert(Key::new("a", "one"), Arc::new(gateway));
    assert_eq!(check(&mut incremental, &snapshot), Extent::Nothing);
    let same = &incremental.update(&snapshot).gateways;
    assert!(plans.iter().all(|(key, plan)| Arc::ptr_eq(plan, &same[key])));
}

/// One that flips must not use up what is there for others.
#[test]
fn a_route_with_patterns_may_change_without_end() {
    let mut snapshot = first_snapshot();
    let mut incremental = Incremental::default();
    check(&mut incremental, &snapshot);
    for at in 0..100 {
        let rules = if at % 2 == 0 { vec![(3, 0, 9)] } else { vec![(3, 1, 9), (1, 0, 9)] };
        let route = Route { age: 1, parents: vec![0], hosts: vec![0], rules };
        carry_out(&Change::Http(0, Some(route)), &mut snapshot);
        assert_eq!(check(&mut incremental, &snapshot), Extent::Routes(1), "{at}");
    }
}
