//! What rules say of the way to their backends, by manifests and `serve`: timeouts, retries, mirrors, sessions, filters of backendRefs.
//!
//! The front carries it out, also for requests that go through varnishd: by `dataPath: Varnish`, or by user VCL. Only sessions need it to carry
//! HTTP, and the status of the route says so.

use std::time::{Duration, Instant};

use crate::support::{
    Ask, Origin, Program, Scene, cache_policy, class, free_port, front_carries_http, gateway, get,
    parameters, route, service, user_vcl, wait_for,
};

struct Site {
    port: u16,
    program: Program,
    scene: Scene,
}

/// All ways on which requests go to backends: straight, and through varnishd.
fn classes() -> [String; 3] {
    [class(), parameters("{dataPath: Varnish}"), user_vcl("sub vcl_recv { set req.http.X-Mine = \"1\"; }")]
}

/// Gateway `web` with these routes and Services.
fn site(services: &[(&str, &[&Origin])], routes: &str) -> Site {
    site_of(&class(), services, routes)
}

fn site_of(class: &str, services: &[(&str, &[&Origin])], routes: &str) -> Site {
    let port = free_port();
    let services: String = services
        .iter()
        .map(|(name, origins)| {
            service(name, &origins.iter().map(|origin| origin.address()).collect::<Vec<_>>())
        })
        .collect();
    let scene = Scene::new(&[class, &gateway("web", &[port]), &services, routes].concat());
    let program = scene.serve();
    Site { port, program, scene }
}

fn requests_end_in_time(class: &str) {
    let origin = Origin::new("slow");
    let rules = "
  rules:
  - matches: [{path: {value: /hold/request}}]
    timeouts: {request: 500ms}
    backendRefs: [{name: shop, port: 80}]
  - matches: [{path: {value: /hold/backend}}]
    timeouts: {request: 10s, backendRequest: 500ms}
    backendRefs: [{name: shop, port: 80}]
  - matches: [{path: {value: /}}]
    timeouts: {request: 0s}
    backendRefs: [{name: shop, port: 80}]
";
    let site = site_of(class, &[("shop", &[&origin])], &route("shop", rules));
    assert_eq!(get(site.port, "a", "/").status, 200);
    for url in ["/hold/request", "/hold/backend"] {
        let began = Instant::now();
        assert_eq!(get(site.port, "a", url).status, 504, "{url}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(5), "{url}: {took:?}");
    }
}

#[test]
fn a_request_that_takes_longer_than_its_rule_allows_gets_504() {
    if front_carries_http() {
        classes().iter().for_each(|class| requests_end_in_time(class));
    }
}

fn cached_rules_end_in_time(class: &str) {
    let origin = Origin::new("slow");
    origin.answer_with(200, &["Cache-Control: max-age=60"]);
    let rules = "
  rules:
  - timeouts: {request: 1500ms}
    backendRefs: [{name: shop, port: 80}]
";
    let manifests = [route("shop", rules), cache_policy("shop", "shop", "  defaultTTL: 1m")].concat();
    let site = site_of(class, &[("shop", &[&origin])], &manifests);
    assert_eq!(get(site.port, "a", "/page").status, 200);
    assert_eq!(get(site.port, "a", "/hold/page").status, 504);
    // varnishd has gone on with its fetch.
    origin.release();
    let hit = wait_for("a hit", || {
        let answer = get(site.port, "a", "/hold/page");
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(hit.text(), "slow");
    assert_eq!(get(site.port, "a", "/page").status, 200);
}

/// Past its time and within keep, with an origin that takes longer than the rule allows.
fn a_stale_object_is_served_in_place_of_504(class: &str) {
    let (port, origin) = (free_port(), Origin::new("slow"));
    origin.release();
    let rules = "
  rules:
  - name: kept
    timeouts: {request: 700ms}
    matches: [{path: {value: /hold/kept}}]
    backendRefs: [{name: shop, port: 80}]
  - name: by-try
    timeouts: {backendRequest: 700ms}
    matches: [{path: {value: /hold/by-try}}]
    backendRefs: [{name: shop, port: 80}]
  - name: without
    timeouts: {request: 700ms}
    matches: [{path: {value: /hold/without}}]
    backendRefs: [{name: shop, port: 80}]
";
    let policy = |name: &str, spec: &str| {
        cache_policy(name, "shop", spec).replace("name: shop}", &format!("name: shop, sectionName: {name}}}"))
    };
    let manifests = [
        class.to_owned(),
        gateway("web", &[port]),
        service("shop", &[origin.address()]),
        route("shop", rules),
        policy("kept", "  forcedTTL: 500ms\n  grace: 0s\n  keep: 1h"),
        policy("by-try", "  forcedTTL: 500ms\n  grace: 0s\n  keep: 1h"),
        policy("without", "  forcedTTL: 500ms\n  grace: 0s\n  keep: 0s"),
    ];
    let scene = Scene::new(&manifests.concat());
    let _program = scene.serve();
    for path in ["/hold/kept", "/hold/by-try", "/hold/without"] {
        assert_eq!(get(port, "a", path).status, 200, "{path}");
    }
    origin.hold();
    std::thread::sleep(Duration::from_secs(1));
    for (path, status) in
        [("/hold/kept", 200), ("/hold/by-try", 200), ("/hold/without", 504), ("/hold/kept/new", 504)]
    {
        let began = Instant::now();
        let answer = get(port, "a", path);
        let took = began.elapsed();
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("x-cache") == Some("STALE"), status == 200, "{path}: {answer:?}");
        assert!(took >= Duration::from_millis(600) && took < Duration::from_secs(4), "{path}: {took:?}");
    }
}

#[test]
fn a_stale_object_is_served_where_the_time_of_the_rule_ends() {
    a_stale_object_is_served_in_place_of_504(&class());
}

#[test]
fn a_stale_object_is_served_where_the_time_ends_and_every_request_goes_through_varnishd() {
    a_stale_object_is_served_in_place_of_504(&parameters("{dataPath: Varnish}"));
}

#[test]
fn a_cached_rule_keeps_its_time_and_what_is_cached_is_served_at_once() {
    if front_carries_http() {
        classes().iter().for_each(|class| cached_rules_end_in_time(class));
    }
}

fn statuses_are_retried(class: &str) {
    let (good, busy) = (Origin::new("good"), Origin::new("busy"));
    busy.answer_with(503, &[]);
    let rules = "
  rules:
  - retry: {codes: [503], attempts: 2, backoff: 10ms}
    backendRefs: [{name: shop, port: 80}]
";
    let site = site_of(class, &[("shop", &[&good, &busy])], &route("shop", rules));
    for _ in 0..20 {
        let answer = Ask::new("POST", "a", "/").body(b"all of it".to_vec()).send(site.port);
        assert_eq!((answer.status, answer.text().as_str()), (200, "all of it"));
    }
    assert!(!busy.seen().is_empty(), "it was asked, too");
    assert!(busy.seen().iter().all(|seen| seen.body == b"all of it"));
}

#[test]
fn a_status_that_the_rule_names_is_tried_at_another_endpoint() {
    if front_carries_http() {
        classes().iter().for_each(|class| statuses_are_retried(class));
    }
}

fn mirrors_get_copies(class: &str) {
    let (origin, one, other) = (Origin::new("origin"), Origin::new("one"), Origin::new("other"));
    one.answer_with(500, &["X-Evil: 1"]);
    other.answer_with(0, &[]);
    let rules = "
  rules:
  - filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {set: [{name: X-Set, value: here}]}
    - {type: RequestMirror, requestMirror: {backendRef: {name: one, port: 80}}}
    - {type: RequestMirror, requestMirror: {backendRef: {name: other, port: 80}}}
    backendRefs: [{name: shop, port: 80}]
";
    let services: &[(&str, &[&Origin])] = &[("shop", &[&origin]), ("one", &[&one]), ("other", &[&other])];
    let site = site_of(class, services, &route("shop", rules));
    let answer = Ask::new("POST", "shop.example", "/a?b=c").body(b"hello".to_vec()).send(site.port);
    assert_eq!((answer.status, answer.origin()), (200, "origin"));
    assert_eq!(answer.header("x-evil"), None);
    for mirror in [&one, &other] {
        let seen = mirror.wait_for("/a?b=c");
        assert_eq!((seen.method.as_str(), &seen.body[..]), ("POST", &b"hello"[..]));
        assert_eq!(seen.header("host"), Some("shop.example"));
        assert_eq!(seen.header("x-set"), Some("here"));
    }
}

#[test]
fn mirrors_get_copies_and_their_answers_count_for_nothing() {
    if front_carries_http() {
        classes().iter().for_each(|class| mirrors_get_copies(class));
    }
}

#[test]
fn a_session_stays_with_its_endpoint_and_survives_a_restart() {
    if !front_carries_http() {
        return;
    }
    let origins = [Origin::new("a"), Origin::new("b"), Origin::new("c"), Origin::new("d")];
    let rules = "
  rules:
  - matches: [{path: {value: /cart}}]
    sessionPersistence: {sessionName: cart, absoluteTimeout: 1h, cookieConfig: {lifetimeType: Permanent}}
    backendRefs: [{name: shop, port: 80}]
";
    let site = site(&[("shop", &origins.each_ref())], &route("shop", rules));
    let first = get(site.port, "a", "/cart");
    let cookie = first.header("set-cookie").unwrap().to_owned();
    assert!(
        cookie.starts_with("cart=") && cookie.contains("; Path=/cart; HttpOnly; SameSite=Lax"),
        "{cookie}"
    );
    assert!(cookie.ends_with("; Max-Age=3600"), "{cookie}");
    let shown = cookie.split(';').next().unwrap().to_owned();
    let ask = |port, shown: &str| Ask::get("a", "/cart/1").header("Cookie", shown).send(port);
    for _ in 0..12 {
        let next = ask(site.port, &shown);
        assert_eq!((next.origin(), next.header("set-cookie")), (first.origin(), None));
    }
    let forged = ask(site.port, &format!("cart={}", origins[0].address()));
    assert!(forged.header("set-cookie").is_some(), "a new session");
    let Site { port, program, scene } = site;
    drop(program);
    let _program = scene.serve();
    for _ in 0..6 {
        assert_eq!(ask(port, &shown).origin(), first.origin());
    }
}

fn each_backend_has_its_filters(class: &str) {
    let (one, other) = (Origin::new("one"), Origin::new("other"));
    let rules = "
  rules:
  - backendRefs:
    - name: one
      port: 80
      filters:
      - type: RequestHeaderModifier
        requestHeaderModifier: {set: [{name: X-For, value: one}]}
      - type: ResponseHeaderModifier
        responseHeaderModifier: {set: [{name: X-From, value: one}]}
    - {name: other, port: 80}
";
    let site = site_of(class, &[("one", &[&one]), ("other", &[&other])], &route("shop", rules));
    for _ in 0..40 {
        let answer = get(site.port, "a", "/");
        let expected = (answer.origin() == "one").then_some("one");
        assert_eq!(answer.header("x-from"), expected);
    }
    assert_eq!(one.last_seen().header("x-for"), Some("one"));
    assert_eq!(other.last_seen().header("x-for"), None);
}

#[test]
fn filters_of_a_backend_ref_are_for_it_alone() {
    if front_carries_http() {
        classes().iter().for_each(|class| each_backend_has_its_filters(class));
    }
}

#[test]
fn a_session_by_header_stays_with_its_endpoint() {
    if !front_carries_http() {
        return;
    }
    let origins = [Origin::new("a"), Origin::new("b"), Origin::new("c")];
    let rules = "
  rules:
  - sessionPersistence: {type: Header, sessionName: X-Cart}
    backendRefs: [{name: shop, port: 80}]
";
    let site = site(&[("shop", &origins.each_ref())], &route("shop", rules));
    let first = get(site.port, "a", "/");
    let token = first.header("x-cart").unwrap().to_owned();
    assert_eq!(first.header("set-cookie"), None);
    for _ in 0..12 {
        let next = Ask::get("a", "/").header("X-Cart", &token).send(site.port);
        assert_eq!((next.origin(), next.header("x-cart")), (first.origin(), None));
    }
}

#[test]
fn sessions_are_said_to_be_without_effect_where_varnishd_gets_every_request() {
    let origin = Origin::new("a");
    let rules = "
  rules:
  - sessionPersistence: {sessionName: cart}
    backendRefs: [{name: shop, port: 80}]
";
    for class in &classes()[1..] {
        let site = site_of(class, &[("shop", &[&origin])], &route("shop", rules));
        site.program.wait_for_line(&[
            "HTTPRoute default/shop",
            "spec.rules[0].sessionPersistence",
            "use dataPath Auto",
        ]);
        let answer = get(site.port, "a", "/");
        assert_eq!((answer.status, answer.header("set-cookie")), (200, None));
    }
}
