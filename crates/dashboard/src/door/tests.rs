use super::*;

fn ask(door: &Door, method: &Method, path: &str, headers: &[(&'static str, &str)]) -> u16 {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    match door.check(method, &path.parse().unwrap(), &map) {
        Ok(()) => 200,
        Err(refusal) => refusal.status.as_u16(),
    }
}

fn get(headers: &[(&'static str, &str)]) -> u16 {
    ask(&Door::default(), &Method::GET, "/api/state", headers)
}

#[test]
fn names_of_loopback_are_known_and_no_others() {
    for host in ["localhost", "LocalHost:9000", "127.0.0.1:1", "127.1.2.3", "[::1]", "[::1]:9000"] {
        assert_eq!(get(&[("host", host)]), 200, "{host}");
    }
    let strangers = [
        "evil.example",
        "evil.example:9000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[::1",
        "localhost:x",
        "localhost:9000:9000",
        "[::1]x",
        "",
        "user@localhost",
        "localhost.",
    ];
    for host in strangers {
        assert_eq!(get(&[("host", host)]), 403, "{host}");
    }
    assert_eq!(get(&[]), 400);
    assert_eq!(get(&[("host", "localhost"), ("host", "evil.example")]), 400);
}

#[test]
fn configured_names_count_too_and_addresses_where_we_listen_on_them() {
    let door = Door { names: vec!["board.example.com".to_owned()], any_address: true };
    let host = |host| ask(&door, &Method::GET, "/", &[("host", host)]);
    assert_eq!([host("Board.example.com"), host("10.0.0.1:9000"), host("x.example.com")], [200, 200, 403]);
}

#[test]
fn other_origins_are_refused() {
    let local = ("host", "localhost:9000");
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost:9001",
        "http://localhost",
        "file://",
        "localhost:9000",
    ] {
        assert_eq!(get(&[local, ("origin", origin)]), 403, "{origin}");
    }
    assert_eq!(get(&[local, ("origin", "http://localhost:9000")]), 200);
    for (site, code) in
        [("cross-site", 403), ("same-site", 403), ("odd", 403), ("same-origin", 200), ("none", 200)]
    {
        assert_eq!(get(&[local, ("sec-fetch-site", site)]), code, "{site}");
    }
}

#[test]
fn a_link_leads_to_the_page_and_to_nothing_else() {
    let link = [
        ("host", "localhost:9000"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    let door = Door::default();
    assert_eq!(ask(&door, &Method::GET, "/", &link), 200);
    assert_eq!(ask(&door, &Method::GET, "/api/state", &link), 403);
    let mut frame = link;
    frame[3].1 = "iframe";
    assert_eq!(ask(&door, &Method::GET, "/", &frame), 403);
}

#[test]
fn a_post_needs_a_header_that_no_form_has() {
    let door = Door::default();
    let local = ("host", "localhost");
    assert_eq!(ask(&door, &Method::POST, "/api/purge", &[local]), 403);
    assert_eq!(ask(&door, &Method::POST, "/api/purge", &[local, ("x-varnish-gateway", "1")]), 200);
}
