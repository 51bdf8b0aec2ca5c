//! Cache policies through the real thing: what is kept, for whom, and what an origin that fails leaves.

mod clients;
mod hints;
mod methods;
mod named;
mod posts;
mod ranges;
mod rfc;

use std::thread::sleep;
use std::time::Duration;

use crate::support::{
    Ask, Connection, Origin, Program, Response, Scene, cache_policy, class, free_port, gateway, get,
    parameters, route, route_to, service, until,
};

const HOST: &str = "shop.example.com";

/// Gateway `web` in front of Services that have one origin each.
struct Site {
    port: u16,
    origins: Vec<Origin>,
    /// Before the scene: the program ends while its files are there.
    program: Program,
    scene: Scene,
}

impl Site {
    fn new(services: &[&str], objects: &str) -> Self {
        Self::of_class(&class(), services, objects)
    }

    fn of_class(class: &str, services: &[&str], objects: &str) -> Self {
        let port = free_port();
        let origins: Vec<_> = services.iter().map(|name| Origin::new(name)).collect();
        let backends: String =
            services.iter().zip(&origins).map(|(name, origin)| service(name, &[origin.address()])).collect();
        let scene = Scene::new(&[class, &gateway("web", &[port]), &backends, objects].concat());
        let program = scene.serve();
        Self { port, origins, program, scene }
    }

    /// One route with this policy.
    fn with_policy(spec: &str) -> Self {
        Self::new(&["shop"], &[route_to("shop", "/", "shop"), cache_policy("shop", "shop", spec)].concat())
    }

    fn get(&self, url: &str) -> Response {
        get(self.port, HOST, url)
    }

    /// Does the front carry HTTP? CI runs all tests in the other arrangement, too.
    fn is_by_front(&self) -> bool {
        std::env::var("VARNISH_GATEWAY_DEFAULT_DATA_PATH").as_deref() != Ok("Varnish")
    }

    fn asked(&self) -> usize {
        self.origins[0].seen().len()
    }
}

#[track_caller]
fn expect(response: &Response, status: u16, cache: &str) {
    assert_eq!((response.status, response.header("X-Cache")), (status, Some(cache)), "{response:?}");
}

#[test]
fn a_policy_that_comes_changes_or_goes_needs_no_restart() {
    let site = Site::new(&["shop"], &route_to("shop", "/", "shop"));
    let varnishd = site.program.varnishd().child;
    expect(&site.get("/a"), 200, "PASS");
    site.scene.write("policy.yaml", &cache_policy("shop", "shop", "  defaultTTL: 1h"));
    until("the policy is in force", || site.get("/a").header("X-Cache") == Some("HIT"));
    site.scene.write(
        "policy.yaml",
        &cache_policy("shop", "shop", "  defaultTTL: 1h\n  cacheKey: {headers: [X-A]}"),
    );
    until("the key has changed", || {
        let ask = Ask::get(HOST, "/b").header("X-A", &site.asked().to_string());
        ask.send(site.port).header("X-Cache") == Some("MISS")
            && Ask::get(HOST, "/b").header("X-A", "other").send(site.port).header("X-Cache") == Some("MISS")
    });
    site.scene.remove("policy.yaml");
    until("everything passes again", || site.get("/a").header("X-Cache") == Some("PASS"));
    assert_eq!(site.program.varnishd().child, varnishd);
}

#[test]
fn a_thousand_clients_on_a_cold_object_make_one_request_of_the_origin() {
    let site = Site::with_policy("  defaultTTL: 1h");
    let ask = Ask::get(HOST, "/hold/cold");
    let open = |_| {
        let mut connection = Connection::open(site.port).unwrap();
        connection.write(&ask).unwrap();
        connection
    };
    let mut clients: Vec<_> = (0..1000).map(open).collect();
    site.origins[0].wait_for("/hold/cold");
    sleep(Duration::from_millis(500));
    site.origins[0].release();
    let caches: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            let response = client.read("GET").unwrap();
            assert_eq!((response.status, response.origin()), (200, "shop"));
            response.header("X-Cache").unwrap().to_owned()
        })
        .collect();
    assert_eq!(site.asked(), 1);
    assert_eq!(caches.iter().filter(|cache| *cache == "MISS").count(), 1);
}

#[test]
fn answers_that_cannot_be_kept_are_fetched_side_by_side() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origins[0].answer_with(200, &["Set-Cookie: a=1"]);
    let ask = Ask::get(HOST, "/hold/mine");
    let open = |_| {
        let mut connection = Connection::open(site.port).unwrap();
        connection.write(&ask).unwrap();
        connection
    };
    // The first alone is held, and tells the others when it comes.
    let mut first = open(0);
    site.origins[0].wait_for("/hold/mine");
    site.origins[0].release();
    expect(&first.read("GET").unwrap(), 200, "MISS");
    let clients: Vec<_> = (0..50).map(open).collect();
    for mut client in clients {
        expect(&client.read("GET").unwrap(), 200, "MISS");
    }
    assert_eq!(site.asked(), 51);
}

#[test]
fn excluded_parameters_make_no_other_object_and_the_origin_sees_them() {
    let site = Site::with_policy("  defaultTTL: 1h\n  cacheKey: {queryParameters: {exclude: [utm_source]}}");
    expect(&site.get("/p?id=1&utm_source=mail"), 200, "MISS");
    assert_eq!(site.origins[0].last_seen().url, "/p?id=1&utm_source=mail");
    for same in ["/p?id=1", "/p?utm_source=web&id=1", "/p?id=1&utm_source"] {
        expect(&site.get(same), 200, "HIT");
    }
    expect(&site.get("/p?id=2&utm_source=mail"), 200, "MISS");
    assert_eq!(site.asked(), 2);
}

#[test]
fn rules_that_differ_by_header_method_or_weight_never_mix() {
    let rules = "
  rules:
    - matches: [{headers: [{name: X-Version, value: beta}]}]
      backendRefs: [{name: beta, port: 80}]
    - matches: [{path: {value: /split}}]
      backendRefs: [{name: stable, port: 80, weight: 1}, {name: beta, port: 80, weight: 1}]
    - matches: [{path: {value: /}}]
      backendRefs: [{name: stable, port: 80}]
      filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Rule, value: plain}]}}]";
    let objects = [route("shop", rules), cache_policy("shop", "shop", "  forcedTTL: 1h")].concat();
    let site = Site::new(&["stable", "beta"], &objects);
    for cache in ["MISS", "HIT"] {
        let plain = site.get("/a");
        expect(&plain, 200, cache);
        assert_eq!((plain.origin(), plain.header("X-Rule")), ("stable", Some("plain")));
        let beta = Ask::get(HOST, "/a").header("X-Version", "beta").send(site.port);
        expect(&beta, 200, cache);
        assert_eq!((beta.origin(), beta.header("X-Rule")), ("beta", None));
    }
    let split: Vec<_> = (0..60).map(|_| site.get("/split").origin().to_owned()).collect();
    for origin in ["stable", "beta"] {
        assert!(split.iter().filter(|o| *o == origin).count() > 5, "{origin} has its share: {split:?}");
        let of_name = site.origins.iter().find(|o| o.seen().iter().any(|s| s.url == "/split"));
        assert!(of_name.is_some());
    }
    for origin in &site.origins {
        assert_eq!(origin.seen().iter().filter(|seen| seen.url == "/split").count(), 1);
    }
}

#[test]
fn a_full_cache_makes_room_and_what_does_not_fit_goes_through() {
    let small = parameters("{storage: [{name: main, type: malloc, size: 16Mi}]}");
    let policy = cache_policy("shop", "shop", "  defaultTTL: 1h");
    let site = Site::of_class(&small, &["shop"], &[route_to("shop", "/", "shop"), policy].concat());
    let mut connection = Connection::open(site.port).unwrap();
    let mut get = |url: &str| connection.exchange(&Ask::get(HOST, url));
    for n in 0..5_000 {
        assert_eq!(get(&format!("/bytes/4000/{n}")).body.len(), 4_000);
    }
    // Each takes the place of hundreds.
    for n in 0..5 {
        let url = format!("/bytes/1500000/{n}");
        assert_eq!(get(&url).body.len(), 1_500_000);
        expect(&get(&url), 200, "HIT");
    }
    for url in ["/bytes/12000000/a", "/bytes/20000000/a"] {
        for _ in 0..2 {
            let answer = get(url);
            expect(&answer, 200, "MISS");
            assert!(url.contains(&answer.body.len().to_string()));
        }
    }
}

#[test]
fn an_origin_that_dies_is_covered_by_grace_then_by_keep() {
    let site = Site::with_policy("  defaultTTL: 4s\n  grace: 4s\n  keep: 1h");
    site.origins[0].answer_with(200, &["ETag: \"1\""]);
    expect(&site.get("/a"), 200, "MISS");
    expect(&site.get("/a"), 200, "HIT");
    // In grace: at once, and the refresh changes nothing.
    site.origins[0].answer_with(503, &[]);
    sleep(Duration::from_millis(4200));
    expect(&site.get("/a"), 200, "STALE");
    until("it was refreshed", || site.asked() == 2);
    sleep(Duration::from_millis(4300));
    // In keep: the origin is asked first, by a conditional request.
    for (status, asked) in [(503, 3), (500, 4), (0, 5)] {
        site.origins[0].answer_with(status, &[]);
        // One that takes its time to fail is let alone for a second.
        until("the origin is asked", || {
            expect(&site.get("/a"), 200, "STALE");
            site.asked() >= asked
        });
        let response = site.get("/a");
        expect(&response, 200, "STALE");
        assert_eq!((response.origin(), response.text().as_str()), ("shop", "shop"));
        assert!(response.headers.iter().all(|(name, _)| !name.to_ascii_lowercase().starts_with("x-ghost")));
        assert_eq!(site.origins[0].last_seen().header("If-None-Match"), Some("\"1\""));
        assert_eq!(site.origins[0].last_seen().header("X-Ghost-Rescue"), None);
    }
    // What was never kept is the origin's own failure.
    site.origins[0].answer_with(503, &["X-Mine: yes"]);
    let other = site.get("/other");
    expect(&other, 503, "MISS");
    assert_eq!(other.header("X-Mine"), Some("yes"));
    site.origins[0].answer_with(200, &["ETag: \"2\""]);
    until("it is back", || site.get("/a").header("ETag") == Some("\"2\""));
    expect(&site.get("/a"), 200, "HIT");
}

#[test]
fn an_origin_that_cannot_be_reached_is_covered_too() {
    let mut site = Site::with_policy("  forcedTTL: 500ms\n  keep: 1h");
    expect(&site.get("/a"), 200, "MISS");
    site.origins.clear();
    sleep(Duration::from_millis(700));
    for _ in 0..3 {
        expect(&site.get("/a"), 200, "STALE");
    }
    assert_eq!(site.get("/other").status, 503);
}

#[test]
fn x_cache_can_be_switched_off() {
    let objects = [route_to("shop", "/", "shop"), cache_policy("shop", "shop", "  defaultTTL: 1h")].concat();
    let site = Site::of_class(&parameters("{cacheStatusHeader: false}"), &["shop"], &objects);
    for _ in 0..2 {
        let response = site.get("/a");
        assert_eq!((response.status, response.header("X-Cache")), (200, None));
        assert_eq!(response.header("x-cache-url"), None);
    }
    assert_eq!(site.asked(), 1);
}

/// What is stored of a URL leaves the cache before the answer to an unsafe method is sent.
#[test]
fn unsafe_methods_invalidate_before_the_client_knows() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origins[0].answer_with(200, &["Vary: X-Kind", "Cache-Groups: \"all\""]);
    let get = |url: &str, kind: &str| Ask::get(HOST, url).header("X-Kind", kind).send(site.port);
    for url in ["/a", "/b", "/c"] {
        for kind in ["1", "2"] {
            expect(&get(url, kind), 200, "MISS");
            expect(&get(url, kind), 200, "HIT");
        }
    }
    let write = |method: &str, url: &str| Ask::new(method, HOST, url).body(b"x".to_vec()).send(site.port);
    // An error changes nothing.
    site.origins[0].answer_with(500, &[]);
    assert_eq!(write("POST", "/a").status, 500);
    expect(&get("/a", "1"), 200, "HIT");
    // In all variants, and what the answer names.
    for (at, method) in ["POST", "PUT", "PATCH", "DELETE", "M-SEARCH"].into_iter().enumerate() {
        site.origins[0].answer_with(200, &["Content-Location: /b", "Location: http://other.example.com/c"]);
        assert_eq!(write(method, "/a").status, 200, "{method}");
        site.origins[0].answer_with(200, &["Vary: X-Kind", "Cache-Groups: \"all\""]);
        for url in ["/a", "/b"] {
            expect(&get(url, "1"), 200, "MISS");
            if at == 0 {
                expect(&get(url, "2"), 200, "MISS");
            }
        }
        expect(&get("/c", "1"), 200, "HIT");
    }
    site.origins[0].answer_with(200, &["Cache-Group-Invalidation: \"all\""]);
    assert_eq!(write("POST", "/elsewhere").status, 200);
    site.origins[0].answer_with(200, &[]);
    expect(&get("/c", "1"), 200, "MISS");
}
