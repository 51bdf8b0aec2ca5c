//! Hosts, paths, methods, headers, query parameters, weights.

use std::collections::BTreeMap;

use super::Site;
use crate::support::{Ask, Response, get, route, route_to};

#[test]
fn hosts_match_exactly_then_by_wildcard_then_without() {
    let to = |name: &str, hosts: &str| {
        route(
            name,
            &format!("  hostnames: [{hosts}]\n  rules: [{{backendRefs: [{{name: {name}, port: 80}}]}}]"),
        )
    };
    let routes = [
        to("exact", "shop.example.com"),
        to("wide", "\"*.example.com\""),
        route("any", "  rules: [{backendRefs: [{name: any, port: 80}]}]"),
    ];
    let site = Site::new(&["exact", "wide", "any"], &routes.concat());
    for (host, origin) in [
        ("shop.example.com", "exact"),
        ("SHOP.example.com:8080", "exact"),
        ("blog.example.com", "wide"),
        ("a.b.example.com", "wide"),
        ("example.com", "any"),
        ("127.0.0.1", "any"),
    ] {
        assert_eq!(get(site.port, host, "/").origin(), origin, "{host}");
    }
}

#[test]
fn paths_match_exactly_by_whole_elements_and_by_regular_expression() {
    let routes = route(
        "paths",
        r#"
  rules:
  - {matches: [{path: {type: Exact, value: /a/exact}}], backendRefs: [{name: exact, port: 80}]}
  - {matches: [{path: {type: PathPrefix, value: /a}}], backendRefs: [{name: prefix, port: 80}]}
  - {matches: [{path: {type: RegularExpression, value: "/item/[0-9]+"}}], backendRefs: [{name: regex, port: 80}]}
"#,
    );
    let site = Site::new(&["exact", "prefix", "regex"], &routes);
    for (path, origin) in [
        ("/a/exact", "exact"),
        ("/a/exact?q=1", "exact"),
        ("/a/exact/", "prefix"),
        ("/a", "prefix"),
        ("/a?b", "prefix"),
        ("/a/b/c", "prefix"),
        ("/ab", ""),
        ("/item/42", "regex"),
        ("/item/42/more", ""),
        ("/item/x", ""),
        ("/", ""),
    ] {
        let response = get(site.port, "x", path);
        assert_eq!((response.origin(), response.status == 404), (origin, origin.is_empty()), "{path}");
    }
}

#[test]
fn methods_headers_and_query_parameters_select_the_rule() {
    let routes = route(
        "conditions",
        r#"
  rules:
  - {matches: [{method: DELETE}], backendRefs: [{name: method, port: 80}]}
  - {matches: [{headers: [{name: X-Version, value: two}]}], backendRefs: [{name: header, port: 80}]}
  - {matches: [{headers: [{name: X-Version, type: RegularExpression, value: "3[.][0-9]+"}]}], backendRefs: [{name: regex, port: 80}]}
  - {matches: [{queryParams: [{name: beta, value: "1"}]}], backendRefs: [{name: query, port: 80}]}
  - {backendRefs: [{name: other, port: 80}]}
"#,
    );
    let site = Site::new(&["method", "header", "regex", "query", "other"], &routes);
    let origin = |ask: Ask| ask.send(site.port).origin().to_owned();
    let plain = || Ask::get("x", "/");
    assert_eq!(origin(Ask::new("DELETE", "x", "/")), "method");
    assert_eq!(origin(plain().header("x-version", "two")), "header");
    assert_eq!(origin(plain().header("X-Version", "3.14")), "regex");
    assert_eq!(origin(plain().header("X-Version", "3.x")), "other");
    assert_eq!(origin(Ask::get("x", "/?a=2&beta=1")), "query");
    assert_eq!(origin(Ask::get("x", "/?beta=2")), "other");
    assert_eq!(origin(plain()), "other");
}

#[test]
fn weights_split_requests_and_zero_gets_none() {
    let routes = route(
        "split",
        r"
  rules:
  - backendRefs: [{name: three, port: 80, weight: 3}, {name: one, port: 80}, {name: none, port: 80, weight: 0}]
",
    );
    let site = Site::new(&["three", "one", "none"], &routes);
    let mut counts = BTreeMap::new();
    for _ in 0..600 {
        *counts.entry(get(site.port, "x", "/").origin().to_owned()).or_insert(0) += 1;
    }
    // 450 and 150 are expected; six standard deviations are 64.
    assert!((386..=514).contains(&counts["three"]) && counts.len() == 2, "{counts:?}");
}

#[test]
fn an_invalid_backend_answers_500_for_its_share_only() {
    let routes =
        route("half", "  rules: [{backendRefs: [{name: good, port: 80}, {name: missing, port: 80}]}]");
    let site = Site::new(&["good"], &routes);
    site.program.wait_for_line(&["HTTPRoute default/half", "Service default/missing does not exist"]);
    let statuses: Vec<_> = (0..60).map(|_| get(site.port, "x", "/").status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&500), "{statuses:?}");
    assert!(statuses.iter().all(|s| matches!(s, 200 | 500)), "{statuses:?}");
}

#[test]
fn no_route_is_404_and_no_endpoint_500_both_as_json() {
    let site =
        Site::new(&["good"], &(route_to("good", "/good", "good") + &route_to("lost", "/lost", "lost")));
    let json = |response: &Response| -> serde_json::Value {
        assert_eq!(response.header("Content-Type"), Some("application/json"));
        serde_json::from_slice(&response.body).unwrap()
    };
    let not_found = get(site.port, "x", "/none");
    assert_eq!((not_found.status, &json(&not_found)["status"]), (404, &404.into()));
    let no_backend = get(site.port, "x", "/lost");
    assert_eq!((no_backend.status, &json(&no_backend)["status"]), (500, &500.into()));
    assert_eq!(get(site.port, "x", "/good").status, 200);
}
