//! Redirects, rewrites, header filters.

use super::Site;
use crate::support::{Ask, get, route};

#[test]
fn a_redirect_names_scheme_host_port_path_and_status() {
    let rule = |path: &str, redirect: &str| {
        format!(
            "  - {{matches: [{{path: {{value: {path}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {redirect}}}]}}\n"
        )
    };
    let rules = [
        rule("/plain", "{}"),
        rule("/https", "{scheme: https, statusCode: 301}"),
        rule("/host", "{hostname: other.example.com, port: 8443, statusCode: 308}"),
        rule("/full", "{path: {type: ReplaceFullPath, replaceFullPath: /new}, statusCode: 303}"),
        rule("/old", "{path: {type: ReplacePrefixMatch, replacePrefixMatch: /v2}, statusCode: 307}"),
    ];
    let site = Site::new(&[], &route("away", &format!("  rules:\n{}", rules.concat())));
    let port = site.port;
    let asked = |url: &str| {
        let response = get(port, &format!("shop.example.com:{port}"), url);
        let location = response.header("Location").unwrap_or_default().to_owned();
        (response.status, location)
    };
    let here = format!("http://shop.example.com:{port}");
    assert_eq!(asked("/plain/a?b=c"), (302, format!("{here}/plain/a?b=c")));
    assert_eq!(asked("/https"), (301, "https://shop.example.com/https".to_owned()));
    assert_eq!(asked("/host/x"), (308, "http://other.example.com:8443/host/x".to_owned()));
    assert_eq!(asked("/full/x?y=z"), (303, format!("{here}/new?y=z")));
    assert_eq!(asked("/old/x/y?z=1"), (307, format!("{here}/v2/x/y?z=1")));
}

#[test]
fn url_and_host_are_rewritten_for_the_origin() {
    let routes = route(
        "rewrite",
        r"
  rules:
  - matches: [{path: {value: /shop}}]
    filters:
    - type: URLRewrite
      urlRewrite: {hostname: internal.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}
    backendRefs: [{name: shop, port: 80}]
  - matches: [{path: {value: /fixed}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /one}}}]
    backendRefs: [{name: shop, port: 80}]
",
    );
    let site = Site::new(&["shop"], &routes);
    let origin_saw = |url: &str| {
        assert_eq!(get(site.port, "shop.example.com", url).status, 200, "{url}");
        let seen = site.origin().last_seen();
        (seen.url.clone(), seen.header("Host").unwrap().to_owned())
    };
    assert_eq!(origin_saw("/shop/cart?id=1"), ("/cart?id=1".into(), "internal.example".into()));
    assert_eq!(origin_saw("/shop"), ("/".into(), "internal.example".into()));
    assert_eq!(origin_saw("/fixed/a/b?c"), ("/one?c".into(), "shop.example.com".into()));
}

#[test]
fn header_filters_edit_requests_and_responses() {
    let routes = route(
        "headers",
        r"
  rules:
  - filters:
    - type: RequestHeaderModifier
      requestHeaderModifier:
        set: [{name: X-Set, value: ours}]
        add: [{name: X-Add, value: more}]
        remove: [X-Remove]
    - type: ResponseHeaderModifier
      responseHeaderModifier:
        set: [{name: X-Answer, value: set}]
        remove: [X-Origin]
    backendRefs: [{name: shop, port: 80}]
",
    );
    let site = Site::new(&["shop"], &routes);
    let ask = Ask::get("x", "/").header("X-Set", "theirs").header("X-Add", "some").header("X-Remove", "me");
    let response = ask.send(site.port);
    assert_eq!((response.status, response.header("X-Answer")), (200, Some("set")));
    assert_eq!(response.header("X-Origin"), None);
    let seen = site.origin().last_seen();
    assert_eq!(seen.header("X-Set"), Some("ours"));
    assert_eq!(seen.header("X-Remove"), None);
    let added: Vec<_> = seen.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("X-Add")).collect();
    let added: Vec<_> = added.iter().flat_map(|(_, value)| value.split(", ")).collect();
    assert_eq!(added, ["some", "more"]);
}
