//! Services of type ExternalName, with a DNS server on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../dns/tests/names/server.rs"]
mod server;

use self::server::{DnsServer, Say};
use crate::support::{
    Ask, Origin, Program, Scene, cache_policy, class, free_port, gateway, gateway_of, get, parameters, route,
    route_to, service, stream_route, until,
};

fn external(name: &str, host: &str, ports: &str) -> String {
    format!(
        "\
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{type: ExternalName, externalName: {host}{ports}}}
---
"
    )
}

fn serve(scene: &Scene, dns: &DnsServer, arguments: &[&str]) -> Program {
    let server = dns.address.to_string();
    let program = scene.start_with(&[&["--dns-server", &server], arguments].concat());
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    program
}

fn to(name: &str, path: &str, service: &str, port: u16) -> String {
    let rule = format!(
        "{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: {service}, port: {port}}}]}}"
    );
    route(name, &format!("  rules: [{rule}]"))
}

/// Answers every request with its name, on an address of its own.
fn other_origin(address: SocketAddr, name: &'static str) -> bool {
    let Ok(listener) = TcpListener::bind(address) else { return false };
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{name}",
                name.len()
            );
        }
    });
    true
}

#[test]
fn a_name_is_followed_from_one_address_to_another_by_a_reload() {
    let (port, dns, origin) = (free_port(), DnsServer::start(), Origin::new("first"));
    origin.answer_with(200, &["Cache-Control: max-age=300"]);
    dns.has("api.example", &["127.0.0.1"], 1);
    let at = origin.address().port();
    let scene = Scene::new(
        &[
            parameters("{externalNames: Allow}"),
            gateway("web", &[port]),
            external("api", "api.example.", ""),
            to("direct", "/direct", "api", at),
            to("kept", "/kept", "api", at),
            cache_policy("kept", "kept", "  defaultTTL: 5m"),
        ]
        .concat(),
    );
    let program = serve(&scene, &dns, &["--allow-loopback-names"]);
    for path in ["/direct", "/kept"] {
        assert_eq!(get(port, "shop.example", path).origin(), "first", "{path}");
    }
    assert_eq!(origin.last_seen().header("host"), Some("shop.example"), "the client's host");
    // Another host, by another address.
    assert!(other_origin(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), at)), "second"), "127.0.0.2 is free");
    dns.has("api.example", &["127.0.0.2"], 300);
    until("the second host", || get(port, "shop.example", "/direct").text() == "second");
    assert_eq!(get(port, "shop.example", "/kept").origin(), "first", "the cache is as it was");
    assert_eq!(get(port, "shop.example", "/kept/2").text(), "second");
    assert_eq!(program.count_lines(&["restarting"]), 0);
    assert!(program.count_lines(&["Gateway default/web: reloaded"]) >= 2);
}

#[test]
fn datagrams_connections_and_ingresses_follow_names() {
    let (port, streams, dns, origin) = (free_port(), free_port(), DnsServer::start(), Origin::new("shop"));
    dns.has("api.example", &["127.0.0.1"], 300);
    let (listener, socket) = loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            break (listener, socket);
        }
    };
    let echo = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"by TCP");
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(b"by UDP", from);
        }
    });
    let backend = format!("{{name: api, port: {echo}}}");
    let ingress = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, annotations: {kubernetes.io/ingress.class: varnish}}
spec:
  rules:
  - host: shop.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {name: web}}}}]}
---
";
    let web = gateway_of(
        "web",
        &[
            format!("{{name: http, protocol: HTTP, port: {port}}}"),
            format!("{{name: tcp, protocol: TCP, port: {streams}}}"),
            format!("{{name: udp, protocol: UDP, port: {streams}}}"),
        ],
    );
    let web = web.replace("  listeners:", "  infrastructure: {labels: {app: varnish-ingress}}\n  listeners:");
    let named = format!(", ports: [{{name: web, port: {}, targetPort: 1}}]", origin.address().port());
    let scene = Scene::new(
        &[
            &parameters("{externalNames: Allow}"),
            &web,
            &external("api", "api.example", ""),
            // The targetPort of a name is unused.
            &external("shop", "api.example", &named),
            &stream_route("TCPRoute", "tcp", &backend),
            &stream_route("UDPRoute", "udp", &backend),
            ingress,
        ]
        .concat(),
    );
    let _program = serve(&scene, &dns, &["--allow-loopback-names"]);
    assert_eq!(get(port, "shop.example", "/").origin(), "shop");
    let mut text = String::new();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, streams)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 64];
    let length = stream.read(&mut buffer).unwrap();
    text.push_str(&String::from_utf8_lossy(&buffer[..length]));
    assert_eq!(text, "by TCP");
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.connect((Ipv4Addr::LOCALHOST, streams)).unwrap();
    client.send(b"?").unwrap();
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"by UDP");
}

#[test]
fn names_are_refused_unless_the_class_allows_them_and_never_lead_to_the_machine_itself() {
    let (port, dns, origin) = (free_port(), DnsServer::start(), Origin::new("inside"));
    dns.has("api.example", &["127.0.0.1", "169.254.169.254"], 300);
    dns.has("private.example", &["10.255.255.1"], 300);
    let at = origin.address().port();
    let manifests = |class: String| {
        let services =
            [external("api", "api.example", ""), external("private", "private.example", "")].concat();
        [
            class,
            gateway("web", &[port]),
            services,
            to("api", "/api", "api", at),
            to("private", "/private", "private", 80),
        ]
        .concat()
    };
    let scene = Scene::new(&manifests(class()));
    let program = serve(&scene, &dns, &[]);
    program.wait_for_line(&["HTTPRoute default/api", "set externalNames"]);
    assert_eq!(get(port, "a", "/api").status, 500);
    assert_eq!(dns.asked("api.example"), 0, "nobody asks for a name that is not used");
    scene.write("all.yaml", &manifests(parameters("{externalNames: PublicOnly}")));
    program.wait_for_line(&[
        "Service default/api: api.example has addresses that are refused",
        "127.0.0.1 (loopback)",
        "169.254.169.254 (link-local)",
    ]);
    program.wait_for_line(&[
        "Service default/private: private.example has addresses that are refused",
        "not public",
    ]);
    assert_eq!([get(port, "a", "/api").status, get(port, "a", "/private").status], [500, 500]);
    assert!(origin.seen().is_empty());
}

#[test]
fn a_dns_server_that_does_not_answer_stops_nobody_else() {
    let (port, dns, origin, shop) =
        (free_port(), DnsServer::start(), Origin::new("api"), Origin::new("shop"));
    dns.say("api.example", Say::Silence);
    let scene = Scene::new(
        &[
            parameters("{externalNames: Allow}"),
            gateway("web", &[port]),
            external("api", "api.example", ""),
            to("api", "/api", "api", origin.address().port()),
            service("shop", &[shop.address()]),
            route_to("shop", "/shop", "shop"),
        ]
        .concat(),
    );
    let began = Instant::now();
    let program = serve(&scene, &dns, &["--allow-loopback-names"]);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(get(port, "a", "/shop").origin(), "shop");
    assert_eq!(Ask::get("a", "/api").send(port).status, 500);
    program.wait_for_line(&["Service default/api: api.example cannot be looked up"]);
    dns.has("api.example", &["127.0.0.1"], 60);
    until("the name is found", || get(port, "a", "/api").status == 200);
}
