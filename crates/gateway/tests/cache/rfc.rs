//! What the RFCs of caching say, from the client to a real origin. All cases: docs/reference/caching-conformance.md.

use std::thread::sleep;
use std::time::Duration;

use super::{HOST, Site, expect};
use crate::support::{Ask, Response, cache_policy, route, route_to, until};

fn asked_with(site: &Site, url: &str, headers: &[(&str, &str)]) -> Response {
    let ask = headers.iter().fold(Ask::get(HOST, url), |ask, (name, value)| ask.header(name, value));
    ask.send(site.port)
}

#[test]
fn what_is_stale_at_once_is_validated_on_each_use() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origins[0].answer_with(200, &["Cache-Control: no-cache", "ETag: \"1\"", "X-Part: first"]);
    expect(&site.get("/a"), 200, "MISS");
    site.origins[0].answer_with(304, &["Cache-Control: no-cache", "ETag: \"1\"", "X-Part: second"]);
    let response = site.get("/a");
    assert_eq!((response.status, response.text().as_str()), (200, "shop"));
    assert_eq!(response.header("X-Part"), Some("second"));
    assert_eq!(response.header("Cache-Status"), Some("varnish-gateway; fwd=stale; fwd-status=304; stored"));
    assert_eq!(site.origins[0].last_seen().header("If-None-Match"), Some("\"1\""));
    // Neither a failure nor a closed connection is covered by it.
    for status in [503, 0] {
        site.origins[0].answer_with(status, &[]);
        assert_eq!(site.get("/a").status, 503, "{status}");
    }
}

#[test]
fn conditions_of_clients_are_answered_by_the_cache() {
    let site = Site::with_policy("  defaultTTL: 1h");
    let modified = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    site.origins[0].answer_with(200, &["ETag: \"a,b\"", modified]);
    expect(&site.get("/a"), 200, "MISS");
    let status = |headers: &[(&str, &str)]| asked_with(&site, "/a", headers).status;
    assert_eq!(status(&[("If-None-Match", "\"x\", W/\"a,b\"")]), 304);
    assert_eq!(status(&[("If-None-Match", "*")]), 304);
    assert_eq!(
        status(&[("If-None-Match", "\"x\""), ("If-Modified-Since", "Mon, 06 Nov 1995 08:49:37 GMT")]),
        200
    );
    assert_eq!(status(&[("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT")]), 304);
    let part = asked_with(&site, "/a", &[("Range", "bytes=1-2"), ("If-Range", "\"a,b\"")]);
    assert_eq!((part.status, part.text().as_str()), (206, "ho"));
    assert_eq!(status(&[("Range", "bytes=1-2"), ("If-Range", "\"other\"")]), 200);
    assert_eq!(site.asked(), 1);
}

#[test]
fn origins_say_how_old_and_how_stale_a_response_may_be() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origins[0].answer_with(200, &["Cache-Control: max-age=3600", "Age: 30, 7200"]);
    expect(&site.get("/aged"), 200, "MISS");
    let age: u64 = site.get("/aged").header("Age").unwrap().parse().unwrap();
    assert!((30..60).contains(&age), "{age}");
    site.origins[0].answer_with(200, &["Cache-Control: max-age=3600", "Age: 7200;a=b"]);
    expect(&site.get("/odd"), 200, "MISS");
    expect(&site.get("/odd"), 200, "HIT");
    site.origins[0].answer_with(200, &["Cache-Control: max-age=1, stale-while-revalidate=600"]);
    expect(&site.get("/stale"), 200, "MISS");
    sleep(Duration::from_millis(1300));
    expect(&site.get("/stale"), 200, "STALE");
    until("it was refreshed", || {
        site.origins[0].seen().iter().filter(|seen| seen.url == "/stale").count() == 2
    });
    site.origins[0].answer_with(200, &["Cache-Control: s-maxage=1", "ETag: \"1\""]);
    expect(&site.get("/shared"), 200, "MISS");
    sleep(Duration::from_millis(1300));
    site.origins[0].answer_with(0, &[]);
    assert_eq!(site.get("/shared").status, 503);
}

#[test]
fn what_must_be_validated_is_never_served_stale() {
    let site = Site::with_policy("  defaultTTL: 1h");
    let controls = ["must-revalidate", "proxy-revalidate", "no-cache"];
    for control in controls {
        let line = format!("Cache-Control: max-age=1, {control}, stale-if-error=600");
        site.origins[0].answer_with(200, &[line.as_str(), "ETag: \"1\""]);
        expect(&site.get(&format!("/{control}")), 200, "MISS");
    }
    sleep(Duration::from_millis(1300));
    // A closed connection, and a failure.
    for (status, answer) in [(0, 503), (500, 500)] {
        site.origins[0].answer_with(status, &[]);
        for control in controls {
            let response = site.get(&format!("/{control}"));
            assert_eq!(response.status, answer, "{control}");
            assert!(!response.header("Cache-Status").unwrap().contains("stored"), "{response:?}");
        }
    }
}

#[test]
fn a_stale_response_takes_the_place_of_a_failure_where_the_origin_says_so() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origins[0].answer_with(200, &["Cache-Control: max-age=1, stale-if-error=600"]);
    expect(&site.get("/fresh"), 200, "MISS");
    site.origins[0].answer_with(200, &["Cache-Control: max-age=0, stale-if-error=600"]);
    expect(&site.get("/never-fresh"), 200, "MISS");
    sleep(Duration::from_millis(1300));
    for status in [500, 0] {
        site.origins[0].answer_with(status, &[]);
        expect(&site.get("/fresh"), 200, "STALE");
        expect(&site.get("/never-fresh"), 200, "STALE");
    }
    // While it is refreshed.
    site.origins[0].answer_with(200, &["Cache-Control: max-age=0, stale-while-revalidate=600"]);
    expect(&site.get("/refreshed"), 200, "MISS");
    expect(&site.get("/refreshed"), 200, "STALE");
    until("it was refreshed", || {
        site.origins[0].seen().iter().filter(|seen| seen.url == "/refreshed").count() == 2
    });
}

#[test]
fn freshness_by_last_change_where_the_policy_says_so() {
    let site = Site::with_policy("  defaultTTL: 1s\n  heuristic: {fraction: \"0.1\", max: 1h}");
    site.origins[0].answer_with(200, &["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"]);
    expect(&site.get("/old"), 200, "MISS");
    site.origins[0].answer_with(200, &[]);
    expect(&site.get("/unknown"), 200, "MISS");
    sleep(Duration::from_millis(1300));
    expect(&site.get("/old"), 200, "HIT");
    expect(&site.get("/unknown"), 200, "MISS");
}

#[test]
fn repeated_lines_are_one_value_of_a_variant() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origins[0].answer_with(200, &["Vary: Foo"]);
    expect(&asked_with(&site, "/a", &[("Foo", "1"), ("Foo", "2")]), 200, "MISS");
    expect(&asked_with(&site, "/a", &[("Foo", "1")]), 200, "MISS");
    expect(&asked_with(&site, "/a", &[("Foo", "1, 2")]), 200, "HIT");
    expect(&asked_with(&site, "/a", &[("Foo", "1"), ("Foo", "2")]), 200, "HIT");
}

#[test]
fn fields_about_a_connection_or_the_content_are_not_mixed() {
    let site = Site::with_policy("  defaultTTL: 1h");
    let hops = ["Connection: X-Hop", "X-Hop: 1", "Proxy-Authentication-Info: a", "X-End: 1"];
    site.origins[0].answer_with(200, &hops);
    for cache in ["MISS", "HIT"] {
        let response = site.get("/hops");
        expect(&response, 200, cache);
        for (name, value) in [("X-Hop", None), ("Proxy-Authentication-Info", None), ("X-End", Some("1"))] {
            assert_eq!(response.header(name), value, "{name}");
        }
    }
    // A 200 is whole, whatever its Content-Range says; and a 304 does not change what the content is.
    let first =
        ["Cache-Control: max-age=1", "ETag: \"1\"", "Content-Range: bytes 0-1/9", "Content-Type: text/a"];
    site.origins[0].answer_with(200, &first);
    assert_eq!(site.get("/content").text(), "shop");
    sleep(Duration::from_millis(1300));
    let not_modified = ["Cache-Control: max-age=60", "ETag: \"1\"", "Content-Range: bytes 5-6/9", "X-New: 1"];
    site.origins[0].answer_with(304, &not_modified);
    for _ in 0..2 {
        let response = site.get("/content");
        assert_eq!((response.status, response.text().as_str()), (200, "shop"));
        assert_eq!(response.header("Content-Range"), Some("bytes 0-1/9"));
        assert_eq!((response.header("X-New"), response.header("Content-Type")), (Some("1"), Some("text/a")));
    }
    assert_eq!(site.asked(), 3);
}

#[test]
fn a_write_by_a_rule_without_a_policy_counts_for_the_others_of_its_hostname() {
    let form = route(
        "form",
        "  rules: [{matches: [{path: {value: /form}, method: POST}], backendRefs: [{name: shop, port: 80}]}]",
    );
    let policy = cache_policy("shop", "shop", "  defaultTTL: 1h");
    let site = Site::new(&["shop"], &[route_to("shop", "/", "shop"), form, policy].concat());
    for url in ["/form", "/form/other"] {
        expect(&site.get(url), 200, "MISS");
        expect(&site.get(url), 200, "HIT");
    }
    assert_eq!(Ask::new("POST", HOST, "/form").body(b"x".to_vec()).send(site.port).status, 200);
    expect(&site.get("/form"), 200, "MISS");
    expect(&site.get("/form/other"), 200, "HIT");
}

#[test]
fn targeted_fields_parts_and_fields_of_one_client() {
    let site = Site::with_policy("  defaultTTL: 1h\n  cacheControlTargets: [Shop-Cache-Control]");
    site.origins[0].answer_with(200, &["Shop-Cache-Control: max-age=60", "Cache-Control: no-store"]);
    expect(&site.get("/kept"), 200, "MISS");
    let kept = site.get("/kept");
    expect(&kept, 200, "HIT");
    assert_eq!(kept.header("Shop-Cache-Control"), None);
    let mine = ["Cache-Control: max-age=60, private=\"X-Mine\"", "X-Mine: 1", "X-All: 2"];
    site.origins[0].answer_with(200, &mine);
    assert_eq!(site.get("/mine").header("X-Mine"), Some("1"));
    let second = site.get("/mine");
    expect(&second, 200, "HIT");
    assert_eq!((second.header("X-Mine"), second.header("X-All")), (None, Some("2")));
    // A part that the client did not ask for.
    site.origins[0].answer_with(206, &["Content-Range: bytes 0-3/10", "Cache-Control: max-age=60"]);
    for _ in 0..2 {
        let part = site.get("/part");
        expect(&part, 206, "MISS");
        assert_eq!((part.header("Content-Range"), part.text().as_str()), (Some("bytes 0-3/10"), "shop"));
    }
}
