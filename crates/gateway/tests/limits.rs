//! Limits for clients and PROXY protocol, as `serve` takes them from GatewayClassParameters.

use std::io::ErrorKind;

use crate::support::{
    Ask, Connection, Origin, Program, Scene, cache_policy, free_port, gateway, get, parameters, route_to,
    service, until,
};

#[test]
fn a_changed_limit_is_in_use_without_a_restart_and_with_the_cache_kept() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(
        &[gateway("web", &[port]), route_to("shop", "/", "shop"), service("shop", &[origin.address()])]
            .concat(),
    );
    scene.write("policy.yaml", &cache_policy("shop", "shop", "  defaultTTL: 1h"));
    scene.write("class.yaml", &parameters("{dataPath: Auto}"));
    let program = scene.serve();
    let varnishd = program.varnishd();
    until("the page is cached", || get(port, "x", "/kept").header("x-cache") == Some("HIT"));
    let long = format!("/{}", "u".repeat(300));
    let upload = || Ask::new("POST", "x", "/").body(vec![b'b'; 2000]).send(port).status;
    let chunked = || Ask::new("POST", "x", "/").chunked(vec![b'b'; 2000]).send(port).status;
    assert_eq!((get(port, "x", &long).status, upload(), chunked()), (200, 200, 200));

    scene.write("class.yaml", &parameters("{dataPath: Auto, limits: {maxUrlBytes: 200, maxBodySize: 1Ki}}"));
    until("a long URL gets 414", || get(port, "x", &long).status == 414);
    let seen = origin.seen().len();
    assert_eq!((upload(), chunked()), (413, 413));
    assert!(origin.seen().iter().skip(seen).all(|request| request.body.len() < 2000));

    scene.write("class.yaml", &parameters("{dataPath: Auto, limits: {maxHeaders: 10}}"));
    let many = (0..20).fold(Ask::get("x", "/"), |ask, n| ask.header(&format!("X-{n}"), "y"));
    until("many headers get 431", || many.send(port).status == 431);
    assert_eq!((get(port, "x", &long).status, upload()), (200, 200));
    assert_eq!(get(port, "x", "/kept").header("x-cache"), Some("HIT"));
    assert_eq!(program.varnishd(), varnishd, "the very same processes");
}

#[test]
fn a_head_that_varnishd_would_refuse_is_served_past_the_cache() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(
        &[gateway("web", &[port]), route_to("shop", "/", "shop"), service("shop", &[origin.address()])]
            .concat(),
    );
    scene.write("policy.yaml", &cache_policy("shop", "shop", "  defaultTTL: 1h"));
    scene.write("class.yaml", &parameters("{dataPath: Auto}"));
    let _program = scene.serve();
    until("the page is cached", || get(port, "x", "/").header("x-cache") == Some("HIT"));
    let large = Ask::get("x", "/").header("Cookie", &"c".repeat(40_000)).send(port);
    assert_eq!((large.status, large.header("x-cache")), (200, Some("PASS")));
    let many = (0..110).fold(Ask::get("x", "/"), |ask, n| ask.header(&format!("X-{n}"), "y")).send(port);
    assert_eq!((many.status, many.header("x-cache")), (200, Some("PASS")));
    assert_eq!(get(port, "x", "/").header("x-cache"), Some("HIT"));
}

fn say(port: u16, header: &[u8]) -> std::io::Result<(u16, String)> {
    let mut connection = Connection::open(port)?;
    connection.write_bytes(header);
    let answer = connection.try_exchange(&Ask::get("x", "/cached"))?;
    Ok((answer.status, answer.header("x-cache").unwrap_or_default().to_owned()))
}

#[test]
fn proxy_protocol_begins_and_ends_without_a_restart() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(
        &[gateway("web", &[port]), route_to("shop", "/", "shop"), service("shop", &[origin.address()])]
            .concat(),
    );
    scene.write("policy.yaml", &cache_policy("shop", "shop", "  defaultTTL: 1h"));
    scene.write("class.yaml", &parameters("{dataPath: Auto}"));
    let program = scene.serve();
    let varnishd = program.varnishd();
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 80\r\n";
    assert!(say(port, header).is_err());

    let balanced = "{dataPath: Auto, proxyProtocol: {trustedSources: [127.0.0.0/8]}}";
    scene.write("class.yaml", &parameters(balanced));
    until("the header is read", || say(port, header).is_ok_and(|(status, _)| status == 200));
    // A miss, by varnishd and ghost.
    assert_eq!(origin.wait_for("/cached").header("x-forwarded-for"), Some("192.0.2.7"));
    until("the page is cached", || say(port, header).is_ok_and(|(_, cache)| cache == "HIT"));
    // An upload, by the front alone.
    let mut connection = Connection::open(port).unwrap();
    connection.write_bytes(header);
    assert_eq!(connection.exchange(&Ask::new("POST", "x", "/upload").body(b"b".to_vec())).status, 200);
    assert_eq!(origin.wait_for("/upload").header("x-forwarded-for"), Some("192.0.2.7"));
    let refused = say(port, b"").map_err(|e| e.kind());
    assert!(
        matches!(
            refused,
            Err(ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
                | ErrorKind::InvalidData)
        ),
        "{refused:?}"
    );

    scene.write("class.yaml", &parameters("{dataPath: Auto}"));
    until("no header is needed", || say(port, b"").is_ok_and(|(status, _)| status == 200));
    assert_eq!(program.varnishd(), varnishd, "the very same processes");
}

#[test]
fn check_names_what_is_not_in_use_and_what_is_wrong() {
    let checked = |spec: &str| {
        let scene = Scene::new(&[parameters(spec), gateway("web", &[8080])].concat());
        let mut command = Program::command();
        let output = command.arg("check").arg("-f").arg(scene.path("manifests")).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, said) = checked(
        "{dataPath: Varnish, limits: {maxBodySize: 10Mi, maxConnections: 5}, proxyProtocol: {trustedSources: [10.0.0.0/8]}}",
    );
    assert!(said.contains("limits.maxBodySize: not in use"), "{said}");
    assert!(said.contains("proxyProtocol: not in use"), "{said}");
    assert!(!said.contains("maxConnections"), "{said}");
    let (is_good, said) = checked("{dataPath: Auto, limits: {maxUrlBytes: 70000}}");
    assert!(!is_good && said.contains("maxUrlBytes"), "{said}");
    let (is_good, said) = checked("{dataPath: Auto, proxyProtocol: {trustedSources: []}}");
    assert!(!is_good && said.contains("trustedSources"), "{said}");
}
