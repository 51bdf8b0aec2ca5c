//! `explain`: where a request would go, and why not elsewhere.

use std::net::SocketAddr;

use crate::support::{Program, Scene, cache_policy, class, gateway, gateway_of, parameters, route, service};

fn scene() -> Scene {
    let at = |port: u16| [SocketAddr::from(([127, 0, 0, 1], port))];
    let shop = route(
        "shop",
        r"
  hostnames: [shop.example.com]
  rules:
  - name: cart
    matches: [{path: {value: /cart}, method: POST}]
    backendRefs: [{name: cart, port: 80}]
  - matches: [{path: {value: /}, headers: [{name: X-Beta, value: yes-please}]}]
    backendRefs: [{name: beta, port: 80}]
  - matches: [{path: {value: /}}]
    backendRefs: [{name: shop, port: 80, weight: 3}, {name: beta, port: 80}]
  - matches: [{path: {type: Exact, value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: new.example.com, statusCode: 301}}]
",
    );
    let any = route("any", "  rules: [{backendRefs: [{name: empty, port: 80}]}]");
    let backends = [
        service("shop", &at(9001)),
        service("cart", &at(9002)),
        service("beta", &at(9003)),
        service("empty", &[]),
    ];
    Scene::new(&[class(), gateway("web", &[8080]), backends.concat(), shop, any].concat())
}

fn explain(scene: &Scene, arguments: &[&str]) -> (bool, String) {
    let mut command = Program::command();
    command.args(["explain", "-f"]).arg(scene.path("manifests")).args(arguments);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "no line with {parts:?} in\n{text}");
}

#[test]
fn route_rule_and_backends_are_named() {
    let (good, text) = explain(&scene(), &["--host", "shop.example.com", "--path", "/x"]);
    assert!(good, "{text}");
    has(&text, &["Gateway default/web", "http-8080"]);
    has(&text, &["route: HTTPRoute default/shop, rule 2"]);
    has(&text, &["default/shop:80 (75 %: 127.0.0.1:9001)", "default/beta:80 (25 %: 127.0.0.1:9003)"]);
}

#[test]
fn the_others_lost_for_a_reason() {
    let scene = scene();
    let (_, text) = explain(&scene, &["--host", "shop.example.com", "--path", "/cart/1", "--method", "POST"]);
    has(&text, &["route: HTTPRoute default/shop, rule 0 `cart`"]);
    has(&text, &["not HTTPRoute default/shop, rule 2", "fits too", "longer"]);
    has(&text, &["not HTTPRoute default/shop, rule 1", "header", "X-Beta"]);
    has(&text, &["not HTTPRoute default/shop, rule 3", "/old"]);
    has(&text, &["not HTTPRoute default/any", "shop.example.com", "closer"]);
    let (_, text) = explain(&scene, &["--host", "shop.example.com", "--path", "/cart"]);
    has(&text, &["not HTTPRoute default/shop, rule 0 `cart`", "POST", "GET"]);
}

#[test]
fn headers_count_and_redirects_say_where_to() {
    let scene = scene();
    let host = ["--host", "shop.example.com"];
    let (_, text) =
        explain(&scene, &[&host[..], &["--path", "/x", "--header", "X-Beta: yes-please"]].concat());
    has(&text, &["route: HTTPRoute default/shop, rule 1"]);
    let (_, text) = explain(&scene, &[&host[..], &["--path", "/old?a=b"]].concat());
    has(&text, &["answer: 301", "Location: http://new.example.com:8080/old?a=b"]);
}

#[test]
fn the_cache_policy_is_told() {
    let scene = scene();
    let policy = "  defaultTTL: 1m\n  cacheKey: {queryParameters: {exclude: [utm]}}\n  bypass: {headers: [{name: Cookie}]}";
    scene.write("policy.yaml", &cache_policy("shop", "shop", policy));
    let about = |more: &[&str]| {
        explain(&scene, &[&["--host", "shop.example.com", "--path", "/x?b=1&utm=2&a=3"], more].concat()).1
    };
    has(&about(&[]), &["cache: asked, for `/x?a=3&b=1`"]);
    has(&about(&["--method", "DELETE"]), &["cache: bypassed: DELETE is never answered from the cache"]);
    has(&about(&["--header", "Authorization: x"]), &["cache: bypassed", "Authorization"]);
    has(&about(&["--header", "Cookie: x"]), &["cache: bypassed", "the policy's bypass"]);
    scene.remove("policy.yaml");
    has(&about(&[]), &["cache: bypassed: the rule has no cache policy"]);
}

/// The scene with these parameters of its class.
fn with_parameters(spec: &str) -> Scene {
    let scene = scene();
    // One file takes the place of the class.
    let all = std::fs::read_to_string(scene.manifest("all.yaml")).unwrap();
    scene.write("all.yaml", &all.replacen(&class(), &parameters(spec), 1));
    scene
}

#[test]
fn the_way_of_a_request_is_named_with_its_reason() {
    let scene = with_parameters("{dataPath: Auto}");
    scene.write("policy.yaml", &cache_policy("shop", "shop", "  defaultTTL: 1m"));
    let about = |host: &str, path: &str, more: &[&str]| {
        explain(&scene, &[&["--host", host, "--path", path], more].concat()).1
    };
    let shop = "shop.example.com";
    has(&about(shop, "/x", &[]), &["way: cache: GET with a cache policy"]);
    has(&about(shop, "/x", &["--method", "POST"]), &["way: direct: POST is never answered from the cache"]);
    let authorization = ["--header", "Authorization: x"];
    has(&about(shop, "/x", &authorization), &["way: direct: the request has an Authorization header"]);
    let upgrade = ["--header", "Upgrade: websocket"];
    has(&about(shop, "/x", &upgrade), &["way: direct: a WebSocket is never answered from the cache"]);
    has(&about(shop, "/old", &[]), &["way: own: the rule redirects"]);
    has(&about("a b", "/", &[]), &["way: own: the Host header is not valid"]);
    has(&about("elsewhere.example.com", "/", &[]), &["way: own: no backend of the rule has endpoints"]);
    scene.remove("policy.yaml");
    has(&about(shop, "/x", &[]), &["way: direct: the rule has no cache policy"]);
}

#[test]
fn what_would_be_hot_is_named_or_why_not() {
    let scene = with_parameters("{dataPath: Auto}");
    scene.write("policy.yaml", &cache_policy("shop", "shop", "  defaultTTL: 1m\n  clientCacheControl: Obey"));
    let about = |scene: &Scene, more: &[&str]| {
        explain(scene, &[&["--host", "shop.example.com", "--path", "/x"], more].concat()).1
    };
    has(&about(&scene, &[]), &["hot: a fresh hit would be hot"]);
    has(&about(&scene, &["--header", "Range: bytes=0-1"]), &["hot: no: the request has a Range header"]);
    has(&about(&scene, &["--header", "X-Real-IP: 192.0.2.1"]), &["hot: no: the request has X-Real-IP"]);
    has(
        &about(&scene, &["--header", "Cache-Control: no-cache"]),
        &["hot: no: the policy obeys the client's"],
    );
    assert!(!about(&scene, &["--method", "POST"]).contains("hot:"));
    for (spec, why) in [
        ("{dataPath: Auto, hotObjects: {enabled: false}}", "hotObjects.enabled is false"),
        ("{dataPath: Varnish}", "every request goes through varnishd (dataPath: Varnish)"),
    ] {
        let scene = with_parameters(spec);
        scene.write("policy.yaml", &cache_policy("shop", "shop", "  defaultTTL: 1m"));
        has(&about(&scene, &[]), &[&format!("hot: no: {why}")]);
    }
}

#[test]
fn what_sends_every_request_through_varnishd_is_named() {
    let asked = ["--host", "shop.example.com", "--path", "/x"];
    for (spec, why) in [
        ("{dataPath: Varnish}", "dataPath: Varnish"),
        ("{dataPath: Auto, userVCLConfigMapRef: {name: my-vcl}}", "user VCL"),
    ] {
        let (_, text) = explain(&with_parameters(spec), &asked);
        has(&text, &[&format!("way: through varnishd: {why}")]);
    }
}

#[test]
fn a_backend_without_endpoints_is_500() {
    let (_, text) = explain(&scene(), &["--host", "elsewhere.example.com", "--path", "/"]);
    has(&text, &["route: HTTPRoute default/any, rule 0"]);
    has(&text, &["answer: ", "500", "default/empty:80"]);
}

#[test]
fn a_backend_that_leads_nowhere_is_named_with_the_reason() {
    let scene = scene();
    let outside = "\
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {type: ExternalName, externalName: elsewhere.example.com, ports: [{port: 80}]}
---
";
    let to = |name: &str, port: u16| {
        let rule = format!("  rules: [{{backendRefs: [{{name: {name}, port: {port}}}]}}]");
        route(&format!("{name}-{port}"), &format!("  hostnames: [{name}-{port}.example.com]\n{rule}"))
    };
    let ingress = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: tea}
spec:
  ingressClassName: varnish
  rules: [{host: tea.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: tea, port: {number: 80}}}}]}}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: varnish}
spec: {controller: varnish-software.com/ingress}
---
";
    let labelled = gateway("labelled", &[8081])
        .replace("  listeners:", "  infrastructure: {labels: {app: varnish-ingress}}\n  listeners:");
    let routes = [to("nosuch", 80), to("shop", 99), to("outside", 80)].concat();
    scene.write("more.yaml", &[outside, &routes, ingress, &labelled].concat());
    for (host, answer, why) in [
        ("nosuch-80", "an invalid backendRef (100 %, 500)", "Service default/nosuch does not exist"),
        ("shop-99", "an invalid backendRef (100 %, 500)", "Service default/shop has"),
        ("outside-80", "an invalid backendRef (100 %, 500)", "ExternalName"),
        ("tea", "an invalid backend (100 %, 503)", "Service default/tea does not exist"),
    ] {
        let (_, text) = explain(&scene, &["--host", &format!("{host}.example.com"), "--path", "/"]);
        has(&text, &["answer: from ", answer]);
        has(&text, &["problem: spec.rules[0]", why]);
    }
    let (_, text) = explain(&scene, &["--host", "shop.example.com", "--path", "/x"]);
    assert!(!text.contains("problem: "), "{text}");
}

#[test]
fn a_gateway_that_is_not_in_the_files_is_named() {
    let (good, text) = explain(&scene(), &["--host", "x", "--path", "/", "--gateway", "nosuch"]);
    assert!(!good);
    has(&text, &["no such Gateway of ours: default/nosuch", "default/web"]);
}

#[test]
fn no_route_is_404_and_no_gateway_a_failure() {
    let only_gateway = Scene::new(&[class(), gateway("web", &[8080])].concat());
    let asked = ["--host", "x", "--path", "/"];
    let (good, text) = explain(&only_gateway, &asked);
    assert!(good, "{text}");
    has(&text, &["answer: 404"]);
    let (good, text) = explain(&only_gateway, &[&asked[..], &["--port", "9"]].concat());
    assert!(!good);
    has(&text, &["No Gateway of ours has a listener for this", "check"]);
}

#[test]
fn paths_are_explained_as_they_are_read() {
    let scene = scene();
    let explain = |path: &str| explain(&scene, &["--host", "shop.example.com", "--path", path]).1;
    let text = explain("/x/../old//?q=..");
    has(&text, &["path: read as `/old/?q=..`"]);
    has(&text, &["route: HTTPRoute default/shop, rule 2"]);
    has(&explain("/x/../old"), &["answer: 301", "new.example.com", "/old"]);
    has(&explain("/x/..%2fy"), &["answer: 400, the path has an encoded segment . or .."]);
    assert!(!explain("/y").contains("path: read as"));
}

#[test]
fn what_is_no_host_gets_400() {
    let scene = scene();
    for host in ["shop.example.com:x", "<script>", "a b"] {
        let (_, text) = explain(&scene, &["--host", host, "--path", "/"]);
        has(&text, &["answer: 400", host]);
    }
}

#[test]
fn names_of_handshakes_count_by_https_and_tls() {
    let gateway = "---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: varnish
  listeners:
  - {name: pass, port: 8443, protocol: TLS, hostname: '*.example.com', tls: {mode: Passthrough}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: db}
spec:
  parentRefs: [{name: web}]
  hostnames: [db.example.com]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
";
    let shop = service("shop", &[SocketAddr::from(([127, 0, 0, 1], 9001))]);
    let scene = Scene::new(&[class(), shop, gateway.to_owned()].concat());
    let (good, text) = explain(&scene, &["--host", "db.example.com", "--path", "/", "--port", "8443"]);
    assert!(good, "{text}");
    has(&text, &["Gateway default/web, socket tls-8443"]);
    has(&text, &["route: TLSRoute default/db"]);
    has(&text, &["answer: passed through, encrypted, to default/shop:80"]);
    let (_, text) = explain(&scene, &["--host", "other.example.com", "--path", "/"]);
    has(&text, &["answer: none, the handshake is refused", "other.example.com"]);
}

#[test]
fn listeners_of_tcp_and_udp_name_the_backends_that_they_choose_from() {
    let listeners = ["TCP", "UDP"]
        .map(|protocol| format!("{{name: {}, protocol: {protocol}, port: 5353}}", protocol.to_lowercase()));
    let both = |name: &str| {
        service(name, &["127.0.0.1:9001".parse().unwrap()])
            .replace(
                "{ports: [{port: 80}]}",
                "{ports: [{port: 80, name: a}, {port: 80, name: b, protocol: UDP}]}",
            )
            .replace(
                "ports: [{port: 9001}]",
                "ports: [{port: 9001, name: a}, {port: 9001, name: b, protocol: UDP}]",
            )
    };
    let tcp = "\
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: tcp}
spec:
  parentRefs: [{name: web, sectionName: tcp}]
  rules: [{backendRefs: [{name: a, port: 80, weight: 3}, {name: gone, port: 80, weight: 1}]}]
---
";
    let all = [class(), gateway_of("web", &listeners), both("a"), tcp.to_owned()];
    let scene = Scene::new(&all.concat());
    let (good, text) = explain(&scene, &["--port", "5353"]);
    assert!(good, "{text}");
    for parts in [
        &["Gateway default/web, socket tcp-5353, listener tcp"][..],
        &["route: TCPRoute default/tcp"],
        &[
            "relayed to default/a (75 %: 127.0.0.1:9001) or an invalid backendRef (25 %, connections are closed)",
        ],
        &["problem: ", "Service default/gone does not exist"],
        &["Gateway default/web, socket udp-5353, listener udp"],
        &["none, datagrams are dropped: no UDPRoute is attached to the listener"],
    ] {
        has(&text, parts);
    }
    let (good, text) = explain(&scene, &["--port", "5354"]);
    assert!(!good && text.contains("No Gateway of ours has a listener for this"), "{text}");
}
