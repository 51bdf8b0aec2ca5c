//! `tls.options` of listeners, tried by openssl's client.

use crate::support::{Certificate, Origin, Scene, class, free_port, gateway_of, route_to, s_client, service};

fn https(name: &str, port: u16, options: &str) -> String {
    format!(
        "{{name: {name}, protocol: HTTPS, port: {port}, hostname: {name}.example, \
         tls: {{certificateRefs: [{{name: {name}}}], options: {options}}}}}"
    )
}

#[test]
fn each_listener_has_its_versions_and_suites() {
    const MIN: &str = "gateway.varnish-software.com/tls-min-version";
    const SUITES: &str = "gateway.varnish-software.com/tls-cipher-suites";
    let (port, origin) = (free_port(), Origin::new("shop"));
    let suites = "'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256'";
    let listeners = [
        https("any", port, "{}"),
        https("new", port, &format!("{{{MIN}: '1.3'}}")),
        https("narrow", port, &format!("{{{SUITES}: {suites}}}")),
        https("wrong", port, &format!("{{{MIN}: '1.1'}}")),
        https("unknown", port, "{example.com/option: x}"),
    ];
    let names = ["any", "new", "narrow", "wrong", "unknown"];
    let secrets: String =
        names.iter().map(|name| Certificate::new(&format!("{name}.example")).secret(name)).collect();
    let all = [
        class(),
        gateway_of("web", &listeners),
        secrets,
        service("shop", &[origin.address()]),
        route_to("shop", "/", "shop"),
    ];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    program.wait_for_line(&["Gateway default/web: listening on", &format!(":{port} (https-{port})")]);
    // What cannot be carried out is said, and its listener is not served: TLS would be weaker than asked for.
    program.wait_for_line(&["listener wrong", "`1.1` is not a supported version of TLS: use 1.2 or 1.3"]);
    program.wait_for_line(&["listener unknown", "example.com/option is not supported"]);
    let weak = ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"];
    for (name, options, served) in [
        ("any", &["-tls1_2"][..], true),
        ("any", &["-tls1_3"], true),
        ("any", &weak, true),
        ("any", &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], true),
        ("new", &["-tls1_2"], false),
        ("new", &["-tls1_3"], true),
        ("narrow", &["-tls1_2"], true),
        ("narrow", &weak, false),
        ("narrow", &["-tls1_3"], true),
        ("narrow", &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], false),
        ("wrong", &["-tls1_3"], false),
        ("unknown", &["-tls1_3"], false),
    ] {
        let host = format!("{name}.example");
        let said = s_client(port, &host, &[&["-servername", &host, "-alpn", "http/1.1"], options].concat());
        let answered = said.contains("HTTP/1.1 200");
        assert_eq!(answered, served, "{name} {options:?}: {said}");
        if served && name == "narrow" {
            assert!(said.contains("AES128-GCM-SHA256") || said.contains("AES_128_GCM_SHA256"), "{said}");
        }
    }
}
