//! Cache keys: the same for requests that a policy calls the same, different for all others, and without an allocation.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

#[path = "support/request.rs"]
mod request;

use proptest::prelude::*;
use router::cache::{Answer, Key, no_vary_search};
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
        {"route_name": "d/shared", "path_match": {"type": "PathPrefix", "value": "/shared"}, "backend_groups": group,
         "cache_policy": {"default_ttl_seconds": 60, "share_authorized": true}},
        {"route_name": "d/query", "path_match": {"type": "PathPrefix", "value": "/query"}, "backend_groups": group,
         "cache_policy": {"default_ttl_seconds": 60, "keep_queries": true}},
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
    Key::new(Some(&decision), b"http", request.host(), request.url(), None, values)
}

fn of(url: &str, headers: &[(&str, &str)]) -> Sample {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sample { headers, ..Sample::get("a.com", url) }
}

#[test]
fn rules_invalidate_for_others_of_their_hostname_and_namespace() {
    let group = json!([{"weight": 1, "name": "d/a:80", "backends": [{"address": "10.0.0.1", "port": 80}]}]);
    let keeps = json!({"default_ttl_seconds": 60});
    let ignores = json!({"default_ttl_seconds": 60, "ignore_unsafe_methods": true});
    let rule = |name: &str, kind: &str, method: &str, policy: &serde_json::Value| json!({"route_name": name, "kind": kind, "method": method, "backend_groups": group, "cache_policy": policy});
    let none = json!(null);
    let config = json!({"version": 2, "listeners": [{"name": "web", "socket": "http-80"}], "vhosts": {
        "a.com": {"routes": [rule("d/get", "HTTPRoute", "GET", &keeps), rule("d/post", "HTTPRoute", "POST", &none),
            rule("d/off", "HTTPRoute", "PUT", &ignores), rule("e/other", "HTTPRoute", "PATCH", &none),
            rule("d/call", "GRPCRoute", "DELETE", &none)]},
        "b.com": {"routes": [rule("d/get", "HTTPRoute", "GET", &ignores), rule("d/post", "HTTPRoute", "POST", &none)]}},
        "default": rule("d/default", "Ingress", "DELETE", &keeps)});
    let router = Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router;
    let invalidates = |host: &str, method: &str| {
        let request = Sample { method: method.to_owned(), ..Sample::get(host, "/") };
        router.decide(&request, 0).rule().unwrap().invalidates_on_unsafe()
    };
    assert!(invalidates("a.com", "GET") && invalidates("a.com", "POST"));
    assert!(!invalidates("a.com", "PUT"), "its own policy says so");
    assert!(!invalidates("a.com", "PATCH"), "of another namespace");
    assert!(!invalidates("a.com", "DELETE"), "gRPC");
    assert!(!invalidates("b.com", "POST"));
    assert!(invalidates("c.com", "DELETE"), "the default backend of an Ingress");
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
    let hashes: Vec<u64> = requests.iter().map(|request| key(&router, request, 0).hash64()).collect();
    let again: Vec<u64> = requests.iter().map(|request| key(&router, request, 0).hash64()).collect();
    assert_eq!(hashes, again);
    let distinct: std::collections::HashSet<&u64> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len());
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
fn who_is_authorized_is_not_in_the_key_but_that_somebody_is() {
    let router = router();
    let shared = |headers| key(&router, &of("/shared", headers), 0).as_bytes().to_owned();
    assert_eq!(shared(&[("authorization", "a")]), shared(&[("Authorization", "b")]));
    assert_ne!(shared(&[("authorization", "a")]), shared(&[]));
    let asks = |url, headers| router.decide(&of(url, headers), 0).asks_cache(&of(url, headers), false);
    assert!(asks("/shared", &[("authorization", "a")]));
    assert!(!asks("/", &[("authorization", "a")]));
}

#[test]
fn what_an_origin_has_said_of_a_query_is_a_key_of_its_own() {
    struct Said(&'static str);
    impl Answer for Said {
        fn status(&self) -> u16 {
            200
        }
        fn any_header<'s>(&'s self, name: &str, seen: &mut dyn FnMut(&'s [u8]) -> bool) -> bool {
            name.eq_ignore_ascii_case("No-Vary-Search") && seen(self.0.as_bytes())
        }
        fn now(&self) -> f64 {
            0.0
        }
        fn waited(&self) -> f64 {
            0.0
        }
    }
    let router = router();
    let parameters = no_vary_search(&Said("params=(\"utm\")")).unwrap();
    let learned = |url: &str, id: u64| {
        let request = of(url, &[]);
        let decision = router.decide(&request, 0);
        let key =
            Key::new(Some(&decision), b"http", b"a.com", url.as_bytes(), Some((&parameters, id)), |_, _| {});
        key.as_bytes().to_owned()
    };
    assert_eq!(learned("/split?a=1&utm=1", 7), learned("/split?utm=2&a=1", 7));
    assert_ne!(learned("/split?a=1", 7), learned("/split?a=1", 8));
    assert_ne!(learned("/split?a=1", 7), learned("/split?a=2", 7));
    assert_ne!(learned("/split?a=1", 7), key(&router, &of("/split?a=1", &[]), 0).as_bytes());
    // A key is a C string.
    assert!(learned("/split?a=1", 0x0100).iter().all(|byte| *byte != 0));
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

/// Two backendRefs may lead to one Service by other filters: it sees other requests, and answers otherwise.
#[test]
fn groups_of_one_service_are_told_apart_by_their_filters() {
    let group = |filters: serde_json::Value| {
        let endpoint = json!({"address": "10.0.0.1", "port": 80});
        json!({"weight": 1, "name": "d/shop:80", "backends": [endpoint], "filters": filters})
    };
    let set = |value: &str| json!({"request_header_modifier": {"set": [{"name": "x-kind", "value": value}]}});
    let keys = |groups: serde_json::Value| {
        let config = json!({"version": 2, "listeners": [{"name": "web", "socket": "http-80"}], "vhosts": {"a.com": {"routes": [
            {"route_name": "d/all", "backend_groups": groups, "cache_policy": {"default_ttl_seconds": 60}}]}}});
        let router = Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router;
        let keys: std::collections::BTreeSet<Vec<u8>> = (0..64)
            .map(|at| key(&router, &of("/", &[]), at * (u64::MAX / 64)).as_bytes().to_owned())
            .collect();
        assert!(keys.iter().all(|key| !key.contains(&0)), "varnishd reads a key up to a zero byte");
        keys
    };
    assert_eq!(keys(json!([group(set("1")), group(set("2")), group(json!(null))])).len(), 3);
    // Those that ask alike share.
    assert_eq!(keys(json!([group(set("1")), group(set("1"))])).len(), 1);
    // Whichever comes first.
    let (one, other) = (json!([group(set("1")), group(set("2"))]), json!([group(set("2")), group(set("1"))]));
    assert_eq!(keys(one), keys(other));
}

/// Origins see listener and port of a request: what one listener's clients get is not for those of another.
#[test]
fn listeners_share_no_objects() {
    let group =
        json!([{"weight": 1, "name": "d/shop:80", "backends": [{"address": "10.0.0.1", "port": 80}]}]);
    let config = json!({"version": 2,
        "listeners": [{"name": "web", "socket": "http-80"}, {"name": "internal", "socket": "http-8080"}, {"name": "tls", "socket": "https-443"}],
        "vhosts": {"a.com": {"routes": [
            {"route_name": "d/all", "backend_groups": group, "cache_policy": {"default_ttl_seconds": 60}}]}}});
    let router = Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router;
    let key = |socket: &str, scheme: &str| {
        let request = Sample { socket: socket.to_owned(), ..of("/", &[]) };
        let decision = router.decide(&request, 0);
        assert!(decision.cache().is_some(), "{socket}");
        Key::new(Some(&decision), scheme.as_bytes(), b"a.com", b"/", None, |_, _| ()).as_bytes().to_owned()
    };
    // A trusted proxy may have ended TLS.
    let all = [
        ("http-80", "http"),
        ("http-8080", "http"),
        ("http-80", "https"),
        ("http-8080", "https"),
        ("https-443", "https"),
    ];
    let keys: std::collections::BTreeSet<_> =
        all.iter().map(|(socket, scheme)| key(socket, scheme)).collect();
    assert_eq!(keys.len(), all.len());
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

/// One rule of a route of its own: what it matches, how many groups it has, and which headers and parameters count.
fn rule(at: usize) -> impl Strategy<Value = serde_json::Value> {
    let method = prop_oneof![Just(None), Just(Some("GET")), Just(Some("HEAD"))];
    let path = prop_oneof![Just("/"), Just("/a"), Just("/a/b")];
    let header = proptest::option::of(prop_oneof![Just("1"), Just("2")]);
    let key_headers = proptest::sample::subsequence(vec!["x-a", "x-b", "x-route"], 0..=3);
    let parameters = prop_oneof![
        Just(json!({})),
        Just(json!({"query_params_exclude": ["p"]})),
        Just(json!({"query_params_include": ["q"]}))
    ];
    (method, path, header, 1..4_usize, key_headers, parameters).prop_map(move |(method, path, header, groups, headers, parameters)| {
        let group = |n: usize| json!({"weight": 1, "name": format!("d/{n}:80"), "backends": [{"address": "10.0.0.1", "port": 80 + n}]});
        let mut key = parameters;
        key["headers"] = json!(headers);
        let mut rule = json!({
            "route_name": format!("d/r{at}"), "path_match": {"type": "PathPrefix", "value": path},
            "backend_groups": (0..groups).map(group).collect::<Vec<_>>(),
            "cache_policy": {"default_ttl_seconds": 60, "cache_key": key},
        });
        if let Some(method) = method {
            rule["method"] = json!(method);
        }
        if let Some(value) = header {
            rule["headers"] = json!([{"name": "x-route", "value": value}]);
        }
        rule
    })
}

fn rules() -> impl Strategy<Value = Vec<serde_json::Value>> {
    (1..6_usize).prop_flat_map(|n| (0..n).map(rule).collect::<Vec<_>>())
}

fn any_request() -> impl Strategy<Value = (Sample, u64)> {
    let word = |all: &'static [&'static str]| proptest::sample::select(all);
    let header = (word(&["x-a", "X-B", "x-route", "x-c"]), word(&["", "1", "2", "1V1:2"]));
    let headers = proptest::collection::vec(header, 0..4);
    let query = proptest::collection::vec(word(&["p=1", "p=2", "q=1", "q=2", "r=1", "q"]), 0..4);
    (
        word(&["a.com", "a.com:80"]),
        word(&["GET", "HEAD"]),
        word(&["/", "/a", "/a/b", "/ab"]),
        query,
        headers,
        any::<u64>(),
    )
        .prop_map(|(host, method, path, query, headers, random)| {
            let url = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
            let headers =
                headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            (Sample { method: method.into(), headers, ..Sample::get(host, &url) }, random)
        })
}

/// All that tells two answers apart, written down slowly.
fn facts(router: &Router, rules: &[serde_json::Value], request: &Sample, random: u64) -> Option<String> {
    let decision = router.decide(request, random);
    let route = decision.rule()?.route_name().to_owned();
    let rule = rules.iter().find(|rule| rule["route_name"] == json!(route)).unwrap();
    let key = &rule["cache_policy"]["cache_key"];
    let names = |of: &str| {
        key[of].as_array().map(|all| all.iter().map(|n| n.as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let values = |name: &String| -> Vec<String> {
        request
            .headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.clone())
            .collect()
    };
    let headers: Vec<_> = names("headers").unwrap_or_default().iter().map(values).collect();
    let (path, query) = request.url.split_once('?').unwrap_or((&request.url, ""));
    let mut pairs: Vec<(String, String)> =
        query.split('&').map(|pair| (pair.split('=').next().unwrap().to_owned(), pair.to_owned())).collect();
    if let Some(include) = names("query_params_include") {
        pairs.retain(|(name, _)| include.contains(name));
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
    } else if let Some(exclude) = names("query_params_exclude") {
        // Of one that comes twice it is unknown which counts.
        let all = pairs.clone();
        let once = |name: &String| all.iter().filter(|(other, _)| other == name).count() == 1;
        pairs.retain(|(name, _)| !(name.is_empty() || exclude.contains(name) && once(name)));
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let group = rule["backend_groups"].as_array().filter(|all| all.len() > 1).map(|_| decision.group());
    Some(format!("{route:?} {group:?} {:?} {path:?} {pairs:?} {headers:?}", request.host))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn requests_share_an_object_only_where_rule_group_headers_and_url_are_the_same(
        rules in rules(), one in any_request(), other in any_request(), same_url in any::<bool>()
    ) {
        let config = json!({"version": 2, "listeners": [{"name": "web", "socket": "http-80"}], "vhosts": {"*": {"routes": rules}}});
        let router = Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router;
        let mut other = other;
        if same_url {
            (other.0.url, other.0.host) = (one.0.url.clone(), one.0.host.clone());
        }
        let of = |(request, random): &(Sample, u64)| {
            Some((facts(&router, &rules, request, *random)?, key(&router, request, *random).as_bytes().to_vec()))
        };
        if let (Some((facts, key)), Some((others, others_key))) = (of(&one), of(&other)) {
            prop_assert_eq!(facts == others, key == others_key, "{}\n{}", facts, others);
        }
    }
}

#[test]
fn contents_and_what_is_said_of_them_tell_keys_apart() {
    let router = router();
    let key = |content: Option<u8>, headers: &[(&str, &str)]| {
        let request = of("/query", headers);
        let values = |name: &str, seen: &mut dyn FnMut(&[u8])| {
            request.any_header(name, &mut |value| {
                seen(value);
                false
            });
        };
        let mut key = key(&router, &request, 0);
        if let Some(content) = content {
            key.content(&[content; 32], values);
        }
        key.as_bytes().to_owned()
    };
    let keys = [
        key(None, &[]),
        key(Some(0), &[]),
        key(Some(1), &[]),
        key(Some(1), &[("content-type", "a")]),
        key(Some(1), &[("content-type", "b")]),
        key(Some(1), &[("content-encoding", "a")]),
        key(Some(1), &[("content-language", "a")]),
        key(Some(1), &[("content-type", "a"), ("content-type", "b")]),
        key(Some(1), &[("content-type", "a"), ("content-encoding", "b")]),
    ];
    for (at, one) in keys.iter().enumerate() {
        assert!(!one.contains(&0), "a key is a C string");
        assert!(keys.iter().skip(at + 1).all(|other| one != other), "{at}");
    }
    assert_eq!(key(Some(1), &[("content-type", "a")]), key(Some(1), &[("content-type", "a"), ("x-a", "1")]));
}

#[test]
fn queries_ask_the_cache_where_the_policy_says_so_and_their_content_is_short() {
    let router = router();
    let asks = |url: &str, method: &str, length: &str, has_body: bool| {
        let request = Sample { method: method.to_owned(), ..of(url, &[("content-length", length)]) };
        router.decide(&request, 0).asks_cache(&request, has_body)
    };
    assert!(asks("/query", "QUERY", "3", true));
    for (url, method, length, has_body) in [
        ("/", "QUERY", "3", true),
        ("/query", "POST", "3", true),
        ("/query", "GET", "3", true),
        ("/query", "QUERY", "65537", true),
        ("/query", "QUERY", "0", false),
        ("/query", "QUERY", "3", false),
    ] {
        assert!(!asks(url, method, length, has_body), "{url} {method} {length}");
    }
}
