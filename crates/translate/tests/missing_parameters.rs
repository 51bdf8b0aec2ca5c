//! A Gateway whose GatewayClassParameters or user VCL went missing goes on with what it was given last.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::sync::Arc;

use model::SharedMap;
use translate::{GatewayPlan, Key, Snapshot, Translation, translate};

const MANIFESTS: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: varnish}
spec:
  controllerName: varnish-software.com/gateway
  parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: all}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: all}
spec:
  trustedProxies: [10.0.0.0/8]
  cacheStatusHeader: false
  timeouts: {connect: 7s}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: one}
spec: {trustedProxies: [192.0.2.0/24], ingress: {namespace: web}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec:
  gatewayClassName: varnish
  infrastructure: {parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: one}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: web}
spec:
  controller: varnish-software.com/ingress
  parameters: {apiGroup: gateway.varnish-software.com, kind: GatewayClassParameters, name: one}
"#;

fn read() -> Snapshot {
    let (snapshot, problems) = source::files::parse_str("case.yaml", MANIFESTS);
    assert!(problems.is_empty(), "{problems:?}");
    snapshot
}

/// What follows `first` when `change` has happened.
fn after(first: &Translation, change: impl FnOnce(&mut Snapshot)) -> Translation {
    let mut snapshot = read();
    change(&mut snapshot);
    let kept = first.gateways.iter().filter_map(|(key, plan)| Some((key.clone(), plan.parameters.clone()?)));
    snapshot.former_parameters = kept.collect();
    translate(&snapshot)
}

fn plan<'t>(of: &'t Translation, namespace: &str, name: &str) -> &'t GatewayPlan {
    &of.gateways[&Key::new(namespace, name)]
}

#[test]
fn missing_parameters_leave_the_routing_as_it_was() {
    let first = translate(&read());
    let good = plan(&first, "shop", "gw");
    assert_eq!(good.routing.trusted_proxies, ["192.0.2.0/24"]);
    let only = |name: &'static str| {
        move |snapshot: &mut Snapshot| {
            snapshot.parameters.retain(|key, _| key.name == name);
        }
    };
    let cases: [(&str, Translation); 3] = [
        ("one", after(&first, only("all"))),
        ("all", after(&first, only("one"))),
        (
            "slip",
            after(&first, |snapshot| {
                let gateway = Arc::make_mut(snapshot.gateways.values_mut().next().unwrap());
                let own = gateway.spec.infrastructure.as_mut().unwrap().parameters_ref.as_mut().unwrap();
                own.name = "slip".to_owned();
            }),
        ),
    ];
    for (missing, then) in &cases {
        let plan = plan(then, "shop", "gw");
        assert_eq!(plan.routing, good.routing, "{missing}");
        // Kept for the next time, too.
        assert_eq!(plan.parameters, good.parameters, "{missing}");
        // Pods, Service and VCL stay as they are in the cluster.
        assert!(plan.main_vcl.is_none() && plan.infra.is_none() && plan.workload.is_none(), "{missing}");
        let accepted = &then.statuses.gateways[&Key::new("shop", "gw")].conditions[0];
        assert!(!accepted.status && accepted.message.contains(missing), "{accepted:?}");
        assert!(accepted.message.contains("the last known parameters stay in use"), "{accepted:?}");
    }
}

#[test]
fn without_former_parameters_nothing_is_to_be_served() {
    let nothing = Translation::default();
    let then = after(&nothing, |snapshot| snapshot.parameters = SharedMap::default());
    let plan = plan(&then, "shop", "gw");
    assert!(plan.parameters.is_none() && plan.main_vcl.is_none());
    let accepted = &then.statuses.gateways[&Key::new("shop", "gw")].conditions[0];
    assert!(!accepted.status && !accepted.message.contains("stay in use"), "{accepted:?}");
}

#[test]
fn a_varnish_of_an_ingress_class_stays_where_it_is() {
    let first = translate(&read());
    let good = plan(&first, "web", "web");
    let then = after(&first, |snapshot| snapshot.parameters.retain(|key, _| key.name == "all"));
    assert_eq!(plan(&then, "web", "web").routing, good.routing);
    assert_eq!(plan(&then, "web", "web").parameters, good.parameters);
    let class = &then.statuses.ingress_classes[&Key::cluster("web")].conditions[0];
    assert!(!class.status && class.message.contains("GatewayClassParameters one"), "{class:?}");
    // A Gateway of the class's name is no such Varnish.
    let mut other = after(&first, |_| {});
    other.gateways.remove(&Key::new("web", "web"));
    let gateway = other.gateways.remove(&Key::new("shop", "gw")).unwrap();
    other.gateways.insert(Key::new("shop", "web"), gateway);
    let then = after(&other, |snapshot| snapshot.parameters.retain(|key, _| key.name == "all"));
    assert!(!then.gateways.contains_key(&Key::new("shop", "web")));
}
