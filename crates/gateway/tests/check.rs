//! `check`: what would become of every object.

use std::process::Output;

use crate::support::{
    Origin, Program, Scene, class, front_carries_http, gateway, parameters, route, route_to, service,
    user_vcl,
};

fn check(scene: &Scene, arguments: &[&str]) -> (bool, String) {
    let mut command = Program::command();
    command.args(["check", "-f"]).arg(scene.path("manifests")).args(arguments);
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    (status.success(), String::from_utf8(stdout).unwrap())
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "no line with {parts:?} in\n{text}");
}

#[test]
fn a_file_that_is_not_there_is_not_waited_for() {
    let scene = Scene::new(&class());
    let mut command = Program::command();
    let Output { status, stdout, .. } =
        command.args(["check", "-f"]).arg(scene.path("none.yaml")).output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    has(&text, &["problem:", "none.yaml", "no such file", "-f"]);
    assert!(!status.success() && !text.contains("appears"), "{text}");
}

#[test]
fn good_manifests_end_with_success() {
    let shop = Origin::new("shop");
    let all =
        [class(), gateway("web", &[8080]), service("shop", &[shop.address()]), route_to("shop", "/", "shop")];
    let (good, text) = check(&Scene::new(&all.concat()), &[]);
    assert!(good, "{text}");
    let data_path =
        if front_carries_http() { "Front (dataPath: Auto)" } else { "Varnish (dataPath is not set)" };
    assert_eq!(
        text,
        format!(
            "\
ok: GatewayClass varnish: accepted
ok: Gateway default/web: accepted
ok: HTTPRoute default/shop: accepted by Gateway default/web
note: Gateway default/web: data path {data_path}
ok: Gateway default/web: the VCL compiles
No problems found.
"
        )
    );
}

#[test]
fn every_kind_of_route_and_listener_sets_are_judged() {
    let origin = Origin::new("shop");
    let gateway = "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: varnish
  allowedListeners: {namespaces: {from: Same}}
  listeners:
  - {name: http, protocol: HTTP, port: 8080}
  - {name: tcp, protocol: TCP, port: 9000}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more}
spec: {parentRef: {name: web}, listeners: [{name: udp, protocol: UDP, port: 9000}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: thief}
spec: {parentRef: {name: web}, listeners: [{name: tcp, protocol: TCP, port: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls}
spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: shop, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: tcp}
spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: shop, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: udp}
spec: {parentRefs: [{kind: ListenerSet, name: more}], rules: [{backendRefs: [{name: shop, port: 80}]}]}
---
";
    let class = parameters("{dataPath: Auto}");
    let (good, text) =
        check(&Scene::new(&[&class, gateway, &service("shop", &[origin.address()])].concat()), &[]);
    assert!(!good, "{text}");
    has(&text, &["ok: GRPCRoute default/calls: accepted by Gateway default/web"]);
    has(&text, &["ok: TCPRoute default/tcp: accepted by Gateway default/web"]);
    has(&text, &["ok: ListenerSet default/more: accepted by Gateway default/web"]);
    has(&text, &["ListenerSet default/thief: rejected", "port 8080", "ListenersNotValid"]);
    has(&text, &["ok: UDPRoute default/udp: accepted by ListenerSet default/more"]);
    has(&text, &["UDPRoute default/udp", "port 80 of Service default/shop is not UDP"]);
}

#[test]
fn every_problem_is_listed_and_counted() {
    let bad_regex =
        route("regex", r#"  rules: [{matches: [{path: {type: RegularExpression, value: "/(x"}}]}]"#);
    let scene = Scene::new(&[class(), gateway("web", &[8080]), bad_regex].concat());
    scene.write("lost.yaml", &route_to("lost", "/lost", "nowhere"));
    scene.write("broken.yaml", "kind: [Gateway");
    scene.write("other.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: worker}\n");
    let (good, text) = check(&scene, &[]);
    assert!(!good, "{text}");
    has(&text, &["problem: ", "broken.yaml", "line 1"]);
    has(&text, &["problem: HTTPRoute default/lost", "Service default/nowhere does not exist", "create it"]);
    has(&text, &["problem: HTTPRoute default/regex", "/(x"]);
    has(&text, &["Deployment", "worker", "skipped"]);
    has(&text, &["ok: Gateway default/web: accepted"]);
    let problems = text.lines().filter(|line| line.starts_with("problem: ")).count();
    has(text.lines().last().unwrap(), &[&format!("{problems} problems.")]);
}

#[test]
fn a_service_without_endpoints_is_a_note() {
    let all = [class(), gateway("web", &[8080]), service("empty", &[]), route_to("empty", "/", "empty")];
    let (good, text) = check(&Scene::new(&all.concat()), &[]);
    has(&text, &["note: ", "Service default/empty", "EndpointSlice"]);
    assert!(good, "pods may come later: {text}");
}

#[test]
fn vcl_that_does_not_compile_is_told_in_the_users_lines() {
    let vcl = user_vcl("# mine\nsub vcl_recv {\n  set req.http.X = nonsense;\n}");
    let (good, text) = check(&Scene::new(&(vcl + &gateway("web", &[8080]))), &[]);
    assert!(!good, "{text}");
    has(&text, &["problem: Gateway default/web: the VCL does not compile"]);
    has(&text, &["ConfigMap default/my-vcl, key user.vcl, line 3"]);
    has(&text, &["1 problem."]);
    for ours in ["varnish-gateway-check-", "Could not delete", "VCC-compiler"] {
        assert!(!text.contains(ours), "no small talk: {text}");
    }
}

#[test]
fn vcl_that_engines_read_differently_is_a_note_with_file_object_and_line() {
    let vcl = user_vcl(
        "vcl 4.1;\n# req.max_age\nsub vcl_deliver {\n  unset resp.http.X-Varnish;\n}\nsub vcl_recv {\n  set req.http.a = req.url.lower();\n}",
    );
    // Both Gateways have the same VCL: it is reported once.
    let scene = Scene::new(&[vcl, gateway("web", &[8080]), gateway("more", &[8081])].concat());
    let (good, text) = check(&scene, &[]);
    assert!(good, "these are no problems: {text}");
    let place = "note: ConfigMap default/my-vcl in ";
    has(&text, &[place, ".yaml, key user.vcl, line 4: resp.http.X-Varnish: on 9.0", "`X-Vinyl`"]);
    has(&text, &[place, "line 7: req.url.lower: ", "CVE-2026-93894", "std.tolower()"]);
    assert_eq!(text.matches(place).count(), 2, "{text}");
    assert!(!text.contains("max_age"), "{text}");
}

#[test]
fn entries_that_an_acl_joins_and_req_ttl_are_notes_with_their_lines() {
    let vcl = user_vcl(
        "acl inside {\n  \"10.0.0.0\"/8;\n  \"10.1.0.0\"/16;\n}\nsub vcl_recv {\n  set req.ttl = 1m;\n  if (client.ip ~ inside) {\n    set req.http.inside = \"yes\";\n  }\n}",
    );
    let (good, text) = check(&Scene::new(&(vcl + &gateway("web", &[8080]))), &[]);
    assert!(good, "these are no problems: {text}");
    let place = "note: ConfigMap default/my-vcl in ";
    has(&text, &[place, "key user.vcl, line 3: 10.1.0.0: 9.0 joins the entries", "remove the inner entry"]);
    has(&text, &[place, "key user.vcl, line 6: req.ttl: ", "`req.max_age`"]);
    assert_eq!(text.matches(place).count(), 2, "{text}");
}

#[test]
fn a_storage_hint_is_a_problem_on_every_engine_and_a_note_says_what_to_write() {
    let vcl = user_vcl("# mine\nsub vcl_backend_response {\n  set beresp.storage_hint = \"s0\";\n}");
    let (good, text) = check(&Scene::new(&(vcl + &gateway("web", &[8080]))), &[]);
    assert!(!good, "{text}");
    has(&text, &["problem: Gateway default/web: the VCL does not compile"]);
    has(&text, &["ConfigMap default/my-vcl, key user.vcl, line 3"]);
    let place = "note: ConfigMap default/my-vcl in ";
    has(&text, &[place, "line 3: beresp.storage_hint: ", "use `set beresp.storage = storage.NAME;`"]);
    assert_eq!(text.matches(place).count(), 1, "{text}");
}

#[test]
fn refused_arguments_and_missing_configmaps_are_problems() {
    let class = parameters("{userVCLConfigMapRef: {name: nowhere}, varnishdExtraArgs: [-n, /x]}");
    let (good, text) = check(&Scene::new(&(class + &gateway("web", &[8080]))), &[]);
    assert!(!good, "{text}");
    has(&text, &["problem: Gateway default/web", "ConfigMap default/nowhere", "create it"]);
    has(&text, &["problem: Gateway default/web", "`-n /x` is refused"]);
}

#[test]
fn two_gateways_on_one_port_are_a_note() {
    let all = [class(), gateway("one", &[8080]), gateway("two", &[8080])];
    let (good, text) = check(&Scene::new(&all.concat()), &[]);
    has(&text, &["note: on one machine: Gateway default/two", "port 8080", "Gateway default/one"]);
    assert!(good, "in a cluster that is no problem: {text}");
}

#[test]
fn without_varnishd_the_vcl_is_not_compiled_and_that_is_said() {
    let scene = Scene::new(&[class(), gateway("web", &[8080])].concat());
    let (good, text) = check(&scene, &["--varnishd", "/nonexistent"]);
    assert!(good, "{text}");
    has(&text, &["note: Gateway default/web", "not compiled", "apt-get install varnish"]);
}

#[test]
fn no_gateway_is_a_problem() {
    let (good, text) = check(&Scene::new(""), &[]);
    assert!(!good, "{text}");
    has(&text, &["problem: no Gateway", "controllerName varnish-software.com/gateway"]);
}
