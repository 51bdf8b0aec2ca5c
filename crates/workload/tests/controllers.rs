//! Several installations in one cluster: each takes what names its controller, and marks what it makes.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use model::names::{CONTROLLER_LABEL, controller_label};
use translate::snapshot::Controllers;
use translate::{Key, Snapshot, translate};
use workload::{Options, objects};

const MANIFESTS: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: varnish}
spec: {controllerName: varnish-software.com/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: blue}
spec: {controllerName: example.com/blue}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: first, namespace: shop}
spec:
  gatewayClassName: varnish
  infrastructure: {labels: {gateway.varnish-software.com/controller: mine}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: second, namespace: shop}
spec:
  gatewayClassName: blue
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: varnish}
spec: {controller: varnish-software.com/ingress}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: blue}
spec: {controller: example.com/blue-ingress}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: first, namespace: shop}
spec:
  ingressClassName: varnish
  defaultBackend: {service: {name: shop, port: {number: 80}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: second, namespace: shop}
spec:
  ingressClassName: blue
  defaultBackend: {service: {name: shop, port: {number: 80}}}
"#;

fn snapshot(controllers: Controllers) -> Snapshot {
    let (snapshot, problems) = source::files::parse_str("case.yaml", MANIFESTS);
    assert!(problems.is_empty(), "{problems:?}");
    Snapshot { controllers, ..snapshot }
}

fn blue() -> Controllers {
    Controllers { gateway: "example.com/blue".to_owned(), ingress: "example.com/blue-ingress".to_owned() }
}

#[test]
fn each_takes_its_own() {
    for (controllers, name) in [(Controllers::default(), "first"), (blue(), "second")] {
        let translation = translate(&snapshot(controllers));
        let only = |keys: Vec<&Key>| assert_eq!(keys, [&Key::new("shop", name)]);
        only(translation.gateways.keys().collect());
        only(translation.statuses.gateways.keys().collect());
        only(translation.statuses.ingresses.keys().collect());
        assert_eq!(translation.statuses.gateway_classes.len(), 1);
    }
}

#[test]
fn what_another_than_the_default_makes_carries_its_label() {
    for (controllers, name) in [(Controllers::default(), "first"), (blue(), "second")] {
        let label = controller_label(&controllers.gateway);
        let snapshot = snapshot(controllers);
        let key = Key::new("shop", name);
        let options = Options { controller: label.clone(), ..Options::new("image") };
        let made = objects(&snapshot.gateways[&key], &translate(&snapshot).gateways[&key], &options).unwrap();
        let spec = made.deployment.spec.unwrap();
        let template = spec.template.metadata.unwrap().labels.unwrap();
        // Users do not get a word in it: the operator would lose sight of its objects.
        for labels in [&made.service.metadata.labels.unwrap(), &made.role.metadata.labels.unwrap(), &template]
        {
            assert_eq!(labels.get(CONTROLLER_LABEL), label.as_ref());
        }
        assert!(!spec.selector.match_labels.unwrap().contains_key(CONTROLLER_LABEL));
    }
}
