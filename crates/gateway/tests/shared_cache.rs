//! The front asks varnishd for all clients by shared connections: who is who, and who counts.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use rustix::process::Signal;

use crate::support::processes::signal;
use crate::support::{
    Ask, Certificate, Connection, Handshake, Origin, PATIENCE, Program, Scene, cache_policy, free_port,
    gateway_of, get, parameters, route_to, service, until,
};

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

struct Site {
    http: u16,
    https: u16,
    dashboard: u16,
    origin: Origin,
    program: Program,
    _scene: Scene,
}

impl Site {
    /// A plain listener for every host; an HTTPS one for `*.example.com`, and another for `b.example.com`. All is kept.
    fn new() -> Self {
        let (http, https, dashboard, origin) = (free_port(), free_port(), free_port(), Origin::new("shop"));
        let listeners = [
            format!("{{name: web, protocol: HTTP, port: {http}}}"),
            format!(
                "{{name: all, protocol: HTTPS, port: {https}, hostname: '*.example.com', tls: {{certificateRefs: [{{name: all}}]}}}}"
            ),
            format!(
                "{{name: b, protocol: HTTPS, port: {https}, hostname: b.example.com, tls: {{certificateRefs: [{{name: b}}]}}}}"
            ),
        ];
        let scene = Scene::new(
            &[
                parameters("{dataPath: Auto, trustedProxies: [127.0.0.2/32]}"),
                gateway_of("web", &listeners),
                Certificate::new("*.example.com").secret("all"),
                Certificate::new("b.example.com").secret("b"),
                service("shop", &[origin.address()]),
                route_to("shop", "/", "shop"),
                cache_policy("shop", "shop", "  defaultTTL: 1h"),
            ]
            .concat(),
        );
        let program = scene.start_with(&["--dashboard", &format!("127.0.0.1:{dashboard}")]);
        program.wait_for_line(&["Gateway default/web: reloaded"]);
        until("the ports are open", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, http)).is_ok()
                && TcpStream::connect((Ipv4Addr::LOCALHOST, https)).is_ok()
        });
        Self { http, https, dashboard, origin, program, _scene: scene }
    }

    fn metrics(&self) -> String {
        String::from_utf8(get(self.dashboard, "localhost", "/metrics").body).unwrap()
    }

    /// Requests of the route with this result.
    fn counted(&self, result: &str) -> u64 {
        let metrics = self.metrics();
        let of_route = "varnish_gateway_route_cache_total{";
        let part = format!("result=\"{result}\"}} ");
        let lines = metrics.lines().filter(|line| line.starts_with(of_route));
        lines.filter_map(|line| line.split_once(&part)?.1.parse::<u64>().ok()).sum()
    }
}

/// A connection from this address.
fn open_from(address: Ipv4Addr, port: u16) -> Connection {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Connection::over(stream)
}

#[test]
fn clients_that_share_connections_to_the_cache_are_not_mixed_up() {
    let site = Site::new();
    let ask = |host: &str, url: &str| {
        Ask::get(host, url)
            .header("X-Forwarded-For", "192.0.2.1")
            .header("X-Forwarded-Proto", "https")
            .header("X-Ghost-Client", "198.51.100.7 1 https-443 TLSv1.3 x")
            .header("X_Ghost_Client", "198.51.100.7 1 https-443 TLSv1.3 x")
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let site = &site;
            scope.spawn(move || {
                let mut proxy = open_from(PROXY, site.http);
                let mut stranger = open_from(STRANGER, site.http);
                let mut tls = Handshake { port: site.https, name: Some("a.example.com") }.open().unwrap();
                let mut other = Handshake { port: site.https, name: Some("b.example.com") }.open().unwrap();
                for round in 0..15 {
                    let url = |who: &str| format!("/{who}/{thread}/{round}");
                    for (who, answer) in [
                        ("proxy", proxy.exchange(&ask("a.example.com", &url("proxy")))),
                        ("stranger", stranger.exchange(&ask("a.example.com", &url("stranger")))),
                        ("tls", tls.exchange(&ask("a.example.com", &url("tls")))),
                        ("other", other.exchange(&ask("b.example.com", &url("other")))),
                    ] {
                        assert_eq!((answer.status, answer.header("X-Cache")), (200, Some("MISS")), "{who}");
                        assert!(
                            answer
                                .headers
                                .iter()
                                .all(|(name, _)| !name.to_ascii_lowercase().contains("ghost"))
                        );
                    }
                    assert_eq!(tls.exchange(&ask("b.example.com", &url("other"))).status, 421);
                    let hit = stranger.exchange(&ask("a.example.com", &url("stranger")));
                    assert_eq!(hit.header("X-Cache"), Some("HIT"));
                }
            });
        }
    });
    let seen = site.origin.seen();
    assert_eq!(seen.len(), 3 * 15 * 4);
    for request in seen {
        let (address, proto, socket) = match request.url.split('/').nth(1).unwrap() {
            "proxy" => ("192.0.2.1, 127.0.0.2", "https", format!("http-{}", site.http)),
            "stranger" => ("127.0.0.3", "http", format!("http-{}", site.http)),
            _ => ("127.0.0.1", "https", format!("https-{}", site.https)),
        };
        assert_eq!(request.header("X-Forwarded-For"), Some(address), "{request:?}");
        assert_eq!(request.header("X-Forwarded-Proto"), Some(proto), "{request:?}");
        assert_eq!(request.header("X-Gateway-Listener"), Some(socket.as_str()), "{request:?}");
        assert!(
            request.headers.iter().all(|(name, _)| !name.to_ascii_lowercase().contains("ghost")),
            "{request:?}"
        );
    }
}

#[test]
fn each_request_is_counted_once_and_counters_survive_varnishd() {
    let site = Site::new();
    for _ in 0..4 {
        assert_eq!(get(site.http, "a.example.com", "/kept").status, 200);
    }
    until("all are counted", || (site.counted("miss"), site.counted("hit")) == (1, 3));
    signal(site.program.varnishd().child, Signal::KILL);
    site.program.wait_for_line(&["Gateway default/web: varnishd's child runs again"]);
    let total = |site: &Site| ["hit", "miss", "pass", "stale", "other"].map(|result| site.counted(result));
    let mut sent = 4;
    until("the cache answers again", || {
        sent += 1;
        get(site.http, "a.example.com", "/kept").header("X-Cache") == Some("HIT")
    });
    // What was counted before is still there.
    until("all are counted again", || total(&site).iter().sum::<u64>() == sent);
    let before = total(&site);
    assert!(before[0] >= 4 && before[1] >= 2, "{before:?}");
    for _ in 0..5 {
        get(site.http, "a.example.com", "/kept");
    }
    until("five more hits", || {
        let now = total(&site);
        now == [before[0] + 5, before[1], before[2], before[3], before[4]]
    });
}
