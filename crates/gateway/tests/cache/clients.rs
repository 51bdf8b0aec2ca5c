//! What clients say, from the client to a real origin: Cache-Control of requests, Authorization, headers with few values.

use super::{HOST, Site, expect};
use crate::support::{Ask, Program, Response};

fn asked_with(site: &Site, url: &str, headers: &[(&str, &str)]) -> Response {
    let ask = headers.iter().fold(Ask::get(HOST, url), |ask, (name, value)| ask.header(name, value));
    ask.send(site.port)
}

fn controlled(site: &Site, url: &str, value: &str) -> Response {
    asked_with(site, url, &[("Cache-Control", value)])
}

#[test]
fn directives_of_clients_are_obeyed_where_the_policy_says_so() {
    let site = Site::with_policy("  defaultTTL: 1h\n  clientCacheControl: Obey");
    let origin = &site.origins[0];
    origin.answer_with(200, &["Cache-Control: max-age=100", "Age: 50", "ETag: \"1\""]);
    for url in ["/a", "/b", "/c"] {
        expect(&site.get(url), 200, "MISS");
    }
    assert_eq!(controlled(&site, "/none", "only-if-cached").status, 504);
    expect(&controlled(&site, "/a", "only-if-cached, max-age=60, min-fresh=40"), 200, "HIT");
    assert_eq!(site.asked(), 3);
    // Validated, and freshened for all.
    origin.answer_with(304, &["Cache-Control: max-age=100", "ETag: \"1\"", "X-New: yes"]);
    let validated = controlled(&site, "/a", "no-cache");
    assert_eq!((validated.status, validated.header("X-New")), (200, Some("yes")));
    let status = validated.header("Cache-Status").unwrap();
    assert!(status.starts_with("varnish-gateway; fwd=request; fwd-status=304; stored; ttl="), "{status}");
    assert_eq!(origin.last_seen().header("If-None-Match"), Some("\"1\""));
    assert_eq!(site.get("/a").header("X-New"), Some("yes"));
    // A failure is the client's own.
    for (status, url) in [(500, "/b"), (0, "/c")] {
        origin.answer_with(status, &[]);
        assert!(controlled(&site, url, "max-age=10").status >= 500);
        expect(&site.get(url), 200, "HIT");
    }
    // What is not to be stored is not.
    origin.answer_with(200, &["Cache-Control: max-age=100"]);
    assert_eq!(controlled(&site, "/d", "no-store").status, 200);
    expect(&site.get("/d"), 200, "MISS");
    expect(&controlled(&site, "/d", "no-store"), 200, "HIT");
    // A flood is one request a second to the origin.
    let before = site.asked();
    for _ in 0..50 {
        assert_eq!(controlled(&site, "/d", "no-cache").status, 200);
    }
    assert!(site.asked() - before < 20, "{}", site.asked() - before);
}

#[test]
fn directives_of_clients_are_ignored_where_the_policy_is_silent() {
    let site = Site::with_policy("  defaultTTL: 1h");
    expect(&site.get("/a"), 200, "MISS");
    for value in ["no-cache", "no-store", "max-age=0", "min-fresh=10000000", "only-if-cached"] {
        expect(&controlled(&site, "/a", value), 200, "HIT");
    }
    expect(&controlled(&site, "/b", "only-if-cached"), 200, "MISS");
}

#[test]
fn authorized_requests_share_only_what_the_origin_shares() {
    let site = Site::with_policy("  defaultTTL: 1h\n  authorization: Share");
    let origin = &site.origins[0];
    let get = |url: &str, who: &str| asked_with(&site, url, &[("Authorization", who)]);
    // Silence is no word.
    for who in ["Basic a", "Basic b"] {
        expect(&get("/mine", who), 200, "MISS");
        assert_eq!(origin.last_seen().header("Authorization"), Some(who));
    }
    for (url, control) in [("/1", "public"), ("/2", "s-maxage=60"), ("/3", "max-age=60, must-revalidate")] {
        origin.answer_with(200, &[&format!("Cache-Control: {control}")]);
        expect(&get(url, "Basic a"), 200, "MISS");
        expect(&get(url, "Basic b"), 200, "HIT");
        // Others have objects of their own.
        expect(&site.get(url), 200, "MISS");
        expect(&site.get(url), 200, "HIT");
    }
}

#[test]
fn one_value_of_a_header_is_left_for_the_cache_and_the_origin() {
    let site =
        Site::with_policy("  defaultTTL: 1h\n  normalize: [{header: Accept-Language, values: [en, de]}]");
    let origin = &site.origins[0];
    origin.answer_with(200, &["Vary: Accept-Language"]);
    for (sent, left, cache) in [
        ("de-AT,de;q=0.9,en;q=0.1", Some("de"), "MISS"),
        ("de", Some("de"), "HIT"),
        ("fr, en;q=0.2", Some("en"), "MISS"),
        ("*", Some("en"), "HIT"),
        ("fr", None, "MISS"),
        ("it", None, "HIT"),
    ] {
        expect(&asked_with(&site, "/a", &[("Accept-Language", sent)]), 200, cache);
        if cache == "MISS" {
            assert_eq!(origin.last_seen().header("Accept-Language"), left, "{sent}");
        }
    }
    assert_eq!(site.asked(), 3);
}

#[test]
fn the_origin_says_which_query_parameters_count() {
    let site = Site::with_policy("  defaultTTL: 1h\n  noVarySearch: Obey");
    let origin = &site.origins[0];
    origin.answer_with(200, &["No-Vary-Search: key-order, params=(\"utm\")"]);
    // The first response of a path teaches.
    expect(&site.get("/a?id=1&x=2&utm=1"), 200, "MISS");
    expect(&site.get("/a?id=1&x=2&utm=2"), 200, "MISS");
    for same in ["/a?x=2&id=1", "/a?utm=3&id=1&x=2", "/a?id=1&x=2&utm=1"] {
        expect(&site.get(same), 200, "HIT");
    }
    expect(&site.get("/a?id=2&x=2"), 200, "MISS");
    assert_eq!(Ask::new("POST", HOST, "/a?utm=9&x=2&id=1").body(b"x".to_vec()).send(site.port).status, 200);
    expect(&site.get("/a?id=1&x=2"), 200, "MISS");
    expect(&site.get("/a?id=2&x=2&utm=1"), 200, "HIT");
}

#[test]
fn explain_says_why_a_url_was_a_miss() {
    let site = Site::with_policy("  defaultTTL: 1h");
    let explain = |path: &str| {
        let mut command = Program::command();
        command
            .args(["explain", "--host", HOST, "--path", path, "--state-dir"])
            .arg(site.scene.path("state"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(!explain("/a").contains("last:"), "{}", explain("/a"));
    site.origins[0].answer_with(200, &["Set-Cookie: a=1"]);
    expect(&site.get("/a"), 200, "MISS");
    site.origins[0].answer_with(200, &[]);
    expect(&site.get("/b?x=1"), 200, "MISS");
    expect(&site.get("/b?x=1"), 200, "HIT");
    if site.is_by_front() {
        let why = "nothing that fits was stored, the origin answered 200, ";
        let not = "the answer was not stored: it has Set-Cookie";
        assert!(explain("/a").contains(&format!("{why}{not}")), "{}", explain("/a"));
        assert!(explain("/b?x=1").contains(&format!("{why}the answer was stored")), "{}", explain("/b?x=1"));
    }
    assert!(!explain("/b?x=2").contains("last:"));
}
