//! Headers that the gateway sets, and those that it keeps to itself.

use super::Site;
use crate::support::{Ask, get, parameters, route_to};

#[test]
fn forwarded_headers_are_the_gateways_own_word() {
    let site = Site::new(&["shop"], &route_to("shop", "/", "shop"));
    let lies = ["For", "Proto", "Port", "Host"];
    let ask = lies.iter().fold(Ask::get("shop.example.com", "/"), |ask, what| {
        ask.header(&format!("X-Forwarded-{what}"), "6.6.6.6")
    });
    assert_eq!(ask.send(site.port).status, 200);
    let seen = site.origin().last_seen();
    assert_eq!(seen.header("X-Forwarded-For"), Some("127.0.0.1"));
    assert_eq!(seen.header("X-Forwarded-Proto"), Some("http"));
    assert_eq!(seen.header("X-Forwarded-Port"), Some(site.port.to_string().as_str()));
    assert_eq!(seen.header("X-Forwarded-Host"), Some("shop.example.com"));
}

#[test]
fn forwarded_headers_of_trusted_proxies_are_believed() {
    let trusting = parameters("{trustedProxies: [127.0.0.0/8]}");
    let site = Site::of_class(&trusting, &["shop"], &route_to("shop", "/", "shop"));
    let ask = Ask::get("x", "/").header("X-Forwarded-For", "192.0.2.1").header("X-Forwarded-Proto", "https");
    assert_eq!(ask.send(site.port).status, 200);
    let seen = site.origin().last_seen();
    assert_eq!(seen.header("X-Forwarded-For"), Some("192.0.2.1, 127.0.0.1"));
    assert_eq!(seen.header("X-Forwarded-Proto"), Some("https"));
}

#[test]
fn the_gateways_own_headers_come_from_no_client_and_ghosts_reach_nobody() {
    let site = Site::new(&["shop"], &route_to("shop", "/", "shop"));
    let ask = Ask::get("x", "/")
        .header("X-Gateway-Route", "default/forged")
        .header("X-Gateway-Anything", "forged")
        .header("X-Ghost-Pass", "forged")
        .header("X-Ghost-Forced-TTL", "1000");
    let response = ask.send(site.port);
    let seen = site.origin().last_seen();
    assert_eq!(seen.header("X-Gateway-Route"), Some("default/shop"));
    assert_eq!(seen.header("X-Gateway-Listener"), Some(format!("http-{}", site.port).as_str()));
    assert_eq!(seen.header("X-Gateway-Anything"), None);
    let ghostly = |(name, _): &&(String, String)| name.to_ascii_lowercase().starts_with("x-ghost");
    assert_eq!(seen.headers.iter().find(ghostly), None);
    assert_eq!(response.headers.iter().find(ghostly), None);
}

#[test]
fn the_reload_path_is_a_path_like_any_other_on_a_public_listener() {
    let site = Site::new(&["shop"], &route_to("shop", "/.varnish-ghost", "shop"));
    for url in ["/.varnish-ghost/reload", "/.varnish-ghost/status"] {
        assert_eq!(get(site.port, "x", url).origin(), "shop");
        assert_eq!(site.origin().last_seen().url, url);
    }
}

#[test]
fn a_request_that_has_been_here_before_gets_508() {
    let site = Site::new(&["shop"], &route_to("shop", "/", "shop"));
    assert_eq!(get(site.port, "x", "/").status, 200);
    let id = site.origin().last_seen().header("CDN-Loop").unwrap_or_default().to_owned();
    assert!(id.starts_with("vg-"), "{id}");
    let again = |id: &str| Ask::get("x", "/").header("CDN-Loop", id).send(site.port);
    assert_eq!(again("vg-another").status, 200);
    let response = again(&format!("vg-another, {id}"));
    assert_eq!((response.status, response.header("Content-Type")), (508, Some("application/json")));
}
