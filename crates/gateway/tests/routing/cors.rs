//! CORS by the front, by the cache, and by varnishd alone.

use super::Site;
use crate::support::{Ask, Response, cache_policy, class, parameters, route};

const HOST: &str = "shop.example.com";

fn routes() -> String {
    let policy = cache_policy("kept", "shop", "  defaultTTL: 1h")
        .replace("name: shop}", "name: shop, sectionName: kept}");
    let rules = r#"
  rules:
  - name: kept
    matches: [{path: {value: /kept}}]
    filters: [{type: CORS, cors: {allowOrigins: ["https://*.example.com"], allowCredentials: true}}]
    backendRefs: [{name: shop, port: 80}]
  - matches: [{path: {value: /direct}}]
    filters:
    - type: CORS
      cors:
        allowOrigins: ["https://www.example.com"]
        allowMethods: [PUT, DELETE]
        allowHeaders: ["*"]
        maxAge: 600
    backendRefs: [{name: shop, port: 80}]
  - matches: [{path: {value: /all}}]
    filters: [{type: CORS, cors: {allowOrigins: ["*"]}}]
    backendRefs: [{name: shop, port: 80}]
  - matches: [{path: {value: /away}}]
    filters:
    - {type: CORS, cors: {allowOrigins: ["https://www.example.com"]}}
    - {type: RequestRedirect, requestRedirect: {hostname: other.example.com}}
  - backendRefs: [{name: shop, port: 80}]
"#;
    [route("shop", rules), policy].concat()
}

fn preflight(site: &Site, url: &str, origin: &str) -> Response {
    Ask::new("OPTIONS", HOST, url)
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "DELETE")
        .header("Access-Control-Request-Headers", "x-a, authorization")
        .send(site.port)
}

fn from(site: &Site, url: &str, origin: &str) -> Response {
    Ask::get(HOST, url).header("Origin", origin).send(site.port)
}

fn all<'a>(response: &'a Response, name: &str) -> Vec<&'a str> {
    let named = response.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

fn cors_holds(site: &Site) {
    site.origin().answer_with(
        200,
        &["Access-Control-Allow-Origin: https://evil.example", "Access-Control-Allow-Credentials: true"],
    );
    // Preflight requests never reach the origin.
    let answer = preflight(site, "/direct/a", "https://www.example.com");
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(answer.header("Access-Control-Allow-Origin"), Some("https://www.example.com"));
    assert_eq!(answer.header("Access-Control-Allow-Methods"), Some("PUT, DELETE"));
    assert_eq!(answer.header("Access-Control-Allow-Headers"), Some("x-a, authorization"));
    assert_eq!(answer.header("Access-Control-Max-Age"), Some("600"));
    assert_eq!(answer.header("Access-Control-Allow-Credentials"), None);
    assert_eq!(answer.header("Content-Length"), None);
    let answer = preflight(site, "/direct/a", "https://evil.example");
    assert_eq!((answer.status, answer.header("Access-Control-Allow-Origin")), (204, None));
    let answer = preflight(site, "/kept/a", "https://a.example.com");
    assert_eq!(answer.header("Access-Control-Allow-Origin"), Some("https://a.example.com"));
    assert_eq!(answer.header("Access-Control-Max-Age"), Some("5"));
    assert_eq!(site.origin().seen().len(), 0);

    let direct = from(site, "/direct/a", "https://www.example.com");
    assert_eq!(all(&direct, "Access-Control-Allow-Origin"), ["https://www.example.com"]);
    assert_eq!(all(&direct, "Access-Control-Allow-Credentials"), [""; 0]);
    assert_eq!(all(&direct, "Vary"), ["Origin"]);
    let refused = from(site, "/direct/a", "https://evil.example");
    assert_eq!((refused.status, all(&refused, "Access-Control-Allow-Origin")), (200, vec![]));

    // One object, and each origin its own word.
    for (at, origin) in ["https://a.example.com", "https://b.example.com"].into_iter().enumerate() {
        let kept = from(site, "/kept/a", origin);
        assert_eq!(kept.header("X-Cache"), Some(if at == 0 { "MISS" } else { "HIT" }), "{kept:?}");
        assert_eq!(all(&kept, "Access-Control-Allow-Origin"), [origin]);
        assert_eq!(all(&kept, "Access-Control-Allow-Credentials"), ["true"]);
        assert_eq!(all(&kept, "Vary"), ["Origin"]);
    }
    let kept = Ask::get(HOST, "/kept/a").send(site.port);
    assert_eq!((kept.header("X-Cache"), kept.header("Access-Control-Allow-Origin")), (Some("HIT"), None));

    let shared = from(site, "/all", "https://any.example");
    assert_eq!(all(&shared, "Access-Control-Allow-Origin"), ["*"]);
    let away = from(site, "/away", "https://www.example.com");
    assert_eq!(
        (away.status, all(&away, "Access-Control-Allow-Origin")),
        (302, vec!["https://www.example.com"])
    );

    // A rule without CORS leaves it to the origin.
    let plain = from(site, "/", "https://www.example.com");
    assert_eq!(all(&plain, "Access-Control-Allow-Origin"), ["https://evil.example"]);
    let asked = site.origin().seen().len();
    assert_eq!(preflight(site, "/", "https://www.example.com").status, 200);
    assert_eq!(site.origin().seen().len(), asked + 1);
}

#[test]
fn responses_say_who_may_read_them_and_preflights_are_answered_by_the_gateway() {
    cors_holds(&Site::of_class(&class(), &["shop"], &routes()));
}

#[test]
fn cors_holds_where_every_request_goes_through_varnishd() {
    cors_holds(&Site::of_class(&parameters("{dataPath: Varnish}"), &["shop"], &routes()));
}
