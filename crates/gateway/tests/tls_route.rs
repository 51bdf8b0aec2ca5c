//! TLSRoute: bytes go to the backend by the name in the handshake, decrypted or not, without varnishd.

use crate::support::{
    Ask, Authority, Certificate, Connection, Handshake, Origin, Program, Scene, TlsOrigin, class, free_port,
    gateway_of, route_to, service, until,
};

fn tls_route(name: &str, hostnames: &str, backends: &str) -> String {
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{hostnames}]
  rules: [{{backendRefs: [{backends}]}}]
---
"
    )
}

fn passthrough(name: &str, port: u16, hostname: &str) -> String {
    format!(
        "{{name: {name}, protocol: TLS, port: {port}, hostname: \"{hostname}\", tls: {{mode: Passthrough}}}}"
    )
}

fn terminate(name: &str, port: u16, hostname: &str) -> String {
    format!(
        "{{name: {name}, protocol: TLS, port: {port}, hostname: \"{hostname}\", tls: {{mode: Terminate, certificateRefs: [{{name: cert}}]}}}}"
    )
}

fn https(name: &str, port: u16) -> String {
    format!("{{name: {name}, protocol: HTTPS, port: {port}, tls: {{certificateRefs: [{{name: cert}}]}}}}")
}

fn listening(program: &Program, port: u16) {
    program.wait_for_line(&["Gateway default/web: listening on", &format!(":{port} (")]);
}

fn origin(port: u16, name: &str) -> Option<String> {
    let mut connection = Handshake { port, name: Some(name) }.open().ok()?;
    let answer = connection.try_exchange(&Ask::get(name, "/").header("Connection", "close")).ok()?;
    Some(answer.origin().to_owned())
}

#[test]
fn one_port_passes_through_terminates_and_speaks_https() {
    let (port, ca, own) = (free_port(), Authority::new(), Certificate::new("own"));
    let (secret, plain, shop) = (Origin::new("secret"), Origin::new("plain"), Origin::new("shop"));
    let leaf = ca.leaf(&["db.example.com"]);
    let tls = TlsOrigin::new(&leaf, secret.address());
    let listeners = [
        https("https", port),
        passthrough("pass", port, "*.example.com"),
        terminate("end", port, "plain.example.com"),
    ];
    let all = [
        class(),
        gateway_of("web", &listeners),
        own.secret("cert"),
        service("db", &[tls.address()]),
        service("plain", &[plain.address()]),
        service("shop", &[shop.address()]),
        tls_route("db", "db.example.com", "{name: db, port: 80}"),
        tls_route("plain", "plain.example.com", "{name: plain, port: 80}"),
        route_to("shop", "/", "shop"),
    ];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    listening(&program, port);
    assert!(!Handshake { port, name: Some("db.example.com") }.shows(&own), "it is the backend's own");
    assert_eq!(origin(port, "db.example.com").as_deref(), Some("secret"));
    assert!(Handshake { port, name: Some("plain.example.com") }.shows(&own));
    assert_eq!(origin(port, "plain.example.com").as_deref(), Some("plain"));
    assert_eq!(plain.last_seen().header("X-Forwarded-For"), None, "bytes, not HTTP");
    assert_eq!(origin(port, "elsewhere.org").as_deref(), Some("shop"));
    assert!(shop.last_seen().header("X-Forwarded-For").is_some());
    // Names of TLS listeners are not served by connections for others, whatever route there is.
    let mut elsewhere = Handshake { port, name: Some("elsewhere.org") }.open().unwrap();
    for (host, status) in
        [("elsewhere.org", 200), ("db.example.com", 421), ("plain.example.com", 421), ("other.org", 200)]
    {
        assert_eq!(elsewhere.try_exchange(&Ask::get(host, "/")).unwrap().status, status, "{host}");
    }
    // The passthrough listener takes the name, and no route does.
    assert_eq!(origin(port, "other.example.com"), None);

    // Routes and endpoints change without a restart.
    let varnishd = program.varnishd();
    scene.write(
        "more.yaml",
        &tls_route("other", "'*.example.com'", "{name: nowhere, port: 80}, {name: db, port: 80}"),
    );
    program.wait_for_line(&["TLSRoute default/other", "BackendNotFound"]);
    until("half of the connections arrive", || {
        origin(port, "other.example.com").as_deref() == Some("secret")
    });
    until("the other half is closed", || origin(port, "other.example.com").is_none());
    scene.write("more.yaml", "");
    until("the route is gone", || (0..4).all(|_| origin(port, "other.example.com").is_none()));
    assert_eq!(program.varnishd(), varnishd);
}

#[test]
fn what_is_decrypted_is_encrypted_again_where_a_policy_says_so() {
    let (port, ca, own, inner) =
        (free_port(), Authority::new(), Certificate::new("own"), Origin::new("inner"));
    let tls = TlsOrigin::new(&ca.leaf(&["db.internal"]), inner.address());
    let policy = |hostname: &str| {
        format!(
            "\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: db}}
spec:
  targetRefs: [{{group: '', kind: Service, name: db}}]
  validation: {{hostname: {hostname}, caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}]}}
---
"
        )
    };
    let all = [
        class(),
        gateway_of("web", &[terminate("end", port, "db.example.com")]),
        own.secret("cert"),
        ca.config_map("ca"),
        service("db", &[tls.address()]),
        tls_route("db", "db.example.com", "{name: db, port: 80}"),
    ];
    let scene = Scene::new(&all.concat());
    scene.write("policy.yaml", &policy("db.internal"));
    let program = scene.serve();
    listening(&program, port);
    assert_eq!(origin(port, "db.example.com").as_deref(), Some("inner"));
    scene.write("policy.yaml", &policy("other.internal"));
    until("the backend is not believed", || origin(port, "db.example.com").is_none());
    scene.remove("policy.yaml");
    drop(program);
}

#[test]
fn a_gateway_of_tls_alone_opens_its_port() {
    let (port, inner, own) = (free_port(), Origin::new("inner"), Certificate::new("own"));
    let all = [
        class(),
        gateway_of("web", &[terminate("end", port, "db.example.com")]),
        service("db", &[inner.address()]),
        tls_route("db", "db.example.com", "{name: db, port: 80}"),
    ];
    let scene = Scene::new(&all.concat());
    scene.write("cert.yaml", &own.secret("cert"));
    let program = scene.serve();
    listening(&program, port);
    assert_eq!(origin(port, "db.example.com").as_deref(), Some("inner"));
    scene.remove("cert.yaml");
    until("the port is closed", || Connection::open(port).is_err());
}
