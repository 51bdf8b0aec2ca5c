//! Hosts, listeners and connections.

use super::*;

#[test]
fn the_closest_hostname_takes_the_request_even_if_it_has_no_route_for_it() {
    let router = compile(json!({"version": 2, "vhosts": {
        "*": {"routes": [route("any", prefix("/"))]},
        "*.a.com": {"routes": [route("below", prefix("/"))]},
        "www.a.com": {"routes": [route("www", prefix("/only"))]},
    }}))
    .router;
    for (host, path, expected) in [
        ("www.a.com", "/only", "www"),
        ("WWW.a.com:8080", "/only/this", "www"),
        ("www.a.com", "/", "404"),
        ("x.a.com", "/", "below"),
        ("x.y.a.com", "/", "below"),
        ("a.com", "/", "any"),
        ("", "/", "any"),
    ] {
        assert_eq!(winner(&router, &Sample::get(host, path)), expected, "{host}{path}");
    }
}

#[test]
fn a_host_known_only_on_https_443_does_not_hide_a_catch_all_on_http_80() {
    let sockets = |sockets: Value| and(prefix("/"), json!({"listeners": sockets}));
    let router = compile(json!({"version": 2, "vhosts": {
        "a.com": {"routes": [route("secure", sockets(json!(["https-443"])))]},
        "*": {"routes": [route("catch-all", sockets(json!(["http-80"])))]},
    }}))
    .router;
    let http = Sample::get("a.com", "/");
    assert_eq!(winner(&router, &http), "catch-all");
    assert_eq!(winner(&router, &Sample { socket: "https-443".into(), ..http }), "secure");
}

#[test]
fn a_connection_carries_requests_for_the_listener_that_it_was_made_for() {
    let listener =
        |name: &str, hostname: Value| json!({"name": name, "socket": "https-443", "hostname": hostname});
    let on = |name: &str| json!([route(name, and(prefix("/"), json!({"listener_names": [name]})))]);
    let router = compile(json!({
        "version": 2,
        "listeners": [
            listener("any", Value::Null),
            listener("second", json!("second.org")),
            listener("wild", json!("*.wild.org")),
            listener("fourth", json!("fourth.wild.org")),
        ],
        "vhosts": {
            "example.org": {"routes": on("any")},
            "second.org": {"routes": on("second")},
            "*.wild.org": {"routes": on("wild")},
            "fourth.wild.org": {"routes": on("fourth")},
        },
    }))
    .router;
    for (server_name, host, expected) in [
        ("example.org", "example.org", 200),
        ("example.org", "second.org", 421),
        ("example.org", "unknown.org", 404),
        ("second.org", "second.org", 200),
        ("Second.org", "second.org:443", 200),
        ("second.org", "example.org", 421),
        ("second.org", "unknown.org", 421),
        ("third.wild.org", "third.wild.org", 200),
        ("third.wild.org", "fifth.wild.org", 200),
        ("third.wild.org", "fourth.wild.org", 421),
        ("third.wild.org", "second.org", 421),
        ("fourth.wild.org", "fourth.wild.org", 200),
        ("fourth.wild.org", "fifth.wild.org", 421),
        ("unknown.org", "example.org", 200),
        ("unknown.org", "unknown.org", 404),
        ("", "second.org", 200),
    ] {
        let server_name_given = Some(server_name.to_owned()).filter(|name| !name.is_empty());
        let request =
            Sample { socket: "https-443".into(), server_name: server_name_given, ..Sample::get(host, "/") };
        let status = match router.decide(&request, 0).action() {
            Action::Forward { .. } => 200,
            Action::NotFound => 404,
            Action::Misdirected => 421,
            other => panic!("{other:?}"),
        };
        assert_eq!(status, expected, "{host} by a connection for {server_name}");
    }
}

#[test]
fn names_with_certificates_of_their_own_do_not_share_connections() {
    let router = compile(json!({
        "version": 2,
        "listeners": [{"name": "ingress/https-443", "socket": "https-443", "tls": {"certificates": [], "hosts": {
            "a.org": ["d/one"], "b.org": ["d/one"], "c.org": ["d/two"], "*.wild.org": ["d/two"],
        }}}],
        "vhosts": {
            "a.org": {"routes": [route("a", prefix("/"))]},
            "b.org": {"routes": [route("b", prefix("/"))]},
            "c.org": {"routes": [route("c", prefix("/"))]},
            "plain.org": {"routes": [route("plain", prefix("/"))]},
        },
    }))
    .router;
    for (server_name, host, expected) in [
        (Some("a.org"), "a.org", "forward"),
        (Some("a.org"), "b.org", "forward"),
        (Some("a.org"), "c.org", "misdirected"),
        (Some("c.org"), "a.org:443", "misdirected"),
        (Some("x.wild.org"), "c.org", "forward"),
        (Some("x.y.wild.org"), "c.org", "misdirected"),
        // Has no certificate, and so no place here.
        (Some("a.org"), "plain.org", "not found"),
        (None, "plain.org", "forward"),
    ] {
        let server_name = server_name.map(str::to_owned);
        let request = Sample { socket: "https-443".into(), server_name, ..Sample::get(host, "/") };
        let action = match router.decide(&request, 0).action() {
            Action::Forward { .. } => "forward",
            Action::NotFound => "not found",
            Action::Misdirected => "misdirected",
            other => panic!("{other:?}"),
        };
        assert_eq!(action, expected, "{host} by a connection for {:?}", request.server_name);
    }
}

#[test]
fn a_request_for_the_name_of_a_tls_listener_came_by_the_wrong_connection() {
    let all = json!({"*": {"routes": [route("all", prefix("/"))]}});
    let router = compile(json!({
        "version": 2,
        "listeners": [
            {"name": "wild", "socket": "https-443", "hostname": "*.a.com"},
            {"name": "own", "socket": "https-443", "hostname": "own.pass.a.com"},
            {"name": "other", "socket": "https-8443"},
            {"name": "http", "socket": "http-80"},
        ],
        "tls_listeners": [
            {"name": "exact", "socket": "https-443", "hostname": "db.a.com"},
            {"name": "deep", "socket": "https-443", "hostname": "*.pass.a.com"},
            {"name": "org", "socket": "https-443", "hostname": "b.org"},
            {"name": "same", "socket": "https-443", "hostname": "*.a.com"},
        ],
        "vhosts": all,
    }))
    .router;
    let action = |socket: &str, server_name: Option<&str>, host: &str| {
        let server_name = server_name.map(str::to_owned);
        let request = Sample { socket: socket.into(), server_name, ..Sample::get(host, "/") };
        router.decide(&request, 0).action()
    };
    for host in ["db.a.com", "DB.a.com:443", "x.pass.a.com", "b.org"] {
        assert_eq!(action("https-443", Some("shop.a.com"), host), Action::Misdirected, "{host}");
        assert!(matches!(action("https-8443", Some("shop.a.com"), host), Action::Forward { .. }), "{host}");
        assert!(matches!(action("http-80", None, host), Action::Forward { .. }), "{host}");
    }
    assert!(matches!(action("https-443", Some("shop.a.com"), "other.a.com"), Action::Forward { .. }));
    assert!(matches!(action("https-443", Some("own.pass.a.com"), "own.pass.a.com"), Action::Forward { .. }));
    // A connection for this very name ends here, say by an Ingress's certificate.
    assert!(matches!(
        action("https-443", Some("x.pass.a.com"), "x.pass.a.com"),
        Action::NotFound | Action::Forward { .. }
    ));
    // Without a name in the handshake nothing is held against a request.
    assert!(matches!(action("https-443", None, "db.a.com"), Action::Forward { .. }));
    assert_eq!(action("https-443", Some("shop.a.com"), "c.org"), Action::NotFound);
}

#[test]
fn the_most_specific_listener_takes_the_request_and_without_a_route_it_answers_404() {
    let router = compile(json!({
        "version": 2,
        "listeners": [
            {"name": "web", "socket": "http-80"},
            {"name": "shop", "socket": "http-80", "hostname": "shop.a.com"},
        ],
        "vhosts": {"*": {"routes": [route("wide", and(prefix("/"), json!({"listener_names": ["web"]})))]}},
    }))
    .router;
    assert_eq!(winner(&router, &Sample::get("other.a.com", "/")), "wide");
    let request = Sample::get("shop.a.com", "/");
    let decision = router.decide(&request, 0);
    assert_eq!((decision.action(), decision.listener().unwrap().name()), (Action::NotFound, "shop"));
    let elsewhere = router.decide(&Sample { socket: "http-8080".into(), ..request }, 0);
    assert_eq!((elsewhere.action(), elsewhere.listener().is_none()), (Action::NotFound, true));
}
