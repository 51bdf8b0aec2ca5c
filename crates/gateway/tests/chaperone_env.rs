//! `chaperone`: one varnishd, by environment variables and files, as the seeds have it.

mod cluster;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Ask, Certificate, Connection, Handshake, Origin, Program, Scene, free_port, get, service, until,
};

/// The seed's own example, with ports and paths of the test's.
struct Site {
    port: u16,
    health: u16,
    /// Before the scene: the program ends while its files are there.
    program: Program,
    scene: Scene,
}

/// What the operator would write for a Gateway without user VCL.
fn main_vcl(mark: &str) -> String {
    let vcl = |name: &str| {
        fs::read_to_string(format!("{}/../translate/src/vcl/{name}.vcl", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    let user = format!("sub vcl_deliver {{\n  set resp.http.X-Mark = \"{mark}\";\n}}\n");
    format!("{}\n{user}\n{}", vcl("preamble"), vcl("postamble"))
}

/// The seed's routing.json, for this path.
fn routing(port: u16, path: &str) -> Value {
    json!({
        "version": 2,
        "vhosts": {
            "api.example.com": {
                "routes": [{
                    "hostname": "api.example.com",
                    "path_match": {"type": "PathPrefix", "value": path},
                    "service": "api-v2",
                    "namespace": "default",
                    "port": 8080,
                    "weight": 100,
                    "listeners": [format!("http-{port}")],
                    "route_name": "default/api-v2-route",
                    "priority": 10300,
                    "rule_index": 0
                }]
            }
        }
    })
}

/// EndpointSlices for the Service of that route.
fn endpoints(origin: &Origin) -> String {
    service("api-v2", &[origin.address()])
}

impl Site {
    /// Files are the test's own to write before it starts.
    fn start(scene: Scene, port: u16, more: &[(&str, &str)]) -> Self {
        let (health, admin) = (free_port(), free_port());
        let path = |name: &str| scene.path(name).display().to_string();
        let mut command = Program::command();
        command
            .arg("chaperone")
            .current_dir(scene.path(""))
            .env("NAMESPACE", "default")
            .env("VARNISH_ADMIN_PORT", admin.to_string())
            .env("VARNISH_HTTP_ADDR", format!("localhost:{port}"))
            .env("VARNISH_LISTEN", format!("http-{port}=:{port},http"))
            .env("VCL_PATH", path("main.vcl"))
            .env("ROUTING_CONFIG_PATH", path("routing.json"))
            .env("GHOST_CONFIG_PATH", path("ghost.json"))
            .env("ENDPOINTS_PATH", path("manifests"))
            .env("WORK_DIR", path("varnish"))
            .env("HEALTH_ADDR", format!(":{health}"))
            .env("VARNISHD_EXTRA_ARGS", "-p;thread_pool_stack=160k")
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .envs(more.iter().copied());
        let program = Program::spawn(command);
        Self { port, health, program, scene }
    }

    fn new(origin: &Origin) -> Self {
        let (scene, port) = (Scene::new(&endpoints(origin)), free_port());
        let site = Self::start(scene, port, &[]);
        site.write("main.vcl", &main_vcl("one"));
        site.write("routing.json", &routing(port, "/v2").to_string());
        site.program.wait_for_line(&["chaperone: reloaded"]);
        site
    }

    fn write(&self, name: &str, text: &str) {
        let aside = self.scene.path("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, self.scene.path(name)).unwrap();
    }

    fn get(&self, path: &str) -> crate::support::Response {
        get(self.port, "api.example.com", path)
    }

    fn probe(&self, path: &str) -> Option<(u16, Value)> {
        let response = Ask::get("probe", path).try_send(self.health).ok()?;
        Some((response.status, serde_json::from_slice(&response.body).unwrap()))
    }

    fn ready(&self) -> u16 {
        self.probe("/readyz").expect("the health endpoint answers").0
    }
}

#[test]
fn the_seeds_example_serves() {
    let origin = Origin::new("api");
    let site = Site::new(&origin);
    site.program
        .wait_for_line(&["chaperone: listening on", &format!("0.0.0.0:{} (http-{})", site.port, site.port)]);
    assert_eq!(site.get("/v2/users").origin(), "api");
    assert_eq!(site.get("/v1").status, 404);
    assert_eq!(get(site.port, "other.example.com", "/v2").status, 404);
    assert_eq!(origin.last_seen().header("X-Gateway-Route"), Some("default/api-v2-route"));
    let ghost: Value = serde_json::from_slice(&fs::read(site.scene.path("ghost.json")).unwrap()).unwrap();
    let backend = &ghost["vhosts"]["api.example.com"]["routes"][0]["backends"][0]["endpoints"][0];
    assert_eq!(*backend, json!({"address": "127.0.0.1", "port": origin.address().port()}));
    assert!(site.scene.path("varnish/varnishd").is_dir(), "WORK_DIR is used");
    site.program.varnishd_of("-p thread_pool_stack=160k");
}

#[test]
fn files_are_followed_without_a_restart() {
    let (one, two) = (Origin::new("one"), Origin::new("two"));
    let site = Site::new(&one);
    let varnishd = site.program.varnishd();
    site.write("routing.json", &routing(site.port, "/v3").to_string());
    until("routing.json is followed", || site.get("/v3").status == 200);
    assert_eq!(site.get("/v2").status, 404);
    site.scene.write("all.yaml", &endpoints(&two));
    until("EndpointSlices are followed", || site.get("/v3").origin() == "two");
    site.write("main.vcl", &main_vcl("two"));
    until("main.vcl is followed", || site.get("/v3").header("X-Mark") == Some("two"));
    assert_eq!(site.program.varnishd(), varnishd, "the very same processes");
}

#[test]
fn endpoints_whose_directory_vanishes_stay_in_use() {
    let (one, two) = (Origin::new("one"), Origin::new("two"));
    let site = Site::new(&one);
    fs::rename(site.scene.path("manifests"), site.scene.path("away")).unwrap();
    site.program.wait_for_line(&["ENDPOINTS_PATH", "stay in use"]);
    site.write("routing.json", &routing(site.port, "/v3").to_string());
    until("routing.json is followed", || site.get("/v3").status == 200);
    assert_eq!(site.get("/v3").origin(), "one");
    fs::rename(site.scene.path("away"), site.scene.path("manifests")).unwrap();
    site.scene.write("all.yaml", &endpoints(&two));
    until("EndpointSlices are followed again", || site.get("/v3").origin() == "two");
}

#[test]
fn a_mounted_configmap_is_followed() {
    let origin = Origin::new("api");
    let (scene, port) = (Scene::new(&endpoints(&origin)), free_port());
    let mount = scene.path("mount");
    let version = |number: u32, path: &str| {
        let dir = mount.join(format!("..{number}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("main.vcl"), main_vcl("mounted")).unwrap();
        fs::write(dir.join("routing.json"), routing(port, path).to_string()).unwrap();
        symlink(format!("..{number}"), mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    };
    version(1, "/v2");
    for name in ["main.vcl", "routing.json"] {
        symlink(format!("..data/{name}"), mount.join(name)).unwrap();
    }
    let [vcl, routes] = ["main.vcl", "routing.json"].map(|name| mount.join(name).display().to_string());
    let site = Site::start(scene, port, &[("VCL_PATH", &vcl), ("ROUTING_CONFIG_PATH", &routes)]);
    site.program.wait_for_line(&["chaperone: reloaded"]);
    assert_eq!(site.get("/v2").status, 200);
    version(2, "/v3");
    until("the swapped version is served", || site.get("/v3").status == 200);
}

#[test]
fn another_version_is_refused_and_the_last_good_stays() {
    let origin = Origin::new("api");
    let site = Site::new(&origin);
    let mut newer = routing(site.port, "/v3");
    newer["version"] = 4.into();
    site.write("routing.json", &newer.to_string());
    site.program.wait_for_line(&["routing.json has version 4", "versions 2 to 3 only", "of one release"]);
    assert_eq!([site.get("/v2").status, site.get("/v3").status], [200, 404]);
    assert_eq!(site.ready(), 200);
    // A bad one holds back no other.
    site.write("main.vcl", &main_vcl("two"));
    until("main.vcl is followed all the same", || site.get("/v2").header("X-Mark") == Some("two"));
    let other = Origin::new("other");
    site.scene.write("all.yaml", &endpoints(&other));
    until("EndpointSlices are followed all the same", || site.get("/v2").origin() == "other");
    site.write("routing.json", "{\"version\": 2, \"vhosts\": [");
    site.program.wait_for_line(&["routing.json", "line 1", "stays in use"]);
    site.write("routing.json", &routing(site.port, "/v3").to_string());
    until("a good one is taken again", || site.get("/v3").status == 200);
}

/// The answer's head to a request on ghost's control socket.
fn ask_ghost(site: &Site, request: &str) -> String {
    use std::io::{Read, Write};
    let socket = site.scene.path("varnish").join("ghost/control.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn ghost_obeys_its_own_chaperone_alone() {
    let origin = Origin::new("api");
    let (scene, port, reload) = (Scene::new(&endpoints(&origin)), free_port(), free_port());
    let site = Site::start(scene, port, &[("GHOST_RELOAD_ADDR", &format!("127.0.0.1:{reload}"))]);
    site.write("main.vcl", &main_vcl("one"));
    site.write("routing.json", &routing(port, "/v2").to_string());
    site.program.wait_for_line(&["chaperone: reloaded"]);
    // No port, whatever the variable of earlier releases says: a route or another process in the pod cannot reach ghost.
    assert!(std::net::TcpStream::connect(("127.0.0.1", reload)).is_err());
    for path in ["reload", "drain", "status"] {
        let method = if path == "status" { "GET" } else { "POST" };
        let answer =
            ask_ghost(&site, &format!("{method} /.varnish-ghost/{path} HTTP/1.1\r\nHost: ghost\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(site.scene.path("varnish").join("ghost")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o700);
    let answer = Connection::open(port).unwrap().exchange(&Ask::get("api.example.com", "/v2"));
    assert_eq!(answer.header("Connection").unwrap_or("keep-alive"), "keep-alive", "it does not drain");
    site.write("routing.json", &routing(port, "/v3").to_string());
    until("the chaperone still reloads", || site.get("/v3").status == 200);
    // The token is neither in a file nor in the log.
    assert_eq!(site.program.count_lines(&["X-Ghost-Token"]), 0);
}

#[test]
fn unknown_fields_of_a_newer_operator_are_told_and_accepted() {
    let origin = Origin::new("api");
    let site = Site::new(&origin);
    let mut newer = routing(site.port, "/v3");
    newer["vhosts"]["api.example.com"]["routes"][0]["teleport"] = true.into();
    site.write("routing.json", &newer.to_string());
    until("it is taken", || site.get("/v3").status == 200);
    let line = site.program.wait_for_line(&["warning: ", "routing.json", "teleport", "ignored"]);
    assert!(!line.contains("1 unknown fields"), "{line}");
    // Said once, though the file is read at each change of any other.
    site.write("main.vcl", &main_vcl("two"));
    until("another file has changed", || site.get("/v3").header("X-Mark") == Some("two"));
    assert_eq!(site.program.count_lines(&["teleport"]), 1, "{}", site.program.text());
}

#[test]
fn probes_tell_readiness_from_life() {
    let origin = Origin::new("api");
    let (scene, port) = (Scene::new(&endpoints(&origin)), free_port());
    let mut site = Site::start(scene, port, &[]);
    // Without any configuration: alive, not ready.
    until("it is alive", || site.probe("/healthz").is_some_and(|(status, _)| status == 200));
    assert_eq!(site.ready(), 503);
    site.program.wait_for_line(&["warning: ", "main.vcl"]);
    site.write("main.vcl", &main_vcl("one"));
    site.write("routing.json", &routing(port, "/hold").to_string());
    until("it is ready", || site.ready() == 200);
    // A reload that fails changes nothing, but is shown.
    site.write("main.vcl", "vcl 4.1;\nthis is no VCL\n");
    until("the refusal is shown", || {
        site.probe("/readyz").is_some_and(|(status, body)| status == 200 && body["refused"].is_string())
    });
    assert_eq!(Ask::get("probe", "/nonsense").send(site.health).status, 404);
    // Requests under way are finished, but no new client is accepted.
    let mut in_flight = Connection::open(port).unwrap();
    in_flight.write(&Ask::get("api.example.com", "/hold")).unwrap();
    origin.wait_for("/hold");
    site.program.signal(Signal::TERM);
    until("it is not ready while it drains", || site.ready() == 503);
    assert_eq!(site.probe("/readyz").unwrap().1["draining"], true);
    assert_eq!(site.probe("/healthz").unwrap().0, 200);
    origin.release();
    assert_eq!(in_flight.read("GET").unwrap().status, 200);
    assert!(site.program.wait_for_exit().success());
}

#[test]
fn defaults_and_lists_are_those_of_the_seeds() {
    let origin = Origin::new("api");
    let [one, two] = [free_port(), free_port()];
    let listen = format!("http-{one}=:{one},http;http-{two}=127.0.0.1:{two},http");
    // Neither GHOST_CONFIG_PATH nor NAMESPACE: beside the rest, and `default`. Paths may be relative.
    let listen = ("VARNISH_LISTEN", listen.as_str());
    let more = [listen, ("GHOST_CONFIG_PATH", ""), ("NAMESPACE", ""), ("WORK_DIR", "varnish")];
    let site = Site::start(Scene::new(&endpoints(&origin)), one, &more);
    site.write("main.vcl", &main_vcl("one"));
    let mut routes = routing(one, "/v2");
    let route = &mut routes["vhosts"]["api.example.com"]["routes"][0];
    route["listeners"] = json!([]);
    route.as_object_mut().unwrap().remove("namespace");
    site.write("routing.json", &routes.to_string());
    site.program.wait_for_line(&["chaperone: reloaded"]);
    for port in [one, two] {
        assert_eq!(get(port, "api.example.com", "/v2").origin(), "api");
    }
    assert!(site.scene.path("varnish/ghost.json").is_file());
}

#[test]
fn bad_variables_end_the_program_and_are_named() {
    for (name, value, why) in [
        ("VARNISH_LISTEN", "web", "{proto}-{port}"),
        ("VARNISH_ADMIN_PORT", "many", "port number"),
        ("HEALTH_ADDR", "8081", "address:port"),
    ] {
        let mut site = Site::start(Scene::new(""), free_port(), &[(name, value)]);
        assert!(!site.program.wait_for_exit().success());
        site.program.wait_for_line(&["error: ", name, value, why]);
    }
}

#[test]
fn refused_varnishd_arguments_are_told_and_the_rest_is_used() {
    let origin = Origin::new("api");
    let (scene, port) = (Scene::new(&endpoints(&origin)), free_port());
    let site = Site::start(scene, port, &[("VARNISHD_EXTRA_ARGS", "-p;thread_pool_min=21;-n;/tmp/x")]);
    site.write("main.vcl", &main_vcl("one"));
    site.write("routing.json", &routing(port, "/v2").to_string());
    site.program.wait_for_line(&["error: VARNISHD_EXTRA_ARGS", "`-n /tmp/x` is refused", "remove it"]);
    site.program.wait_for_line(&["chaperone: reloaded"]);
    site.program.varnishd_of("-p thread_pool_min=21");
    assert_eq!(site.get("/v2").origin(), "api");
}

#[test]
fn a_health_port_that_is_taken_ends_the_program_and_is_named() {
    let health = free_port();
    let _holder = TcpListener::bind(("0.0.0.0", health)).unwrap();
    let mut site = Site::start(Scene::new(""), free_port(), &[("HEALTH_ADDR", &format!(":{health}"))]);
    assert!(!site.program.wait_for_exit().success());
    site.program.wait_for_line(&["error: ", "HEALTH_ADDR", &health.to_string()]);
}

/// A pair as it lies in a mounted Secret, whole or not at all: the kubelet swaps a link.
fn mount(dir: &Path, version: u32, certificate: &Certificate) {
    let to = dir.join(format!("..{version}"));
    fs::create_dir_all(&to).unwrap();
    for (name, text) in [("crt", &certificate.chain), ("key", &certificate.key)] {
        fs::write(to.join(format!("shop.cert.{name}")), text).unwrap();
        let link = dir.join(format!("shop.cert.{name}"));
        if !link.is_symlink() {
            symlink(format!("..data/shop.cert.{name}"), link).unwrap();
        }
    }
    symlink(format!("..{version}"), dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
}

#[test]
fn https_listeners_of_routing_json_have_certificates_from_a_mounted_secret() {
    let (origin, tls) = (Origin::new("api"), free_port());
    let scene = Scene::new(&endpoints(&origin));
    let certificates = scene.path("certificates");
    let [one, two] = [(); 2].map(|()| Certificate::new("api.example.com"));
    mount(&certificates, 1, &one);
    // No plain listener at all.
    let more = [("VARNISH_LISTEN", ""), ("VARNISH_HTTP_ADDR", ""), ("CERTIFICATES_PATH", "certificates")];
    let site = Site::start(scene, tls, &more);
    site.write("main.vcl", &main_vcl("one"));
    let mut routes = routing(tls, "/v2");
    routes["listeners"] =
        json!([{"name": "https", "socket": format!("https-{tls}"), "tls": {"certificates": ["shop/cert"]}}]);
    routes["vhosts"]["api.example.com"]["routes"][0]["listeners"] = json!([]);
    site.write("routing.json", &routes.to_string());
    site.program.wait_for_line(&["chaperone: listening on", &format!("(https-{tls})")]);
    until("it is ready", || site.ready() == 200);
    let handshake = Handshake { port: tls, name: Some("api.example.com") };
    assert!(handshake.shows(&one));
    assert_eq!(handshake.get("api.example.com", "/v2").origin(), "api");
    site.program.wait_for_line(&["chaperone: reloaded"]);
    let before = site.program.count_lines(&["reloaded"]);
    mount(&certificates, 2, &two);
    until("the new certificate is shown", || handshake.shows(&two));
    assert_eq!(site.program.count_lines(&["reloaded"]), before);
    fs::write(certificates.join("..2/shop.cert.key"), &one.key).unwrap();
    site.program.wait_for_line(&["Secret shop/cert", "stays in use"]);
    assert!(handshake.shows(&two));
}

#[test]
fn a_pod_goes_on_serving_until_everybody_has_heard() {
    let origin = Origin::new("api");
    let (scene, port) = (Scene::new(&endpoints(&origin)), free_port());
    let more = [("DRAIN_DELAY", "12"), ("DRAIN_TIMEOUT", "5")];
    let mut site = Site::start(scene, port, &more);
    site.write("main.vcl", &main_vcl("one"));
    site.write("routing.json", &routing(port, "/v2").to_string());
    site.program.wait_for_line(&["chaperone: reloaded"]);
    let asked = Instant::now();
    site.program.signal(Signal::TERM);
    until("it is not ready", || site.ready() == 503);
    // Also what changes meanwhile.
    site.write("routing.json", &routing(port, "/v3").to_string());
    until("a change counts", || site.get("/v3").origin() == "api");
    assert!(site.program.wait_for_exit().success());
    assert!(asked.elapsed() >= Duration::from_secs(12), "{:?}", asked.elapsed());
    assert_eq!(site.program.count_lines(&["chaperone: draining"]), 1);
}

#[test]
fn the_second_signal_does_not_wait() {
    let origin = Origin::new("api");
    let (scene, port) = (Scene::new(&endpoints(&origin)), free_port());
    let mut site = Site::start(scene, port, &[("DRAIN_DELAY", "1000")]);
    site.write("main.vcl", &main_vcl("one"));
    site.write("routing.json", &routing(port, "/v2").to_string());
    site.program.wait_for_line(&["chaperone: reloaded"]);
    site.program.signal(Signal::TERM);
    site.program.wait_for_line(&["chaperone: draining"]);
    site.program.signal(Signal::TERM);
    assert!(site.program.wait_for_exit().success());
}

#[test]
fn the_secret_of_the_cli_may_be_given() {
    let origin = Origin::new("api");
    let (scene, port) = (Scene::new(&endpoints(&origin)), free_port());
    fs::write(scene.path("given"), "everybody knows it\n").unwrap();
    let site = Site::start(scene, port, &[("VARNISH_SECRET_PATH", "given"), ("UPGRADE_IDLE_SECONDS", "77")]);
    site.write("main.vcl", &main_vcl("one"));
    site.write("routing.json", &routing(port, "/v2").to_string());
    site.program.wait_for_line(&["chaperone: reloaded"]);
    assert_eq!(
        fs::read_to_string(site.scene.path("varnish/secret")).unwrap(),
        "everybody knows it\n",
        "varnishd and whoever else reads that file agree"
    );
    site.program.varnishd_of("-p pipe_timeout=77");
}

#[test]
fn metrics_tell_of_varnishd_routes_and_reloads() {
    let origin = Origin::new("api");
    let site = Site::new(&origin);
    for _ in 0..3 {
        assert_eq!(site.get("/v2/users").status, 200);
    }
    assert_eq!(site.get("/v1").status, 404);
    let text = || {
        let response = Ask::get("probe", "/metrics").try_send(site.health).unwrap();
        assert_eq!(response.header("Content-Type"), Some("text/plain; version=0.0.4"));
        String::from_utf8(response.body).unwrap()
    };
    let route = "kind=\"HTTPRoute\",namespace=\"default\",name=\"api-v2-route\",rule=\"0\"";
    let parts = [
        &format!("varnish_gateway_route_requests_total{{{route},code=\"2xx\"}} 3\n"),
        &format!("varnish_gateway_route_cache_total{{{route},result=\"pass\"}} 3\n"),
        &format!("varnish_gateway_route_backend_seconds_count{{{route}}} 3\n"),
        "varnish_gateway_unrouted_requests_total{code=\"4xx\"} 1\n",
        "varnish_gateway_ready 1\n",
        "varnish_gateway_varnishstat_up 1\n",
        "varnish_gateway_reloads_total{kind=\"ghost\"} 1\n",
        "varnish_gateway_endpoints 1\n",
        "# TYPE varnish_main_client_req counter\n",
        "# TYPE varnish_main_n_object gauge\n",
        "varnish_sma_g_bytes{stevedore=\"s0\"} ",
        &format!("backend=\"{}\"}} 3\n", origin.address()),
    ];
    for part in parts {
        until(part, || text().contains(part));
    }
    let text = text();
    let page = include_str!("../../../docs/reference/metrics.md");
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        let listed = page.contains(&format!("| `{name}`")) || page.contains(&format!("| `{name}{{"));
        assert!(
            listed || !name.starts_with("varnish_gateway_"),
            "docs/reference/metrics.md does not list {name}"
        );
    }
    let mut seen = std::collections::HashSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok() && seen.insert(series), "{line}");
    }
}

#[test]
fn without_routes_it_is_ready_unless_told_otherwise() {
    let origin = Origin::new("api");
    let site = Site::new(&origin);
    let empty = |unready: bool| {
        let default = json!({"kind": "Ingress", "route_name": "", "rule_index": 0, "priority": 0});
        json!({"version": 2, "vhosts": {}, "default": default, "unready_without_routes": unready}).to_string()
    };
    site.write("routing.json", &empty(true));
    until("it is not ready", || site.ready() == 503);
    let (_, why) = site.probe("/readyz").unwrap();
    assert_eq!(why["without_routes"], true, "{why}");
    until("every request gets 503", || site.get("/v2").status == 503);
    assert_eq!(site.probe("/healthz").unwrap().0, 200);
    site.write("routing.json", &empty(false));
    until("it is ready", || site.ready() == 200);
    assert_eq!(site.get("/v2").status, 503);
    let mut with_routes = routing(site.port, "/v2");
    with_routes["unready_without_routes"] = json!(true);
    site.write("routing.json", &with_routes.to_string());
    until("the route is served", || site.get("/v2").status == 200);
    assert_eq!(site.ready(), 200);
}
