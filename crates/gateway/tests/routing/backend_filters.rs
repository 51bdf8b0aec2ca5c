//! Filters of a single backendRef.

use super::Site;
use crate::support::{Ask, cache_policy, class, parameters, route, user_vcl, wait_for};

const HOST: &str = "shop.example.com";

const BACKENDS: &str = r"    backendRefs:
    - name: green
      port: 80
      filters:
      - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Backend, value: green}]}}
      - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-From, value: green}]}}
    - name: blue
      port: 80
      filters:
      - {type: URLRewrite, urlRewrite: {hostname: blue.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /v2}}}
      - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-From, value: blue}]}}
";

fn routes() -> String {
    let kept = "  rules:\n  - name: kept\n    matches: [{path: {value: /kept}}]\n";
    let direct = "  - matches: [{path: {value: /direct}}]\n    filters: [{type: ResponseHeaderModifier, \
                  responseHeaderModifier: {add: [{name: X-Rule, value: rule}]}}]\n";
    let rules = [kept, BACKENDS, direct, BACKENDS].concat();
    let policy = cache_policy("kept", "shop", "  defaultTTL: 1h")
        .replace("name: shop}", "name: shop, sectionName: kept}");
    [route("shop", &rules), policy].concat()
}

fn each_backend_has_its_own(site: &Site) {
    for path in ["/direct", "/kept"] {
        let mut met = [0, 0];
        for at in 0..40 {
            let response = Ask::get(HOST, &format!("{path}/{at}")).send(site.port);
            assert_eq!(response.status, 200, "{response:?}");
            let is_blue = response.origin() == "blue";
            met[usize::from(is_blue)] += 1;
            let seen = site.origins[usize::from(is_blue)].last_seen();
            if is_blue {
                assert_eq!((&*seen.url, seen.header("Host")), (&*format!("/v2/{at}"), Some("blue.example")));
            } else {
                assert_eq!((&*seen.url, seen.header("Host")), (&*format!("{path}/{at}"), Some(HOST)));
            }
            assert_eq!(seen.header("X-Backend"), (!is_blue).then_some("green"));
            assert_eq!(response.header("X-From"), Some(if is_blue { "blue" } else { "green" }));
            assert_eq!(response.header("X-Rule"), (path == "/direct").then_some("rule"));
        }
        assert!(met.iter().all(|met| *met > 0), "{met:?}");
    }
    // What was stored came from one of them, and says so still.
    for at in 0..40 {
        let response = Ask::get(HOST, &format!("/kept/{at}")).send(site.port);
        assert_eq!(response.header("X-From"), Some(response.origin()));
    }
}

#[test]
fn filters_of_a_backend_are_carried_out_for_its_requests_alone() {
    each_backend_has_its_own(&Site::of_class(&class(), &["green", "blue"], &routes()));
}

#[test]
fn filters_of_a_backend_hold_where_every_request_goes_through_varnishd() {
    each_backend_has_its_own(&Site::of_class(
        &parameters("{dataPath: Varnish}"),
        &["green", "blue"],
        &routes(),
    ));
}

/// Rule `kept` has a cache policy. Requests to `green` are copied to `copies`, those to `blue` are not.
fn mirrored_routes() -> String {
    let backends = r"    backendRefs:
    - name: green
      port: 80
      filters:
      - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Backend, value: green}]}}
      - {type: RequestMirror, requestMirror: {backendRef: {name: copies, port: 80}}}
    - {name: blue, port: 80}
";
    let kept = "  rules:\n  - name: kept\n    matches: [{path: {value: /kept}}]\n";
    let direct = "  - matches: [{path: {value: /direct}}]\n";
    let policy = cache_policy("kept", "shop", "  defaultTTL: 1h")
        .replace("name: shop}", "name: shop, sectionName: kept}");
    [&route("shop", &[kept, backends, direct, backends].concat()), &*policy].concat()
}

fn a_mirror_gets_what_its_backend_gets(class: &str) {
    let site = Site::of_class(class, &["green", "blue", "copies"], &mirrored_routes());
    let [green, blue, copies] = &site.origins[..] else { panic!("three origins") };
    for at in 0..30 {
        for path in ["/direct", "/kept"] {
            let response = Ask::get(HOST, &format!("{path}/{at}")).send(site.port);
            assert!(["green", "blue"].contains(&response.origin()), "{response:?}");
        }
        let body = format!("upload {at}").into_bytes();
        assert_eq!(Ask::new("POST", HOST, &format!("/direct/{at}")).body(body).send(site.port).status, 200);
    }
    // A hit has no copy.
    for at in 0..30 {
        assert_eq!(Ask::get(HOST, &format!("/kept/{at}")).send(site.port).status, 200);
    }
    // HEAD requests are for readiness: only those of this test count.
    let all = |origin: &crate::support::Origin| {
        let mut all: Vec<_> = origin.seen().into_iter().filter(|seen| seen.url.len() > 1).collect();
        all.sort_by_key(|seen| (seen.url.clone(), seen.method.clone()));
        all
    };
    let expected = all(green);
    assert!(!expected.is_empty() && !all(blue).is_empty(), "both get requests");
    let copied = wait_for("a copy of each request to green", || {
        Some(all(copies)).filter(|copied| copied.len() >= expected.len())
    });
    assert_eq!(copied.len(), expected.len(), "one copy each");
    for (copy, original) in copied.iter().zip(&expected) {
        assert_eq!((&copy.method, &copy.url, &copy.body), (&original.method, &original.url, &original.body));
        assert_eq!(copy.header("X-Backend"), Some("green"));
    }
}

#[test]
fn a_mirror_of_a_backend_gets_copies_of_its_requests_and_misses() {
    a_mirror_gets_what_its_backend_gets(&class());
}

#[test]
fn a_mirror_of_a_backend_gets_copies_where_every_request_goes_through_varnishd() {
    a_mirror_gets_what_its_backend_gets(&parameters("{dataPath: Varnish}"));
}

#[test]
fn a_mirror_of_a_backend_gets_copies_with_user_vcl() {
    a_mirror_gets_what_its_backend_gets(&user_vcl("sub vcl_deliver { set resp.http.X-Mark = \"user\"; }"));
}
