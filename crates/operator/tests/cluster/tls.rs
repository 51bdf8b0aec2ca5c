//! TLSRoutes, BackendTLSPolicies and certificates: what each is told.

use std::time::Duration;

use gateway_api::backendtlspolicies::BackendTlsPolicy;
use gateway_api::gateways::Gateway;
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use serde_json::{Value, json};

use crate::world::World;

impl World {
    async fn tls_gateway(&self, name: &str, listeners: Value) {
        self.apply::<Gateway>(
            name,
            json!({ "spec": { "gatewayClassName": "varnish", "listeners": listeners } }),
        )
        .await;
    }

    async fn tls_route(&self, name: &str, gateway: &str, section: &str, service: &str) {
        let spec = json!({
            "parentRefs": [{ "name": gateway, "sectionName": section }], "hostnames": ["db.example.com"],
            "rules": [{ "backendRefs": [{ "name": service, "port": 443 }] }],
        });
        self.apply::<TlsRoute>(name, json!({ "spec": spec })).await;
    }

    async fn backend_policy(&self, name: &str, target: Value) {
        let authority = json!([{ "group": "", "kind": "ConfigMap", "name": "ca" }]);
        let validation = json!({ "hostname": "shop.internal", "caCertificateRefs": authority });
        let spec = json!({ "targetRefs": [target], "validation": validation });
        self.apply::<BackendTlsPolicy>(name, json!({ "spec": spec })).await;
    }

    pub(crate) async fn pair(&self, name: &str, host: &str) -> String {
        let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let data = json!({ "tls.crt": chain, "tls.key": key });
        self.apply::<Secret>(name, json!({ "type": "kubernetes.io/tls", "stringData": data })).await;
        chain
    }
}

/// `True`, or the reason why not.
fn said(conditions: &Value, kind: &str) -> String {
    let found = conditions.as_array().and_then(|all| all.iter().find(|one| one["type"] == kind));
    match found {
        None => "nothing".to_owned(),
        Some(one) if one["status"] == "True" => "True".to_owned(),
        Some(one) => one["reason"].as_str().unwrap_or_default().to_owned(),
    }
}

fn parent(route: &Value, kind: &str) -> String {
    said(&route["status"]["parents"][0]["conditions"], kind)
}

fn ancestor(policy: &Value, kind: &str) -> String {
    said(&policy["status"]["ancestors"][0]["conditions"], kind)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_tls_route_is_told_whether_it_is_attached_and_leads_somewhere() {
    let world = World::new("tls-routes").await;
    let operator = world.operator("a");
    world.pair("cert", "db.example.com").await;
    world
        .tls_gateway(
            "db",
            json!([
                { "name": "pass", "port": 443, "protocol": "TLS", "tls": { "mode": "Passthrough" } },
                { "name": "end", "port": 8443, "protocol": "TLS", "tls": { "certificateRefs": [{ "name": "cert" }] } },
            ]),
        )
        .await;
    let ports = json!([{ "name": "tls", "port": 443, "appProtocol": "https" }]);
    world.apply::<Service>("db", json!({ "spec": { "selector": { "app": "db" }, "ports": ports } })).await;
    world.tls_route("pass", "db", "pass", "db").await;
    let fine = |route: &Value| parent(route, "Accepted") == "True" && parent(route, "ResolvedRefs") == "True";
    world.until::<TlsRoute>("pass", fine).await;
    // What was decrypted does not go on in plain text to a port that says that it speaks TLS.
    world.tls_route("end", "db", "end", "db").await;
    world.until::<TlsRoute>("end", |route| parent(route, "ResolvedRefs") == "UnsupportedProtocol").await;
    world.tls_route("lost", "db", "pass", "nobody").await;
    world.until::<TlsRoute>("lost", |route| parent(route, "ResolvedRefs") == "BackendNotFound").await;
    world.tls_route("nowhere", "db", "none", "db").await;
    world.until::<TlsRoute>("nowhere", |route| parent(route, "Accepted") == "NoMatchingParent").await;
    let attached = |gateway: &Value| gateway["status"]["listeners"][0]["attachedRoutes"] == 2;
    world.until_gateway("db", attached).await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_backend_tls_policy_is_told_what_becomes_of_it() {
    let world = World::new("backend-tls").await;
    let operator = world.operator("a");
    world.gateway("shop", &[("http", 80)]).await;
    world.service("cart").await;
    world.route("cart", "shop", "cart").await;
    let authority = world.pair("any", "ca").await;
    world.apply::<ConfigMap>("ca", json!({ "data": { "ca.crt": authority } })).await;
    world.backend_policy("cart", json!({ "group": "", "kind": "Service", "name": "cart" })).await;
    let policy =
        world.until::<BackendTlsPolicy>("cart", |policy| ancestor(policy, "Accepted") == "True").await;
    assert_eq!(ancestor(&policy, "ResolvedRefs"), "True");
    let of = &policy["status"]["ancestors"][0];
    assert_eq!(of["controllerName"], "varnish-software.com/gateway");
    assert_eq!(
        (of["ancestorRef"]["kind"].as_str(), of["ancestorRef"]["name"].as_str()),
        (Some("Gateway"), Some("shop"))
    );
    let routing = |text: &'static str, there: bool| {
        move |map: &Value| {
            map["data"]["routing.json"].as_str().is_some_and(|json| json.contains(text) == there)
        }
    };
    world.until::<ConfigMap>("shop-vcl", routing("\"backend_tls\"", true)).await;

    tokio::time::sleep(Duration::from_millis(1100)).await;
    world.backend_policy("younger", json!({ "group": "", "kind": "Service", "name": "cart" })).await;
    world.until::<BackendTlsPolicy>("younger", |policy| ancestor(policy, "Accepted") == "Conflicted").await;
    let slip = json!({ "group": "", "kind": "Service", "name": "cart", "sectionName": "htpp" });
    world.backend_policy("slip", slip).await;
    world.until::<BackendTlsPolicy>("slip", |policy| ancestor(policy, "Accepted") == "TargetNotFound").await;

    // Without its CA nothing is sent, in plain text least of all.
    world.delete::<ConfigMap>("ca").await;
    let unusable = |policy: &Value| {
        ancestor(policy, "Accepted") == "NoValidCACertificate"
            && ancestor(policy, "ResolvedRefs") == "InvalidCACertificateRef"
    };
    world.until::<BackendTlsPolicy>("cart", unusable).await;
    world.until::<ConfigMap>("shop-vcl", routing("\"service\":\"cart\"", false)).await;
    world.delete_route("cart").await;
    let silent = |policy: &Value| policy["status"]["ancestors"].as_array().is_none_or(Vec::is_empty);
    world.until::<BackendTlsPolicy>("cart", silent).await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_listener_is_told_of_its_certificate_and_keeps_the_last_good_one() {
    let world = World::new("certificates").await;
    let operator = world.operator("a");
    let listener = json!([{
        "name": "https", "port": 443, "protocol": "HTTPS", "tls": { "certificateRefs": [{ "name": "cert" }] },
    }]);
    world.tls_gateway("shop", listener).await;
    let resolved = |gateway: &Value| said(&gateway["status"]["listeners"][0]["conditions"], "ResolvedRefs");
    world.until_gateway("shop", |gateway| resolved(gateway) == "InvalidCertificateRef").await;
    world.until_event("shop", |note| note.contains("Secret") && note.contains("does not exist")).await;
    world.pair("cert", "shop.example.com").await;
    world.until_gateway("shop", |gateway| resolved(gateway) == "True").await;
    let copy = world.until::<Secret>("shop-varnish-tls", |secret| !secret["data"].is_null()).await;
    let broken = json!({ "tls.crt": "nonsense", "tls.key": "nonsense" });
    world.apply::<Secret>("cert", json!({ "type": "kubernetes.io/tls", "stringData": broken })).await;
    world.until_gateway("shop", |gateway| resolved(gateway) == "InvalidCertificateRef").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        world.get::<Secret>("shop-varnish-tls").await["data"],
        copy["data"],
        "the last good pair stays"
    );
    operator.stop().await;
    world.end().await;
}
