//! VCL of the user's own, after the generated.

use rustix::process::Signal;

use crate::support::processes::signal;
use crate::support::{
    Ask, Origin, Program, Scene, free_port, gateway, get, parameters, route_to, service, until, user_vcl,
};

struct Site {
    port: u16,
    shop: Origin,
    program: Program,
    scene: Scene,
}

impl Site {
    fn new(vcl: &str) -> Self {
        let (port, shop) = (free_port(), Origin::new("shop"));
        let scene = scene(port, &shop);
        scene.write("vcl.yaml", &user_vcl(vcl));
        let program = scene.serve();
        Self { port, shop, program, scene }
    }

    /// Writes another VCL, and gives the message about it.
    fn refused(&self, vcl: &str) {
        let before = self.program.count_lines(&["the VCL does not compile"]);
        self.scene.write("vcl.yaml", &user_vcl(vcl));
        self.program.wait_for_lines(before + 1, &["warning: Gateway default/web: the VCL does not compile"]);
    }

    fn mark(&self) -> Option<String> {
        let response = Ask::get("x", "/shop").try_send(self.port).ok()?;
        response.header("X-Mark").map(str::to_owned)
    }
}

fn scene(port: u16, shop: &Origin) -> Scene {
    let rest =
        [gateway("web", &[port]), service("shop", &[shop.address()]), route_to("shop", "/shop", "shop")];
    Scene::new(&rest.concat())
}

fn marking(mark: &str) -> String {
    format!("vcl 4.1;\n\nsub vcl_deliver {{\n  set resp.http.X-Mark = \"{mark}\";\n}}")
}

const BROKEN: &str = "vcl 4.1;\n\nsub vcl_deliver {\n  set resp.http.X-Mark = broken(;\n}";

#[test]
fn it_runs_after_the_generated_code_and_sees_what_was_decided() {
    let site = Site::new(
        r#"
sub vcl_recv {
  if (req.url == "/shop/private") {
    return (synth(403, "Not for you"));
  }
}
sub vcl_synth {
  set resp.http.X-Synth = "mine";
  set resp.body = "mine alone";
  return (deliver);
}
sub vcl_deliver {
  set resp.http.X-Route = req.http.X-Gateway-Route;
  set resp.http.X-Rule = router.rule_index();
  set resp.http.X-Group = router.group_name();
  if (resp.status == 404) {
    set resp.http.X-Shaped = "yes";
  }
}
"#,
    );
    let response = get(site.port, "x", "/shop");
    assert_eq!(response.header("X-Route"), Some("default/shop"));
    assert_eq!(response.header("X-Rule"), Some("0"));
    assert_eq!(response.header("X-Group"), Some("default/shop:80"));
    let private = get(site.port, "x", "/shop/private");
    assert_eq!((private.status, private.text().as_str()), (403, "mine alone"));
    assert_eq!(private.header("X-Synth"), Some("mine"));
    let not_found = get(site.port, "x", "/nowhere");
    assert_eq!((not_found.status, not_found.header("X-Shaped")), (404, Some("yes")));
}

#[test]
fn it_may_route_again_after_changing_the_request() {
    let site = Site::new(
        r#"
sub vcl_recv {
  if (req.url ~ "^/old/") {
    set req.url = regsub(req.url, "^/old/", "/shop/");
    router.route();
  }
}
"#,
    );
    assert_eq!(get(site.port, "x", "/old/thing").origin(), "shop");
    assert_eq!(site.shop.last_seen().url, "/shop/thing");
    assert_eq!(site.shop.last_seen().header("X-Gateway-Route"), Some("default/shop"));
}

#[test]
fn it_switches_caching_on() {
    let site = Site::new(
        r"
sub vcl_recv {
  unset req.http.X-Ghost-Pass;
}
sub vcl_backend_response {
  set beresp.ttl = 1m;
}
sub vcl_deliver {
  set resp.http.X-Hits = obj.hits;
}
",
    );
    let hits = || get(site.port, "x", "/shop").header("X-Hits").unwrap().to_owned();
    assert_eq!([hits(), hits(), hits()], ["0", "1", "2"]);
    assert_eq!(site.shop.seen().len(), 1);
}

#[test]
fn what_does_not_compile_is_told_in_the_users_lines_and_the_old_stays() {
    let site = Site::new(&marking("good"));
    site.refused(BROKEN);
    site.program.wait_for_line(&["ConfigMap default/my-vcl, key user.vcl, line 4"]);
    site.program.wait_for_line(&["what was served before is still served"]);
    assert_eq!(site.mark().as_deref(), Some("good"));
    // Routes do not need the VCL.
    site.scene.write("new.yaml", &route_to("new", "/new", "shop"));
    until("routes go on changing", || get(site.port, "x", "/new").status == 200);
    assert_eq!(get(site.port, "x", "/new").header("X-Mark"), Some("good"));
    // And it heals.
    site.scene.write("vcl.yaml", &user_vcl(&marking("better")));
    until("the good one is used", || site.mark().as_deref() == Some("better"));
}

#[test]
fn what_does_not_compile_at_the_start_is_told_and_heals() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = scene(port, &shop);
    scene.write("vcl.yaml", &user_vcl(BROKEN));
    let program = scene.start();
    program.wait_for_line(&["ConfigMap default/my-vcl, key user.vcl, line 4"]);
    program.wait_for_line(&["nothing is served until this is corrected"]);
    assert!(Ask::get("x", "/shop").try_send(port).is_err(), "never without the user's rules");
    scene.write("vcl.yaml", &user_vcl(&marking("good")));
    program.wait_for_line(&["Gateway default/web: listening on"]);
    assert_eq!(get(port, "x", "/shop").header("X-Mark"), Some("good"));
}

#[test]
fn the_last_good_one_outlives_varnishd() {
    let site = Site::new(&marking("good"));
    site.refused(BROKEN);
    // Not even the death of varnishd brings the broken one in, or takes the good one away.
    let varnishd = site.program.varnishd();
    signal(varnishd.child, Signal::KILL);
    until("a new child serves", || site.mark().as_deref() == Some("good"));
    signal(varnishd.manager, Signal::KILL);
    site.program.wait_for_lines(2, &["Gateway default/web: listening on"]);
    assert_eq!(site.mark().as_deref(), Some("good"));
}

#[test]
fn the_last_good_one_outlives_a_change_of_listeners() {
    let site = Site::new(&marking("good"));
    site.refused(BROKEN);
    let new = free_port();
    let rest = [
        gateway("web", &[site.port, new]),
        service("shop", &[site.shop.address()]),
        route_to("shop", "/shop", "shop"),
    ];
    site.scene.write("all.yaml", &rest.concat());
    until("the new port serves, with the good VCL", || {
        let response = Ask::get("x", "/shop").try_send(new);
        response.is_ok_and(|r| r.header("X-Mark") == Some("good"))
    });
    site.scene.write("vcl.yaml", &user_vcl(&marking("better")));
    until("it heals", || site.mark().as_deref() == Some("better"));
}

#[test]
fn a_configmap_that_vanishes_is_told_and_its_vcl_stays() {
    let site = Site::new(&marking("good"));
    site.scene.write("vcl.yaml", &parameters("{userVCLConfigMapRef: {name: my-vcl}}"));
    let line = ["Gateway default/web", "ConfigMap default/my-vcl", "does not exist", "create it"];
    site.program.wait_for_line(&line);
    site.scene.write("new.yaml", &route_to("new", "/new", "shop"));
    until("routes go on changing", || get(site.port, "x", "/new").status == 200);
    assert_eq!(site.mark().as_deref(), Some("good"));
}

#[test]
fn a_configmap_that_is_not_there_is_told_and_nothing_is_served_without_it() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = scene(port, &shop);
    scene.write("vcl.yaml", &parameters("{userVCLConfigMapRef: {name: nowhere}}"));
    let program = scene.start();
    let line = ["Gateway default/web", "ConfigMap default/nowhere", "does not exist", "create it"];
    program.wait_for_line(&line);
    assert!(Ask::get("x", "/shop").try_send(port).is_err());
    scene.write("vcl.yaml", &user_vcl(&marking("good")));
    program.wait_for_line(&["Gateway default/web: listening on"]);
    assert_eq!(get(port, "x", "/shop").header("X-Mark"), Some("good"));
}
