//! TCPRoute and UDPRoute: bytes and datagrams go to backends, without varnishd.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{
    Origin, Program, Scene, class, free_port, gateway_of, get, parameters, route_to, service, stream_route,
    until,
};

/// Says its name before what comes back, by TCP and by UDP on one port.
fn echo(name: &'static str) -> SocketAddr {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let Ok(socket) = UdpSocket::bind(address) else { continue };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || answer(stream, name));
            }
        });
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&[name.as_bytes(), &buffer[..length]].concat(), from);
            }
        });
        return address;
    }
}

fn answer(mut stream: TcpStream, name: &str) {
    let mut buffer = [0; 2048];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let _ = stream.write_all(&[name.as_bytes(), &buffer[..length]].concat());
    }
}

/// A Service and its endpoint, by both protocols.
fn both(name: &str, address: SocketAddr, app_protocol: &str) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        "\
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  ports:
    - {{name: tcp, port: 7, protocol: TCP{app_protocol}}}
    - {{name: udp, port: 7, protocol: UDP}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: tcp, port: {port}, protocol: TCP}}, {{name: udp, port: {port}, protocol: UDP}}]
endpoints: [{{addresses: ['{ip}']}}]
---
"
    )
}

fn listener(protocol: &str, port: u16) -> String {
    let name = protocol.to_lowercase();
    format!("{{name: {name}, protocol: {protocol}, port: {port}}}")
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn say(stream: &mut TcpStream, words: &str) -> Option<String> {
    stream.write_all(words.as_bytes()).ok()?;
    let mut buffer = [0; 256];
    match stream.read(&mut buffer) {
        Ok(length @ 1..) => Some(String::from_utf8_lossy(&buffer[..length]).into_owned()),
        _ => None,
    }
}

fn by_tcp(port: u16) -> Option<String> {
    say(&mut TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?, "?")
}

fn by_udp(port: u16) -> Option<String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.send(b"?").unwrap();
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

#[test]
fn tcp_and_udp_share_a_port_beside_http_and_change_without_a_restart() {
    let (http, port, second_port) = (free_port(), free_port(), free_port());
    let (a, b, shop) = (echo("a"), echo("b"), Origin::new("shop"));
    let web = |more: &[String]| {
        let mut listeners = vec![listener("HTTP", http), listener("TCP", port), listener("UDP", port)];
        listeners.extend_from_slice(more);
        gateway_of("web", &listeners)
    };
    let rest = [
        class(),
        both("a", a, ""),
        both("b", b, ""),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
    ];
    let scene = Scene::new(&rest.concat());
    scene.write("gateway.yaml", &web(&[]));
    scene.write("tcp.yaml", &stream_route("TCPRoute", "tcp", "{name: a, port: 7}"));
    scene.write("udp.yaml", &stream_route("UDPRoute", "udp", "{name: b, port: 7}"));
    let log = scene.path("connections.log");
    let program = scene.start_with(&["--access-log", log.to_str().unwrap()]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    program.wait_for_line(&[&format!(":{port} (udp-{port}")]);
    let varnishd = program.varnishd();
    assert_eq!(by_tcp(port).as_deref(), Some("a?"));
    assert_eq!(by_udp(port).as_deref(), Some("b?"));
    assert_eq!(get(http, "x", "/").status, 200);

    // The route's backends change; a connection that is there stays where it is.
    let mut kept = connect(port);
    assert_eq!(say(&mut kept, "1").as_deref(), Some("a1"));
    scene.write("tcp.yaml", &stream_route("TCPRoute", "tcp", "{name: b, port: 7}"));
    scene.write(
        "udp.yaml",
        &stream_route("UDPRoute", "udp", "{name: a, port: 7}, {name: b, port: 7, weight: 0}"),
    );
    until("the other backend", || {
        by_tcp(port).as_deref() == Some("b?") && by_udp(port).as_deref() == Some("a?")
    });
    assert_eq!(say(&mut kept, "2").as_deref(), Some("a2"));

    // A backendRef that leads nowhere closes its share.
    scene.write("tcp.yaml", &stream_route("TCPRoute", "tcp", "{name: nowhere, port: 7}"));
    program.wait_for_line(&["TCPRoute default/tcp", "BackendNotFound"]);
    until("connections are closed", || by_tcp(port).is_none());

    // Listeners come and go.
    let more = format!("{{name: more, protocol: TCP, port: {second_port}}}");
    scene.write("more.yaml", &stream_route("TCPRoute", "more", "{name: a, port: 7}"));
    scene.write("gateway.yaml", &web(&[more]));
    until("the new listener", || by_tcp(second_port).as_deref() == Some("a?"));
    scene.write("gateway.yaml", &gateway_of("web", &[listener("HTTP", http)]));
    until("they are closed", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, second_port)).is_err()
            && UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    assert_eq!(say(&mut kept, "3").as_deref(), Some("a3"));
    assert_eq!(program.varnishd(), varnishd, "it was not started again");
    drop(kept);
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    let has = |parts: &[&str]| lines().lines().any(|line| parts.iter().all(|part| line.contains(part)));
    if crate::support::front_carries_http() {
        until("lines of the log", || {
            has(&[
                "\"protocol\":\"TCP\"",
                "\"route\":\"default/tcp\"",
                "\"bytes_in\":3",
                &format!("tcp-{port}"),
            ]) && has(&["\"protocol\":\"UDP\"", "\"kind\":\"UDPRoute\"", "\"datagrams\":1"])
        });
    }
}

#[test]
fn streams_are_served_where_varnishd_owns_the_ports_of_http() {
    let (http, port) = (free_port(), free_port());
    let (a, shop) = (echo("a"), Origin::new("shop"));
    let all = [
        parameters("{dataPath: Varnish}"),
        gateway_of("web", &[listener("HTTP", http), listener("TCP", port), listener("UDP", port)]),
        both("a", a, ""),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
        stream_route("TCPRoute", "tcp", "{name: a, port: 7}"),
        stream_route("UDPRoute", "udp", "{name: a, port: 7}"),
    ];
    let scene = Scene::new(&all.concat());
    let _program = scene.serve();
    until("TCP", || by_tcp(port).as_deref() == Some("a?"));
    until("UDP", || by_udp(port).as_deref() == Some("a?"));
    assert_eq!(get(http, "x", "/").status, 200);
}

#[test]
fn explain_and_top_know_what_a_running_listener_relays() {
    let (port, a, b) = (free_port(), echo("a"), echo("b"));
    let all = [
        class(),
        gateway_of("web", &[listener("TCP", port), listener("UDP", port)]),
        both("a", a, ""),
        both("b", b, ""),
        stream_route("TCPRoute", "tcp", "{name: a, port: 7, weight: 3}, {name: b, port: 7}"),
        stream_route("UDPRoute", "udp", "{name: a, port: 7}"),
    ];
    let scene = Scene::new(&all.concat());
    let state = scene.path("state");
    let state = state.to_str().unwrap();
    let _program = scene.serve();
    until("UDP", || by_udp(port).as_deref() == Some("a?"));
    let ask = |words: &[&str]| {
        let output = Program::command().args(words).args(["--state-dir", state]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let text = ask(&["explain", "--port", &port.to_string()]);
    for part in [
        "route: TCPRoute default/tcp".to_owned(),
        format!("relayed to default/a (75 %: {a}) or default/b (25 %: {b})"),
        "route: UDPRoute default/udp".to_owned(),
        format!("relayed to default/a (100 %: {a})"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    let kept = connect(port);
    until("top shows the connection", || {
        let text = ask(&["top"]);
        let row = text.lines().find(|line| line.starts_with("TCPRoute default/tcp")).map(str::to_owned);
        let open = row.and_then(|row| row.split_whitespace().nth(3)?.parse::<u32>().ok());
        by_tcp(port);
        open >= Some(1) && text.contains("UDPRoute default/udp") && text.contains("BYTES IN/S")
    });
    drop(kept);
}

#[test]
fn a_gateway_of_streams_alone_drains_its_connections() {
    let (port, a) = (free_port(), echo("a"));
    let all = [
        class(),
        gateway_of("web", &[listener("TCP", port), listener("UDP", port)]),
        both("a", a, ""),
        stream_route("TCPRoute", "tcp", "{name: a, port: 7}"),
        stream_route("UDPRoute", "udp", "{name: a, port: 7}"),
    ];
    let scene = Scene::new(&all.concat());
    let mut program = scene.start_with(&["--drain-timeout", "60"]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    until("UDP", || by_udp(port).as_deref() == Some("a?"));
    let mut kept = connect(port);
    assert_eq!(say(&mut kept, "1").as_deref(), Some("a1"));
    program.signal(Signal::TERM);
    program.wait_for_line(&["Gateway default/web: draining"]);
    until("no new connections", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    // Longer than sessions of UDP last now.
    thread::sleep(Duration::from_secs(7));
    assert_eq!(say(&mut kept, "2").as_deref(), Some("a2"));
    assert!(program.is_running());
    drop(kept);
    assert!(program.wait_for_exit().success());
}

#[test]
fn sessions_of_udp_are_limited_as_parameters_say() {
    let (port, a) = (free_port(), echo("a"));
    let limits = "{limits: {maxUdpSessions: 1, udpIdleTimeout: 2s, udpEstablishedTimeout: 2s}}";
    let all = [
        parameters(limits),
        gateway_of("web", &[listener("UDP", port)]),
        both("a", a, ""),
        stream_route("UDPRoute", "udp", "{name: a, port: 7}"),
    ];
    let scene = Scene::new(&all.concat());
    let _program = scene.serve();
    // The first client has the only place, and keeps it while it talks.
    let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    first.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    first.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut buffer = [0; 16];
    until("the first client", || first.send(b"1").is_ok() && first.recv(&mut buffer).is_ok());
    first.send(b"2").unwrap();
    assert_eq!(first.recv(&mut buffer).unwrap(), 2);
    assert_eq!(by_udp(port), None, "there is no place for a second one");
    // Silent for two seconds, its place is free.
    until("the second client", || by_udp(port).as_deref() == Some("a?"));
}

#[test]
fn a_service_can_ask_for_the_proxy_protocol() {
    let port = free_port();
    let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let wants = ", appProtocol: gateway.varnish-software.com/proxy-v2";
    let all = [
        class(),
        gateway_of("web", &[listener("TCP", port)]),
        both("a", backend.local_addr().unwrap(), wants),
        stream_route("TCPRoute", "tcp", "{name: a, port: 7}"),
    ];
    let scene = Scene::new(&all.concat());
    let _program = scene.serve();
    let client = connect(port);
    let (mut seen, _) = backend.accept().unwrap();
    seen.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut header = [0; 28];
    seen.read_exact(&mut header).unwrap();
    assert_eq!(&header[..14], b"\r\n\r\n\0\r\nQUIT\n\x21\x11");
    let sent = client.local_addr().unwrap();
    assert_eq!(header[16..20], [127, 0, 0, 1]);
    assert_eq!(u16::from_be_bytes([header[24], header[25]]), sent.port());
    assert_eq!(u16::from_be_bytes([header[26], header[27]]), port);
}
