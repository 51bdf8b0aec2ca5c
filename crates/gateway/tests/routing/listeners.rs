//! Several listeners, ports and hostnames of one Gateway.

use crate::support::{Origin, Scene, class, free_port, gateway, get, route, service};

#[test]
fn a_route_serves_on_the_listeners_that_it_names() {
    let [one, two] = [free_port(), free_port()];
    let origin = Origin::new("shop");
    let to = |name: &str, parent: &str| {
        let spec = format!(
            "  rules: [{{matches: [{{path: {{value: /{name}}}}}], backendRefs: [{{name: shop, port: 80}}]}}]"
        );
        route(name, &spec).replace("{name: web}]", &format!("{{name: web{parent}}}]"))
    };
    let routes = [
        to("everywhere", ""),
        to("section", &format!(", sectionName: http-{one}")),
        to("port", &format!(", port: {two}")),
    ];
    let scene = Scene::new(
        &[class(), gateway("web", &[one, two]), service("shop", &[origin.address()]), routes.concat()]
            .concat(),
    );
    let gateway = scene.serve();
    for port in [one, two] {
        gateway.wait_for_line(&["Gateway default/web: listening on", &format!("127.0.0.1:{port} ")]);
    }
    let statuses = |path: &str| [one, two].map(|port| get(port, "x", path).status);
    assert_eq!(statuses("/everywhere"), [200, 200]);
    assert_eq!(statuses("/section"), [200, 404]);
    assert_eq!(statuses("/port"), [404, 200]);
    get(two, "x", "/port");
    assert_eq!(origin.last_seen().header("X-Gateway-Listener"), Some(format!("http-{two}").as_str()));
}

#[test]
fn a_listeners_hostname_narrows_its_routes() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let listeners = format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: varnish
  listeners:
  - {{name: wide, protocol: HTTP, port: {port}, hostname: \"*.example.com\"}}
  - {{name: narrow, protocol: HTTP, port: {port}, hostname: api.example.com}}
---
"
    );
    let spec = "  hostnames: [shop.example.com, shop.example.net]\n  rules: [{backendRefs: [{name: shop, port: 80}]}]";
    let wide = route("wide", "  rules: [{backendRefs: [{name: shop, port: 80}]}]")
        .replace("{name: web}", "{name: web, sectionName: wide}");
    let scene = Scene::new(
        &[class(), listeners, service("shop", &[origin.address()]), route("shop", spec), wide].concat(),
    );
    let _gateway = scene.serve();
    assert_eq!(get(port, "shop.example.com", "/").status, 200);
    assert_eq!(origin.last_seen().header("X-Gateway-Route"), Some("default/shop"));
    // The listener does not have this host, though the route would.
    assert_eq!(get(port, "shop.example.net", "/").status, 404);
    assert_eq!(get(port, "other.example.com", "/").status, 200);
    // The most specific listener takes the request, and has no route for it.
    assert_eq!(get(port, "api.example.com", "/").status, 404);
}

#[test]
fn listeners_of_a_listener_set_serve_its_routes_alone() {
    let [own, added] = [free_port(), free_port()];
    let origin = Origin::new("shop");
    let gateway = gateway("web", &[own]).replace(
        "  gatewayClassName: varnish\n",
        "  gatewayClassName: varnish\n  allowedListeners: {namespaces: {from: Same}}\n",
    );
    let set = format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: more}}
spec:
  parentRef: {{name: web}}
  listeners:
  - {{name: added, protocol: HTTP, port: {added}}}
  - {{name: taken, protocol: HTTP, port: {own}}}
---
"
    );
    let rule = |name: &str| {
        let spec = format!(
            "  rules: [{{matches: [{{path: {{value: /{name}}}}}], backendRefs: [{{name: shop, port: 80}}]}}]"
        );
        route(name, &spec)
    };
    let of_set = rule("set").replace("{name: web}]", "{kind: ListenerSet, name: more}]");
    let scene = Scene::new(
        &[class(), gateway, set, service("shop", &[origin.address()]), rule("gateway"), of_set].concat(),
    );
    let program = scene.serve();
    for port in [own, added] {
        program.wait_for_line(&["Gateway default/web: listening on", &format!("127.0.0.1:{port} ")]);
    }
    let statuses = |path: &str| [own, added].map(|port| get(port, "x", path).status);
    assert_eq!(statuses("/gateway"), [200, 404]);
    assert_eq!(statuses("/set"), [404, 200]);
    get(added, "x", "/set");
    assert_eq!(origin.last_seen().header("X-Gateway-Route"), Some("default/set"));
}

#[test]
fn addresses_that_cannot_be_carried_out_are_said() {
    let (port, refused) = (free_port(), free_port());
    let origin = Origin::new("shop");
    let with = |name: &str, port: u16, addresses: &str| {
        gateway(name, &[port]).replace("  listeners:", &format!("  addresses: {addresses}\n  listeners:"))
    };
    let all = [
        class(),
        with("web", port, "[{type: IPAddress, value: 192.0.2.7}, {type: IPAddress}]"),
        with("named", refused, "[{type: Hostname, value: shop.example}]"),
        service("shop", &[origin.address()]),
        route("shop", "  rules: [{backendRefs: [{name: shop, port: 80}]}]"),
    ];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    program.wait_for_line(&["Gateway default/web", "192.0.2.7", "has no effect on one machine", "--bind"]);
    program.wait_for_line(&["Gateway default/named", "type Hostname is not supported: use IPAddress"]);
    assert_eq!(get(port, "x", "/").status, 200);
}
