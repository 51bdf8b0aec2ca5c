//! Reports about requests: metrics, access logs, spans.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::client::{read_body, read_head};
use crate::support::{
    Ask, Certificate, Origin, PATIENCE, Program, Scene, cache_policy, class, free_port, get, parameters,
    shop_on, until, wait_for,
};

const HOST: &str = "shop.example.com";

struct Site {
    port: u16,
    origin: Origin,
    program: Program,
    _scene: Scene,
}

impl Site {
    /// Gateway `web` with one route, whose answers are kept.
    fn new(arguments: &[&str]) -> Self {
        Self::of_class("", arguments)
    }

    /// With GatewayClassParameters of this spec.
    fn of_class(spec: &str, arguments: &[&str]) -> Self {
        let (port, origin) = (free_port(), Origin::new("shop"));
        let manifests =
            [shop_on(port, &[origin.address()]), cache_policy("shop", "shop", "  defaultTTL: 1h")];
        let mut manifests = manifests.concat();
        if !spec.is_empty() {
            manifests = manifests.replacen(&class(), &parameters(spec), 1);
        }
        let scene = Scene::new(&manifests);
        let program = scene.start_with(arguments);
        program.wait_for_line(&["Gateway default/web: reloaded"]);
        Self { port, origin, program, _scene: scene }
    }

    /// The line of this path.
    fn logged(&self, path: &str) -> Value {
        let part = format!("\"path\":\"{path}\"");
        let line = self.program.wait_for_line(&["{\"time\":", &part]);
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }
}

#[test]
fn an_access_log_is_json_without_secrets() {
    let site = Site::new(&["--access-log", "json"]);
    let ask = Ask::get(HOST, "/a?token=hidden")
        .header("Authorization", "Bearer hidden")
        .header("Cookie", "session=hidden")
        .header("Referer", "http://other.example.com/x?from=hidden")
        .header("User-Agent", "\"},{\\ \u{e9}");
    // The first one: who says that it serves follows the log.
    assert_eq!(ask.send(site.port).status, 200);
    let line = site.logged("/a");
    for (name, value) in [
        ("gateway", "default/web"),
        ("method", "GET"),
        ("host", HOST),
        ("protocol", "HTTP/1.1"),
        ("cache", "pass"),
        ("kind", "HTTPRoute"),
        ("route", "default/shop"),
        ("service", "default/shop:80"),
        ("referer", "http://other.example.com/x"),
        ("client", "127.0.0.1"),
    ] {
        assert_eq!(line[name], value, "{name} of {line}");
    }
    assert_eq!(line["status"], 200);
    assert_eq!(line["rule"], 0);
    assert_eq!(line["listener"], format!("http-{}", site.port));
    assert_eq!(line["backend"], site.origin.address().to_string());
    assert!(line["duration_ms"].as_f64().unwrap() > 0.0 && line["backend_ms"].as_f64().unwrap() > 0.0);
    assert!(line["user_agent"].as_str().unwrap().starts_with("\"},{\\ "), "{line}");
    // Another one from the cache.
    get(site.port, HOST, "/b");
    get(site.port, HOST, "/b");
    site.program.wait_for_lines(2, &["\"path\":\"/b\""]);
    site.program.wait_for_line(&["\"path\":\"/b\"", "\"cache\":\"hit\""]);
    let text = site.program.text();
    assert!(!text.contains("hidden") && !text.contains(".varnish-ghost"), "{text}");
}

#[test]
fn an_access_log_of_ncsa_goes_to_standard_output() {
    let site = Site::new(&["--access-log", "ncsa"]);
    get(site.port, HOST, "/first");
    site.program.wait_for_line(&["/first HTTP/1.1\" 200"]);
    assert_eq!(site.program.count_lines(&["varnish-ghost"]), 0);
}

/// A collector that keeps what it is sent.
fn collector() -> (u16, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let spans = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&spans);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = BufReader::new(stream);
            let Ok((line, headers)) = read_head(&mut stream) else { continue };
            let body = read_body(&mut stream, &headers).unwrap();
            assert!(line.starts_with("POST /v1/traces "), "{line}");
            let sent: Value = serde_json::from_slice(&body).unwrap();
            let new = sent["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
            keep.lock().unwrap().extend(new);
            let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        }
    });
    (port, spans)
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[test]
fn requests_are_spans_between_client_and_origin() {
    let (port, spans) = collector();
    let endpoint = format!("http://127.0.0.1:{port}");
    let trusting = "{trustedProxies: [127.0.0.1/32]}";
    let site = Site::of_class(trusting, &["--otlp-endpoint", &endpoint, "--trace-sampling", "0"]);
    let ask = |path: &str| {
        let ask = Ask::get(HOST, path).header("traceparent", &format!("00-{TRACE}-{PARENT}-01"));
        ask.header("tracestate", "vendor=1").send(site.port)
    };
    ask("/first");
    until("spans are exported", || !spans.lock().unwrap().is_empty());
    let span_of = |path: &str, cache: &str| {
        let has = |span: &Value, key: &str, value: &str| {
            let attributes = span["attributes"].as_array().unwrap();
            attributes.iter().any(|one| one["key"] == key && one["value"]["stringValue"] == value)
        };
        wait_for(&format!("the span of {path}"), || {
            let all = spans.lock().unwrap().clone();
            all.into_iter()
                .find(|span| has(span, "url.path", path) && has(span, "varnish_gateway.cache", cache))
        })
    };
    ask("/a");
    let seen = site.origin.last_seen();
    assert_eq!(seen.header("tracestate"), Some("vendor=1"));
    let span = span_of("/a", "miss");
    let id = span["spanId"].as_str().unwrap();
    assert_eq!((span["traceId"].as_str(), span["parentSpanId"].as_str()), (Some(TRACE), Some(PARENT)));
    assert_eq!(seen.header("traceparent"), Some(format!("00-{TRACE}-{id}-01").as_str()));
    assert_ne!(id, PARENT);
    // Another trace gets the same object, and a span of its own.
    let other = "1af7651916cd43dd8448eb211c80319c";
    let hit = Ask::get(HOST, "/a").header("traceparent", &format!("00-{other}-{PARENT}-01")).send(site.port);
    assert_eq!((hit.header("X-Cache"), hit.header("traceparent")), (Some("HIT"), None));
    assert_eq!(span_of("/a", "hit")["traceId"], other);
    // A new trace begins where there is none, or none that makes sense; by the ratio it is not recorded.
    for bad in ["", "00-0-0-01", &format!("00-{}-{PARENT}-01", "0".repeat(32))] {
        let path = format!("/bad{}", bad.len());
        Ask::get(HOST, &path).header("traceparent", bad).header("tracestate", "x=1").send(site.port);
        let seen = site.origin.wait_for(&path);
        let parent = seen.header("traceparent").unwrap();
        assert!(parent.len() == 55 && parent.ends_with("-00") && !parent.contains(TRACE), "{parent}");
        assert_eq!(seen.header("tracestate"), None);
    }
}

#[test]
fn a_client_does_not_decide_what_is_recorded() {
    let parent_of = |ratio: &str, flags: &str| {
        let site = Site::new(&["--otlp-endpoint", "http://127.0.0.1:1", "--trace-sampling", ratio]);
        let ask = Ask::get(HOST, "/a").header("traceparent", &format!("00-{TRACE}-{PARENT}-{flags}"));
        assert_eq!(ask.header("tracestate", "vendor=1").send(site.port).status, 200);
        let seen = site.origin.last_seen();
        assert_eq!(seen.header("tracestate"), Some("vendor=1"));
        let parent = seen.header("traceparent").unwrap().to_owned();
        assert!(parent.starts_with(&format!("00-{TRACE}-")) && !parent.contains(PARENT), "{parent}");
        parent
    };
    assert!(parent_of("0", "01").ends_with("-00"));
    assert!(parent_of("1", "00").ends_with("-01"));
}

#[test]
fn a_trace_is_handed_on_where_nobody_exports() {
    let site = Site::new(&[]);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    Ask::get(HOST, "/a").header("traceparent", &parent).header("tracestate", "a=1").send(site.port);
    let seen = site.origin.last_seen();
    assert_eq!((seen.header("traceparent"), seen.header("tracestate")), (Some(parent.as_str()), Some("a=1")));
    let hit = Ask::get(HOST, "/a").header("traceparent", "00-other").send(site.port);
    assert_eq!(hit.header("X-Cache"), Some("HIT"));
}

#[test]
fn serve_shows_metrics_of_its_gateways_on_the_dashboards_address() {
    let dashboard = free_port();
    let site = Site::new(&["--dashboard", &format!("127.0.0.1:{dashboard}")]);
    get(site.port, HOST, "/a");
    get(site.port, HOST, "/a");
    let part = "varnish_gateway_route_cache_total{gateway=\"default/web\",kind=\"HTTPRoute\",\
                namespace=\"default\",name=\"shop\",rule=\"0\",result=\"hit\"} 1\n";
    until("the hit is counted", || {
        let response = get(dashboard, "localhost", "/metrics");
        String::from_utf8(response.body).unwrap().contains(part)
    });
    // Not on a listener.
    assert_eq!(get(site.port, HOST, "/metrics").header("X-Origin"), Some("shop"));
}

/// A collector behind TLS. Keeps heads of requests and what they carry.
fn secure_collector(certificate: &Certificate) -> (u16, Arc<Mutex<Vec<Sent>>>) {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = vec![CertificateDer::from_pem_slice(certificate.chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let all = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&all);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = BufReader::new(rustls::StreamOwned::new(connection, stream));
            let Ok((line, headers)) = read_head(&mut stream) else { continue };
            let body = read_body(&mut stream, &headers).unwrap();
            keep.lock().unwrap().push((line, headers, serde_json::from_slice(&body).unwrap()));
            let to = stream.get_mut();
            let _ = to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").and_then(|()| to.flush());
        }
    });
    (port, all)
}

type Sent = (String, Vec<(String, String)>, Value);

/// `serve` with these variables, once its Gateway serves.
fn serve_with(scene: &Scene, variables: &[(&str, &str)]) -> Program {
    let mut command = Program::command();
    command.args(["serve", "--bind", "127.0.0.1", "-f"]).arg(scene.path("manifests"));
    command.arg("--state-dir").arg(scene.path("state")).args(["--trace-sampling", "1"]);
    let program = Program::spawn({
        command.envs(variables.iter().copied());
        command
    });
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    program
}

#[test]
fn spans_go_to_https_as_opentelemetrys_variables_say() {
    let certificate = Certificate::new("localhost");
    let (collector, sent) = secure_collector(&certificate);
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&shop_on(port, &[origin.address()]));
    let ca = scene.path("ca.pem");
    std::fs::write(&ca, &certificate.chain).unwrap();
    let endpoint = format!("https://localhost:{collector}/in/traces");
    let program = serve_with(
        &scene,
        &[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20hidden"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.to_str().unwrap()),
            ("OTEL_SERVICE_NAME", "edge"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=stage"),
        ],
    );
    get(port, HOST, "/a");
    until("spans come", || !sent.lock().unwrap().is_empty());
    let (line, headers, body) = sent.lock().unwrap()[0].clone();
    assert!(line.starts_with("POST /in/traces "), "{line}");
    let authorization = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    assert_eq!(authorization.map(|(_, value)| value.as_str()), Some("Bearer hidden"));
    let resource = body["resourceSpans"][0]["resource"]["attributes"].as_array().unwrap();
    for (key, value) in [
        ("service.name", "edge"),
        ("deployment.environment", "stage"),
        ("varnish_gateway.gateway", "default/web"),
    ] {
        let has = |one: &Value| one["key"] == key && one["value"]["stringValue"] == value;
        assert_eq!(resource.iter().filter(|one| has(one)).count(), 1, "{key}: {body}");
    }
    assert!(!program.text().contains("hidden"), "{}", program.text());
}

#[test]
fn a_collector_that_cannot_be_used_is_told_and_nothing_else_suffers() {
    let certificate = Certificate::new("localhost");
    let (collector, _) = secure_collector(&certificate);
    let endpoint = format!("https://localhost:{collector}");
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&shop_on(port, &[origin.address()]));
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str());
    for (more, part) in [
        (("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "`grpc` is not supported"),
        (("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file"), "/no/such/file"),
        // The system's CAs do not know it.
        (("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"), "does not accept spans"),
    ] {
        let program = serve_with(&scene, &[endpoint, more]);
        until(part, || {
            assert_eq!(get(port, HOST, "/").origin(), "shop");
            program.count_lines(&[part]) > 0
        });
    }
}

#[test]
fn the_front_logs_and_counts_each_request_once_by_its_way() {
    let dashboard = free_port();
    let page = format!("127.0.0.1:{dashboard}");
    let site = Site::of_class("{dataPath: Auto}", &["--access-log", "json", "--dashboard", &page]);
    get(site.port, HOST, "/b");
    get(site.port, HOST, "/b");
    assert_eq!(Ask::new("POST", HOST, "/c").body(b"hello".to_vec()).send(site.port).status, 200);
    assert_eq!(Ask::get(HOST, "/d").header("Expect", "more").send(site.port).status, 417);
    site.program.wait_for_lines(2, &["\"path\":\"/b\"", "\"way\":\"cache\""]);
    site.program.wait_for_line(&["\"path\":\"/b\"", "\"cache\":\"miss\""]);
    site.program.wait_for_line(&["\"path\":\"/b\"", "\"cache\":\"hit\""]);
    let direct = site.logged("/c");
    assert_eq!(
        (&direct["way"], &direct["cache"], &direct["tries"]),
        (&"direct".into(), &"pass".into(), &1.into())
    );
    assert_eq!(direct["backend"], site.origin.address().to_string());
    let own = site.logged("/d");
    assert_eq!(
        (&own["way"], &own["status"], &own["reason"]),
        (&"own".into(), &417.into(), &"not_supported".into())
    );
    // No program reads varnishd's log.
    let descendants = site.program.descendants();
    assert!(!descendants.into_iter().any(|pid| crate::support::processes::name(pid) == "varnishncsa"));
    let series = |name: &str, label: &str, count: u64| {
        format!("varnish_gateway_{name}{{gateway=\"default/web\",{label}}} {count}\n")
    };
    let of_route = |code: &str, count: u64| {
        let labels =
            format!("kind=\"HTTPRoute\",namespace=\"default\",name=\"shop\",rule=\"0\",code=\"{code}\"");
        series("route_requests_total", &labels, count)
    };
    let wanted = [
        series("way_requests_total", "way=\"cache\"", 2),
        series("way_requests_total", "way=\"direct\"", 1),
        series("way_requests_total", "way=\"own\"", 1),
        series("request_failures_total", "reason=\"not_supported\"", 1),
        series("request_failures_total", "reason=\"client_gone\"", 0),
        series("access_log_lines_total", "result=\"written\"", 4),
        series("access_log_lines_total", "result=\"dropped\"", 0),
        of_route("2xx", 3),
    ];
    until("each is counted once", || {
        let text = get(dashboard, "localhost", "/metrics").text();
        wanted.iter().all(|line| text.contains(line))
            && text.contains("varnish_gateway_cache_fallbacks_total{gateway=\"default/web\"} 0\n")
            && text.contains("varnish_gateway_not_invalidated_total{gateway=\"default/web\"} 0\n")
    });
}

#[test]
fn a_span_of_the_front_has_a_child_for_the_origins_part() {
    let (port, spans) = collector();
    let endpoint = format!("http://127.0.0.1:{port}");
    let site = Site::of_class("{dataPath: Auto}", &["--otlp-endpoint", &endpoint, "--trace-sampling", "1"]);
    let ask = Ask::new("POST", HOST, "/a").header("traceparent", &format!("00-{TRACE}-{PARENT}-00"));
    assert_eq!(ask.body(b"x".to_vec()).send(site.port).status, 200);
    let seen = site.origin.wait_for("/a");
    until("both spans are exported", || spans.lock().unwrap().len() == 2);
    let all = spans.lock().unwrap().clone();
    let of_kind =
        |kind: u64| all.iter().find(|span| span["kind"] == kind).unwrap_or_else(|| panic!("{all:?}"));
    let (request, child) = (of_kind(2), of_kind(3));
    assert_eq!((&request["traceId"], &request["parentSpanId"]), (&TRACE.into(), &PARENT.into()));
    assert_eq!((&child["traceId"], &child["parentSpanId"]), (&TRACE.into(), &request["spanId"]));
    let id = child["spanId"].as_str().unwrap();
    assert_eq!(seen.header("traceparent"), Some(format!("00-{TRACE}-{id}-01").as_str()));
    assert_eq!(
        (&request["name"], &child["name"]),
        (&"POST default/shop".into(), &"POST default/shop:80".into())
    );
}
