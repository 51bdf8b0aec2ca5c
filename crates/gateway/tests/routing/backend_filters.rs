//! Filters of a single backendRef.

use super::Site;
use crate::support::{Ask, cache_policy, class, parameters, route};

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
