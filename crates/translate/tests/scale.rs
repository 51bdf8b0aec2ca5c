//! Thousands of routes, Services and EndpointSlices: how long it takes. Not a test that can fail, since machines
//! differ: `cargo test --release -p translate --test scale -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "whatever goes wrong here must fail the test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use resolve::{EndpointIndex, resolve};
use serde_json::json;
use translate::{Incremental, Key, Snapshot, translate};
use workload::packing;

const COUNT: usize = 10_000;
/// Changes that are measured.
const CHANGES: usize = 50;

#[test]
#[ignore = "measures, proves nothing"]
fn ten_thousand_routes_and_services() {
    let snapshot = snapshot(COUNT);
    for _ in 0..5 {
        let start = Instant::now();
        let translation = translate(&snapshot);
        let translated = start.elapsed();
        let plan = &translation.gateways[&Key::new("default", "gw")];
        assert_eq!(plan.routing.vhosts.len(), COUNT);

        let start = Instant::now();
        let index = EndpointIndex::new(snapshot.endpoint_slices.values().map(AsRef::as_ref));
        let indexed = start.elapsed();
        let start = Instant::now();
        let (config, notices) = resolve(&plan.routing, &index);
        let resolved = start.elapsed();
        assert_eq!((config.vhosts.len(), notices.len()), (COUNT, 0));
        println!("translate {translated:?}, EndpointIndex::new {indexed:?}, resolve {resolved:?}");
    }
}

/// What one changed route among many costs: the translation, and routing.json by what has changed.
#[test]
#[ignore = "measures, proves nothing"]
fn one_changed_route() {
    for count in [3_000, 20_000] {
        let mut snapshot = snapshot(count);
        let gateway = Key::new("default", "gw");
        let start = Instant::now();
        let whole = translate(&snapshot);
        println!("{count} routes: translate {:?}", start.elapsed());
        drop(whole);
        let mut incremental = Incremental::default();
        let base = Arc::clone(&incremental.update(&snapshot).gateways[&gateway]);
        let packed = packing::pack("gw", &base.routing, None).unwrap().base.unwrap();
        let (mut translated, mut written) = (Duration::ZERO, Duration::ZERO);
        for change in 0..CHANGES {
            let key = Key::new("default", format!("shop-{}", change * 7));
            let mut route = snapshot.http_routes[&key].as_ref().clone();
            let rules = route.spec.rules.as_mut().unwrap();
            rules[0].name = Some(format!("rule-{change}"));
            let start = Instant::now();
            snapshot.http_routes.insert(key, Arc::new(route));
            let plan = Arc::clone(&incremental.update(&snapshot.clone()).gateways[&gateway]);
            translated += start.elapsed();
            let start = Instant::now();
            let json = packing::pack("gw", &plan.routing, Some((&packed, &base.routing))).unwrap();
            written += start.elapsed();
            assert!(json.base.as_ref() == Some(&packed));
        }
        let [translated, written] = [translated, written].map(|all| all / u32::try_from(CHANGES).unwrap());
        println!(
            "{count} routes: one changed: Incremental::update {translated:?}, packing::pack {written:?}"
        );
    }
}

fn snapshot(count: usize) -> Snapshot {
    let gateway_api = "gateway.networking.k8s.io/v1";
    let mut snapshot = Snapshot::default();
    let class = json!({"apiVersion": gateway_api, "kind": "GatewayClass", "metadata": {"name": "varnish"},
        "spec": {"controllerName": "varnish-software.com/gateway"}});
    snapshot
        .gateway_classes
        .insert(Key::cluster("varnish"), Arc::new(serde_json::from_value(class).unwrap()));
    let gateway = json!({"apiVersion": gateway_api, "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "default"},
        "spec": {"gatewayClassName": "varnish", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}});
    snapshot.gateways.insert(Key::new("default", "gw"), Arc::new(serde_json::from_value(gateway).unwrap()));
    for i in 0..count {
        let name = format!("shop-{i}");
        let key = Key::new("default", name.as_str());
        let metadata =
            json!({"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let route = json!({"apiVersion": gateway_api, "kind": "HTTPRoute", "metadata": metadata,
            "spec": {"parentRefs": [{"name": "gw"}], "hostnames": [format!("{name}.example.com")],
                "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/api"},
                                        "headers": [{"name": "X-Version", "value": "2"}]}],
                           "backendRefs": [{"name": name, "port": 80}]}]}});
        snapshot.http_routes.insert(key.clone(), Arc::new(serde_json::from_value(route).unwrap()));
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"ports": [{"name": "web", "port": 80}]}});
        snapshot.services.insert(key.clone(), Arc::new(serde_json::from_value(service).unwrap()));
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"name": "web", "port": 8080}],
            "endpoints": [{"addresses": [format!("10.{}.{}.1", i / 256, i % 256)]}]});
        snapshot.endpoint_slices.insert(key, Arc::new(serde_json::from_value(slice).unwrap()));
    }
    snapshot
}
