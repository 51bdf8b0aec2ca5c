//! Bodies, connections, and what is not HTTP any more.

use super::Site;
use crate::support::origin::GREETING;
use crate::support::{Ask, Connection, front_carries_http, parameters, route_to};

fn shop() -> Site {
    Site::new(&["shop"], &route_to("shop", "/", "shop"))
}

/// Not a pattern that a wrong offset would hide in.
fn bytes(count: u32) -> Vec<u8> {
    (0..count).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn large_bodies_go_there_and_back_unchanged() {
    let site = shop();
    let body = bytes(3_000_000);
    for ask in [
        Ask::new("POST", "x", "/upload").body(body.clone()),
        Ask::new("PUT", "x", "/upload").chunked(body.clone()),
    ] {
        let response = ask.send(site.port);
        assert_eq!(response.status, 200);
        assert!(response.body == body, "the answer differs from what was sent");
        assert!(site.origin().last_seen().body == body, "the origin saw something else");
    }
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let site = shop();
    let mut connection = Connection::open(site.port).unwrap();
    let response = connection.exchange(&Ask::new("HEAD", "x", "/"));
    assert_eq!((response.status, response.header("Content-Length")), (200, Some("4")));
    // A body would be taken for the next answer.
    assert_eq!(connection.exchange(&Ask::get("x", "/")).text(), "shop");
    let seen = site.origin().seen();
    assert_eq!(seen.iter().map(|s| s.method.as_str()).collect::<Vec<_>>(), ["HEAD", "GET"]);
}

#[test]
fn connections_are_kept_on_both_sides() {
    let site = shop();
    let mut connection = Connection::open(site.port).unwrap();
    for number in 0..50 {
        let url = format!("/{number}");
        let ask =
            if number % 2 == 0 { Ask::get("x", &url) } else { Ask::new("POST", "x", &url).body(bytes(9)) };
        assert_eq!(connection.exchange(&ask).status, 200);
    }
    assert_eq!(site.origin().seen().len(), 50);
    let connections = site.origin().connections();
    assert!(connections < 10, "{connections} connections to the origin for one client");
}

#[test]
fn websockets_are_piped_both_ways() {
    let site = shop();
    let mut connection = Connection::open(site.port).unwrap();
    let upgrade = Ask::get("x", "/chat")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("Sec-WebSocket-Version", "13");
    let response = connection.exchange(&upgrade);
    assert_eq!((response.status, response.header("Upgrade")), (101, Some("websocket")));
    assert_eq!(connection.read_bytes(GREETING.len()), GREETING);
    for count in [1, 5, 70_000] {
        let sent = bytes(count);
        connection.write_bytes(&sent);
        assert!(connection.read_bytes(sent.len()) == sent, "the echo of {count} bytes differs");
    }
    let seen = site.origin().last_seen();
    assert_eq!(seen.header("Sec-WebSocket-Key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    assert_eq!(seen.header("X-Forwarded-For"), Some("127.0.0.1"));
}

#[test]
fn an_origin_that_does_not_answer_in_time_is_given_up() {
    let hasty = parameters("{timeouts: {firstByte: 2s}}");
    let site = Site::of_class(&hasty, &["shop"], &route_to("shop", "/", "shop"));
    // varnishd has one status for all that goes wrong with an origin.
    let expected = if front_carries_http() { 504 } else { 503 };
    assert_eq!(Ask::get("x", "/hold").send(site.port).status, expected);
    assert_eq!(Ask::get("x", "/").send(site.port).status, 200);
}
