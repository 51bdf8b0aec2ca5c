//! Manifests as text, so that tests read as what users write.

use std::net::SocketAddr;

/// GatewayClass `varnish`, without parameters.
pub(crate) fn class() -> String {
    "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: varnish}
spec: {controllerName: varnish-software.com/gateway}
---
"
    .to_owned()
}

/// GatewayClass `varnish` with GatewayClassParameters of this spec.
pub(crate) fn parameters(spec: &str) -> String {
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: varnish}}
spec:
  controllerName: varnish-software.com/gateway
  parametersRef: {{group: gateway.varnish-software.com, kind: GatewayClassParameters, name: test}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {{name: test}}
spec: {spec}
---
"
    )
}

/// A TCPRoute or UDPRoute of this name on the listener of this name; `backends` are the items of `backendRefs`.
pub(crate) fn stream_route(kind: &str, section: &str, backends: &str) -> String {
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: {section}}}
spec:
  parentRefs: [{{name: web, sectionName: {section}}}]
  rules: [{{backendRefs: [{backends}]}}]
---
"
    )
}

/// Service `shop` by TLS: its certificate is for shop.internal, of the CA in ConfigMap `ca`.
pub(crate) const SHOP_BY_TLS: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: shop}
spec:
  targetRefs: [{group: '', kind: Service, name: shop}]
  validation: {hostname: shop.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}
---
";

/// Does the front carry HTTP in Gateways that do not choose a data path? `make test` runs all tests in both arrangements.
pub(crate) fn front_carries_http() -> bool {
    std::env::var("VARNISH_GATEWAY_DEFAULT_DATA_PATH").map_or(true, |chosen| chosen != "Varnish")
}

/// GatewayClass `varnish` with user VCL out of a ConfigMap.
pub(crate) fn user_vcl(vcl: &str) -> String {
    let vcl: String = vcl.lines().map(|line| format!("    {line}\n")).collect();
    let class = parameters("{userVCLConfigMapRef: {name: my-vcl}}");
    format!(
        "{class}\
apiVersion: v1
kind: ConfigMap
metadata: {{name: my-vcl}}
data:
  user.vcl: |
{vcl}---
"
    )
}

/// A Gateway of that class; one plain listener a port, named `http-PORT`.
pub(crate) fn gateway(name: &str, ports: &[u16]) -> String {
    let listener = |port: &u16| format!("{{name: http-{port}, protocol: HTTP, port: {port}}}");
    gateway_of(name, &ports.iter().map(listener).collect::<Vec<_>>())
}

/// A Gateway of that class with these listeners.
pub(crate) fn gateway_of(name: &str, listeners: &[String]) -> String {
    let listeners: String = listeners.iter().map(|listener| format!("    - {listener}\n")).collect();
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}}}
spec:
  gatewayClassName: varnish
  listeners:
{listeners}---
"
    )
}

/// An HTTPRoute of Gateway `web`. `spec` has two blanks before its fields.
pub(crate) fn route(name: &str, spec: &str) -> String {
    let spec = spec.trim_start_matches('\n').trim_end();
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{{name: web}}]
{spec}
---
"
    )
}

/// All requests for a path, to port 80 of a Service.
pub(crate) fn route_to(name: &str, path: &str, service: &str) -> String {
    route(
        name,
        &format!(
            "  rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: {service}, port: 80}}]}}]"
        ),
    )
}

/// Gateway `web` with one route, all of it to Service `shop`.
pub(crate) fn shop_on(port: u16, endpoints: &[SocketAddr]) -> String {
    [class(), gateway("web", &[port]), service("shop", endpoints), route_to("shop", "/", "shop")].concat()
}

/// A VarnishCachePolicy for HTTPRoute `route`. `spec` has two blanks before its fields.
pub(crate) fn cache_policy(name: &str, route: &str, spec: &str) -> String {
    let spec = spec.trim_start_matches('\n').trim_end();
    format!(
        "\
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {{name: {name}}}
spec:
  targetRef: {{group: gateway.networking.k8s.io, kind: HTTPRoute, name: {route}}}
{spec}
---
"
    )
}

/// A Secret of type kubernetes.io/tls.
pub(crate) fn secret(name: &str, chain: &str, key: &str) -> String {
    let block = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "\
apiVersion: v1
kind: Secret
metadata: {{name: {name}}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
{}  tls.key: |
{}---
",
        block(chain),
        block(key)
    )
}

/// A Service with port 80, and its endpoints.
pub(crate) fn service(name: &str, endpoints: &[SocketAddr]) -> String {
    let mut text = format!(
        "\
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{port: 80}}]}}
---
"
    );
    for (number, endpoint) in endpoints.iter().enumerate() {
        let (ip, port) = (endpoint.ip(), endpoint.port());
        text.push_str(&format!(
            "\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-{number}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{port: {port}}}]
endpoints: [{{addresses: [\"{ip}\"]}}]
---
"
        ));
    }
    text
}
