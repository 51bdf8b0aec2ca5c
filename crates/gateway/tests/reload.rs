//! Changes, by the cheapest path, while requests go on.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::processes::{is_alive, signal};
use crate::support::{
    Ask, Connection, Origin, Scene, cache_policy, class, free_port, gateway, get, parameters, route,
    route_to, service, until, user_vcl,
};

#[test]
fn a_route_is_added_changed_and_removed_without_a_restart() {
    let (port, one, two) = (free_port(), Origin::new("one"), Origin::new("two"));
    let backends = service("one", &[one.address()]) + &service("two", &[two.address()]);
    let scene = Scene::new(&[class(), gateway("web", &[port]), backends].concat());
    let program = scene.serve();
    let varnishd = program.varnishd();
    assert_eq!(get(port, "x", "/").status, 404);

    scene.write("route.yaml", &route_to("shop", "/", "one"));
    until("the route is there", || get(port, "x", "/").origin() == "one");
    program.wait_for_line(&["HTTPRoute default/shop: accepted by Gateway default/web"]);
    scene.write("route.yaml", &route_to("shop", "/", "two"));
    until("the route leads elsewhere", || get(port, "x", "/").origin() == "two");
    scene.remove("route.yaml");
    until("the route is gone", || get(port, "x", "/").status == 404);
    program.wait_for_line(&["HTTPRoute default/shop: removed"]);

    assert_eq!(program.varnishd(), varnishd, "the very same processes");
    program.wait_for_lines(4, &["Gateway default/web: reloaded", " routes, ", " endpoints in ", " ms"]);
}

#[test]
fn endpoints_come_and_go_without_a_restart() {
    let (port, one, two) = (free_port(), Origin::new("one"), Origin::new("two"));
    let scene = Scene::new(&[class(), gateway("web", &[port]), route_to("shop", "/", "shop")].concat());
    scene.write("shop.yaml", &service("shop", &[one.address()]));
    let program = scene.serve();
    let varnishd = program.varnishd();
    assert_eq!(get(port, "x", "/").origin(), "one");
    scene.write("shop.yaml", &service("shop", &[two.address()]));
    until("the other endpoint answers", || get(port, "x", "/").origin() == "two");
    scene.write("shop.yaml", &service("shop", &[]));
    until("there is no endpoint", || get(port, "x", "/").status == 500);
    program.wait_for_line(&["Service default/shop", "no ready endpoints"]);
    scene.write("shop.yaml", &service("shop", &[one.address(), two.address()]));
    until("both answer", || get(port, "x", "/").origin() == "one" && get(port, "x", "/").origin() == "two");
    assert_eq!(program.varnishd(), varnishd, "the very same processes");
}

#[test]
fn of_many_hosts_those_that_changed_are_written_and_all_are_served() {
    let (port, one, two) = (free_port(), Origin::new("one"), Origin::new("two"));
    let to = |number: usize, service: &str| {
        let backend = format!("rules: [{{backendRefs: [{{name: {service}, port: 80}}]}}]");
        route(&format!("r{number}"), &format!("  hostnames: [h{number}.example]\n  {backend}"))
    };
    let routes = |numbers: std::ops::Range<usize>, service: &str| -> String {
        numbers.map(|number| to(number, service)).collect()
    };
    // Requests for the first two go through ghost in both arrangements.
    let cached =
        [0, 1].map(|number| cache_policy(&format!("p{number}"), &format!("r{number}"), "  defaultTTL: 1m"));
    let scene = Scene::new(&[class(), gateway("web", &[port]), service("steady", &[one.address()])].concat());
    scene.write("cached.yaml", &cached.concat());
    scene.write("moving.yaml", &service("moving", &[one.address()]));
    scene.write("routes.yaml", &(routes(0..2, "moving") + &routes(2..100, "steady")));
    let program = scene.serve();
    let varnishd = program.varnishd();
    let asked = AtomicUsize::new(0);
    let ask = |number: usize| {
        let url = format!("/{}", asked.fetch_add(1, Ordering::Relaxed));
        get(port, &format!("h{number}.example"), &url).origin().to_owned()
    };
    let written = || -> (Vec<String>, String) {
        let text = fs::read_to_string(scene.state("web", "ghost.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let hosts = json["vhosts"].as_object().unwrap().keys().cloned().collect();
        (hosts, json["base"].as_str().unwrap().to_owned())
    };
    assert_eq!([ask(0), ask(1), ask(50)], ["one"; 3]);
    let (hosts, base) = written();
    assert_eq!(hosts, [""; 0]);
    scene.write("moving.yaml", &service("moving", &[two.address()]));
    until("the other endpoint answers", || ask(0) == "two" && ask(1) == "two");
    assert_eq!(ask(50), "one");
    assert_eq!(written(), (vec!["h0.example".to_owned(), "h1.example".to_owned()], base.clone()));
    // Another child reads both files.
    signal(program.varnishd().child, Signal::KILL);
    program.wait_for_line(&["Gateway default/web: varnishd's child runs again"]);
    until("all are served", || [ask(0), ask(1), ask(50)] == ["two", "two", "one"]);
    // A host goes, one comes, and one that is everybody's.
    let any = route("any", "  rules: [{backendRefs: [{name: moving, port: 80}]}]");
    scene.write("routes.yaml", &(routes(1..2, "moving") + &routes(2..101, "steady") + &any));
    until("the new ones are there", || [ask(0), ask(100), ask(7)] == ["two", "one", "one"]);
    assert_eq!(written().1, base);
    scene.write("routes.yaml", &(routes(0..50, "steady") + &routes(50..100, "moving")));
    until("most lead elsewhere", || [ask(0), ask(1), ask(50), ask(99)] == ["one", "one", "two", "two"]);
    assert_ne!(written().1, base);
    assert!(!scene.state("web", &base).exists(), "what nothing names is removed");
    assert_eq!(program.varnishd().manager, varnishd.manager);
}

#[test]
fn an_endpoint_that_died_without_a_word_holds_nobody_up() {
    let (port, dying, other) = (free_port(), Origin::new("dying"), Origin::new("other"));
    let scene = Scene::new(&[class(), gateway("web", &[port]), route_to("shop", "/", "shop")].concat());
    scene.write("shop.yaml", &service("shop", &[dying.address()]));
    let program = scene.serve();
    let mut connection = Connection::open(port).unwrap();
    assert_eq!(connection.exchange(&Ask::get("x", "/")).origin(), "dying");
    dying.fall_silent();
    // varnishd has idle connections to it, whose other end it waits for.
    let begun = Instant::now();
    scene.write("shop.yaml", &service("shop", &[other.address()]));
    until("the other endpoint answers", || connection.exchange(&Ask::get("x", "/")).origin() == "other");
    scene.write("more.yaml", &route_to("more", "/more", "nowhere"));
    until("changes go on", || connection.exchange(&Ask::get("x", "/more")).status == 500);
    program.wait_for_lines(3, &["Gateway default/web: reloaded"]);
    assert!(begun.elapsed() < Duration::from_secs(50), "took {:?}", begun.elapsed());
}

#[test]
fn a_hundred_changes_under_load_fail_no_request() {
    let (port, one, two) = (free_port(), Origin::new("one"), Origin::new("two"));
    let backends = service("one", &[one.address()]) + &service("two", &[two.address()]);
    let scene = Scene::new(&[class(), gateway("web", &[port]), backends].concat());
    scene.write("route.yaml", &route_to("shop", "/", "one"));
    let program = scene.serve();
    until("the first route serves", || get(port, "x", "/").origin() == "one");

    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = |number: usize| {
        let mut connection = Connection::open(port).unwrap();
        while !stop.load(Ordering::Relaxed) {
            // One client keeps its connection, the other connects again each time.
            let response = match number {
                0 => connection.exchange(&Ask::get("x", "/steady")),
                _ => Ask::new("POST", "x", "/steady").body(vec![7; 2000]).send(port),
            };
            assert_eq!(response.status, 200, "after {} requests", served.load(Ordering::Relaxed));
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|number| scope.spawn(move || load(number))).collect();
        // Whatever happens below, the clients come to an end.
        let _stop = Stop(&stop);
        for change in 1..=100 {
            let to = if change % 2 == 0 { "one" } else { "two" };
            let probe = route_to("probe", &format!("/probe/{change}"), to);
            scene.write("route.yaml", &(route_to("shop", "/", to) + &probe));
            until("the change is in force", || {
                assert!(clients.iter().all(|client| !client.is_finished()), "a request failed");
                let response = get(port, "x", &format!("/probe/{change}"));
                assert_eq!(response.status, 200);
                response.origin() == to
            });
        }
    });
    assert!(served.load(Ordering::Relaxed) > 100);
    program.wait_for_lines(101, &["Gateway default/web: reloaded"]);
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn identical_bytes_cause_no_reload() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let text = [class(), gateway("web", &[port]), service("shop", &[shop.address()])].concat();
    let scene = Scene::new(&text);
    scene.write("route.yaml", &route_to("one", "/one", "shop"));
    let program = scene.serve();
    for round in 0..3 {
        // The same bytes, then the same objects in other words.
        scene.write("all.yaml", &text);
        scene.write("route.yaml", &format!("# round {round}\n{}", route_to("one", "/one", "shop")));
        std::thread::sleep(Duration::from_millis(150));
    }
    // A real change shows that the others were looked at.
    scene.write("route.yaml", &route_to("two", "/two", "shop"));
    until("the change is in force", || get(port, "x", "/two").status == 200);
    program.wait_for_lines(2, &["reloaded"]);
    assert_eq!(program.count_lines(&["reloaded"]), 2, "{}", program.text());
    assert_eq!(program.count_lines(&["HTTPRoute default/one: accepted"]), 1, "{}", program.text());
}

#[test]
fn user_vcl_changes_by_a_vcl_reload_and_old_vcls_are_discarded() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let vcl = |mark: &str| user_vcl(&format!("sub vcl_deliver {{\n  set resp.http.X-Mark = \"{mark}\";\n}}"));
    let rest = [gateway("web", &[port]), service("shop", &[shop.address()]), route_to("shop", "/", "shop")];
    let scene = Scene::new(&rest.concat());
    scene.write("vcl.yaml", &vcl("0"));
    let program = scene.serve();
    let varnishd = program.varnishd();
    assert_eq!(get(port, "x", "/").header("X-Mark"), Some("0"));
    for mark in ["1", "2", "3"] {
        scene.write("vcl.yaml", &vcl(mark));
        until("the new VCL is in use", || get(port, "x", "/").header("X-Mark") == Some(mark));
    }
    program.wait_for_lines(3, &["Gateway default/web: reloaded the VCL in"]);
    assert_eq!(program.varnishd(), varnishd, "the very same processes");
    assert_eq!(
        program.count_lines(&["reloaded 1 routes"]),
        1,
        "routes were not reloaded: {}",
        program.text()
    );
    // varnishd keeps what it compiled in a directory for each VCL.
    until("one VCL is left", || {
        let entries = fs::read_dir(scene.state("web", "varnishd")).unwrap();
        entries.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("vcl_")).count() == 1
    });
}

#[test]
fn a_new_listener_port_restarts_its_own_gateway_only() {
    let [web, other, new] = [free_port(), free_port(), free_port()];
    let shop = Origin::new("shop");
    let rest = [
        parameters("{dataPath: Varnish}"),
        gateway("other", &[other]),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
        route_to("also", "/", "shop").replace("{name: web}", "{name: other}"),
    ];
    let scene = Scene::new(&rest.concat());
    scene.write("web.yaml", &gateway("web", &[web]));
    let program = scene.serve();
    program.wait_for_line(&["Gateway default/other: reloaded"]);
    let (before, neighbour) = (program.varnishd_of("default_web"), program.varnishd_of("default_other"));

    scene.write("web.yaml", &gateway("web", &[web, new]));
    until("the new port serves", || Ask::get("x", "/").try_send(new).is_ok_and(|r| r.origin() == "shop"));
    assert_eq!(get(web, "x", "/").origin(), "shop");
    program.wait_for_line(&["Gateway default/web: restarting varnishd", "listeners or arguments changed"]);
    assert!(!is_alive(before.manager) && !is_alive(before.child));
    assert_eq!(program.varnishd_of("default_other"), neighbour, "the neighbour was left alone");
}

/// A Gateway whose front carries HTTP: one route that is cached for an hour under /cached, and one that is not.
fn front_scene(port: u16, shop: &Origin) -> Scene {
    let rest = [
        parameters("{dataPath: Auto}"),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
        route_to("cached", "/cached", "shop"),
        cache_policy("cached", "cached", "  forcedTTL: 1h"),
    ];
    let scene = Scene::new(&rest.concat());
    scene.write("web.yaml", &gateway("web", &[port]));
    scene
}

#[test]
fn a_hundred_listener_changes_under_load_fail_no_request_and_keep_the_cache() {
    let [port, other] = [free_port(), free_port()];
    let shop = Origin::new("shop");
    let scene = front_scene(port, &shop);
    let program = scene.serve();
    let varnishd = program.varnishd();
    assert_eq!(get(port, "x", "/cached").header("X-Cache"), Some("MISS"));
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = |number: usize| {
        let mut connection = Connection::open(port).unwrap();
        while !stop.load(Ordering::Relaxed) {
            let (response, cache) = match number {
                0 => (connection.exchange(&Ask::get("x", "/cached")), "HIT"),
                1 => (connection.exchange(&Ask::get("x", "/steady")), "PASS"),
                _ => (Ask::new("POST", "x", "/steady").body(vec![7; 2000]).send(port), "PASS"),
            };
            assert_eq!((response.status, response.header("X-Cache")), (200, Some(cache)));
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|number| scope.spawn(move || load(number))).collect();
        let _stop = Stop(&stop);
        for change in 1..=100 {
            // One port comes and goes.
            let ports: &[u16] = if change % 2 == 1 { &[port, other] } else { &[port] };
            scene.write("web.yaml", &gateway("web", ports));
            until("the change is in force", || {
                assert!(clients.iter().all(|client| !client.is_finished()), "a request failed");
                let answer = Ask::get("x", "/").try_send(other);
                if ports.len() == 2 {
                    answer.is_ok_and(|answer| answer.status == 200)
                } else {
                    answer.is_err()
                }
            });
        }
    });
    assert!(served.load(Ordering::Relaxed) > 100);
    assert_eq!(program.varnishd(), varnishd, "a listener's change restarts nothing");
    assert_eq!(get(port, "x", "/cached").header("X-Cache"), Some("HIT"));
}

#[test]
fn without_varnishd_requests_go_to_their_origins() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let scene = front_scene(port, &shop);
    let program = scene.serve();
    assert_eq!(get(port, "x", "/cached").header("X-Cache"), Some("MISS"));
    assert_eq!(get(port, "x", "/cached").header("X-Cache"), Some("HIT"));
    let mut connection = Connection::open(port).unwrap();
    for _ in 0..3 {
        signal(program.varnishd().manager, Signal::KILL);
        for _ in 0..50 {
            for path in ["/cached", "/steady"] {
                assert_eq!(connection.exchange(&Ask::get("x", path)).status, 200, "{path}");
                assert_eq!(get(port, "x", path).status, 200, "{path}");
            }
        }
        until("the cache is back", || get(port, "x", "/cached").header("X-Cache") == Some("HIT"));
    }
}

#[test]
fn changed_varnishd_arguments_restart_varnishd() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let rest = [gateway("web", &[port]), service("shop", &[shop.address()]), route_to("shop", "/", "shop")];
    let scene = Scene::new(&rest.concat());
    scene.write("class.yaml", &parameters("{varnishdExtraArgs: [-p, thread_pool_min=20]}"));
    let program = scene.serve();
    let before = program.varnishd_of("thread_pool_min=20");
    scene.write("class.yaml", &parameters("{varnishdExtraArgs: [-p, thread_pool_min=30]}"));
    let after = program.varnishd_of("thread_pool_min=30");
    assert_ne!(before.manager, after.manager);
    until("it serves again", || Ask::get("x", "/").try_send(port).is_ok_and(|r| r.status == 200));
    assert!(!is_alive(before.manager));
}

#[test]
fn a_removed_gateway_stops_and_comes_back() {
    let [web, other] = [free_port(), free_port()];
    let shop = Origin::new("shop");
    let rest = [class(), service("shop", &[shop.address()]), route_to("shop", "/", "shop")];
    let scene = Scene::new(&rest.concat());
    scene.write("web.yaml", &gateway("web", &[web]));
    scene.write("other.yaml", &gateway("other", &[other]));
    let program = scene.serve();
    program.wait_for_line(&["Gateway default/other: reloaded"]);
    let gone = program.varnishd_of("default_other");

    scene.remove("other.yaml");
    program.wait_for_line(&["Gateway default/other: stopped"]);
    until("its processes are gone", || !is_alive(gone.manager) && !is_alive(gone.child));
    until("its port is free", || Connection::open(other).is_err());
    assert_eq!(get(web, "x", "/").origin(), "shop");

    scene.write("other.yaml", &gateway("other", &[other]));
    program.wait_for_lines(2, &["Gateway default/other: listening on"]);
    assert_eq!(get(other, "x", "/").status, 404);
    assert_eq!(get(web, "x", "/").origin(), "shop");
}

#[test]
fn a_port_goes_from_one_gateway_to_another_without_a_false_alarm() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let rest = [class(), service("shop", &[shop.address()]), route_to("shop", "/", "shop")];
    let scene = Scene::new(&rest.concat());
    scene.write("gateway.yaml", &gateway("old", &[port]));
    let program = scene.start();
    program.wait_for_line(&["Gateway default/old: reloaded"]);
    assert_eq!(get(port, "x", "/").status, 404);
    scene.write("gateway.yaml", &gateway("web", &[port]));
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    assert_eq!(get(port, "x", "/").origin(), "shop");
    program.wait_for_line(&["Gateway default/old: stopped"]);
    assert_eq!(program.count_lines(&["error:"]), 0, "{}", program.text());
}

#[test]
fn two_instances_run_side_by_side() {
    let [one, two] = [free_port(), free_port()];
    let [first, second] = [Origin::new("first"), Origin::new("second")];
    let scene = |port: u16, origin: &Origin| {
        let backends = service("shop", &[origin.address()]);
        Scene::new(&[class(), gateway("web", &[port]), backends, route_to("shop", "/", "shop")].concat())
    };
    let scenes = [scene(one, &first), scene(two, &second)];
    let programs = scenes.each_ref().map(Scene::start);
    for program in &programs {
        program.wait_for_line(&["Gateway default/web: reloaded"]);
    }
    assert_eq!(get(one, "x", "/").origin(), "first");
    assert_eq!(get(two, "x", "/").origin(), "second");
}
