//! One reading of a path, for rules, cache and origins.

#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "these are tests")]

#[path = "support/request.rs"]
mod request;

use model::{DotSegments, DuplicateSlashes, EncodedSeparators, Paths};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use router::{Action, Normal, Refusal, Routed, Router, normalize};
use serde_json::{Value, json};

use crate::request::Sample;

fn router(paths: Value, rules: &[(&str, &str, &str)]) -> Router {
    let routes: Vec<Value> = (0..)
        .zip(rules)
        .map(|(index, (name, kind, path))| {
            json!({
                "route_name": name, "rule_index": index, "priority": 0,
                "path_match": {"type": kind, "value": path},
                "cache_policy": {"default_ttl_seconds": 60},
                "backend_groups": [{"weight": 1, "backends": [{"address": "10.0.0.1", "port": 80}]}],
            })
        })
        .collect();
    let config = json!({"version": 2, "paths": paths, "vhosts": {"a.com": {"routes": routes}}});
    Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router
}

/// What becomes of a URL: the route and the URL that goes there, with `, uncached` where it must not meet the cache; or why not.
fn route(router: &Router, url: &str) -> String {
    let Routed { decision, url: new } = router.route(&Sample::get("a.com", url), 0);
    if let Action::Refused(why) = decision.action() {
        assert!(decision.rule().is_none() && decision.cache().is_none());
        return format!("{why:?}");
    }
    let new = new.map_or(url.to_owned(), |new| String::from_utf8(new.to_vec()).unwrap());
    let name = decision.rule().map_or("404", |rule| rule.route_name());
    let uncached = if decision.rule().is_some() && decision.cache().is_none() { ", uncached" } else { "" };
    format!("{name} {new}{uncached}")
}

const SHOP: &[(&str, &str, &str)] = &[
    ("images", "PathPrefix", "/images"),
    ("account", "PathPrefix", "/account"),
    ("login", "Exact", "/login"),
    ("coffee", "PathPrefix", "/caf%c3%a9"),
    ("at", "PathPrefix", "/@me"),
    ("rest", "PathPrefix", "/"),
];

#[test]
fn every_path_has_one_reading_by_default() {
    let shop = router(Value::Null, SHOP);
    for (url, expected) in [
        // The usual ones, untouched.
        ("/images/a.png?x=/../y//%2f", "images /images/a.png?x=/../y//%2f"),
        ("/", "rest /"),
        ("/.well-known/x", "rest /.well-known/x"),
        ("/a/..b/...", "rest /a/..b/..."),
        ("/a%20b", "rest /a%20b"),
        ("/a?", "rest /a?"),
        // Dot segments.
        ("/images/../account", "account /account"),
        ("/images/../account?a=..", "account /account?a=.."),
        ("/images/./a", "images /images/a"),
        ("/account/..", "rest /"),
        ("/account/.", "account /account/"),
        ("/account/x/..", "account /account/"),
        ("/account/x/../", "account /account/"),
        ("/./login", "login /login"),
        ("/..", "AboveRoot"),
        ("/../account", "AboveRoot"),
        ("/a/../../account", "AboveRoot"),
        // Slashes.
        ("//account", "account /account"),
        ("/images//../account", "account /account"),
        ("/account//", "account /account/"),
        ("///", "rest /"),
        // Encoded dot segments.
        ("/images/%2e%2e/account", "HiddenDotSegment"),
        ("/images/.%2E/account", "HiddenDotSegment"),
        ("/images/%2e/a", "HiddenDotSegment"),
        ("/images/..%2faccount", "HiddenDotSegment"),
        ("/images/..%5caccount", "HiddenDotSegment"),
        ("/images/..\\account", "HiddenDotSegment"),
        ("/images/a%2f..%2f..%2faccount", "HiddenDotSegment"),
        ("/images%2f../account", "HiddenDotSegment"),
        ("/images/..;/account", "HiddenDotSegment"),
        ("/images/..;x=y/account", "HiddenDotSegment"),
        ("/images/..%3bx/account", "HiddenDotSegment"),
        ("/images/.;", "HiddenDotSegment"),
        ("/images/x;y%2f../account", "HiddenDotSegment"),
        ("/images/..%252faccount", "HiddenDotSegment"),
        ("/images/%252e%252e/account", "HiddenDotSegment"),
        // Separators that would choose another rule, and others.
        ("/images%2fa", "Ambiguous"),
        ("/account%5cx", "Ambiguous"),
        ("/account\\x", "Ambiguous"),
        ("/account%252fx", "Ambiguous"),
        ("/x%2f%2faccount", "rest /x%2F%2Faccount, uncached"),
        ("/%2faccount", "Ambiguous"),
        ("/projects/group%2Fname", "rest /projects/group%2Fname, uncached"),
        ("/images/group%2fname", "images /images/group%2Fname, uncached"),
        ("/images/a\\b", "images /images/a\\b, uncached"),
        // Encoded letters.
        ("/%61ccount", "account /account"),
        ("/file%2etxt", "rest /file.txt"),
        ("/%7Eme", "rest /~me"),
        ("/a%3ab", "rest /a%3Ab"),
        ("/caf%C3%A9", "coffee /caf%C3%A9"),
        ("/caf%c3%a9", "coffee /caf%C3%A9"),
        ("/%40me", "Ambiguous"),
        ("/mail/me%40example.com", "rest /mail/me%40example.com"),
        ("/a%2520b", "rest /a%2520b"),
        ("/100%25", "rest /100%25"),
        // Path parameters.
        ("/account;x=y", "Ambiguous"),
        ("/account;x/y", "Ambiguous"),
        ("/images/a;v=1", "images /images/a;v=1"),
        // What has no reading at all.
        ("/100%", "Malformed"),
        ("/100%2", "Malformed"),
        ("/%u002f", "Malformed"),
        ("/%%32%66", "Malformed"),
        ("/account%00", "Malformed"),
        ("/account#x", "Malformed"),
        ("/a\u{7f}", "Malformed"),
        ("/a b", "Malformed"),
        ("/a\t", "Malformed"),
        // No paths.
        ("*", "404 *"),
        ("", "404 "),
        ("a/../b", "404 a/../b"),
    ] {
        assert_eq!(route(&shop, url), expected, "{url}");
    }
}

#[test]
fn bytes_that_are_not_ascii_are_their_codes() {
    let shop = router(Value::Null, SHOP);
    assert_eq!(route(&shop, "/café"), "Ambiguous");
    assert_eq!(route(&shop, "/thé|x"), "rest /thé|x");
}

#[test]
fn settings_reject_or_keep() {
    let of = |field: &str, value: &str| router(json!({field: value}), SHOP);
    let rejecting = of("dot_segments", "Reject");
    assert_eq!(route(&rejecting, "/images/../account"), "DotSegment");
    assert_eq!(route(&rejecting, "/images/."), "DotSegment");
    assert_eq!(route(&rejecting, "/images//a"), "images /images/a");
    let keeping = of("dot_segments", "Keep");
    assert_eq!(route(&keeping, "/images/../account"), "images /images/../account, uncached");
    assert_eq!(route(&keeping, "/images/..%2faccount"), "HiddenDotSegment");
    let keeping = of("duplicate_slashes", "Keep");
    assert_eq!(route(&keeping, "/images//a"), "images /images//a");
    assert_eq!(route(&keeping, "//account"), "rest //account");
    assert_eq!(route(&keeping, "/account//../x"), "account /account/x");
    let rejecting = of("encoded_separators", "Reject");
    assert_eq!(route(&rejecting, "/projects/group%2fname"), "EncodedSeparator");
    assert_eq!(route(&rejecting, "/projects/a\\b"), "EncodedSeparator");
    assert_eq!(route(&rejecting, "/images/..%2faccount"), "HiddenDotSegment");
    assert_eq!(route(&rejecting, "/%61ccount"), "account /account");
    let keeping = of("encoded_separators", "Keep");
    assert_eq!(route(&keeping, "/images%2fa"), "rest /images%2Fa");
    assert_eq!(route(&keeping, "/images/..%2faccount"), "images /images/..%2Faccount");
    assert_eq!(route(&keeping, "/images/%2e%2e/account"), "account /account");
    assert_eq!(route(&keeping, "/images/..;/account"), "images /images/..;/account");
    assert_eq!(route(&keeping, "/100%"), "Malformed");
}

#[test]
fn a_setting_that_nobody_knows_is_refused() {
    let config = json!({"version": 2, "paths": {"dot_segments": "Guess"}});
    assert!(serde_json::from_value::<model::ghost::Config>(config).is_err());
}

/// The matches of one rule are one rule; a rule that asks for a parameter means it.
#[test]
fn ambiguous_is_what_belongs_to_another_rule() {
    let one_rule = json!([
        {"route_name": "one", "rule_index": 0, "path_match": {"type": "PathPrefix", "value": "/a"}},
        {"route_name": "one", "rule_index": 0, "path_match": {"type": "PathPrefix", "value": "/"}},
    ]);
    let config = json!({"version": 2, "vhosts": {"a.com": {"routes": one_rule}}});
    let one = Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router;
    assert_eq!(route(&one, "/a%2fb"), "one /a%2Fb, uncached");
    let matrix = router(Value::Null, &[("matrix", "PathPrefix", "/a;b"), ("rest", "PathPrefix", "/")]);
    assert_eq!(route(&matrix, "/a;b"), "matrix /a;b");
    assert_eq!(route(&matrix, "/a;b%2fc"), "Ambiguous");
    // Headers and query parameters count as in the path that was sent.
    let guarded = json!([
        {"route_name": "guarded", "path_match": {"type": "PathPrefix", "value": "/a"},
         "query_params": [{"name": "q", "value": "1"}]},
        {"route_name": "rest", "path_match": {"type": "PathPrefix", "value": "/"}},
    ]);
    let config = json!({"version": 2, "vhosts": {"a.com": {"routes": guarded}}});
    let guarded = Router::compile(&serde_json::from_value(config).unwrap()).unwrap().router;
    assert_eq!(route(&guarded, "/a%2fb?q=2"), "rest /a%2Fb?q=2, uncached");
    assert_eq!(route(&guarded, "/a%2fb?q=1"), "Ambiguous");
}

/// What an Ingress may ask for: its paths are read as those of requests.
#[test]
fn paths_of_rules_are_normal_too() {
    let rules =
        [("double", "PathPrefix", "/a//b"), ("letter", "Exact", "/%61"), ("dots", "PathPrefix", "/c/..")];
    let router = router(Value::Null, &rules);
    assert_eq!(route(&router, "/a//b/c"), "double /a/b/c");
    assert_eq!(route(&router, "/a"), "letter /a");
    // It never matches; above all it is not wider than it was.
    assert_eq!(route(&router, "/x"), "404 /x");
}

#[test]
fn usual_paths_allocate_nothing() {
    let shop = router(Value::Null, SHOP);
    for url in ["/images/a.png?x=1", "/.well-known/x", "/images/a%20b/../c//d", "/projects/group%2Fname"] {
        let request = Sample::get("a.com", url);
        let route = || drop(std::hint::black_box(shop.route(&request, 1)));
        route();
        assert_eq!(allocation_counter::measure(route).count_total, 0, "{url}");
    }
}

fn settings() -> impl Strategy<Value = Paths> {
    use DotSegments as Dots;
    use EncodedSeparators as Separators;
    (
        select(vec![Dots::Resolve, Dots::Reject, Dots::Keep]),
        select(vec![DuplicateSlashes::Merge, DuplicateSlashes::Keep]),
        select(vec![Separators::RejectAmbiguous, Separators::Reject, Separators::Keep]),
    )
        .prop_map(|(dot_segments, duplicate_slashes, encoded_separators)| Paths {
            dot_segments,
            duplicate_slashes,
            encoded_separators,
        })
}

fn url() -> impl Strategy<Value = Vec<u8>> {
    let parts = [
        "/",
        "/",
        "/",
        "..",
        ".",
        "a",
        "b",
        "%2e",
        "%2E",
        "%2f",
        "%5C",
        "%5c",
        "\\",
        "%61",
        "%62",
        ";",
        ";x=y",
        "%3b",
        "%25",
        "252f",
        "2f",
        "2e",
        "%",
        "%40",
        "@",
        "%20",
        "%C3%A9",
        "é",
        "|",
        "?",
        "?x=/../%2f",
    ];
    vec(select(parts.to_vec()), 0..12).prop_map(|parts| format!("/{}", parts.concat()).into_bytes())
}

/// Reads a path as the most credulous origin does: decodes until nothing is left to decode, takes backslashes for slashes, leaves
/// parameters out, merges slashes, and resolves dots.
fn credulous(url: &[u8]) -> Vec<Vec<u8>> {
    let path = url.split(|b| *b == b'?').next().unwrap();
    let mut text = path.to_vec();
    loop {
        let mut next = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let digits = text.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok());
            let code = digits.filter(|_| text[at] == b'%').and_then(|d| u8::from_str_radix(d, 16).ok());
            next.push(code.unwrap_or(text[at]));
            at += if code.is_some() { 3 } else { 1 };
        }
        if next == text {
            break;
        }
        text = next;
    }
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in text.split(|b| matches!(b, b'/' | b'\\')) {
        match segment.split(|b| *b == b';').next().unwrap() {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            name => segments.push(name.to_vec()),
        }
    }
    segments
}

/// A rule's path may have codes of its own.
fn prefix_rule(url: &[u8]) -> &'static str {
    let segments = credulous(url);
    match segments.iter().map(Vec::as_slice).collect::<Vec<_>>().as_slice() {
        [b"a", b"b", ..] => "ab",
        [b"a", ..] => "a",
        [b"\xc3\xa9", ..] => "e",
        [b"@", ..] => "at",
        _ => "rest",
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_normal_url_stays_as_it_is(paths in settings(), url in url()) {
        let Ok(normal) = normalize(paths, &url) else { return Ok(()) };
        let Some(first) = &normal.url else { return Ok(()) };
        let again = normalize(paths, first).unwrap();
        prop_assert_eq!(&again, &Normal { url: None, reading: normal.reading, uncacheable: normal.uncacheable });
        let query = |url: &[u8]| url.iter().position(|b| *b == b'?').map(|at| url[at..].to_vec());
        prop_assert_eq!(query(first), query(&url));
    }

    /// Whatever an origin decodes, it reads a path of the rule that was chosen, or the request never gets there; and what may be
    /// cached is read in no other way.
    #[test]
    fn no_reading_reaches_another_rule(url in url()) {
        let rules = [
            ("ab", "PathPrefix", "/a/b"), ("a", "PathPrefix", "/a"), ("e", "PathPrefix", "/%C3%A9"),
            ("at", "PathPrefix", "/@"), ("rest", "PathPrefix", "/"),
        ];
        let router = router(Value::Null, &rules);
        let sample = Sample::get("a.com", std::str::from_utf8(&url).unwrap());
        let Routed { decision, url: new } = router.route(&sample, 0);
        let Some(rule) = decision.rule() else {
            prop_assert!(matches!(decision.action(), Action::Refused(_)));
            return Ok(());
        };
        let sent = new.as_deref().unwrap_or(&url);
        prop_assert_eq!(rule.route_name(), prefix_rule(sent), "{}", String::from_utf8_lossy(sent));
        if decision.cache().is_some() {
            let path = sent.split(|b| *b == b'?').next().unwrap();
            let as_sent = path[1..].split(|b| *b == b'/').filter(|segment| !segment.is_empty());
            let read = credulous(sent).len();
            let only_parameters = |segment: &&[u8]| segment[0] == b';' || segment.starts_with(b"%3B");
            prop_assert_eq!(read, as_sent.filter(|segment| !only_parameters(segment)).count());
        }
    }
}

#[test]
fn refusals_say_why_in_json() {
    for why in Refusal::ALL {
        let quoted = serde_json::to_string(why.message()).unwrap();
        assert_eq!(quoted, format!("\"{}\"", why.message()));
    }
}
