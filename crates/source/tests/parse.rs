#[test]
fn t() {
    let y = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec:
  gatewayClassName: varnish
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: g}]
  rules:
  - backendRefs: [{name: a, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: bad}
spec:
  rules:
  - backendRef: [{name: a, port: 80}]
    matches: [{path: {value: foo}}, {headers: [{name: 'a b', value: 1}]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: x, namespace: y}
---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {a: b}
"#;
    let (s, p) = source::files::parse_str("a.yaml", y);
    println!("{s:#?}");
    for p in p { println!("{p}"); }
}
