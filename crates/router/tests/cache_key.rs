//! Cache keys: the same for requests that a policy calls the same, different for all others, and without an allocation.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

#[path = "support/request.rs"]
mod request;

use router::cache::Key;
use router::{Request, Router};
use serde_json::json;

use crate::request::Sample;

fn router() -> Router {
    let group =
        json!([{"weight": 1, "name": "d/shop:80", "backends": [{"address": "10.0.0.1", "port": 80}]}]);
    let split = json!([
        {"weight": 1, "name": "d/one:80", "backends": [{"address": "10.0.0.1", "port": 80}]},
        {"weight": 1, "name": "d/two:80", "backends": []},
    ]);
    let policy = json!({
        "default_ttl_seconds": 60,
        "cache_key": {"headers": ["X-A", "x-b"], "query_params_exclude": ["utm"]},
        "bypass_headers": [{"name": "cookie", "value_regex": ".*session=.*"}],
    });
    let config = json!({"version": 2, "listeners": [{"name": "web", "socket": "http-80"}], "vhosts": {"a.com": {"routes": [
        {"route_name": "d/keyed", "backend_groups": group, "cache_policy": policy},
        {"route_name": "d/beta", "headers": [{"name": "x-beta", "value": "1"}], "backend_groups": group,
         "cache_policy": policy},
        {"route_name": "d/split", "path_match": {"type": "PathPrefix", "value": "/split"}, "backend_groups": split,
         "cache_policy": {"default_ttl_seconds": 60}},
    ]}}});
    Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router
}

fn key(router: &Router, request: &Sample, random: u64) -> Key {
    let decision = router.decide(request, random);
    let values = |name: &str, seen: &mut dyn FnMut(&[u8])| {
        request.any_header(name, &mut |value| {
            seen(value);
            false
        });
    };
    Key::new(Some(&decision), b"http", request.host(), request.url(), values)
}

fn of(url: &str, headers: &[(&str, &str)]) -> Sample {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sample { headers, ..Sample::get("a.com", url) }
}

#[test]
fn different_requests_have_different_keys() {
    let router = router();
    let requests = [
        of("/", &[]),
        of("/?a=1", &[]),
        of("/?a=2", &[]),
        of("/", &[("x-a", "1")]),
        of("/", &[("x-b", "1")]),
        of("/", &[("x-a", "")]),
        of("/", &[("x-a", "1"), ("x-a", "2")]),
        of("/", &[("x-a", "2"), ("x-a", "1")]),
        of("/", &[("x-a", "1V1:2")]),
        of("/", &[("x-a", "1"), ("x-b", "2")]),
        of("/", &[("x-a", "1N3:x-bV1:2")]),
        of("/", &[("x-beta", "1")]),
        of("/N3:x-a", &[]),
    ];
    let keys: Vec<_> =
        requests.iter().map(|request| key(&router, request, 0).as_bytes().to_owned()).collect();
    for (at, one) in keys.iter().enumerate() {
        for (other, another) in keys.iter().enumerate().skip(at + 1) {
            assert_ne!(one, another, "{:?} and {:?}", requests[at], requests[other]);
        }
    }
    // A group that has lost its endpoints still has its own.
    let split = of("/split", &[]);
    assert_ne!(key(&router, &split, 0).as_bytes(), key(&router, &split, u64::MAX).as_bytes());
    assert!(router.decide(&split, u64::MAX).cache().is_some());
}

#[test]
fn what_does_not_count_is_not_in_the_key() {
    let router = router();
    let same = [("/?a=1&b=2&utm=x", "x-a"), ("/?b=2&a=1", "X-A"), ("/?utm&a=1&b=2&", "x-a")];
    let keys: Vec<_> = same
        .iter()
        .map(|(url, name)| key(&router, &of(url, &[(name, "1"), ("x-c", url)]), 0).as_bytes().to_owned())
        .collect();
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{keys:?}");
}

#[test]
fn to_look_into_the_cache_allocates_nothing() {
    let router = router();
    let request = of("/shop?b=2&utm=mail&a=1", &[("x-a", "de"), ("x-b", "phone"), ("cookie", "theme=dark")]);
    let ask = || {
        let bypassed = router.decide(&request, 0).cache().unwrap().is_bypassed_by(&request);
        (bypassed, key(&router, &request, 0).as_bytes().len())
    };
    let (bypassed, length) = ask();
    assert!(!bypassed && length > 0);
    let allocations = allocation_counter::measure(|| {
        ask();
    });
    assert_eq!(allocations.count_total, 0);
    let in_session = of("/", &[("Cookie", "a=1"), ("cookie", "theme=dark; session=1")]);
    assert!(router.decide(&in_session, 0).cache().unwrap().is_bypassed_by(&in_session));
}
