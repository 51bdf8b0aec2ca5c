//! Small alphabets, so that hosts overlap, paths nearly match and rules tie.

use std::collections::BTreeMap;

use model::Listener;
use model::filters::{Filters, RequestRedirect};
use model::ghost::{Config, Endpoint, Group, Route, Vhost};
use model::matches::{PathMatch, PathMatchType, ValueMatch, ValueMatchType};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::request::Sample;

const HOSTNAMES: [&str; 6] = ["a.com", "*.a.com", "b.a.com", "*.b.a.com", "*", "c.org"];
const SOCKETS: [&str; 2] = ["http-80", "https-443"];
const PATHS: [&str; 9] = ["/", "/", "/a", "/a", "/a/", "/a/b", "/ab", "/a-b", "/a/b/c"];
/// Two of them are no regular expressions; `a)|(b` would be one inside parentheses.
const PATH_PATTERNS: [&str; 8] = ["/a.*", "/a/[a-c]", "/a|/ab", "/(a|ab)/?", ".*", "/a", "/(a", "/a)|(/b"];

pub(crate) fn config() -> impl Strategy<Value = Config> {
    let form = prop_oneof![
        3 => listeners().prop_flat_map(|listeners| {
            let names: Vec<_> = listeners.iter().map(|l| l.name.clone()).collect();
            (Just(listeners), routes(names))
        }),
        1 => (Just(Vec::new()), routes(Vec::new())),
    ];
    form.prop_map(|(listeners, (vhosts, default))| {
        let mut config = Config { listeners, vhosts, default, ..Config::default() };
        number(&mut config);
        config
    })
}

/// No two of one socket and hostname: the Gateway API calls those conflicted, and they never get here.
fn listeners() -> impl Strategy<Value = Vec<Listener>> {
    let hostname = option::weighted(0.6, select(&HOSTNAMES[..4]));
    vec((select(&SOCKETS[..]), hostname), 1..5).prop_map(|mut listeners| {
        listeners.sort_unstable();
        listeners.dedup();
        let named = listeners.into_iter().enumerate().map(|(at, (socket, hostname))| Listener {
            name: format!("l{at}"),
            socket: socket.to_owned(),
            hostname: hostname.map(str::to_owned),
            tls: None,
        });
        named.collect()
    })
}

type Routes = (BTreeMap<String, Vhost>, Option<Route>);

fn routes(listeners: Vec<String>) -> impl Strategy<Value = Routes> {
    let route = route(listeners).boxed();
    let vhost = (vec(route.clone(), 0..10), option::weighted(0.2, route.clone()))
        .prop_map(|(routes, default_route)| Vhost { routes, default_route, ..Vhost::default() });
    (btree_map(select(&HOSTNAMES[..]).prop_map(str::to_owned), vhost, 1..5), option::weighted(0.3, route))
}

prop_compose! {
    fn route(names: Vec<String>)(
        path_match in option::weighted(0.9, path_match()),
        method in option::weighted(0.3, select(&["GET", "POST"][..])),
        headers in conditions(&["x-v", "X-V", "x-w"]),
        query_params in conditions(&["a", "b", "a b"]),
        listeners in listener_sockets(),
        listener_names in listener_names(names),
        redirects in prop::bool::weighted(0.1),
        backends in vec(group(), 0..4),
        route_name in select(&["default/one", "default/two"][..]),
        rule_index in 0u32..3,
    ) -> Route {
        let redirect = Filters { request_redirect: Some(RequestRedirect::default()), ..Filters::default() };
        Route {
            path_match,
            method: method.map(str::to_owned),
            headers,
            query_params,
            filters: redirects.then(|| Box::new(redirect)),
            backends: backends.into(),
            listeners,
            listener_names,
            route_name: route_name.to_owned(),
            rule_index,
            ..Route::default()
        }
    }
}

fn path_match() -> impl Strategy<Value = PathMatch> {
    let plain = prop_oneof![1 => Just(PathMatchType::Exact), 3 => Just(PathMatchType::PathPrefix)];
    let pattern = select(&PATH_PATTERNS[..]).prop_map(|p| (PathMatchType::RegularExpression, p));
    prop_oneof![5 => (plain, select(&PATHS[..])), 1 => pattern]
        .prop_map(|(kind, value)| PathMatch { kind, value: value.to_owned() })
}

fn conditions(names: &'static [&'static str]) -> impl Strategy<Value = Vec<ValueMatch>> {
    let exact = select(&["1", "1", "1", "2", ""][..]).prop_map(|v| (ValueMatchType::Exact, v));
    let pattern =
        select(&["[12]", "1|2", ".*", "1.*", "("][..]).prop_map(|v| (ValueMatchType::RegularExpression, v));
    let condition = (select(names), prop_oneof![9 => exact, 1 => pattern])
        .prop_map(|(name, (kind, value))| ValueMatch { name: name.into(), value: value.into(), kind });
    prop_oneof![3 => Just(Vec::new()), 2 => vec(condition, 1..3)]
}

fn listener_sockets() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![2 => Just(Vec::new()), 1 => vec(select(&SOCKETS[..]).prop_map(str::to_owned), 1..3)]
}

fn listener_names(names: Vec<String>) -> BoxedStrategy<Vec<String>> {
    if names.is_empty() {
        return Just(Vec::new()).boxed();
    }
    prop_oneof![1 => Just(Vec::new()), 2 => vec(select(names), 1..3)].boxed()
}

fn group() -> impl Strategy<Value = Group> {
    let endpoint = (1u8..4).prop_map(|n| Endpoint { address: [10, 0, 0, n].into(), port: 8080 });
    (select(&[0, 1, 1, 9][..]), vec(endpoint, 0..3)).prop_map(|(weight, endpoints)| Group {
        weight,
        endpoints,
        ..Group::default()
    })
}

/// Entries of one rule share route name and index, so the rule's name tells them apart.
fn number(config: &mut Config) {
    let entries = config.vhosts.values_mut().flat_map(|v| v.routes.iter_mut().chain(&mut v.default_route));
    for (at, route) in entries.chain(&mut config.default).enumerate() {
        route.rule_name = Some(format!("entry-{at}"));
    }
}

pub(crate) fn request() -> impl Strategy<Value = Sample> {
    let hosts =
        ["a.com", "A.com:80", "a.com.", "b.a.com", "c.a.com", "x.b.a.com", ".a.com", "aa.com", "c.org", ""];
    let paths =
        ["/", "/a", "/a/", "/a/b", "/ab", "/a-b", "/a/b/c", "/a/b/c", "/a/b/", "/a//b", "/A", "/b", "", "*"];
    let queries = [
        "",
        "",
        "",
        "?",
        "?a=1",
        "?a=2&a=1",
        "?b=1&a=1",
        "?a=1&a+b=1&b=1",
        "?a=1&a+b=1&b=1",
        "?a=1&a+b=1&b=1",
        "?a&b=2",
        "?A=1",
        "?%61=1",
        "?a=%31",
        "?a+b=1",
        "?a=1?b=2",
    ];
    let sockets = ["http-80", "http-80", "https-443", "https-443", "http-8080"];
    let header = (select(&["x-v", "X-v", "x-w"][..]), select(&["1", "1", "1", "2", "3", ""][..]));
    let header = header.prop_map(|(name, value)| (name.to_owned(), value.to_owned()));
    let url = (select(paths.to_vec()), select(queries.to_vec()));
    let method = select(&["GET", "GET", "POST", "PUT", "get"][..]);
    (select(sockets.to_vec()), select(hosts.to_vec()), method, url, vec(header, 0..6)).prop_map(
        |(socket, host, method, (path, query), headers)| Sample {
            socket: socket.to_owned(),
            method: method.to_owned(),
            headers,
            ..Sample::get(host, &format!("{path}{query}"))
        },
    )
}
