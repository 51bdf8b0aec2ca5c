//! Where the time goes between one more Ingress of 5,000 and its first answer, in the stages that are ours alone: neither API
//! server nor varnishd take part. Not a test that can fail, since machines differ:
//! `cargo test --release -p translate --test ingress_scale -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "it measures, and stops where it cannot")]

use std::sync::Arc;
use std::time::Duration;

use model::ghost::Config;
use model::routing::Routing;
use resolve::{EndpointIndex, resolve};
use router::Router;
use serde_json::json;
use translate::{Key, Snapshot, translate};
use workload::packing;

const COUNT: usize = 5000;
const HOSTS: usize = 5;
const ROUNDS: u32 = 10;

#[test]
#[ignore = "measures, proves nothing"]
fn one_more_ingress() {
    let mut snapshot = snapshot();
    let mut times = Times::default();
    let gateway = Key::new("default", "gw");
    let slice = slice();
    let mut old = translate(&snapshot);
    // The base, once.
    let base_routing = old.gateways[&gateway].routing.clone();
    let packed = times.of("base: pack", || packing::pack("gw", &base_routing, None).unwrap());
    let base = packed.base.unwrap();
    let json = serde_json::to_vec(&base_routing).unwrap();
    let routing: Routing = times.of("base: read routing.json", || serde_json::from_slice(&json).unwrap());
    let (config, _) = times.of("base: resolve", || resolve(&routing, &EndpointIndex::new([&slice])));
    let ghost = times.of("base: write ghost.json", || serde_json::to_vec(&config).unwrap());
    let config: Config = times.of("base: read ghost.json", || serde_json::from_slice(&ghost).unwrap());
    let below = Arc::new(times.of("base: compile", || Router::compile(&config).unwrap().router));
    println!("base: routing.json {} bytes, ghost.json {}", json.len(), ghost.len());
    times.print(1);
    let mut times = Times::default();
    for round in 0..ROUNDS {
        let (key, one) = ingress(COUNT + round as usize);
        snapshot.ingresses.insert(key, one);
        let copy = times.of("snapshot: clone", || snapshot.clone());
        let translation = times.of("translate", || translate(&copy));
        let plan = &translation.gateways[&gateway];
        let differs = times.of("compare plans", || *plan != old.gateways[&gateway]);
        assert!(differs);
        let new = times.of("routing.json: pack", || {
            packing::pack("gw", &plan.routing, Some((&base, &base_routing))).unwrap()
        });
        assert_eq!(new.base.as_ref(), Some(&base));
        times.of("hash", || packing::hash("", new.json.as_bytes()));
        let head: Routing = times.of("routing.json: read", || serde_json::from_str(&new.json).unwrap());
        let index = EndpointIndex::new([&slice]);
        let (config, _) = times.of("resolve", || resolve(&head, &index));
        let ghost = times.of("ghost.json: write", || serde_json::to_vec(&config).unwrap());
        let read: Config = times.of("ghost.json: read", || serde_json::from_slice(&ghost).unwrap());
        let compiled = times.of("ghost: compile", || Router::compile_over(&read, &below).unwrap().unwrap());
        times.of("drop: translation", || drop(std::mem::replace(&mut old, translation)));
        times.of("drop: snapshot", || drop(copy));
        drop(compiled);
        if round == 0 {
            println!("routing.json {} bytes, ghost.json {}", new.json.len(), ghost.len());
        }
    }
    times.print(ROUNDS);
}

/// What this thread has had of the processor: the machine may have other things to do.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[derive(Default)]
struct Times(Vec<(&'static str, Duration)>);

impl Times {
    fn of<T>(&mut self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let begun = on_cpu();
        let done = work();
        let took = on_cpu() - begun;
        match self.0.iter_mut().find(|(known, _)| *known == what) {
            Some((_, sum)) => *sum += took,
            None => self.0.push((what, took)),
        }
        done
    }

    fn print(&self, rounds: u32) {
        let mut all = Duration::ZERO;
        for (what, sum) in &self.0 {
            println!("{:24} {:7.2} ms", what, (*sum / rounds).as_secs_f64() * 1000.0);
            all += *sum;
        }
        println!("{:24} {:7.2} ms", "all", (all / rounds).as_secs_f64() * 1000.0);
    }
}

fn ingress(number: usize) -> (Key, Arc<k8s_openapi::api::networking::v1::Ingress>) {
    let name = format!("i{number:05}");
    let rule = |nth: usize| {
        json!({"host": format!("h{number}-{nth}.example.com"), "http": {"paths": [{"path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "echo", "port": {"number": 8080}}}}]}})
    };
    let ingress = json!({"metadata": {"name": name, "namespace": "default", "generation": 1, "uid": format!("uid-{number}"), "resourceVersion": format!("{number}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"kubernetes.io/ingress.class": "varnish"}},
        "spec": {"rules": (0..HOSTS).map(rule).collect::<Vec<_>>()}});
    (Key::new("default", name), Arc::new(serde_json::from_value(ingress).unwrap()))
}

fn slice() -> k8s_openapi::api::discovery::v1::EndpointSlice {
    serde_json::from_value(json!({"metadata": {"name": "echo", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "echo"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080}],
        "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}))
    .unwrap()
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let class =
        json!({"metadata": {"name": "varnish"}, "spec": {"controllerName": "varnish-software.com/gateway"}});
    snapshot
        .gateway_classes
        .insert(Key::cluster("varnish"), Arc::new(serde_json::from_value(class).unwrap()));
    let gateway = json!({"metadata": {"name": "gw", "namespace": "default"},
        "spec": {"gatewayClassName": "varnish", "infrastructure": {"labels": {"app": "varnish-ingress"}},
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}});
    snapshot.gateways.insert(Key::new("default", "gw"), Arc::new(serde_json::from_value(gateway).unwrap()));
    let service =
        json!({"metadata": {"name": "echo", "namespace": "default"}, "spec": {"ports": [{"port": 8080}]}});
    snapshot.services.insert(Key::new("default", "echo"), Arc::new(serde_json::from_value(service).unwrap()));
    snapshot.ingresses = (0..COUNT).map(ingress).collect();
    snapshot
}
