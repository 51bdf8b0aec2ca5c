//! Query parameters in cache keys: for every parser of queries at the origin, two URLs with one key say the same.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use router::Router;
use router::cache::Cache;
use serde_json::json;

/// How an origin reads a query: names in the order in which they come.
type Parser = fn(&str) -> Vec<(String, String)>;

fn decode(text: &str) -> String {
    let (mut out, bytes) = (Vec::new(), text.as_bytes());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], escaped) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn split(query: &str, at: &[char], name: fn(&str) -> String) -> Vec<(String, String)> {
    let pairs = query.split(at).filter(|pair| !pair.is_empty());
    let parts = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    parts.map(|(left, value)| (name(left), decode(value))).collect()
}

/// The URL standard.
fn ampersands(query: &str) -> Vec<(String, String)> {
    split(query, &['&'], decode)
}

/// Rack 2, Python before 3.10, Perl's CGI.
fn semicolons(query: &str) -> Vec<(String, String)> {
    split(query, &['&', ';'], decode)
}

/// An origin that decodes first.
fn decoded_first(query: &str) -> Vec<(String, String)> {
    split(&decode(query), &['&'], str::to_owned)
}

/// An origin that takes `#` for the end.
fn up_to_the_fragment(query: &str) -> Vec<(String, String)> {
    split(query.split('#').next().unwrap(), &['&'], decode)
}

/// ASP.NET.
fn any_case(query: &str) -> Vec<(String, String)> {
    split(query, &['&'], |name| decode(name).to_lowercase())
}

/// PHP: blanks before a name, what is behind `[`, and the difference between `.` and `_` do not count.
fn php(query: &str) -> Vec<(String, String)> {
    split(query, &['&'], |name| {
        let name = decode(name);
        name.trim_start().split(['[', '\0']).next().unwrap().replace('.', "_")
    })
}

const PARSERS: [Parser; 6] = [ampersands, semicolons, decoded_first, up_to_the_fragment, any_case, php];

/// What the origin makes its answer of: the values of each name that it looks at.
fn seen(parse: Parser, query: &str, include: bool) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::<String, Vec<String>>::new();
    let looks_at = |name: &str| if include { name == "q" } else { name != "p" };
    for (name, value) in parse(query).into_iter().filter(|(name, _)| looks_at(name)) {
        all.entry(name).or_default().push(value);
    }
    all
}

fn written(cache: &Cache, query: &str) -> Vec<u8> {
    let mut to = Vec::new();
    cache.write_url(format!("/?{query}").as_bytes(), &mut to);
    to
}

fn router(key: &serde_json::Value) -> Router {
    let group =
        json!([{"weight": 1, "name": "d/shop:80", "backends": [{"address": "10.0.0.1", "port": 80}]}]);
    let config = json!({"version": 2, "listeners": [{"name": "web", "socket": "http-80"}], "vhosts": {"*": {"routes": [
        {"route_name": "d/all", "backend_groups": group, "cache_policy": {"default_ttl_seconds": 60, "cache_key": key}}]}}});
    Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router
}

fn query() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "p", "q", "r", "Q", "=", "=", "&", "&", ";", "%26", "%3b", "%3D", "%70", "%71", "%25", "71", "+",
        "#", "%00", "[]", "1", "2", ".", "_",
    ]);
    let pair =
        proptest::sample::select(vec!["p=1", "q=1", "r=1", "q=2", "Q=2", "r=2", "%71=1", "r_=1", "r.=2"]);
    let pieces = proptest::collection::vec(piece, 0..6).prop_map(|all| all.concat());
    proptest::collection::vec(prop_oneof![pieces, pair.prop_map(str::to_owned)], 0..5)
        .prop_map(|all| all.join("&"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn one_key_says_the_same_to_every_parser(queries in proptest::collection::vec(query(), 60)) {
        for include in [false, true] {
            let key = if include { json!({"query_params_include": ["q"]}) } else { json!({"query_params_exclude": ["p"]}) };
            let router = router(&key);
            let cache = router.rules()[0].cache().unwrap();
            let mut known: BTreeMap<Vec<u8>, &String> = BTreeMap::new();
            for query in &queries {
                let Some(other) = known.insert(written(cache, query), query) else { continue };
                for (at, parse) in PARSERS.into_iter().enumerate() {
                    prop_assert_eq!(
                        seen(parse, query, include), seen(parse, other, include),
                        "parser {}, include {}: `{}` and `{}`", at, include, query, other
                    );
                }
            }
        }
    }
}
