//! User VCL and GatewayClassParameters that go missing: routes and certificates go on.

use std::time::Duration;

use api::GatewayClassParameters;
use gateway_api::gateways::Gateway;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::HASH;
use crate::world::{World, condition};

fn all(world: &World) -> Api<GatewayClassParameters> {
    Api::all(world.client.clone())
}

fn holds(key: &'static str, part: &'static str) -> impl Fn(&Value) -> bool {
    move |map| map["data"][key].as_str().is_some_and(|text| text.contains(part))
}

fn says(part: &'static str) -> impl Fn(&Value) -> bool {
    move |gateway| {
        condition(gateway, "Accepted").is_some_and(|accepted| {
            accepted["status"] == "False" && accepted["message"].as_str().unwrap().contains(part)
        })
    }
}

impl World {
    async fn with_parameters(&self, name: &str, parameters: &str) {
        let reference = json!({
            "group": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": parameters,
        });
        let tls = json!({ "certificateRefs": [{ "name": "cert" }] });
        let spec = json!({
            "gatewayClassName": "varnish", "infrastructure": { "parametersRef": reference },
            "listeners": [
                { "name": "http", "port": 80, "protocol": "HTTP" },
                { "name": "https", "port": 443, "protocol": "HTTPS", "tls": tls },
            ],
        });
        self.apply::<Gateway>(name, json!({ "spec": spec })).await;
    }

    /// Until the pods are given the pair with this chain.
    async fn until_given(&self, chain: &str) {
        let chain = json!(ByteString(chain.as_bytes().to_vec()));
        let is_there = |secret: &Value| {
            let data = secret["data"].as_object();
            data.is_some_and(|data| data.values().any(|value| *value == chain))
        };
        self.until::<Secret>("shop-varnish-tls", is_there).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn routes_and_certificates_change_while_vcl_and_parameters_are_missing() {
    let world = World::new("missing").await;
    let parameters = world.namespace.clone();
    let body = json!({
        "apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "GatewayClassParameters",
        "metadata": { "name": parameters },
        "spec": { "userVCLConfigMapRef": { "name": "vcl" }, "trustedProxies": ["192.0.2.0/24"], "replicas": 2 },
    });
    all(&world).patch(&parameters, &PatchParams::apply("test").force(), &Patch::Apply(&body)).await.unwrap();
    world.apply::<ConfigMap>("vcl", json!({ "data": { "user.vcl": "sub vcl_recv { # mine\n}" } })).await;
    let first = world.pair("cert", "shop.example.com").await;
    world.service("cart").await;
    let operator = world.operator("a");
    world.with_parameters("shop", &parameters).await;
    world.route("early", "shop", "cart").await;
    world.until::<ConfigMap>("shop-vcl", holds("main.vcl", "# mine")).await;
    world.until::<ConfigMap>("shop-vcl", holds("routing.json", "/early")).await;
    world.until_given(&first).await;
    let deployment = world.until::<Deployment>("shop", |_| true).await;

    // The VCL is gone.
    world.delete::<ConfigMap>("vcl").await;
    world.until_gateway("shop", says("which does not exist: create it with your VCL")).await;
    world.route("late", "shop", "cart").await;
    let second = world.pair("cert", "shop.example.com").await;
    let map = world.until::<ConfigMap>("shop-vcl", holds("routing.json", "/late")).await;
    assert!(holds("main.vcl", "# mine")(&map), "{map:#}");
    world.until_given(&second).await;

    // The parameters are gone, too, and another operator takes over.
    all(&world).delete(&parameters, &DeleteParams::default()).await.unwrap();
    world.until_gateway("shop", says("the last known parameters stay in use")).await;
    operator.stop().await;
    let operator = world.operator("b");
    world.route("later", "shop", "cart").await;
    let third = world.pair("cert", "shop.example.com").await;
    let map = world.until::<ConfigMap>("shop-vcl", holds("routing.json", "/later")).await;
    assert!(holds("main.vcl", "# mine")(&map), "{map:#}");
    assert!(holds("routing.json", "192.0.2.0/24")(&map), "{map:#}");
    world.until_given(&third).await;
    world.until_gateway("shop", says("the last known parameters stay in use")).await;
    let now = world.get::<Deployment>("shop").await;
    assert_eq!(now.pointer(HASH), deployment.pointer(HASH));
    assert_eq!(now["spec"]["replicas"], 2);

    // One that never had them is not served without.
    world.with_parameters("fresh", &parameters).await;
    world.until_gateway("fresh", says("which does not exist")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.until_list::<ConfigMap>(|all| all.iter().all(|map| map["metadata"]["name"] != "fresh-vcl")).await;

    // And back.
    world.apply::<ConfigMap>("vcl", json!({ "data": { "user.vcl": "sub vcl_recv { # new\n}" } })).await;
    all(&world).patch(&parameters, &PatchParams::apply("test").force(), &Patch::Apply(&body)).await.unwrap();
    world.until::<ConfigMap>("shop-vcl", holds("main.vcl", "# new")).await;
    world.until::<ConfigMap>("fresh-vcl", holds("main.vcl", "# new")).await;
    all(&world).delete(&parameters, &DeleteParams::default()).await.unwrap();
    operator.stop().await;
    world.end().await;
}
