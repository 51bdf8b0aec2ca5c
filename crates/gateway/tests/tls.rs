//! HTTPS listeners: the front ends TLS, and varnishd never notices.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{
    Ask, Certificate, Connection, Handshake, Origin, Program, Scene, class, free_port, gateway_of, get,
    parameters, route, route_to, secret, service, until,
};

/// Gateway `web` with a plain and an HTTPS listener, in front of one origin.
struct Site {
    port: u16,
    tls: u16,
    shop: Origin,
    certificate: Certificate,
    /// Before the scene: the program ends while its files are there.
    program: Program,
    scene: Scene,
}

fn http(port: u16) -> String {
    format!("{{name: http, protocol: HTTP, port: {port}}}")
}

fn https(name: &str, port: u16, more: &str, secret: &str) -> String {
    format!(
        "{{name: {name}, protocol: HTTPS, port: {port}, {more}tls: {{certificateRefs: [{{name: {secret}}}]}}}}"
    )
}

fn listening(program: &Program, port: u16) {
    program.wait_for_line(&["Gateway default/web: listening on", &format!(":{port} (https-{port})")]);
}

impl Site {
    fn new() -> Self {
        let (port, tls, shop) = (free_port(), free_port(), Origin::new("shop"));
        let certificate = Certificate::new("shop.example.com");
        let scene = Scene::new(
            &[class(), service("shop", &[shop.address()]), route_to("shop", "/", "shop")].concat(),
        );
        scene.write("gateway.yaml", &gateway_of("web", &[http(port), https("https", tls, "", "cert")]));
        scene.write("cert.yaml", &certificate.secret("cert"));
        let program = scene.start_with(&["--drain-timeout", "20"]);
        program.wait_for_line(&["Gateway default/web: reloaded 1 routes"]);
        listening(&program, tls);
        Self { port, tls, shop, certificate, program, scene }
    }

    fn handshake(&self) -> Handshake<'static> {
        Handshake { port: self.tls, name: Some("shop.example.com") }
    }
}

#[test]
fn an_https_listener_serves_beside_a_plain_one() {
    let site = Site::new();
    assert!(site.handshake().shows(&site.certificate));
    let answer = site.handshake().get("shop.example.com", "/over-tls");
    assert_eq!((answer.status, answer.origin()), (200, "shop"));
    let seen = site.shop.last_seen();
    let forwarded = |name: &str| seen.header(&format!("X-Forwarded-{name}")).unwrap_or_default().to_owned();
    assert_eq!((forwarded("Proto"), forwarded("Port")), ("https".to_owned(), site.tls.to_string()));
    assert_eq!(forwarded("For"), "127.0.0.1");
    assert_eq!(seen.header("X-Gateway-Listener"), Some(&*format!("https-{}", site.tls)));

    assert_eq!(get(site.port, "shop.example.com", "/plain").origin(), "shop");
    let seen = site.shop.last_seen();
    assert_eq!(seen.header("X-Forwarded-Proto"), Some("http"));
    assert_eq!(seen.header("X-Forwarded-Port"), Some(&*site.port.to_string()));
    // A listener for all names turns away no client without a name.
    assert_eq!(Handshake { port: site.tls, name: None }.get("x", "/").status, 200);
}

#[test]
fn many_requests_go_over_one_connection() {
    let site = Site::new();
    let mut connection = site.handshake().open().unwrap();
    for round in 0..20 {
        let url = format!("/{round}");
        let body = vec![b'x'; round * 10_000];
        let answer = connection.exchange(&Ask::new("POST", "shop.example.com", &url).body(body.clone()));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, if body.is_empty() { b"shop".to_vec() } else { body });
    }
}

#[test]
fn a_redirect_goes_back_to_https() {
    let site = Site::new();
    site.scene.write(
        "to.yaml",
        &route(
            "to",
            "  rules: [{matches: [{path: {value: /to}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /there}}}]}]",
        ),
    );
    until("the route is there", || get(site.port, "shop.example.com", "/to").status == 302);
    let location = |answer: crate::support::Response| answer.header("Location").unwrap().to_owned();
    let secure = site.handshake().get("shop.example.com", "/to");
    assert_eq!(location(secure), format!("https://shop.example.com:{}/there", site.tls));
    let plain = get(site.port, "shop.example.com", "/to");
    assert_eq!(location(plain), format!("http://shop.example.com:{}/there", site.port));
}

#[test]
fn the_name_chooses_the_listener_and_its_certificate() {
    let (tls, any, shop, wild) =
        (free_port(), Certificate::new("any"), Certificate::new("shop"), Certificate::new("wild"));
    let origins = ["any", "shop", "wild"].map(Origin::new);
    let of_listener = |name: &str| {
        route(name, &format!("  rules: [{{backendRefs: [{{name: {name}, port: 80}}]}}]"))
            .replace("[{name: web}]", &format!("[{{name: web, sectionName: {name}}}]"))
    };
    let mut all = class();
    for (origin, certificate) in origins.iter().zip([&any, &shop, &wild]) {
        let name = origin_name(origin, &origins);
        all += &(service(name, &[origin.address()]) + &certificate.secret(name) + &of_listener(name));
    }
    let listeners = [
        https("any", tls, "", "any"),
        https("shop", tls, "hostname: shop.example.com, ", "shop"),
        https("wild", tls, "hostname: \"*.wild.example.com\", ", "wild"),
    ];
    all += &gateway_of("web", &listeners);
    let scene = Scene::new(&all);
    let program = scene.serve();
    listening(&program, tls);
    for (name, certificate, origin) in [
        ("shop.example.com", &shop, "shop"),
        ("SHOP.example.com", &shop, "shop"),
        ("a.wild.example.com", &wild, "wild"),
        ("a.b.wild.example.com", &wild, "wild"),
        ("wild.example.com", &any, "any"),
        ("elsewhere.org", &any, "any"),
    ] {
        let handshake = Handshake { port: tls, name: Some(name) };
        assert!(handshake.shows(certificate), "{name}");
        assert_eq!(handshake.get(name, "/").origin(), origin, "{name}");
    }
    assert!(Handshake { port: tls, name: None }.shows(&any));

    // A connection for one of them is not for the others.
    let mut connection = Handshake { port: tls, name: Some("shop.example.com") }.open().unwrap();
    for (host, status) in [("shop.example.com", 200), ("a.wild.example.com", 421), ("elsewhere.org", 421)] {
        assert_eq!(connection.exchange(&Ask::get(host, "/")).status, status, "{host}");
    }
}

fn origin_name<'a>(origin: &Origin, all: &[Origin]) -> &'a str {
    let names = ["any", "shop", "wild"];
    names[all.iter().position(|other| other.address() == origin.address()).unwrap()]
}

#[test]
fn a_name_that_no_listener_takes_is_refused_in_the_handshake() {
    let (tls, certificate) = (free_port(), Certificate::new("shop.example.com"));
    let listener = https("https", tls, "hostname: shop.example.com, ", "cert");
    let scene = Scene::new(&[class(), gateway_of("web", &[listener]), certificate.secret("cert")].concat());
    let program = scene.serve();
    listening(&program, tls);
    assert!(Handshake { port: tls, name: Some("shop.example.com") }.shows(&certificate));
    assert!(Handshake { port: tls, name: Some("other.example.com") }.open().is_err());
}

#[test]
fn a_rotated_certificate_counts_for_the_next_handshake_and_reloads_nothing() {
    let site = Site::new();
    let mut old = site.handshake().open().unwrap();
    assert_eq!(old.exchange(&Ask::get("shop.example.com", "/")).status, 200);
    let before = (site.program.varnishd(), site.program.count_lines(&["reloaded"]));
    for _ in 0..3 {
        let next = Certificate::new("shop.example.com");
        site.scene.write("cert.yaml", &next.secret("cert"));
        until("the new certificate is shown", || site.handshake().shows(&next));
        assert_eq!(site.handshake().get("shop.example.com", "/").status, 200);
    }
    assert_eq!(old.exchange(&Ask::get("shop.example.com", "/")).status, 200);
    assert_eq!((site.program.varnishd(), site.program.count_lines(&["reloaded"])), before);
}

#[test]
fn a_broken_pair_leaves_the_old_one_in_use() {
    let site = Site::new();
    let other = Certificate::new("other");
    for (broken, what) in [
        (secret("cert", &site.certificate.chain, &other.key), "the key of another"),
        (secret("cert", "nonsense\n", "nonsense\n"), "no PEM"),
        (secret("cert", &site.certificate.chain, ""), "no key"),
    ] {
        let before = site.program.count_lines(&["InvalidCertificateRef"]);
        site.scene.write("cert.yaml", &broken);
        site.program.wait_for_lines(before + 1, &["InvalidCertificateRef"]);
        site.program.wait_for_line(&["Secret default/cert", "stays in use"]);
        assert!(site.handshake().shows(&site.certificate), "{what}");
        assert_eq!(site.handshake().get("shop.example.com", "/").status, 200, "{what}");
    }
    site.scene.write("cert.yaml", &other.secret("cert"));
    until("a good pair is taken again", || site.handshake().shows(&other));
}

#[test]
fn a_listener_waits_for_its_certificate() {
    let (port, tls, certificate) = (free_port(), free_port(), Certificate::new("shop.example.com"));
    let listeners = [http(port), https("https", tls, "", "cert")];
    let scene = Scene::new(&[class(), gateway_of("web", &listeners)].concat());
    let program = scene.serve();
    program.wait_for_line(&["listener https", "Secret default/cert does not exist", "InvalidCertificateRef"]);
    let varnishd = program.varnishd();
    assert!(Connection::open(tls).is_err());
    scene.write("cert.yaml", &certificate.secret("cert"));
    listening(&program, tls);
    assert!(Handshake { port: tls, name: None }.shows(&certificate));
    // One that is taken away is not used any more.
    scene.remove("cert.yaml");
    until("the port is closed", || Connection::open(tls).is_err());
    assert_eq!(program.varnishd(), varnishd);
}

#[test]
fn a_listener_that_loses_its_certificate_keeps_its_name() {
    let (tls, shop, wild) = (free_port(), Origin::new("shop"), Certificate::new("*.example.com"));
    let listeners = [
        https("wild", tls, "hostname: \"*.example.com\", ", "wild"),
        https("shop", tls, "hostname: shop.example.com, ", "shop"),
    ];
    let all = [
        class(),
        gateway_of("web", &listeners),
        wild.secret("wild"),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
    ];
    let scene = Scene::new(&all.concat());
    let own = Certificate::new("shop.example.com");
    scene.write("shop.yaml", &own.secret("shop"));
    let program = scene.serve();
    listening(&program, tls);
    let (of_shop, other) = (
        Handshake { port: tls, name: Some("shop.example.com") },
        Handshake { port: tls, name: Some("cart.example.com") },
    );
    until("it serves", || of_shop.shows(&own));
    scene.remove("shop.yaml");
    until("its name is refused", || of_shop.open().is_err());
    let Err(refused) = of_shop.open() else { panic!("the wildcard has taken it") };
    assert!(refused.to_string().contains("UnrecognisedName"), "{refused}");
    assert!(other.shows(&wild));
    assert_eq!(other.get("cart.example.com", "/").status, 200);
    assert_eq!(other.get("shop.example.com", "/").status, 421);
    scene.write("shop.yaml", &secret("shop", "nonsense\n", "nonsense\n"));
    program.wait_for_line(&["Secret default/shop", "holds no usable pair"]);
    assert!(of_shop.open().is_err(), "a broken pair is no pair");
    scene.write("shop.yaml", &own.secret("shop"));
    until("it is back", || of_shop.shows(&own));
}

#[test]
fn the_swap_of_a_mounted_directory_is_a_new_certificate() {
    let site = Site::new();
    // As the kubelet does it: the file is a link into ..data, which is a link to a directory that is swapped.
    let directory = site.scene.manifest("");
    let swap = |round: usize, certificate: &Certificate| {
        let data = directory.join(format!("..2026_{round}"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("cert.yaml"), certificate.secret("cert")).unwrap();
        std::os::unix::fs::symlink(&data, directory.join("..data_tmp")).unwrap();
        std::fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    };
    swap(0, &site.certificate);
    std::fs::remove_file(directory.join("cert.yaml")).unwrap();
    std::os::unix::fs::symlink("..data/cert.yaml", directory.join("cert.yaml")).unwrap();
    for round in 1..4 {
        let next = Certificate::new("shop.example.com");
        swap(round, &next);
        until("the new certificate is shown", || site.handshake().shows(&next));
        std::fs::remove_dir_all(directory.join(format!("..2026_{}", round - 1))).unwrap();
        assert!(site.handshake().shows(&next));
        assert_eq!(site.handshake().get("shop.example.com", "/").status, 200);
    }
}

#[test]
fn https_listeners_come_and_go_without_a_restart() {
    let site = Site::new();
    let varnishd = site.program.varnishd();
    let mut kept = site.handshake().open().unwrap();
    assert_eq!(kept.exchange(&Ask::get("shop.example.com", "/")).status, 200);
    let second = free_port();
    let first = https("https", site.tls, "", "cert");
    let all = [http(site.port), first.clone(), https("second", second, "", "cert")];
    site.scene.write("gateway.yaml", &gateway_of("web", &all));
    listening(&site.program, second);
    assert_eq!(Handshake { port: second, name: Some("x") }.get("x", "/").origin(), "shop");
    assert_eq!(kept.exchange(&Ask::get("shop.example.com", "/")).status, 200);

    site.scene.write("gateway.yaml", &gateway_of("web", &[http(site.port), first]));
    site.program.wait_for_line(&[&format!("https-{second} takes no more connections")]);
    until("the port is closed", || Connection::open(second).is_err());
    assert_eq!(kept.exchange(&Ask::get("shop.example.com", "/")).status, 200);
    assert_eq!(site.program.varnishd(), varnishd);

    site.scene.write("gateway.yaml", &gateway_of("web", &[http(site.port)]));
    until("the port is closed", || Connection::open(site.tls).is_err());
    assert_eq!(get(site.port, "x", "/").origin(), "shop");
    assert_eq!(site.program.varnishd(), varnishd);
}

#[test]
fn a_gateway_without_plain_listeners_serves() {
    let (tls, shop, certificate) = (free_port(), Origin::new("shop"), Certificate::new("shop.example.com"));
    let scene = Scene::new(
        &[
            class(),
            gateway_of("web", &[https("https", tls, "", "cert")]),
            service("shop", &[shop.address()]),
            route_to("shop", "/", "shop"),
        ]
        .concat(),
    );
    scene.write("cert.yaml", &certificate.secret("cert"));
    let program = scene.serve();
    listening(&program, tls);
    let handshake = Handshake { port: tls, name: Some("shop.example.com") };
    assert_eq!(handshake.get("shop.example.com", "/").origin(), "shop");
    let varnishd = program.varnishd();
    scene.remove("cert.yaml");
    until("the port is closed", || Connection::open(tls).is_err());
    scene.write("cert.yaml", &certificate.secret("cert"));
    until("it is back", || handshake.shows(&certificate));
    assert_eq!(handshake.get("shop.example.com", "/").origin(), "shop");
    assert_eq!(program.varnishd(), varnishd, "varnishd kept its cache");
}

#[test]
fn a_taken_port_keeps_no_other_listener_from_serving() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (port, tls, certificate) =
        (free_port(), taken.local_addr().unwrap().port(), Certificate::new("shop.example.com"));
    let listeners = [http(port), https("https", tls, "", "cert")];
    let scene = Scene::new(&[class(), gateway_of("web", &listeners), certificate.secret("cert")].concat());
    let program = scene.serve();
    program.wait_for_line(&["error: Gateway default/web", &tls.to_string()]);
    assert_eq!(get(port, "x", "/").status, 404);
    drop(taken);
    listening(&program, tls);
    assert!(Handshake { port: tls, name: None }.shows(&certificate));
}

#[test]
fn two_gateways_do_not_share_a_port() {
    let (tls, certificate) = (free_port(), Certificate::new("shop.example.com"));
    let all = [
        class(),
        certificate.secret("cert"),
        gateway_of("web", &[https("https", tls, "", "cert")]),
        gateway_of("zweb", &[http(tls)]),
    ];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    program.wait_for_line(&[&format!("Gateway default/zweb: port {tls} belongs to Gateway default/web")]);
    listening(&program, tls);
    assert!(Handshake { port: tls, name: None }.shows(&certificate));
}

/// Version and status, as curl has them.
fn curl(port: u16, version: &str) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--insecure", version, "--output", "/dev/null"])
        .args(["--write-out", "%{http_version} %{response_code}"])
        .args(["--resolve", &format!("shop.example.com:{port}:127.0.0.1")])
        .arg(format!("https://shop.example.com:{port}/"))
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn http_2_is_spoken_where_the_client_offers_it() {
    let site = Site::new();
    for (version, expected) in [("--http2", "2 200"), ("--http1.1", "1.1 200")] {
        assert_eq!(curl(site.tls, version), expected);
        assert_eq!(site.shop.last_seen().header("X-Forwarded-Proto"), Some("https"));
    }
}

#[test]
fn http_2_is_not_offered_where_varnishd_is_told_not_to_speak_it() {
    let (tls, certificate) = (free_port(), Certificate::new("shop.example.com"));
    let class = parameters("{dataPath: Varnish, varnishdExtraArgs: [-p, feature=-http2]}");
    let listener = https("https", tls, "", "cert");
    let scene = Scene::new(&[class, gateway_of("web", &[listener]), certificate.secret("cert")].concat());
    let program = scene.serve();
    listening(&program, tls);
    assert_eq!(curl(tls, "--http2"), "1.1 404");
}

#[test]
fn sigterm_finishes_what_has_begun_over_tls() {
    let mut site = Site::new();
    let mut connection = site.handshake().open().unwrap();
    connection.write(&Ask::get("shop.example.com", "/hold")).unwrap();
    site.shop.wait_for("/hold");
    let mut idle = site.handshake().open().unwrap();
    assert_eq!(idle.exchange(&Ask::get("shop.example.com", "/")).status, 200);
    site.program.signal(Signal::TERM);
    site.program.wait_for_line(&["Gateway default/web: draining"]);
    until("no new connection is taken", || Connection::open(site.tls).is_err());
    site.shop.release();
    assert_eq!(connection.read().unwrap().status, 200);
    let released = Instant::now();
    assert!(site.program.wait_for_exit().success());
    assert!(released.elapsed() < Duration::from_secs(18), "{:?}", released.elapsed());
}

#[test]
fn a_certificate_that_changes_all_the_time_fails_no_request() {
    let site = Site::new();
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let certificates: Vec<_> = (0..10).map(|_| Certificate::new("shop.example.com")).collect();
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (site, done, asked) = (&site, &done, &asked);
            scope.spawn(move || {
                let ask = Ask::get("shop.example.com", "/");
                while !done.load(Ordering::Relaxed) {
                    // Half of them on connections that live on, half on new ones.
                    let mut connection = site.handshake().open().expect("the handshake");
                    for _ in 0..if client % 2 == 0 { 1 } else { 50 } {
                        let answer = connection.try_exchange(&ask).expect("an answer");
                        assert_eq!(answer.status, 200);
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Shorter by hand: `ROTATING_SECONDS=5 cargo test …`.
        let seconds = std::env::var("ROTATING_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
        let until = Instant::now() + Duration::from_secs(seconds);
        for certificate in certificates.iter().cycle() {
            if Instant::now() > until {
                break;
            }
            site.scene.write("cert.yaml", &certificate.secret("cert"));
            std::thread::sleep(Duration::from_millis(100));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(asked.load(Ordering::Relaxed) > 100, "{asked:?}");
}
