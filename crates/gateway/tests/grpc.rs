//! GRPCRoutes, by manifests and `serve`, with a client and servers of tonic.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use tonic::{Code, Request};

use crate::support::calls::{Caller, Calls, within};
use crate::support::{
    Authority, Certificate, Program, Scene, class, free_port, front_carries_http, gateway, gateway_of,
    parameters, service,
};

/// A GRPCRoute of Gateway `web` for `calls.example`. `rules` has two blanks before its items.
fn grpc_route(rules: &str) -> String {
    let rules = rules.trim_start_matches('\n').trim_end();
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {{name: calls}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [calls.example]
  rules:
{rules}
---
"
    )
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn words(text: &str) -> Request<String> {
    Request::new(text.to_owned())
}

/// Gateway `web` on an HTTP port.
fn serve(rules: &str, services: &[(&str, SocketAddr)]) -> (u16, Program, Scene) {
    let port = free_port();
    let services: String = services.iter().map(|(name, address)| service(name, &[*address])).collect();
    let scene = Scene::new(&[class(), gateway("web", &[port]), grpc_route(rules), services].concat());
    let program = scene.serve();
    (port, program, scene)
}

async fn every_kind_of_call_works(caller: &Caller) {
    let answer = caller.unary("Say", words("hello")).await.unwrap();
    assert_eq!(answer.get_ref(), "a: hello");

    let large = "x".repeat(1 << 20);
    let answer = caller.unary("Say", words(&large)).await.unwrap();
    assert_eq!(answer.get_ref().len(), large.len() + 3);

    let status = caller.unary("Say", words("fail: not now")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "not now"));

    assert_eq!(caller.sum(&["1", "2", "3"]).await.unwrap(), "1+2+3");
    assert_eq!(caller.sum(&[]).await.unwrap(), "");

    let (messages, end) = caller.count(3).await;
    assert_eq!((messages.join(" "), end.is_ok()), ("1 2 3".to_owned(), true));
    // The status comes in trailers, after all messages.
    let (messages, end) = caller.count(500).await;
    let status = end.unwrap_err();
    assert_eq!((messages.len(), status.code(), status.message()), (500, Code::OutOfRange, "too many"));

    // Each answer is there before the next question.
    let (sender, mut messages) = caller.chat().await;
    for text in ["one", "two", "three"] {
        sender.unbounded_send(text.to_owned()).unwrap();
        let reply = within(messages.message()).await.unwrap();
        assert_eq!(reply, Some(format!("re: {text}")));
    }
    drop(sender);
    assert_eq!(within(messages.message()).await.unwrap(), None);
}

#[test]
fn calls_of_all_kinds_go_through_http_and_https_listeners() {
    if !front_carries_http() {
        return;
    }
    let (http, https) = (free_port(), free_port());
    let certificate = Certificate::new("calls.example");
    let listeners = [
        format!("{{name: http, protocol: HTTP, port: {http}}}"),
        format!(
            "{{name: https, protocol: HTTPS, port: {https}, hostname: calls.example, tls: {{certificateRefs: [{{name: cert}}]}}}}"
        ),
    ];
    let (calls, authority) = (Calls::new("a"), Authority::new());
    let secure = Calls::over_tls("a", &authority.leaf(&["secure.example"]));
    let rules = "
  - matches: [{headers: [{name: x-way, value: tls}]}]
    backendRefs: [{name: secure, port: 80}]
  - backendRefs: [{name: calls, port: 80}]
";
    let policy = "\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: secure}
spec:
  targetRefs: [{group: '', kind: Service, name: secure}]
  validation: {hostname: secure.example, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}
---
";
    let all = [
        class(),
        gateway_of("web", &listeners),
        certificate.secret("cert"),
        grpc_route(rules),
        service("calls", &[calls.address]),
        service("secure", &[secure.address]),
        authority.config_map("ca"),
        policy.to_owned(),
    ];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    program.wait_for_line(&["Gateway default/web: listening on", &format!(":{https} (https-{https})")]);
    runtime().block_on(async {
        for (port, over_tls) in [(http, false), (https, true)] {
            let caller = Caller::connect(port, "calls.example", over_tls).await;
            every_kind_of_call_works(&caller).await;
            // TLS to the backend, by its policy.
            let mut request = words("safe");
            request.metadata_mut().insert("x-way", "tls".parse().unwrap());
            assert_eq!(caller.unary("Say", request).await.unwrap().get_ref(), "a: safe");
        }
    });
}

#[test]
fn methods_and_headers_choose_the_rule_and_its_filters_count() {
    if !front_carries_http() {
        return;
    }
    let (a, b, c) = (Calls::new("a"), Calls::new("b"), Calls::new("c"));
    let rules = "
  - matches: [{method: {service: test.Echo, method: Say}, headers: [{name: x-version, value: '2'}]}]
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: by-rule}]}}
    - {type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: x-added, value: 'yes'}]}}
    backendRefs: [{name: b, port: 80}]
  - matches: [{method: {type: RegularExpression, service: 'test[.]E.*', method: 'Sa[xy]'}, headers: [{name: x-regex, value: '1'}]}]
    backendRefs: [{name: c, port: 80}]
  - matches: [{method: {service: test.Echo}}]
    backendRefs: [{name: a, port: 80}]
";
    let (port, _program, _scene) = serve(rules, &[("a", a.address), ("b", b.address), ("c", c.address)]);
    runtime().block_on(async {
        let caller = Caller::connect(port, "calls.example", false).await;
        assert_eq!(caller.unary("Say", words("x")).await.unwrap().get_ref(), "a: x");
        let mut request = words("x");
        request.metadata_mut().insert("x-version", "2".parse().unwrap());
        let answer = caller.unary("Say", request).await.unwrap();
        assert_eq!(answer.get_ref(), "b: x");
        assert_eq!(answer.metadata().get("x-seen").unwrap(), "by-rule");
        assert_eq!(answer.metadata().get("x-added").unwrap(), "yes");
        let mut request = words("x");
        request.metadata_mut().insert("x-regex", "1".parse().unwrap());
        assert_eq!(caller.unary("Say", request).await.unwrap().get_ref(), "c: x");
    });
}

#[test]
fn calls_that_lead_nowhere_get_statuses_of_grpc() {
    if !front_carries_http() {
        return;
    }
    let calls = Calls::new("a");
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let rules = "
  - matches: [{method: {service: test.Echo}}]
    backendRefs: [{name: calls, port: 80}]
  - matches: [{method: {service: test.Down}}]
    backendRefs: [{name: down, port: 80}]
  - matches: [{method: {service: test.Missing}}]
    backendRefs: [{name: missing, port: 80}]
  - matches: [{method: {service: test.None}}]
";
    let (port, _program, _scene) = serve(rules, &[("calls", calls.address), ("down", closed)]);
    runtime().block_on(async {
        let caller = Caller::connect(port, "calls.example", false).await;
        for (method, code) in [
            ("/test.Other/Say", Code::Unimplemented),
            ("/test.Echo/Unknown", Code::Unimplemented),
            ("/test.Down/Say", Code::Unavailable),
            ("/test.Missing/Say", Code::Unavailable),
            ("/test.None/Say", Code::Unavailable),
        ] {
            let status = caller.unary(method, words("x")).await.unwrap_err();
            assert_eq!(status.code(), code, "{method}: {status}");
        }
        let elsewhere = Caller::connect(port, "other.example", false).await;
        assert_eq!(elsewhere.unary("Say", words("x")).await.unwrap_err().code(), Code::Unimplemented);
        // The connection is as good as before.
        assert_eq!(caller.unary("Say", words("x")).await.unwrap().get_ref(), "a: x");
    });
}

#[test]
fn a_deadline_ends_a_call_and_blames_no_endpoint() {
    if !front_carries_http() {
        return;
    }
    let calls = Calls::new("a");
    let (port, program, _scene) =
        serve("  - backendRefs: [{name: calls, port: 80}]", &[("calls", calls.address)]);
    runtime().block_on(async {
        let caller = Caller::connect(port, "calls.example", false).await;
        let mut request = words("x");
        request.set_timeout(Duration::from_millis(300));
        let began = Instant::now();
        let status = caller.unary("Wait", request).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed() < Duration::from_secs(20));
        // Deadlines that are over already, as often as would have an endpoint avoided that fails.
        for _ in 0..20 {
            let mut request = words("x");
            request.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
            let status = caller.unary("Wait", request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            let mut request = words("x");
            request.set_timeout(Duration::from_millis(5));
            assert_eq!(caller.unary("Wait", request).await.unwrap_err().code(), Code::DeadlineExceeded);
        }
        let mut request = words("x");
        request.set_timeout(Duration::from_secs(60));
        assert_eq!(caller.unary("Say", request).await.unwrap().get_ref(), "a: x");
    });
    assert_eq!(program.count_lines(&["is avoided"]), 0, "{}", program.text());
}

#[test]
fn a_session_by_header_keeps_calls_at_one_endpoint() {
    if !front_carries_http() {
        return;
    }
    let (a, b, c) = (Calls::new("a"), Calls::new("b"), Calls::new("c"));
    let port = free_port();
    let rules = "
  - sessionPersistence: {type: Header, sessionName: x-session}
    backendRefs: [{name: calls, port: 80}]
";
    let endpoints = service("calls", &[a.address, b.address, c.address]);
    let scene = Scene::new(&[class(), gateway("web", &[port]), grpc_route(rules), endpoints].concat());
    let _program = scene.serve();
    runtime().block_on(async {
        let caller = Caller::connect(port, "calls.example", false).await;
        let first = caller.unary("Say", words("x")).await.unwrap();
        let token = first.metadata().get("x-session").expect("a token").clone();
        for _ in 0..12 {
            let mut request = words("x");
            request.metadata_mut().insert("x-session", token.clone());
            assert_eq!(caller.unary("Say", request).await.unwrap().get_ref(), first.get_ref());
        }
    });
}

#[test]
fn a_grpc_route_is_refused_where_varnishd_gets_every_request() {
    let (port, calls) = (free_port(), Calls::new("a"));
    let all = [
        parameters("{dataPath: Varnish}"),
        gateway("web", &[port]),
        grpc_route("  - backendRefs: [{name: calls, port: 80}]"),
        service("calls", &[calls.address]),
    ];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    program.wait_for_line(&[
        "GRPCRoute default/calls",
        "varnishd, which cannot carry gRPC",
        "use dataPath Auto",
    ]);
}
