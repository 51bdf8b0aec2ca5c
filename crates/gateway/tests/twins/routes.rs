//! Routing: what the golden cases of `translate` are about, each with a host of its own, and requests that try each.

use super::Twins;
use super::recorder::Recorder;
use crate::support::{Ask, Authority, TlsOrigin, cache_policy, gateway, route, service};

/// Routes, each with a host: name, and the rules in YAML.
const ROUTES: [(&str, &str); 24] = [
    ("exact", "  - {matches: [{path: {type: Exact, value: /a/b}}], backendRefs: [{name: one, port: 80}]}"),
    ("prefix", "  - {matches: [{path: {value: /a}}], backendRefs: [{name: one, port: 80}]}"),
    ("prefix-slash", "  - {matches: [{path: {value: /a/}}], backendRefs: [{name: one, port: 80}]}"),
    (
        "regex",
        "  - {matches: [{path: {type: RegularExpression, value: \"/a/[a-z]+\"}}], backendRefs: [{name: one, port: 80}]}",
    ),
    (
        "several-rules",
        "  - {matches: [{path: {value: /a/b}}], backendRefs: [{name: one, port: 80}], filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: first}]}}]}
  - {matches: [{path: {value: /a}}, {path: {type: Exact, value: /}}], backendRefs: [{name: one, port: 80}], filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: second}]}}]}",
    ),
    (
        "conditions",
        "  - {matches: [{method: DELETE}], backendRefs: [{name: missing, port: 80}]}
  - {matches: [{headers: [{name: X-Version, value: two}]}], backendRefs: [{name: one, port: 80}]}
  - {matches: [{headers: [{name: X-Version, type: RegularExpression, value: \"3[.][0-9]+\"}]}], backendRefs: [{name: one, port: 80}], filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: third}]}}]}
  - {matches: [{queryParams: [{name: q, value: \"1\"}]}], backendRefs: [{name: one, port: 80}], filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Rule, value: query}]}}]}",
    ),
    (
        "forwarded-match",
        "  - {matches: [{headers: [{name: X-Forwarded-Proto, value: http}]}], backendRefs: [{name: one, port: 80}]}
  - {matches: [{headers: [{name: X-Gateway-Route, value: evil}]}], backendRefs: [{name: missing, port: 80}]}",
    ),
    (
        "request-headers",
        "  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: ours}, {name: User-Agent, value: gateway}], add: [{name: X-Add, value: more}, {name: Accept, value: text/plain}], remove: [X-Remove, Cookie]}}]
    backendRefs: [{name: one, port: 80}]",
    ),
    (
        "gateway-headers",
        "  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Forwarded-For, value: ours}, {name: Host, value: set.example}], add: [{name: X-Forwarded-Proto, value: ftp}], remove: [X-Forwarded-Port, X-Gateway-Route, CDN-Loop, Via]}}]
    backendRefs: [{name: one, port: 80}]",
    ),
    (
        "response-headers",
        "  - filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Answer, value: set}, {name: X-Tea, value: none}], add: [{name: X-Origin, value: two}, {name: Set-Cookie, value: c=3}], remove: [ETag, Content-Type]}}]
    backendRefs: [{name: one, port: 80}]",
    ),
    (
        "response-cache-header",
        "  - filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [X-Cache], set: [{name: Cache-Control, value: no-store}]}}]
    backendRefs: [{name: one, port: 80}]",
    ),
    ("redirect", "  - filters: [{type: RequestRedirect, requestRedirect: {}}]"),
    (
        "redirect-all",
        "  - filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: other.example, port: 8443, statusCode: 301, path: {type: ReplaceFullPath, replaceFullPath: /new}}}]",
    ),
    (
        "redirect-prefix",
        "  - {matches: [{path: {value: /a}}], filters: [{type: RequestRedirect, requestRedirect: {statusCode: 301, path: {type: ReplacePrefixMatch, replacePrefixMatch: /z/}}}]}",
    ),
    (
        "redirect-headers",
        "  - filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}, {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Answer, value: away}]}}]",
    ),
    (
        "rewrite-prefix",
        "  - {matches: [{path: {value: /a}}], filters: [{type: URLRewrite, urlRewrite: {hostname: internal.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /z}}}], backendRefs: [{name: one, port: 80}]}",
    ),
    (
        "rewrite-root",
        "  - {matches: [{path: {value: /a}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}], backendRefs: [{name: one, port: 80}]}",
    ),
    (
        "rewrite-full",
        "  - filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /full}}}, {type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: X-Add, value: more}]}}]
    backendRefs: [{name: one, port: 80}]",
    ),
    ("rewrite-host", "  - filters: [{type: URLRewrite, urlRewrite: {hostname: internal.example}}]\n    backendRefs: [{name: one, port: 80}]"),
    ("weights-of-zero", "  - backendRefs: [{name: one, port: 80, weight: 1}, {name: missing, port: 80, weight: 0}]"),
    ("weights-all-zero", "  - backendRefs: [{name: one, port: 80, weight: 0}]"),
    ("missing-backend", "  - backendRefs: [{name: missing, port: 80}]"),
    ("no-endpoints", "  - backendRefs: [{name: empty, port: 80}]"),
    ("no-backend", "  - matches: [{path: {value: /a}}]"),
];

/// Targets that each host is asked for.
const TARGETS: [&str; 25] = [
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/a/b?q=1",
    "/a/b?q=2&q=1",
    "/a/b/c",
    "/ab",
    "/a//b",
    "/a/../a/b",
    "/a/%62",
    "/a/%2e%2e/b",
    "/a%2Fb",
    "/a/b?",
    "/a/%zz",
    "/a;x=1/b",
    "/a/teapot",
    "/a/cookies",
    "/a/chunks",
    "/a/nothing",
    "/a/moved",
    "/a/broken",
    "/a/cached",
    "/a/private?x=http://b/../c",
    "/a/\"{|}^",
];

fn manifests(port: u16, recorder: &Recorder, tls: &TlsOrigin, authority: &Authority) -> String {
    let mut all = vec![
        gateway("web", &[port]),
        service("one", &[recorder.address]),
        service("empty", &[]),
        service("secure", &[tls.address()]),
        authority.config_map("ca"),
    ];
    for (name, rules) in ROUTES {
        all.push(route(name, &format!("  hostnames: [{name}.example]\n  rules:\n{rules}")));
    }
    all.push(route(
        "wildcard",
        "  hostnames: [\"*.wild.example\"]\n  rules: [{backendRefs: [{name: one, port: 80}]}]",
    ));
    all.push(route(
        "cached",
        "  hostnames: [cached.example]\n  rules: [{backendRefs: [{name: one, port: 80}]}]",
    ));
    all.push(cache_policy("cached", "cached", "  defaultTTL: 60s"));
    all.push(route(
        "secure",
        "  hostnames: [secure.example]\n  rules: [{backendRefs: [{name: secure, port: 80}]}]",
    ));
    all.push(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: secure}
spec:
  targetRefs: [{group: '', kind: Service, name: secure}]
  validation: {hostname: shop.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}
---
"
        .to_owned(),
    );
    all.concat()
}

/// Requests that are in no other list: methods, headers that clients may not send, bodies.
fn special(host: &str) -> Vec<Ask> {
    let with = |headers: &[(&str, &str)]| {
        headers.iter().fold(Ask::get(host, "/a/b"), |ask, (name, value)| ask.header(name, value))
    };
    let mut asks = vec![
        Ask::new("HEAD", host, "/a/b"),
        Ask::new("HEAD", host, "/a/teapot"),
        Ask::new("DELETE", host, "/a/b"),
        Ask::new("OPTIONS", host, "/a/b"),
        Ask::new("OPTIONS", host, "*"),
        Ask::new("PATCH", host, "/a/b").body(b"patched".to_vec()),
        Ask::new("POST", host, "/a/b").body(b"posted".to_vec()),
        Ask::new("POST", host, "/a/b").body(Vec::new()),
        Ask::new("POST", host, "/a/teapot").chunked(b"in chunks".to_vec()),
        Ask::new("PUT", host, "/a/b?q=1").body(vec![b'x'; 100_000]),
        Ask::new("PURGE", host, "/a/b"),
        Ask::new("BREW", host, "/a/b"),
    ];
    for headers in [
        &[("X-Version", "two")][..],
        &[("x-version", "3.14")],
        &[("X-Version", "one"), ("X-Version", "two")],
        &[("X-Set", "theirs"), ("X-Add", "some"), ("X-Remove", "me"), ("Cookie", "a=b")],
        &[("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "evil")],
        &[("X_Forwarded_For", "192.0.2.1"), ("Forwarded", "for=192.0.2.1")],
        &[("X-Gateway-Route", "evil"), ("X-Gateway-Listener", "evil"), ("X-Ghost-Pass", "1")],
        &[("Content_Length", "5"), ("Transfer_Encoding", "chunked"), ("CDN_Loop", "x")],
        &[("X-Original-URL", "/admin"), ("X-HTTP-Method-Override", "DELETE"), ("X-Real-IP", "192.0.2.1")],
        &[("Accept", "text/html"), ("Accept", "text/plain"), ("Accept-Encoding", "gzip, br")],
        &[("Authorization", "Basic YTpi"), ("Cookie", "a=b"), ("Cookie", "c=d")],
        &[("If-None-Match", "\"a\""), ("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")],
        &[("Cache-Control", "no-cache"), ("Pragma", "no-cache")],
        &[("TE", "deflate"), ("Keep-Alive", "timeout=5")],
        &[("Upgrade", "other")],
        &[("Via", "1.1 other"), ("CDN-Loop", "other")],
        &[("User-Agent", "t\u{e9}st"), ("Referer", "http://a/")],
        &[("X-Empty", ""), ("X-Long", "0123456789012345678901234567890123456789")],
        &[("Max-Forwards", "0"), ("Origin", "null"), ("DNT", "1")],
    ] {
        asks.push(with(headers));
    }
    asks
}

struct Site {
    twins: Twins,
    /// Speaks TLS in front of the recorder.
    _tls: TlsOrigin,
}

fn site() -> Site {
    let recorder = Recorder::start();
    let authority = Authority::new();
    let tls = TlsOrigin::new(&authority.leaf(&["shop.internal"]), recorder.address);
    let twins = Twins::new("", recorder.clone(), |port| manifests(port, &recorder, &tls, &authority));
    Site { twins, _tls: tls }
}

#[test]
fn routes_give_the_same_answers_and_the_origin_the_same_requests() {
    let Site { twins, _tls } = site();
    let mut hosts: Vec<String> = ROUTES.iter().map(|(name, _)| format!("{name}.example")).collect();
    hosts.extend(
        [
            "a.wild.example",
            "A.B.wild.example:81",
            "wild.example",
            "nobody.example",
            "secure.example",
            "127.0.0.1",
        ]
        .map(str::to_owned),
    );
    // Last: what it answers depends on what was asked before. Each twin has a cache of its own, and is asked the same.
    hosts.push("cached.example".to_owned());
    let (mut count, mut differences) = (0, Vec::new());
    for host in &hosts {
        let asks = TARGETS.iter().map(|target| Ask::get(host, target)).chain(special(host));
        let mut asks: Vec<Ask> = asks.collect();
        if host == "cached.example" {
            asks.extend(asks.clone());
        }
        for ask in asks {
            count += 1;
            let outcomes = twins.ask(|_| ask.clone());
            if outcomes[0] != outcomes[1] {
                differences
                    .push(format!("{ask:?}\n  Varnish: {:?}\n  Auto:    {:?}", outcomes[0], outcomes[1]));
            }
        }
    }
    assert!(count > 900, "{count}");
    let shown = differences.join("\n\n");
    assert!(differences.is_empty(), "{} of {count} requests differ:\n\n{shown}", differences.len());
}

/// ADR 49 has the reasons.
#[test]
fn the_arrangements_differ_in_what_was_decided_and_nothing_else() {
    let Site { twins, _tls } = site();
    let ask = |name: &str, value: &str| Ask::get("exact.example", "/a/b").header(name, value);

    // varnishd's own answer is empty; the front says why.
    let [varnish, front] = twins.ask(|_| ask("Expect", "something-else"));
    assert_eq!((varnish.answer.status, front.answer.status), (417, 417));
    assert!(varnish.answer.body.is_empty() && front.answer.body.contains("100-continue"));
    assert!(varnish.requests.is_empty() && front.requests.is_empty());

    // The origin gets the range in both, and ignores it. varnishd cuts the answer.
    let [varnish, front] = twins.ask(|_| ask("Range", "bytes=0-0"));
    assert_eq!((varnish.answer.status, front.answer.status), (206, 200));
    assert_eq!(varnish.requests, front.requests);

    // Trailers cross the front, not varnishd.
    let [varnish, front] = twins.ask(|_| ask("TE", "trailers"));
    assert_eq!(varnish.answer, front.answer);
    assert!(!varnish.requests[0].headers.contains("te: trailers"));
    assert!(front.requests[0].headers.contains("te: trailers"));

    // A header of one connection, by an old name.
    let [varnish, front] = twins.ask(|_| ask("Proxy-Connection", "keep-alive"));
    assert_eq!(varnish.answer, front.answer);
    assert!(varnish.requests[0].headers.contains("proxy-connection: keep-alive"));
    assert!(!front.requests[0].headers.iter().any(|line| line.starts_with("proxy-connection")));
}
