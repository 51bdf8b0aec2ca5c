//! Gateways, their classes and the grants between namespaces.

use crate::support::{admitted, gateway, listeners, object, refused};
use serde_json::json;
use translate::snapshot::Key;

const CLASS: &str = "gateway.networking.k8s.io/v1";

#[test]
fn a_listener_gets_the_defaults_of_the_crd() {
    let snapshot = admitted(&listeners(&[
        "{name: http, port: 80, protocol: HTTP}",
        "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}, \
         allowedRoutes: {kinds: [{kind: HTTPRoute}]}}",
    ]));
    let spec = serde_json::to_value(&snapshot.gateways[&Key::new("default", "edge")].spec).unwrap();
    assert_eq!(
        spec["listeners"],
        json!([
            {
                "name": "http", "port": 80, "protocol": "HTTP",
                "allowedRoutes": {"namespaces": {"from": "Same"}},
            },
            {
                "name": "https", "port": 443, "protocol": "HTTPS",
                "tls": {"mode": "Terminate", "certificateRefs": [{"group": "", "kind": "Secret", "name": "cert"}]},
                "allowedRoutes": {
                    "namespaces": {"from": "Same"},
                    "kinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}],
                },
            },
        ])
    );
}

#[test]
fn listeners_are_distinct() {
    admitted(&listeners(&[
        "{name: a, port: 80, protocol: HTTP}",
        "{name: b, port: 80, protocol: HTTP, hostname: b.example}",
        "{name: c, port: 81, protocol: HTTP}",
    ]));
    assert_eq!(
        refused(&listeners(&["{name: a, port: 80, protocol: HTTP}", "{name: a, port: 81, protocol: HTTP}"])),
        "spec.listeners[1].name \"a\" is there twice; each may be given only once"
    );
    assert_eq!(
        refused(&listeners(&["{name: a, port: 80, protocol: HTTP}", "{name: b, port: 80, protocol: HTTP}"])),
        "spec.listeners[1] has the port, protocol and hostname of the listener \"a\", so \"b\" could never be told from \
         it; change one of them"
    );
    assert_eq!(refused(&gateway("listeners: []")), "spec.listeners must not be empty");
    let many: Vec<String> = (1..=65).map(|n| format!("{{name: l{n}, port: {n}, protocol: HTTP}}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(refused(&listeners(&many)), "spec.listeners has 65 entries; between 1 and 64 are allowed");
}

#[test]
fn listener_fields_have_their_form() {
    let cases = [
        ("{name: A, port: 80, protocol: HTTP}", "spec.listeners[0].name \"A\" must be a name"),
        ("{name: a, port: 0, protocol: HTTP}", "spec.listeners[0].port 0 must be between 1 and 65535"),
        (
            "{name: a, port: 80, protocol: x.example}",
            "spec.listeners[0].protocol \"x.example\" must be a protocol",
        ),
        ("{name: a, port: 80}", "spec.listeners[0].protocol is missing"),
        (
            "{name: a, port: 80, protocol: HTTP, hostname: 'a:80'}",
            "spec.listeners[0].hostname \"a:80\" must be a DNS name",
        ),
        (
            "{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Any}}}",
            "spec.listeners[0].allowedRoutes.namespaces.from \"Any\" must be one of All, Selector, Same",
        ),
        (
            "{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: a/b}]}}",
            "spec.listeners[0].allowedRoutes.kinds[0].kind \"a/b\" must be a kind",
        ),
    ];
    for (listener, beginning) in cases {
        let message = refused(&listeners(&[listener]));
        assert!(message.starts_with(beginning), "{message}");
    }
}

#[test]
fn tls_goes_with_the_protocol() {
    admitted(&listeners(&["{name: a, port: 443, protocol: TLS, tls: {mode: Passthrough}}"]));
    admitted(&listeners(&["{name: a, port: 443, protocol: HTTPS, tls: {options: {example.com/a: b}}}"]));
    for protocol in ["HTTP", "http", "TCP", "UDP"] {
        let listener = format!("{{name: a, port: 80, protocol: {protocol}, tls: {{mode: Passthrough}}}}");
        let upper = protocol.to_uppercase();
        assert_eq!(
            refused(&listeners(&[&listener])),
            format!(
                "spec.listeners[0].tls must not be set for the protocol {upper}; remove it, or use HTTPS or TLS"
            )
        );
    }
    let cases = [
        (
            "{name: a, port: 443, protocol: HTTPS, tls: {mode: Passthrough}}",
            "spec.listeners[0].tls.mode \"Passthrough\" must be Terminate for the protocol HTTPS; use the protocol TLS \
             to pass through",
        ),
        (
            "{name: a, port: 443, protocol: HTTPS, tls: {}}",
            "spec.listeners[0].tls.certificateRefs is missing; to terminate TLS, name a Secret with the certificate",
        ),
        (
            "{name: a, port: 443, protocol: TLS}",
            "spec.listeners[0].tls is missing; TLS needs tls.mode Terminate or Passthrough",
        ),
        (
            "{name: a, port: 443, protocol: TCP, hostname: a.example}",
            "spec.listeners[0].hostname must not be set for the protocol TCP, which has no host names; remove it",
        ),
    ];
    for (listener, message) in cases {
        assert_eq!(refused(&listeners(&[listener])), message);
    }
}

#[test]
fn addresses_have_the_form_of_their_type() {
    let with = |addresses: &str| {
        gateway(&format!("listeners: [{{name: a, port: 80, protocol: HTTP}}]\naddresses: {addresses}"))
    };
    admitted(&with(
        "[{value: 192.0.2.1}, {type: Hostname, value: a.example}, {type: NamedAddress, value: x}, {}]",
    ));
    assert_eq!(
        refused(&with("[{value: a.example}]")),
        "spec.addresses[0].value \"a.example\" must be an IP address"
    );
    assert_eq!(
        refused(&with("[{value: '::1'}, {value: '::1'}]")),
        "spec.addresses[1].value \"::1\" is there twice; remove one"
    );
}

#[test]
fn classes_name_their_controller() {
    admitted(&object(CLASS, "GatewayClass", "spec: {controllerName: varnish-software.com/gateway}"));
    assert_eq!(
        refused(&object(CLASS, "GatewayClass", "spec: {controllerName: gateway}")),
        "spec.controllerName \"gateway\" must be a domain and a path such as `varnish-software.com/gateway`"
    );
    assert_eq!(refused(&object(CLASS, "GatewayClass", "")), "spec is missing; it is required");
    // As with kubectl, the namespace of a cluster-wide object does not matter.
    admitted(
        &object(CLASS, "GatewayClass", "spec: {controllerName: a.b/c}")
            .replace("thing", "thing, namespace: a"),
    );
}

#[test]
fn grants_have_both_sides() {
    for version in ["v1", "v1beta1"] {
        admitted(&object(
            &format!("gateway.networking.k8s.io/{version}"),
            "ReferenceGrant",
            "spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: a}], to: [{group: '', kind: Service}]}",
        ));
    }
    assert_eq!(
        refused(&object(CLASS, "ReferenceGrant", "spec: {from: [], to: [{group: '', kind: Service}]}")),
        "spec.from must not be empty"
    );
    assert_eq!(
        refused(&object(
            CLASS,
            "ReferenceGrant",
            "spec: {from: [{group: '', kind: Service}], to: [{group: '', kind: Service}]}"
        )),
        "spec.from[0].namespace is missing; it is required"
    );
}

#[test]
fn parameters_are_checked_too() {
    let version = "gateway.varnish-software.com/v1alpha1";
    admitted(&object(version, "GatewayClassParameters", "spec: {timeouts: {connect: 3s500ms}}"));
    admitted(&object(version, "GatewayClassParameters", "spec: {}"));
    let message =
        refused(&object(version, "GatewayClassParameters", "spec: {timeouts: {conect: 3s, idle: 3}}"));
    assert_eq!(
        message,
        "spec.timeouts.conect is an unknown field (did you mean `connect`?); spec.timeouts.idle must be a string, not a \
         number; put quotes round it"
    );
}

#[test]
fn numbers_of_parameters_have_the_limits_of_their_definition() {
    let of = |spec: &str| object("gateway.varnish-software.com/v1alpha1", "GatewayClassParameters", spec);
    admitted(&of(
        "spec: {tls: {maxClientHelloBytes: 512, handshakeTimeout: 3s}, tracing: {endpoint: 'http://127.0.0.1:4318', samplingRatio: 1}}",
    ));
    for (spec, message) in [
        (
            "spec: {tls: {maxClientHelloBytes: 1}}",
            "spec.tls.maxClientHelloBytes 1 must be between 512 and 65536",
        ),
        (
            "spec: {tls: {maxClientHelloBytes: 65537}}",
            "spec.tls.maxClientHelloBytes 65537 must be between 512 and 65536",
        ),
        ("spec: {tls: {maxHandshakes: 0}}", "spec.tls.maxHandshakes 0 must be between 1 and 1000000"),
        ("spec: {replicas: -1}", "spec.replicas -1 must be between 0 and 10000"),
        (
            "spec: {tracing: {endpoint: 'http://127.0.0.1:4318', samplingRatio: 1.5}}",
            "spec.tracing.samplingRatio 1.5 must be between 0 and 1",
        ),
        ("spec: {image: ''}", "spec.image must not be empty"),
    ] {
        assert_eq!(refused(&of(spec)), message);
    }
    assert!(
        refused(&of("spec: {tls: {idleTimeout: soon}}")).starts_with("spec.tls.idleTimeout \"soon\" must be")
    );
}

#[test]
fn limits_and_proxy_protocol_have_the_rules_of_their_definition() {
    let of = |spec: &str| object("gateway.varnish-software.com/v1alpha1", "GatewayClassParameters", spec);
    admitted(&of(
        "spec: {limits: {maxBodySize: 10Mi, maxUrlBytes: 64, maxHeaderBytes: 1024, headerTimeout: 5s}}",
    ));
    admitted(&of("spec: {proxyProtocol: {trustedSources: [10.0.0.0/8, 'fd00::/8', 192.0.2.1, 0.0.0.0/0]}}"));
    for (spec, message) in [
        ("spec: {limits: {maxUrlBytes: 1}}", "spec.limits.maxUrlBytes 1 must be between 64 and 65535"),
        (
            "spec: {limits: {maxUrlBytes: 4096, maxHeaderBytes: 1024}}",
            "spec.limits.maxUrlBytes 4096 must not be larger than maxHeaderBytes, which is 1024",
        ),
        (
            "spec: {limits: {maxConnectionsPerAddress: 11, maxConnections: 10}}",
            "spec.limits.maxConnectionsPerAddress 11 must not be larger than maxConnections, which is 10",
        ),
        (
            "spec: {limits: {maxConnections: 10}, tls: {maxConnections: 10}}",
            "spec.tls.maxConnections is the same limit as limits.maxConnections; remove it",
        ),
        (
            "spec: {limits: {maxBodySize: 10MB}}",
            "spec.limits.maxBodySize \"10MB\" must be a size such as 512Ki, 10Mi or 1Gi",
        ),
        (
            "spec: {limits: {stallTimeout: 0s}}",
            "spec.limits.stallTimeout must not be zero; write a longer time",
        ),
        (
            "spec: {limits: {maxURLBytes: 100}}",
            "spec.limits.maxURLBytes is an unknown field (did you mean `maxUrlBytes`?)",
        ),
        (
            "spec: {proxyProtocol: {mode: Required}}",
            "spec.proxyProtocol.trustedSources is missing; it is required",
        ),
        (
            "spec: {proxyProtocol: {trustedSources: [10.0.0.0/33]}}",
            "spec.proxyProtocol.trustedSources[0] \"10.0.0.0/33\" must be a network such as 10.0.0.0/8 or fd00::/8, or one \
             address",
        ),
    ] {
        assert_eq!(refused(&of(spec)), message);
    }
    assert!(
        refused(&of("spec: {proxyProtocol: {trustedSources: []}}"))
            .starts_with("spec.proxyProtocol.trustedSources")
    );
    let mode = refused(&of("spec: {proxyProtocol: {trustedSources: [10.0.0.1], mode: Off}}"));
    assert!(mode.starts_with("spec.proxyProtocol.mode"), "{mode}");
}
