//! Ingresses: their addresses and Events, and Varnishes that IngressClasses ask for.

use std::time::{Duration, Instant};

use api::GatewayClassParameters;
use gateway_api::gateways::Gateway;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(120);

impl World {
    pub(crate) async fn varnish(&self, name: &str) {
        let spec = json!({
            "gatewayClassName": "varnish",
            "infrastructure": { "labels": { "app": "varnish-ingress" } },
            "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }],
        });
        self.apply::<Gateway>(name, json!({ "spec": spec })).await;
    }

    /// Of a class of its own, so that tests do not meet.
    async fn ingress(&self, name: &str, class: &str, varnish: Option<&str>, host: &str) {
        let backend = json!({ "service": { "name": "tea", "port": { "number": 80 } } });
        let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
        let body = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {
                "name": name, "namespace": self.namespace,
                "annotations": varnish.map(|varnish| json!({ "ingress.varnish-cache.org/varnish-svc": varnish })),
            },
            "spec": { "ingressClassName": class, "rules": [{ "host": host, "http": { "paths": paths } }] },
        });
        let parameters = PatchParams::apply("test").force();
        self.api::<Ingress>().patch(name, &parameters, &Patch::Apply(body)).await.unwrap();
    }

    pub(crate) async fn class(&self, name: &str, parameters: Option<&str>) {
        let parameters = parameters.map(|name| {
            json!({ "apiGroup": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": name })
        });
        let body = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": name },
            "spec": { "controller": "varnish-software.com/ingress", "parameters": parameters },
        });
        let api: Api<IngressClass> = Api::all(self.client.clone());
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(body)).await.unwrap();
    }

    async fn parameters(&self, name: &str) {
        let body = json!({
            "apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "GatewayClassParameters",
            "metadata": { "name": name }, "spec": { "ingress": { "namespace": self.namespace } },
        });
        let api: Api<GatewayClassParameters> = Api::all(self.client.clone());
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(body)).await.unwrap();
    }

    pub(crate) async fn delete_class(&self, name: &str) {
        let api: Api<IngressClass> = Api::all(self.client.clone());
        let _ = api.delete(name, &DeleteParams::default()).await;
    }

    async fn until_gone<T: crate::world::Kind>(&self, name: &str) {
        let begun = Instant::now();
        while self.api::<T>().get_opt(name).await.unwrap().is_some() {
            assert!(begun.elapsed() < PATIENCE, "{name} is still there");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn points(ingress: &Value) -> &Value {
    &ingress["status"]["loadBalancer"]["ingress"]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn an_ingress_has_the_address_of_its_varnish_and_a_rejected_one_has_none() {
    let world = World::new("ingress").await;
    let class = world.namespace.clone();
    world.class(&class, None).await;
    let operator = world.operator("a");
    world.varnish("cafe").await;
    world.service("tea").await;
    world.ingress("first", &class, Some("cafe"), "cafe.example").await;
    world.until::<Service>("cafe", |_| true).await;
    world.address("cafe", "203.0.113.9").await;
    let address = json!([{ "ip": "203.0.113.9" }]);
    world.until::<Ingress>("first", |i| points(i) == &address).await;
    world.until_event("first", |note| note.contains("Served by Varnish Service")).await;
    let routing = |map: &Value| map["data"]["routing.json"].as_str().unwrap_or_default().to_owned();
    world.until::<ConfigMap>("cafe-vcl", |map| routing(map).contains("\"kind\":\"Ingress\"")).await;

    // Ages are whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    world.ingress("second", &class, Some("cafe"), "cafe.example").await;
    world.ingress("third", &class, Some("nobody"), "third.example").await;
    let first = format!("Ingress {}/first", world.namespace);
    world.until_event("second", |note| note.contains(&first) && note.contains("HostConflict")).await;
    world.until_event("third", |note| note.contains("UnknownVarnishService")).await;
    assert!(points(&world.get::<Ingress>("second").await).is_null());

    world.delete::<Ingress>("first").await;
    world.until::<Ingress>("second", |i| points(i) == &address).await;
    world.until_event("second", |note| note.contains("Served by Varnish Service")).await;
    // A host of another's takes it back: the address goes.
    world.ingress("second", &class, Some("nobody"), "cafe.example").await;
    world.until::<Ingress>("second", |i| points(i).is_null()).await;
    world.until::<ConfigMap>("cafe-vcl", |map| !routing(map).contains("cafe.example")).await;
    operator.stop().await;
    world.delete_class(&class).await;
    world.end().await;
}

/// The Varnish of a class: made, its address shown, and gone with the class.
async fn class_makes_a_varnish(world: &World) {
    let class = world.namespace.clone();
    world.parameters(&class).await;
    world.class(&class, Some(&class)).await;
    let away = world.beside(&format!("away-{}", &class[2..7])).await;
    world.service("tea").await;
    away.service("tea").await;
    world.ingress("tea", &class, None, "tea.example").await;
    away.ingress("tea", &class, None, "away.example").await;
    let service = world.until::<Service>(&class, |_| true).await;
    assert_eq!(service["metadata"]["labels"]["app"], "varnish-ingress");
    assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "IngressClass");
    world.until::<Deployment>(&class, |_| true).await;
    world.address(&class, "203.0.113.10").await;
    for world in [world, &away] {
        world.until::<Ingress>("tea", |i| points(i) == &json!([{ "ip": "203.0.113.10" }])).await;
    }
    away.until_list::<RoleBinding>(|all| !all.is_empty()).await;
    // It stays as it is, whatever else happens.
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.get::<Deployment>(&class).await;
    world.delete_class(&class).await;
    world.until_gone::<Deployment>(&class).await;
    world.until_gone::<Service>(&class).await;
    away.until_list::<RoleBinding>(<[Value]>::is_empty).await;
    let api: Api<GatewayClassParameters> = Api::all(world.client.clone());
    api.delete(&class, &DeleteParams::default()).await.unwrap();
    away.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn an_ingress_class_with_parameters_makes_a_varnish_that_goes_with_it() {
    let world = World::new("ingressclass").await;
    let operator = world.operator("a");
    class_makes_a_varnish(&world).await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn ingresses_need_no_gateway_api() {
    let world = World::new("nogatewayapi").await;
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let all = crds.list(&ListParams::default()).await.unwrap().items;
    let gateway_api: Vec<_> =
        all.into_iter().filter(|crd| crd.spec.group == "gateway.networking.k8s.io").collect();
    assert!(!gateway_api.is_empty());
    for crd in &gateway_api {
        crds.delete(&crd.name_any(), &DeleteParams::default()).await.unwrap();
    }
    let begun = Instant::now();
    for crd in &gateway_api {
        while crds.get_opt(&crd.name_any()).await.unwrap().is_some() {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    let operator = world.operator("a");
    let tried = tokio::spawn({
        let world = World { client: world.client.clone(), namespace: world.namespace.clone() };
        async move { class_makes_a_varnish(&world).await }
    })
    .await;
    operator.stop().await;
    for mut crd in gateway_api {
        crd.metadata.resource_version = None;
        crd.metadata.uid = None;
        crd.metadata.managed_fields = None;
        crd.status = None;
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    tried.unwrap();
    world.end().await;
}
