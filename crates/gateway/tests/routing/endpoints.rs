//! From a Service to the endpoint that answers.

use std::net::SocketAddr;

use crate::support::{Ask, Origin, Scene, class, free_port, gateway, get, route, route_to, service, until};

#[test]
fn a_dead_endpoint_beside_a_living_one_is_never_seen_by_a_client() {
    let (port, dead, alive) = (free_port(), free_port(), Origin::new("alive"));
    let dead = SocketAddr::from(([127, 0, 0, 1], dead));
    let backends = service("shop", &[dead, alive.address()]);
    let scene =
        Scene::new(&[class(), gateway("web", &[port]), backends, route_to("shop", "/", "shop")].concat());
    let _gateway = scene.serve();
    for number in 0..50 {
        let url = format!("/{number}");
        let ask = if number % 5 == 0 {
            Ask::new("POST", "x", &url).body(vec![1; 100])
        } else {
            Ask::get("x", &url)
        };
        let response = ask.send(port);
        assert_eq!((response.status, response.origin()), (200, "alive"), "request {number}");
    }
}

#[test]
fn all_ready_endpoints_of_all_slices_share_the_requests() {
    let (port, one, two, unready) =
        (free_port(), Origin::new("one"), Origin::new("two"), Origin::new("unready"));
    let backends = service("shop", &[one.address(), two.address(), unready.address()]);
    let backends = backends.replace(
        &format!("ports: [{{port: {}}}]\nendpoints: [{{", unready.address().port()),
        &format!(
            "ports: [{{port: {}}}]\nendpoints: [{{conditions: {{ready: false}}, ",
            unready.address().port()
        ),
    );
    let scene =
        Scene::new(&[class(), gateway("web", &[port]), backends, route_to("shop", "/", "shop")].concat());
    let _gateway = scene.serve();
    for _ in 0..60 {
        assert_eq!(get(port, "x", "/").status, 200);
    }
    let counts = [&one, &two, &unready].map(|origin| origin.seen().len());
    assert!(counts[0] > 10 && counts[1] > 10 && counts[2] == 0, "{counts:?}");
}

#[test]
fn a_service_of_another_namespace_needs_a_reference_grant() {
    let (port, origin) = (free_port(), Origin::new("far"));
    let far = service("far", &[origin.address()]).replace("metadata: {", "metadata: {namespace: back, ");
    let there = route("there", "  rules: [{backendRefs: [{name: far, namespace: back, port: 80}]}]");
    let scene = Scene::new(&[class(), gateway("web", &[port]), far, there].concat());
    let gateway = scene.serve();
    gateway.wait_for_line(&["HTTPRoute default/there", "ReferenceGrant", "namespace back", "create one"]);
    assert_eq!(get(port, "x", "/").status, 500);
    let grant = "\
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: let-in, namespace: back}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}]
  to: [{group: \"\", kind: Service}]
";
    scene.write("grant.yaml", grant);
    until("the grant opens the way", || get(port, "x", "/").origin() == "far");
    scene.remove("grant.yaml");
    until("the way is closed again", || get(port, "x", "/").status == 500);
}
