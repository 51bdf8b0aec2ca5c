//! Which Secrets the operator reads, and what it sees of a cluster in which it has rights in some namespaces alone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway_api::gateways::Gateway;
use gateway_api::referencegrants::ReferenceGrant;
use hyper::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use serde_json::{Value, json};
use source::kubernetes::Namespaces;
use tower::util::MapRequestLayer;

use crate::world::{World, condition, settings};

/// What is in no namespace.
const OF_CLUSTER: [&str; 8] = [
    "gatewayclasses",
    "gatewayclasses/status",
    "gatewayclassparameters",
    "ingressclasses",
    "ingressclasses/finalizers",
    "namespaces",
    "customresourcedefinitions",
    "events",
];

/// A request: its path with the query, and what it accepts.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A client whose requests can be looked at.
async fn recorded() -> (Client, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let record = MapRequestLayer::new(move |request: Request<Body>| {
        let accept = request.headers().get("accept").and_then(|value| value.to_str().ok());
        log.lock().unwrap().push((request.uri().to_string(), accept.unwrap_or_default().to_owned()));
        request
    });
    let config = Config::infer().await.unwrap();
    let client = ClientBuilder::try_from(config).unwrap().with_layer(&record).build();
    (client, asked)
}

/// Somebody with other rights than ours.
async fn impersonating(user: &str) -> Client {
    let mut config = Config::infer().await.unwrap();
    config.auth_info.impersonate = Some(user.to_owned());
    Client::try_from(config).unwrap()
}

impl World {
    async fn https(&self, gateway: &str, secret: Value) {
        let tls = json!({ "certificateRefs": [secret] });
        let listeners = json!([{ "name": "https", "port": 443, "protocol": "HTTPS", "tls": tls }]);
        let spec = json!({ "gatewayClassName": "varnish", "listeners": listeners });
        self.apply::<Gateway>(gateway, json!({ "spec": spec })).await;
    }

    /// Until the pods' Secret has this chain for the pair.
    async fn until_copied(&self, gateway: &str, pair: &str, chain: &str) {
        let key = format!("{}.{pair}.crt", self.namespace);
        self.until::<Secret>(&format!("{gateway}-varnish-tls"), |secret| {
            let secret: Secret = serde_json::from_value(secret.clone()).unwrap();
            let data = secret.data.unwrap_or_default();
            data.get(&key).is_some_and(|found| found.0 == chain.as_bytes())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn secrets_are_read_only_where_something_refers_to_them() {
    let world = World::new("secrets").await;
    let (client, asked) = recorded().await;
    world.pair("unused", "unused.example.com").await;
    let first = world.pair("cert", "shop.example.com").await;
    let operator = world.operator_with(client, settings("a"));
    world.https("shop", json!({ "name": "cert" })).await;
    world.until_copied("shop", "cert", &first).await;
    // A rotation is seen, and a Secret that comes after its Gateway, too.
    let second = world.pair("cert", "shop.example.com").await;
    world.until_copied("shop", "cert", &second).await;
    world.https("other", json!({ "name": "late" })).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let late = world.pair("late", "late.example.com").await;
    world.until_copied("other", "late", &late).await;
    operator.stop().await;

    let asked = asked.lock().unwrap().clone();
    let path = |name: &str| format!("/api/v1/namespaces/{}/secrets/{name}", world.namespace);
    let reads =
        |name: &str| asked.iter().filter(|(uri, _)| uri.split('?').next() == Some(&path(name))).count();
    assert_eq!([reads("cert"), reads("late"), reads("unused")], [2, 1, 0], "{asked:#?}");
    let lists: Vec<_> =
        asked.iter().filter(|(uri, _)| uri.contains("/secrets?") && uri.contains("tls")).collect();
    assert!(!lists.is_empty(), "{asked:#?}");
    for (uri, accept) in lists {
        assert!(accept.contains("PartialObjectMetadata"), "{uri}: {accept}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn with_rights_in_some_namespaces_it_works_in_these_alone() {
    let world = World::new("watched").await;
    let other = world.beside("unwatched").await;
    let user = format!("operator-of-{}", world.namespace);
    let subjects = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]);
    let (of_cluster, of_namespace) = rules();
    let group = "rbac.authorization.k8s.io";
    world.apply::<Role>("watch", json!({ "rules": of_namespace })).await;
    let role = json!({ "apiGroup": group, "kind": "Role", "name": "watch" });
    world.apply::<RoleBinding>("watch", json!({ "roleRef": role, "subjects": subjects })).await;
    let name = &user;
    let role = json!({ "apiGroup": group, "kind": "ClusterRole", "name": name });
    let metadata = json!({ "name": name });
    let parameters = PatchParams::apply("test").force();
    let body = json!({ "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": of_cluster });
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    roles.patch(name, &parameters, &Patch::Apply(body)).await.unwrap();
    let body = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": role,
        "subjects": subjects,
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.patch(name, &parameters, &Patch::Apply(body)).await.unwrap();

    let mut settings = settings("a");
    // The Lease has rights of its own.
    settings.namespace = None;
    // One of these has gone, and all rights with it.
    settings.watch_namespaces = Namespaces::only([world.namespace.clone(), "never-there".to_owned()]);
    let operator = world.operator_with(impersonating(&user).await, settings);
    // A grant of a namespace that is not watched does not count.
    let spec = json!({
        "from": [{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": world.namespace }],
        "to": [{ "group": "", "kind": "Secret" }],
    });
    other.apply::<ReferenceGrant>("grant", json!({ "spec": spec })).await;
    other.pair("cert", "shop.example.com").await;
    other.gateway("elsewhere", &[("http", 80)]).await;
    let chain = world.pair("cert", "shop.example.com").await;
    world.https("shop", json!({ "name": "cert" })).await;
    world.https("across", json!({ "name": "cert", "namespace": other.namespace })).await;

    world.until_copied("shop", "cert", &chain).await;
    world.until::<Deployment>("shop", |_| true).await;
    world
        .until_gateway("shop", |g| condition(g, "Programmed").is_some_and(|c| c["reason"] == "Pending"))
        .await;
    let across =
        world.until_gateway("across", |g| !g["status"]["listeners"][0]["conditions"].is_null()).await;
    let said = across["status"]["listeners"][0]["conditions"].to_string();
    assert!(said.contains("RefNotPermitted"), "{across:#}");
    let elsewhere = other.get_gateway("elsewhere").await;
    let accepted = condition(&elsewhere, "Accepted").map(|one| one["status"].clone());
    assert_ne!(accepted, Some(json!("True")), "{elsewhere:#}");
    operator.stop().await;
    let _ = roles.delete(name, &Default::default()).await;
    let _ = bindings.delete(name, &Default::default()).await;
    other.end().await;
    world.end().await;
}

/// The chart's rules, as deploy/ has them, in two: for what is in no namespace, and for the rest.
fn rules() -> (Vec<Value>, Vec<Value>) {
    let text = std::fs::read_to_string("../../deploy/01-operator.yaml").unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    let all = role["rules"].as_array().unwrap().iter().cloned();
    all.partition(|rule| {
        let of_cluster = |resource: &Value| OF_CLUSTER.iter().any(|known| *resource == json!(known));
        let resources = rule["resources"].as_array().unwrap();
        let all = resources.iter().all(of_cluster);
        assert_eq!(all, resources.iter().any(of_cluster), "{rule}: of the cluster, or not?");
        all
    })
}
