//! A decision allocates nothing, whatever it has to look at.

#[path = "support/request.rs"]
mod request;

use model::ghost::Config;
use router::Router;
use serde_json::json;

use crate::request::Sample;

#[test]
fn a_decision_allocates_nothing() {
    let group = json!([
        {"weight": 1, "backends": [{"address": "10.0.0.1", "port": 80}]},
        {"weight": 2, "backends": [{"address": "10.0.0.2", "port": 80}]},
    ]);
    let route = |name: &str, conditions: serde_json::Value| {
        let mut route = json!({"route_name": name, "rule_index": 0, "priority": 0, "backend_groups": group});
        route.as_object_mut().unwrap().extend(conditions.as_object().unwrap().clone());
        route
    };
    let config: Config = serde_json::from_value(json!({
        "version": 2,
        "listeners": [
            {"name": "web", "socket": "http-80"},
            {"name": "shops", "socket": "http-80", "hostname": "*.shop.com"},
        ],
        "vhosts": {
            "a.com": {"routes": [
                route("exact", json!({"path_match": {"type": "Exact", "value": "/exact"}})),
                route("regex", json!({"path_match": {"type": "RegularExpression", "value": "/v[0-9]+/.*"}})),
                route("prefix", json!({"path_match": {"type": "PathPrefix", "value": "/a/b"}})),
                route("method", json!({"path_match": {"type": "PathPrefix", "value": "/m"}, "method": "GET"})),
                route("header", json!({
                    "path_match": {"type": "PathPrefix", "value": "/h"},
                    "headers": [{"name": "x-version", "value": "2"}],
                })),
                route("query", json!({
                    "path_match": {"type": "PathPrefix", "value": "/q"},
                    "query_params": [{"name": "a b", "value": "1 2"}],
                })),
                route("value-regex", json!({
                    "path_match": {"type": "PathPrefix", "value": "/r"},
                    "headers": [{"name": "x-version", "value": "[0-9]+", "type": "RegularExpression"}],
                    "query_params": [{"name": "a", "value": "[a-z]+", "type": "RegularExpression"}],
                })),
            ]},
            "*.b.com": {"routes": [route("wildcard", json!({}))]},
            "*.shop.com": {"routes": [route("shops", json!({}))]},
        },
        "default": route("default", json!({})),
    }))
    .unwrap();
    let router = Router::compile(&config).unwrap().router;

    for (host, url, expected) in [
        ("a.com", "/exact?x=1", Some("exact")),
        ("A.COM:8080", "/a/b/c", Some("prefix")),
        ("a.com", "/m", Some("method")),
        ("a.com", "/h", Some("header")),
        ("a.com", "/q?x=1&a%20b=1+2", Some("query")),
        ("a.com", "/v1/anything", Some("regex")),
        ("a.com", "/r?a=xyz", Some("value-regex")),
        ("x.y.b.com", "/", Some("wildcard")),
        ("x.shop.com", "/a/b/c/d/e/f/g", Some("shops")),
        ("nowhere.org", "/", Some("default")),
        ("a.com", "/nothing", None),
    ] {
        let request = Sample { headers: vec![("X-Version".into(), "2".into())], ..Sample::get(host, url) };
        let decide = || router.decide(&request, router::random::next()).rule().map(|rule| rule.route_name());
        // Regular expressions make a cache for each thread, and threads seed their random numbers, at first use.
        assert_eq!(decide(), expected, "{host}{url}");
        let mut found = None;
        let allocations = allocation_counter::measure(|| found = decide());
        assert_eq!(found, expected);
        assert_eq!(allocations.count_total, 0, "{host}{url}");
    }
}

/// Or the test above says nothing.
#[test]
fn allocations_are_seen() {
    assert_eq!(allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
}
