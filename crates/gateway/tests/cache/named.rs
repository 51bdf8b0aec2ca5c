//! Rules that name their cache policy, by a filter of type ExtensionRef.

use super::{Site, expect};
use crate::support::{cache_policy, class, parameters, route, user_vcl};

fn objects() -> String {
    let names = |policy: &str| {
        format!(
            "[{{type: ExtensionRef, extensionRef: {{group: gateway.varnish-software.com, kind: VarnishCachePolicy, name: {policy}}}}}]"
        )
    };
    let rules = format!(
        "
  rules:
  - matches: [{{path: {{value: /named}}}}]
    filters: {}
    backendRefs: [{{name: shop, port: 80}}]
  - matches: [{{path: {{value: /missing}}}}]
    filters: {}
    backendRefs: [{{name: shop, port: 80}}]
  - matches: [{{path: {{value: /other}}}}]
    backendRefs: [{{name: shop, port: 80}}]
",
        names("named"),
        names("missing"),
    );
    // One without targetRef, which is for rules that name it.
    let named = cache_policy("named", "none", "  forcedTTL: 1m");
    let named: String =
        named.lines().filter(|line| !line.contains("targetRef")).map(|line| format!("{line}\n")).collect();
    [route("shop", &rules), named].concat()
}

fn the_named_policy_counts(class: &str) {
    let site = Site::of_class(class, &["shop"], &objects());
    site.origins[0].answer_with(200, &["Cache-Control: max-age=0"]);
    expect(&site.get("/named/a"), 200, "MISS");
    expect(&site.get("/named/a"), 200, "HIT");
    // The rule beside it has none.
    for _ in 0..2 {
        let response = site.get("/other");
        assert!(response.status == 200 && response.header("X-Cache") != Some("HIT"), "{response:?}");
    }
    // A filter must not be skipped.
    assert_eq!(site.get("/missing").status, 500);
    site.program
        .wait_for_line(&["HTTPRoute default/shop", "VarnishCachePolicy default/missing does not exist"]);
    assert_eq!(site.asked(), 3);
}

#[test]
fn a_rule_is_cached_as_the_policy_that_it_names_says() {
    the_named_policy_counts(&class());
}

#[test]
fn a_named_policy_counts_where_every_request_goes_through_varnishd() {
    the_named_policy_counts(&parameters("{dataPath: Varnish}"));
    the_named_policy_counts(&user_vcl("sub vcl_recv { set req.http.X-Mine = \"1\"; }"));
}
