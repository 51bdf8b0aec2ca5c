//! Where requests go, by example.

#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "these are tests")]

#[path = "examples/listeners.rs"]
mod listeners;
#[path = "support/request.rs"]
mod request;

use std::sync::Arc;

use model::ghost::{Config, Route, Vhost};
use model::matches::{PathMatch, PathMatchType};
use router::{Action, Compiled, Router, Verdict};
use serde_json::{Value, json};

use crate::request::Sample;

fn compile(config: Value) -> Compiled {
    Router::compile(&serde_json::from_value(config).unwrap()).unwrap()
}

/// A router with one host, a.com, of these routes.
fn host(routes: Value) -> Router {
    compile(json!({"version": 2, "vhosts": {"a.com": {"routes": routes}}})).router
}

/// A route with one endpoint, and what else is asked.
fn route(name: &str, more: Value) -> Value {
    let mut route = json!({
        "route_name": name,
        "rule_index": 0,
        "priority": 0,
        "backend_groups": [{"weight": 1, "backends": [{"address": "10.0.0.1", "port": 8080}]}],
    });
    route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    route
}

fn exact(path: &str) -> Value {
    json!({"path_match": {"type": "Exact", "value": path}})
}

fn prefix(path: &str) -> Value {
    json!({"path_match": {"type": "PathPrefix", "value": path}})
}

fn regex(pattern: &str) -> Value {
    json!({"path_match": {"type": "RegularExpression", "value": pattern}})
}

fn and(mut some: Value, more: Value) -> Value {
    some.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    some
}

/// Name of the route that takes the request, or `404`.
fn winner<'r>(router: &'r Router, request: &Sample) -> &'r str {
    let decision = router.decide(request, 0);
    assert_eq!(decision.rule().is_none(), decision.action() == Action::NotFound);
    decision.rule().map_or("404", |rule| rule.route_name())
}

#[test]
fn an_exact_path_goes_before_a_regular_expression_and_that_before_a_prefix() {
    let all = json!([
        route("prefix", prefix("/match")),
        route("regex", regex("/match(/.*)?")),
        route("exact", exact("/match"))
    ]);
    let router = host(all);
    assert_eq!(winner(&router, &Sample::get("a.com", "/match")), "exact");
    assert_eq!(winner(&router, &Sample::get("a.com", "/match/one")), "regex");
    assert_eq!(winner(&router, &Sample::get("a.com", "/other")), "404");
}

#[test]
fn the_longest_path_wins_in_the_conformance_suites_path_match_order() {
    let router = host(json!([
        route("any", prefix("/match")),
        route("exact", exact("/match/exact")),
        route("exact-one", exact("/match/exact/one")),
        route("prefix", prefix("/match/prefix/")),
        route("prefix-one", prefix("/match/prefix/one")),
    ]));
    for (path, expected) in [
        ("/match/exact/one", "exact-one"),
        ("/match/exact", "exact"),
        ("/match/exact/two", "any"),
        ("/match/prefix/one/any", "prefix-one"),
        ("/match/prefix/one", "prefix-one"),
        ("/match/prefix/onemore", "prefix"),
        ("/match/prefix", "prefix"),
        ("/match/prefixed", "any"),
        ("/match", "any"),
        ("/matching", "404"),
    ] {
        assert_eq!(winner(&router, &Sample::get("a.com", path)), expected, "{path}");
    }
}

#[test]
fn a_short_prefix_with_a_method_loses_to_a_longer_prefix() {
    let router = host(json!([
        route("with-method", and(prefix("/foo"), json!({"method": "GET"}))),
        route("longer", prefix("/foo/bar/baz")),
    ]));
    assert_eq!(winner(&router, &Sample::get("a.com", "/foo/bar/baz")), "longer");
    assert_eq!(winner(&router, &Sample::get("a.com", "/foo/bar")), "with-method");
}

#[test]
fn a_method_goes_before_headers_and_headers_before_query_parameters() {
    let value = |name: &str| json!({"name": name, "value": "1"});
    let router = host(json!([
        route("two-params", json!({"query_params": [value("a"), value("b")]})),
        route("one-header", json!({"headers": [value("x")]})),
        route("two-headers", json!({"headers": [value("x"), value("y")]})),
        route("method", json!({"method": "POST"})),
    ]));
    let headers = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), "1".to_owned())).collect();
    let get = Sample::get("a.com", "/?a=1&b=1");
    let one = Sample { headers: headers(&["X"]), ..get.clone() };
    let two = Sample { headers: headers(&["y", "x"]), ..get.clone() };
    let post = Sample { method: "POST".into(), ..two.clone() };
    for (request, expected) in
        [(get, "two-params"), (one, "one-header"), (two, "two-headers"), (post, "method")]
    {
        assert_eq!(winner(&router, &request), expected);
    }
}

#[test]
fn rules_that_are_equal_keep_the_order_of_the_file() {
    let router = host(json!([
        route("older", prefix("/a/")),
        route("younger", prefix("/a")),
        route("youngest", prefix("/a")),
    ]));
    assert_eq!(winner(&router, &Sample::get("a.com", "/a")), "older");
}

/// With so many, some of the missing paths have the hash of one that is there.
#[test]
fn paths_are_compared_and_not_only_their_hashes() {
    let path = |n: u32| PathMatch { kind: PathMatchType::Exact, value: format!("/{n}") };
    let route = |n| Route { path_match: Some(path(n)), rule_index: n, ..Route::default() };
    let there = 0..150_000;
    let vhost = Vhost { routes: there.clone().map(route).collect(), ..Vhost::default() };
    let config = Config { vhosts: [("a.com".to_owned(), vhost)].into(), ..Config::default() };
    let router = Router::compile(&config).unwrap().router;
    for n in 0..450_000 {
        let found = router.decide(&Sample::get("a.com", &format!("/{n}")), 0).rule().map(|r| r.rule_index());
        assert_eq!(found, there.contains(&n).then_some(n));
    }
}

#[test]
fn a_rule_whose_conditions_fail_leaves_the_request_to_the_next_shorter_prefix() {
    let router = host(json!([
        route("all", prefix("/")),
        route("posts", and(prefix("/a/b"), json!({"method": "POST"}))),
    ]));
    assert_eq!(winner(&router, &Sample::get("a.com", "/a/b/c")), "all");
}

#[test]
fn defaults_take_what_no_rule_fits() {
    let router = compile(json!({
        "version": 2,
        "vhosts": {"a.com": {"routes": [route("rule", prefix("/a"))], "default_route": route("of-host", json!({}))}},
        "default": route("of-file", json!({})),
    }))
    .router;
    assert_eq!(winner(&router, &Sample::get("a.com", "/a")), "rule");
    assert_eq!(winner(&router, &Sample::get("a.com", "/b")), "of-host");
    assert_eq!(winner(&router, &Sample::get("b.com", "/a")), "of-file");
}

/// The shares of each action over 100,000 requests, in percent: 500, then each group.
fn shares(groups: Value) -> Vec<f64> {
    let count = groups.as_array().unwrap().len();
    let router = host(json!([route("split", json!({"backend_groups": groups}))]));
    let mut hits = vec![0; count + 1];
    for _ in 0..100_000 {
        match router.decide(&Sample::get("a.com", "/"), router::random::next()).action() {
            Action::Forward { group } => hits[group + 1] += 1,
            Action::NoBackend => hits[0] += 1,
            other => panic!("{other:?}"),
        }
    }
    hits.into_iter().map(|n| f64::from(n) / 1000.0).collect()
}

fn group(weight: u32, endpoints: u32) -> Value {
    let endpoint = |n| json!({"address": format!("10.0.0.{n}"), "port": 8080});
    json!({"weight": weight, "backends": (1..=endpoints).map(endpoint).collect::<Vec<_>>()})
}

fn assert_shares(groups: Value, expected: &[f64]) {
    let found = shares(groups);
    assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1.0), "{found:?} is not {expected:?}");
}

#[test]
fn weights_split_requests_whatever_the_number_of_endpoints() {
    assert_shares(json!([group(90, 1), group(10, 50)]), &[0.0, 90.0, 10.0]);
    assert_shares(json!([group(1, 3), group(2, 2), group(1, 1)]), &[0.0, 25.0, 50.0, 25.0]);
}

#[test]
fn a_group_of_weight_zero_gets_nothing() {
    assert_eq!(shares(json!([group(0, 1), group(7, 1), group(0, 1)])), [0.0, 0.0, 100.0, 0.0]);
}

#[test]
fn without_any_weight_or_group_the_answer_is_500() {
    assert_eq!(shares(json!([group(0, 1), group(0, 1)])), [100.0, 0.0, 0.0]);
    assert_eq!(shares(json!([])), [100.0]);
}

#[test]
fn an_empty_group_answers_500_for_its_share() {
    assert_shares(json!([group(1, 0), group(3, 1)]), &[25.0, 0.0, 75.0]);
    assert_eq!(shares(json!([group(1, 0), group(0, 1)])), [100.0, 0.0, 0.0]);
}

#[test]
fn the_seeds_ghost_json_parses_compiles_and_routes() {
    let text = r#"{
      "version": 2,
      "vhosts": {
        "api.example.com": {
          "routes": [
            {
              "path_match": {"type": "PathPrefix", "value": "/v2"},
              "backend_groups": [
                {
                  "weight": 100,
                  "backends": [
                    {"address": "10.0.0.1", "port": 8080},
                    {"address": "10.0.0.2", "port": 8080}
                  ]
                }
              ],
              "listeners": ["http-80"],
              "route_name": "default/api-v2-route",
              "priority": 10300,
              "rule_index": 0
            }
          ]
        }
      }
    }"#;
    let compiled = Router::compile(&serde_json::from_str(text).unwrap()).unwrap();
    assert!(compiled.problems.is_empty());
    let request = Sample::get("api.example.com", "/v2/users?page=1");
    let decision = compiled.router.decide(&request, 0);
    assert_eq!(decision.action(), Action::Forward { group: 0 });
    let rule = decision.rule().unwrap();
    assert_eq!((rule.route_name(), rule.rule_index()), ("default/api-v2-route", 0));
    let endpoints: Vec<_> = rule.groups()[0].endpoints().iter().map(ToString::to_string).collect();
    assert_eq!(endpoints, ["10.0.0.1:8080", "10.0.0.2:8080"]);
    for missed in [
        Sample::get("api.example.com", "/v20"),
        Sample::get("www.example.com", "/v2"),
        Sample { socket: "https-443".into(), ..request },
    ] {
        assert_eq!(winner(&compiled.router, &missed), "404", "{missed:?}");
    }
}

#[test]
fn a_file_of_a_later_version_is_refused_and_the_message_says_what_to_do() {
    let error = Router::compile(&Config { version: 4, ..Config::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ghost.json has version 4, but this build reads versions 2 to 3 only: \
         run operator, chaperone and ghost of one release"
    );
}

#[test]
fn a_bad_regular_expression_removes_its_own_rule_only() {
    let condition = json!([{"name": "x", "value": "*", "type": "RegularExpression"}]);
    let compiled = compile(json!({"version": 2, "vhosts": {"a.com": {"routes": [
        route("default/bad-path", regex("/(unclosed")),
        route("default/bad-header", and(prefix("/a"), json!({"headers": condition, "rule_index": 2}))),
        route("default/good", prefix("/")),
    ]}}}));
    let problems: Vec<_> = compiled.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "HTTPRoute default/bad-path, rule 0: regular expression `/(unclosed` does not compile: unclosed group",
            "HTTPRoute default/bad-header, rule 2: regular expression `*` does not compile: \
             repetition operator missing expression",
        ]
    );
    assert_eq!(winner(&compiled.router, &Sample::get("a.com", "/a")), "default/good");
}

#[test]
fn the_cache_key_names_the_rule() {
    let key = |router: &Router, socket: &str| {
        let request = Sample { socket: socket.into(), ..Sample::get("a.com", "/") };
        router.decide(&request, 0).cache_key().0.map(str::to_owned)
    };
    let plain = route("plain", prefix("/"));
    let of_80 = route("of-80", and(prefix("/"), json!({"listeners": ["http-80"]})));
    let posts = route("posts", json!({"method": "POST"}));
    let first = key(&host(json!([plain])), "http-80").unwrap();
    assert_eq!(key(&host(json!([plain, posts])), "http-80").unwrap(), first);
    assert!(first.starts_with("plain#"), "{first}");
    let by_socket = host(json!([of_80, plain]));
    assert!(key(&by_socket, "http-80").unwrap().starts_with("of-80#"));
    assert_eq!(key(&by_socket, "http-8080").unwrap(), first);
    // Its position does not count: a rule that is put before it takes none of its objects.
    let second = route("plain", and(prefix("/"), json!({"rule_index": 1})));
    let before = route("plain", and(prefix("/"), json!({"headers": [{"name": "x", "value": "1"}]})));
    assert_eq!(key(&host(json!([before, second])), "http-80").unwrap(), first);
    let one = Sample { headers: vec![("x".into(), "1".into())], ..Sample::get("a.com", "/") };
    let other = host(json!([before, second])).decide(&one, 0).cache_key().0.map(str::to_owned);
    assert_ne!(other.unwrap(), first);
}

#[test]
fn explain_decides_the_same_and_says_why_each_other_rule_lost() {
    let listener = |name: &str, more: Value| and(more, json!({"listener_names": [name]}));
    let headers = json!({"headers": [{"name": "x-version", "value": "2"}]});
    let params = json!({"query_params": [{"name": "beta", "value": "1"}]});
    let router = compile(json!({
        "version": 2,
        "listeners": [{"name": "web", "socket": "http-80"}, {"name": "tls", "socket": "https-443"}],
        "vhosts": {
            "shop.a.com": {
                "routes": [
                    route("older", listener("web", prefix("/cart"))),
                    route("younger", listener("web", prefix("/cart"))),
                    route("shorter", listener("web", prefix("/"))),
                    route("pay", listener("web", prefix("/pay"))),
                    route("home", listener("web", exact("/"))),
                    route("versions", listener("web", regex("/v[0-9]+"))),
                    route("posts", listener("web", json!({"method": "POST"}))),
                    route("header", listener("web", headers)),
                    route("param", listener("web", params)),
                    route("tls-only", listener("tls", prefix("/cart"))),
                ],
                "default_route": route("rest", listener("web", json!({}))),
            },
            "*.a.com": {"routes": [route("wildcard", prefix("/cart"))]},
            "b.com": {"routes": [route("other-host", prefix("/cart"))]},
        },
    }))
    .router;
    let request = Sample::get("shop.a.com", "/cart/1");
    let explained = router.explain(&request, 5);
    let decided = router.decide(&request, 5);
    assert_eq!(explained.decision.rule_id(), decided.rule_id());
    assert_eq!(explained.decision.action(), decided.action());
    assert_eq!(explained.host.as_deref(), Some("shop.a.com"));
    let verdicts: Vec<_> = explained
        .candidates
        .iter()
        .map(|candidate| {
            let verdict = match &candidate.verdict {
                Verdict::Chosen => "chosen".to_owned(),
                Verdict::Outranked(why) => format!("outranked: {why}"),
                Verdict::NoMatch(why) => format!("no match: {why}"),
            };
            format!("{}: {verdict}", candidate.rule.route_name())
        })
        .collect();
    assert_eq!(
        verdicts,
        [
            "home: no match: path `/` is not the path `/cart/1`",
            "versions: no match: path `/v[0-9]+` does not match the whole path `/cart/1`",
            "older: chosen",
            "younger: outranked: the matches are equal, so the older route goes first, then the name in alphabetical order",
            "pay: no match: path `/pay` is not a prefix of whole path elements of `/cart/1`",
            "posts: no match: requires method POST, the request has GET",
            "header: no match: header `x-version` is missing or has another value",
            "param: no match: query parameter `beta` is missing or has another value",
            "shorter: outranked: the longer prefix goes first",
            "wildcard: no match: hostname `*.a.com`: the request belongs to `shop.a.com`, which is closer",
            "other-host: no match: hostname `b.com` is not the request's",
            "tls-only: no match: it is attached to another listener",
            "rest: outranked: the default is for requests that no rule of the host fits",
        ]
    );
}

#[test]
fn explain_says_when_no_listener_or_another_one_takes_the_host() {
    let router = compile(json!({
        "version": 2,
        "listeners": [
            {"name": "web", "socket": "http-80"},
            {"name": "tls", "socket": "https-443", "hostname": "a.com"},
        ],
        "vhosts": {"a.com": {"routes": [route("tls-only", json!({"listener_names": ["tls"]}))]}},
    }))
    .router;
    let verdict = |request: &Sample| match &router.explain(request, 0).candidates[0].verdict {
        Verdict::NoMatch(why) => why.clone(),
        other => panic!("{other:?}"),
    };
    let http = Sample::get("a.com", "/");
    assert_eq!(verdict(&http), "it is attached to another listener");
    let other_host = Sample { socket: "https-443".into(), ..Sample::get("b.com", "/") };
    assert_eq!(verdict(&other_host), "no listener takes this socket and host");
}

#[test]
fn a_host_may_have_the_routes_of_another() {
    let router = compile(json!({"version": 2, "vhosts": {
        "a.com": {"routes": [route("one", and(prefix("/x"), json!({"kind": "Ingress"})))]},
        "b.com": {"same_as": "a.com"},
        "*.c.com": {"same_as": "a.com"},
        "d.com": {"same_as": "nobody.com"},
    }}))
    .router;
    assert_eq!(router.rules().len(), 1);
    for (host, expected) in
        [("a.com", "one"), ("b.com", "one"), ("x.c.com", "one"), ("x.y.c.com", "404"), ("d.com", "404")]
    {
        assert_eq!(winner(&router, &Sample::get(host, "/x/1")), expected, "{host}");
        assert_eq!(winner(&router, &Sample::get(host, "/y")), "404", "{host}");
    }
}

#[test]
fn an_ingress_differs_from_a_route_in_its_wildcard_its_default_and_what_no_endpoints_are() {
    let ingress = |name: &str, more: Value| route(name, and(more, json!({"kind": "Ingress"})));
    let router = compile(json!({"version": 2, "default": ingress("default", json!({})), "vhosts": {
        "*.a.com": {"routes": [route("wide", prefix("/wide")), ingress("narrow", prefix("/narrow"))]},
        "empty.com": {"routes": [ingress("empty", json!({"backend_groups": [{"weight": 1, "backends": []}]}))]},
    }}))
    .router;
    for (host, path, expected) in [
        ("x.a.com", "/narrow", "narrow"),
        ("x.a.com", "/wide", "wide"),
        ("x.a.com", "/other", "default"),
        ("x.y.a.com", "/wide", "wide"),
        ("x.y.a.com", "/narrow", "404"),
        ("unknown.com", "/", "default"),
    ] {
        assert_eq!(winner(&router, &Sample::get(host, path)), expected, "{host}{path}");
    }
    assert_eq!(router.decide(&Sample::get("empty.com", "/"), 0).action(), Action::Unavailable);
}

#[test]
fn names_with_certificates_count_over_a_base_as_in_one_file() {
    let config = |hosts: Value, removed: Value, base: Option<&str>, vhosts: &[&str]| -> Config {
        let routes = |name: &&str| ((*name).to_owned(), json!({"routes": [route(name, json!({}))]}));
        let vhosts: serde_json::Map<String, Value> = vhosts.iter().map(routes).collect();
        let tls = json!({"certificates": ["n/all"], "hosts": hosts, "removed": removed});
        let listeners = json!([
            {"name": "https", "socket": "https-443", "hostname": "*.com", "tls": tls},
            {"name": "other", "socket": "https-443"},
        ]);
        serde_json::from_value(json!({"version": 2, "listeners": listeners, "vhosts": vhosts, "base": base}))
            .unwrap()
    };
    let all = ["a.com", "b.com", "c.com", "d.com", "x.e.com"];
    let base = config(
        json!({"a.com": ["n/1"], "b.com": ["n/1"], "c.com": ["n/2"], "*.e.com": ["n/3"], "x.e.com": ["n/2"]}),
        json!([]),
        None,
        &all,
    );
    let head = config(
        json!({"b.com": ["n/4"], "d.com": ["n/2"], "new.com": ["n/1"]}),
        json!(["c.com", "x.e.com"]),
        Some("base"),
        &["new.com"],
    );
    let below = Arc::new(Router::compile(&base).unwrap().router);
    let layered = Router::compile_over(&head, &below).unwrap().unwrap().router;
    let whole = Router::compile(&head.over(base)).unwrap().router;
    let names = ["a.com", "b.com", "c.com", "d.com", "x.e.com", "y.e.com", "new.com", "none.com", "z.org"];
    for server_name in names {
        for host in names {
            let server_name = Some(server_name.to_owned());
            let request = Sample { socket: "https-443".into(), server_name, ..Sample::get(host, "/") };
            let (found, expected) = (layered.decide(&request, 0), whole.decide(&request, 0));
            assert_eq!(found.action(), expected.action(), "{request:?}");
            assert_eq!(found.rule().map(|r| r.route_name()), expected.rule().map(|r| r.route_name()));
        }
    }
    // What cannot be told by exact names is compiled as one.
    for (hosts, removed) in [
        (json!({"*.f.com": ["n/1"]}), json!([])),
        (json!({}), json!(["*.e.com"])),
        (json!({}), json!(["a.com", "b.com", "c.com", "*.e.com", "x.e.com"])),
    ] {
        let head = config(hosts, removed, Some("base"), &[]);
        assert!(Router::compile_over(&head, &below).unwrap().is_none());
    }
}
