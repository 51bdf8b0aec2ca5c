//! In which order Ingresses come to be known never changes what becomes of them.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::sync::Arc;

use k8s_openapi::api::networking::v1::Ingress;
use serde_json::json;
use translate::{Key, Snapshot, translate};

/// A generator of small numbers that needs no crate: each seed is one case.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

const HOSTS: [&str; 5] = ["a.example", "b.example", "*.example", "c.example", ""];
const SERVICES: [&str; 3] = ["tea", "coffee", "gone"];

fn ingress(dice: &mut Dice, number: u64) -> (Key, Arc<Ingress>) {
    let key = Key::new(["cafe", "bar"][dice.roll(2) as usize], format!("i{number}"));
    let backend = |dice: &mut Dice| json!({"service": {"name": SERVICES[dice.roll(3) as usize], "port": {"number": 80}}});
    let rules: Vec<_> = (0..dice.roll(3))
        .map(|_| {
            let backend = backend(dice);
            let path = ["/", "/x"][dice.roll(2) as usize];
            // Seldom without a host, which rejects the Ingress.
            let at = if dice.roll(6) == 0 { 4 } else { dice.roll(4) };
            json!({"host": HOSTS[at as usize], "http": {"paths": [
                {"path": path, "pathType": "Prefix", "backend": backend}]}})
        })
        .collect();
    let default = (rules.is_empty() || dice.roll(4) == 0).then(|| backend(dice));
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": key.name, "namespace": key.namespace, "generation": 1,
            // Few moments: many are of one age.
            "creationTimestamp": format!("2026-01-01T00:00:0{}Z", dice.roll(4)),
            "annotations": {"kubernetes.io/ingress.class": "varnish"}},
        "spec": {"rules": rules, "defaultBackend": default}});
    (key, Arc::new(serde_json::from_value(object).unwrap()))
}

fn world(merge: &str) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "varnish"}, "spec": {"controllerName": "varnish-software.com/gateway"}});
    snapshot
        .gateway_classes
        .insert(Key::cluster("varnish"), Arc::new(serde_json::from_value(class).unwrap()));
    let parameters = json!({"apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "GatewayClassParameters",
        "metadata": {"name": "p"}, "spec": {"ingress": {"merge": merge}}});
    snapshot.parameters.insert(Key::cluster("p"), Arc::new(serde_json::from_value(parameters).unwrap()));
    let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "varnish", "namespace": "infra"},
        "spec": {"gatewayClassName": "varnish", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            "infrastructure": {"labels": {"app": "varnish-ingress"}, "parametersRef":
                {"group": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": "p"}}}});
    snapshot
        .gateways
        .insert(Key::new("infra", "varnish"), Arc::new(serde_json::from_value(gateway).unwrap()));
    for namespace in ["cafe", "bar"] {
        for name in ["tea", "coffee"] {
            let service = json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": name, "namespace": namespace}, "spec": {"ports": [{"port": 80}]}});
            snapshot
                .services
                .insert(Key::new(namespace, name), Arc::new(serde_json::from_value(service).unwrap()));
        }
    }
    snapshot
}

fn outcome(snapshot: &Snapshot) -> String {
    serde_json::to_string(&translate(snapshot)).unwrap()
}

#[test]
fn the_order_of_arrival_and_detours_do_not_change_the_outcome() {
    for seed in 0..400 {
        let mut dice = Dice(seed * 7919 + 1);
        let merge = ["distinct-hosts", "same-namespace"][dice.roll(2) as usize];
        let count = 2 + dice.roll(8);
        let all: Vec<_> = (0..count).map(|number| ingress(&mut dice, number)).collect();
        let mut at_once = world(merge);
        at_once.ingresses.extend(all.iter().cloned());
        let expected = outcome(&at_once);

        // One by one in another order, translated at each step, with some that come and go.
        let mut order = all.clone();
        for at in (1..order.len()).rev() {
            order.swap(at, dice.roll(at as u64 + 1) as usize);
        }
        let mut step_by_step = world(merge);
        for (key, object) in order {
            let passing = ingress(&mut dice, 100);
            step_by_step.ingresses.insert(passing.0.clone(), passing.1);
            outcome(&step_by_step);
            step_by_step.ingresses.remove(&passing.0);
            step_by_step.ingresses.insert(key, object);
        }
        assert_eq!(outcome(&step_by_step), expected, "seed {seed}");

        // Of one that was rejected no backend is asked, and it is on no host of another namespace; a host or default backend has one
        // owner, or owners of one namespace.
        let translation = translate(&at_once);
        let plan = &translation.gateways[&Key::new("infra", "varnish")];
        for (host, vhost) in &plan.routing.vhosts {
            let vhost = vhost.same_as.as_ref().map_or(vhost, |other| &plan.routing.vhosts[other]);
            let is_served = |owner: &str| {
                let (namespace, name) = owner.split_once('/').unwrap();
                translation.statuses.ingresses[&Key::new(namespace, name)].varnish_service.is_some()
            };
            let (served, rejected): (Vec<_>, Vec<_>) =
                vhost.routes.iter().partition(|route| is_served(&route.route_name));
            assert!(rejected.iter().all(|route| route.backends.is_empty()), "seed {seed}: {rejected:?}");
            let mut owners: Vec<&str> = served.iter().map(|route| route.route_name.as_str()).collect();
            owners.sort_unstable();
            owners.dedup();
            let namespace = |owner: &str| owner.split('/').next().unwrap().to_owned();
            let namespaces: Vec<String> = owners.iter().map(|owner| namespace(owner)).collect();
            if let Some(first) = namespaces.first() {
                let shares = |name: &str| merge == "same-namespace" && namespace(name) == *first;
                assert!(rejected.iter().all(|route| shares(&route.route_name)), "seed {seed}: {host}");
            }
            let allowed = if merge == "distinct-hosts" {
                owners.len() <= 1
            } else {
                namespaces.windows(2).all(|w| w[0] == w[1])
            };
            assert!(allowed, "seed {seed}: {host} is shared by {owners:?}");
        }
    }
}

/// An Ingress without a conflict, and without a fault, is served; one that is rejected would have
/// taken something of an older one that is served.
#[test]
fn nobody_is_rejected_without_a_reason() {
    for seed in 0..400 {
        let mut dice = Dice(seed * 104_729 + 5);
        let mut snapshot = world("distinct-hosts");
        snapshot.ingresses.extend((0..6).map(|number| ingress(&mut dice, number)));
        let statuses = translate(&snapshot).statuses.ingresses;
        let hosts = |ingress: &Ingress| -> Vec<String> {
            let rules = ingress.spec.iter().flat_map(|spec| spec.rules.iter().flatten());
            rules.map(|rule| rule.host.clone().unwrap_or_default()).collect()
        };
        let has_default =
            |ingress: &Ingress| ingress.spec.as_ref().is_some_and(|spec| spec.default_backend.is_some());
        for (key, ingress) in &snapshot.ingresses {
            let hostless = hosts(ingress).iter().any(String::is_empty);
            let rank = |key: &Key, ingress: &Ingress| {
                (ingress.metadata.creation_timestamp.as_ref().map(|time| time.0), key.to_string())
            };
            let served_before = snapshot.ingresses.iter().filter(|(other, object)| {
                statuses[*other].varnish_service.is_some() && rank(other, object) < rank(key, ingress)
            });
            let conflict = served_before.clone().any(|(_, other)| {
                (has_default(other) && has_default(ingress))
                    || hosts(other).iter().any(|host| hosts(ingress).contains(host))
            });
            let served = statuses[key].varnish_service.is_some();
            assert_eq!(served, !hostless && !conflict, "seed {seed}, Ingress {key}: {:?}", statuses[key]);
        }
    }
}
