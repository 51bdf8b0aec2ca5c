//! Ten thousand routes, Services and EndpointSlices: how long it takes. Not a test that can fail, since machines
//! differ: `cargo test --release -p translate --test scale -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "whatever goes wrong here must fail the test")]

use std::sync::Arc;
use std::time::Instant;

use resolve::{EndpointIndex, resolve};
use serde_json::json;
use translate::{Key, Snapshot, translate};

const COUNT: usize = 10_000;

#[test]
#[ignore = "measures, proves nothing"]
fn ten_thousand_routes_and_services() {
    let snapshot = snapshot();
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

fn snapshot() -> Snapshot {
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
    for i in 0..COUNT {
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
