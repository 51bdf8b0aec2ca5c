//! Whatever is wrong is said with the object's name and what to do, and everything else keeps serving.

use std::fs;
use std::net::TcpListener;

use crate::support::{
    Ask, Origin, Program, Scene, cache_policy, class, free_port, gateway, get, parameters, route, route_to,
    service, shop_on, until,
};

/// A gateway that serves `/good`, next to which things go wrong.
struct Site {
    port: u16,
    program: Program,
    scene: Scene,
    _shop: Origin,
}

impl Site {
    fn new() -> Self {
        Self::of_class(&class())
    }

    fn of_class(class: &str) -> Self {
        let (port, shop) = (free_port(), Origin::new("shop"));
        let rest =
            [gateway("web", &[port]), service("shop", &[shop.address()]), route_to("good", "/good", "shop")];
        let scene = Scene::new(&(class.to_owned() + &rest.concat()));
        let program = scene.serve();
        Self { port, program, scene, _shop: shop }
    }

    /// The bad one has no effect on the good one, and new ones are still taken.
    #[track_caller]
    fn still_serves(&self) {
        assert_eq!(get(self.port, "x", "/good").origin(), "shop");
        self.scene.write("new.yaml", &route_to("new", "/new", "shop"));
        until("new routes are taken", || get(self.port, "x", "/new").origin() == "shop");
    }
}

#[test]
fn broken_yaml_is_told_with_file_and_line() {
    let site = Site::new();
    site.scene.write("broken.yaml", "apiVersion: v1\nkind: [Service\nmetadata: {name: x}\n");
    site.program.wait_for_line(&["error: ", "broken.yaml", "line ", "nothing of this file is used"]);
    site.still_serves();
}

#[test]
fn an_unknown_field_is_told_with_the_object_and_its_place() {
    let site = Site::new();
    let bad = route_to("bad", "/bad", "shop").replace("spec:", "spec:\n  hostname: oops.example.com");
    site.scene.write("bad.yaml", &bad);
    site.program.wait_for_line(&["error: HTTPRoute default/bad", "bad.yaml", "spec.hostname", "hostnames"]);
    site.still_serves();
    assert_eq!(get(site.port, "x", "/bad").status, 500);
}

#[test]
fn a_route_that_is_refused_answers_500_on_its_paths_and_no_other_route_takes_them() {
    let site = Site::new();
    site.scene.write("all-else.yaml", &route_to("all", "/", "shop"));
    until("the wide route serves", || get(site.port, "x", "/admin/a").origin() == "shop");
    let admin = route_to("admin", "/admin", "shop");
    site.scene.write("admin.yaml", &admin.replace("backendRefs", "filterz: [], backendRefs"));
    let line = ["error: HTTPRoute default/admin", "filterz", "until it is corrected", "get 500"];
    site.program.wait_for_line(&line);
    until("its path is closed", || get(site.port, "x", "/admin/a").status == 500);
    site.program.wait_for_line(&["HTTPRoute default/admin", "The route cannot be used"]);
    assert_eq!(get(site.port, "x", "/else").origin(), "shop");
    site.still_serves();
    site.scene.write("admin.yaml", &admin);
    until("it serves once it is corrected", || get(site.port, "x", "/admin/a").status == 200);
}

#[test]
fn a_narrow_cache_policy_that_is_refused_keeps_its_route_out_of_the_wide_one() {
    let site = Site::new();
    let wide = cache_policy("wide", "web", "  defaultTTL: 1m").replace("HTTPRoute", "Gateway");
    let private = route_to("private", "/private", "shop");
    let narrow = cache_policy("narrow", "private", "  defaultTTL: 1m\n  bypass: {headers: [{name: Cookie}]}");
    // From the start: there is no earlier version of it.
    site.scene.write("caching.yaml", &[wide, private, narrow.replace("bypass", "bypas")].concat());
    let line = ["error: VarnishCachePolicy default/narrow", "spec.bypas", "its target is not cached"];
    site.program.wait_for_line(&line);
    let cache = |path: &str| get(site.port, "x", path).header("X-Cache").map(str::to_owned);
    until("the wide policy counts", || cache("/good").as_deref() == Some("HIT"));
    for _ in 0..3 {
        assert_eq!(cache("/private").as_deref(), Some("PASS"));
    }
    let text = fs::read_to_string(site.scene.manifest("caching.yaml")).unwrap();
    site.scene.write("caching.yaml", &text.replace("bypas:", "bypass:"));
    until("it counts once it is corrected", || cache("/private").as_deref() == Some("HIT"));
}

#[test]
fn an_unknown_kind_is_named_and_skipped() {
    let site = Site::new();
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: worker}\nspec: {}\n";
    let others = format!("{deployment}---\n{}", route_to("beside", "/beside", "shop"));
    site.scene.write("others.yaml", &others);
    site.program.wait_for_line(&["warning: Deployment worker", "others.yaml", "skipped"]);
    until("its neighbour is used", || get(site.port, "x", "/beside").status == 200);
    site.still_serves();
}

#[test]
fn a_bad_regular_expression_is_told_and_marks_its_own_route() {
    let site = Site::new();
    let bad = route(
        "bad",
        r#"  rules: [{matches: [{path: {type: RegularExpression, value: "/a(b"}}], backendRefs: [{name: shop, port: 80}]}]"#,
    );
    site.scene.write("bad.yaml", &bad);
    site.program.wait_for_line(&["HTTPRoute default/bad", "/a(b", "regular expression"]);
    site.still_serves();
}

#[test]
fn a_service_without_endpoints_is_told_and_answers_500() {
    let site = Site::new();
    site.scene.write("empty.yaml", &(service("empty", &[]) + &route_to("empty", "/empty", "empty")));
    site.program.wait_for_line(&[
        "Service default/empty",
        "EndpointSlice",
        "kubernetes.io/service-name: empty",
    ]);
    until("it answers 500", || get(site.port, "x", "/empty").status == 500);
    site.still_serves();
}

#[test]
fn a_missing_service_is_told_and_answers_500() {
    let site = Site::new();
    site.scene.write("lost.yaml", &route_to("lost", "/lost", "nowhere"));
    let line = ["HTTPRoute default/lost", "Service default/nowhere does not exist", "create it"];
    site.program.wait_for_line(&line);
    until("it answers 500", || get(site.port, "x", "/lost").status == 500);
    site.still_serves();
}

#[test]
fn two_gateways_on_one_port_are_told_and_the_first_keeps_it() {
    let site = Site::new();
    let (port, own) = (site.port, free_port());
    let other = route_to("other", "/good", "shop").replace("{name: web}", "{name: other}");
    // Its name comes first in the alphabet, and it may be of the same second: neither takes the port from who has it.
    site.scene.write("other.yaml", &(gateway("other", &[port, own]) + &other));
    let line = ["Gateway default/other", &format!("port {port}"), "Gateway default/web", "another port"];
    site.program.wait_for_line(&line);
    // Its other listener is not to blame.
    until("its own port serves", || Ask::get("x", "/good").try_send(own).is_ok_and(|r| r.origin() == "shop"));
    site.still_serves();
    // Once the port is given up, the other gets it.
    site.scene.write("all.yaml", &[class(), service("shop", &[site._shop.address()])].concat());
    until("the port changes hands", || {
        Ask::get("x", "/good").try_send(port).is_ok_and(|r| r.origin() == "shop")
    });
}

#[test]
fn a_port_that_is_taken_is_told_and_used_when_it_is_free() {
    let taken = free_port();
    let holder = TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let site = Site::new();
    // A new listener on that port does not end the others of its Gateway.
    let all = fs::read_to_string(site.scene.manifest("all.yaml")).unwrap();
    let all = all.replace(&gateway("web", &[site.port]), &gateway("web", &[site.port, taken]));
    site.scene.write("all.yaml", &all);
    let line = ["error: Gateway default/web", &format!("port {taken}"), "taken", "another port"];
    site.program.wait_for_line(&line);
    until("the other listener serves", || {
        Ask::get("x", "/good").try_send(site.port).is_ok_and(|r| r.origin() == "shop")
    });
    site.still_serves();
    drop(holder);
    until("the port is used once it is free", || {
        Ask::get("x", "/good").try_send(taken).is_ok_and(|r| r.origin() == "shop")
    });
    assert_eq!(get(site.port, "x", "/good").origin(), "shop");
}

#[test]
fn a_gateway_whose_only_port_is_taken_waits_for_it() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let holder = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let rest = [shop_on(port, &[shop.address()])];
    let scene = Scene::new(&rest.concat());
    let program = scene.start();
    program.wait_for_line(&["error: Gateway default/web", &format!("port {port}"), "taken"]);
    drop(holder);
    program.wait_for_line(&["Gateway default/web: listening on"]);
    assert_eq!(get(port, "x", "/").origin(), "shop");
}

#[test]
fn a_missing_varnishd_is_told_with_the_package() {
    let scene = Scene::new(&[class(), gateway("web", &[free_port()])].concat());
    let mut program = scene.start_with(&["--varnishd", "/nonexistent/varnishd"]);
    let line =
        ["error: Gateway default/web", "/nonexistent/varnishd", "not installed", "apt-get install varnish"];
    program.wait_for_line(&line);
    assert!(program.is_running(), "it may be installed later");
}

#[test]
fn refused_varnishd_arguments_are_told_one_by_one_and_the_rest_is_used() {
    let arguments =
        "[-M, 'localhost:1', -S, /x, -F, -f, /x.vcl, -n, /x, -a, ':1', -j, none, -p, thread_pool_min=21]";
    let site = Site::of_class(&parameters(&format!("{{varnishdExtraArgs: {arguments}}}")));
    let line = site.program.wait_for_line(&["Gateway default/web", "varnishdExtraArgs"]);
    for refused in ["-M localhost:1", "-S /x", "-F", "-f /x.vcl", "-n /x", "-a :1", "-j none"] {
        assert!(line.contains(&format!("`{refused}` is refused")), "{refused} in {line}");
    }
    assert!(line.contains("remove it"), "{line}");
    site.program.varnishd_of("-p thread_pool_min=21");
    site.still_serves();
}

#[test]
fn an_argument_that_varnishd_itself_refuses_is_told_in_its_words() {
    let scene = Scene::new(
        &[parameters("{varnishdExtraArgs: [-p, no_such_parameter=1]}"), gateway("web", &[free_port()])]
            .concat(),
    );
    let program = scene.start();
    program.wait_for_line(&["error: Gateway default/web", "no_such_parameter"]);
}

#[test]
fn a_missing_path_and_an_empty_directory_are_told() {
    let scene = Scene::new("");
    let program = scene.start_with(&["-f", "/nonexistent/manifests"]);
    program.wait_for_line(&["/nonexistent/manifests", "no such file or directory"]);
    program.wait_for_line(&["no Gateway to serve", "controllerName varnish-software.com/gateway"]);
}

#[test]
fn the_same_object_twice_is_told_and_the_first_is_used() {
    let site = Site::new();
    site.scene.write("zz.yaml", &route_to("good", "/elsewhere", "shop"));
    site.program.wait_for_line(&["HTTPRoute default/good", "zz.yaml", "all.yaml", "remove one"]);
    site.still_serves();
    assert_eq!(get(site.port, "x", "/elsewhere").status, 404);
}

#[test]
fn a_gateway_of_an_unknown_class_is_told() {
    let site = Site::new();
    site.scene.write(
        "lost.yaml",
        &gateway("lost", &[free_port()]).replace("ClassName: varnish", "ClassName: unknown"),
    );
    site.program.wait_for_line(&["Gateway default/lost", "GatewayClass unknown", "create the class"]);
    site.still_serves();
}
