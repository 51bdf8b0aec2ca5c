//! The operator against a real API server (`make test-cluster`): etcd, API server and controller manager, without a node.
//! Pods are therefore made by hand, and speak as a chaperone would.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "cluster/ingress.rs"]
mod ingress;
#[path = "cluster/world.rs"]
mod world;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::json;
use world::{World, condition};

const HASH: &str = "/spec/template/metadata/annotations/varnish.io~1infra-hash";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_gateway_gets_its_objects_and_is_programmed_once_a_pod_serves_it() {
    let world = World::new("objects").await;
    let operator = world.operator("a");
    world.gateway("shop", &[("http", 80)]).await;
    world.service("cart").await;
    world.route("cart", "shop", "cart").await;

    let vcl = world
        .until::<ConfigMap>("shop-vcl", |map| {
            map["data"]["routing.json"].as_str().is_some_and(|json| json.contains("\"service\":\"cart\""))
        })
        .await;
    assert!(vcl["data"]["main.vcl"].as_str().unwrap().contains("import ghost"), "{vcl}");
    let owners = world.managers::<ConfigMap>("shop-vcl").await;
    assert_eq!(owners["main.vcl"], "varnish-gateway");
    assert_eq!(owners["routing.json"], "varnish-gateway-routes");

    let deployment = world.until::<Deployment>("shop", |_| true).await;
    let hash = deployment.pointer(HASH).unwrap().as_str().unwrap().to_owned();
    world.until::<ServiceAccount>("shop", |_| true).await;
    world.until::<Role>("shop", |_| true).await;
    world.until::<RoleBinding>("shop", |_| true).await;
    world.until::<Secret>("shop-admin", |secret| secret.pointer("/data/secret").is_some()).await;
    let service = world.until::<Service>("shop", |_| true).await;
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["spec"]["ports"][0]["port"], 80);

    let gateway = world
        .until_gateway("shop", |g| condition(g, "Programmed").is_some_and(|c| c["reason"] == "Pending"))
        .await;
    assert_eq!(condition(&gateway, "Accepted").unwrap()["status"], "True");
    let route = world.until_route("cart", |r| !r["status"]["parents"].is_null()).await;
    assert_eq!(route["status"]["parents"][0]["controllerName"], "varnish-software.com/gateway");
    assert_eq!(route["status"]["parents"][0]["conditions"][0]["status"], "True");

    world.address("shop", "203.0.113.7").await;
    // A pod that serves something else does not count.
    world.pod("shop", "shop-1", &hash, "other").await;
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    let gateway = world.get_gateway("shop").await;
    assert_eq!(condition(&gateway, "Programmed").unwrap()["status"], "False", "{gateway:#}");
    let vcl = world.get::<ConfigMap>("shop-vcl").await;
    let serving = translate::packing::hash(
        vcl["data"]["main.vcl"].as_str().unwrap(),
        vcl["data"]["routing.json"].as_str().unwrap().as_bytes(),
    );
    world.report("shop", "shop-1", json!({ "serving": serving })).await;
    let gateway = world
        .until_gateway("shop", |g| condition(g, "Programmed").is_some_and(|c| c["status"] == "True"))
        .await;
    assert_eq!(gateway["status"]["addresses"], json!([{ "type": "IPAddress", "value": "203.0.113.7" }]));
    let listener = &gateway["status"]["listeners"][0];
    assert_eq!(listener["attachedRoutes"], 1);
    assert!(
        listener["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == "Programmed" && c["status"] == "True")
    );

    // A refusal is shown, in the condition and as an Event, and the pod stays.
    world.report("shop", "shop-1", json!({ "serving": "old", "refused": "user.vcl line 3: no" })).await;
    let gateway = world
        .until_gateway("shop", |g| condition(g, "Programmed").is_some_and(|c| c["status"] == "False"))
        .await;
    assert!(condition(&gateway, "Programmed").unwrap()["message"].as_str().unwrap().contains("line 3"));
    world.until_event("shop", |note| note.contains("line 3")).await;
    // Routes change routing.json, and no pod is rolled.
    world.route("other", "shop", "cart").await;
    world
        .until::<ConfigMap>("shop-vcl", |map| {
            map["data"]["routing.json"].as_str().is_some_and(|r| r.contains("/other"))
        })
        .await;
    assert_eq!(world.get::<Deployment>("shop").await.pointer(HASH).unwrap(), &json!(hash));
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn an_edit_of_ours_is_put_back_and_an_edit_of_theirs_stays() {
    let world = World::new("edits").await;
    let operator = world.operator("a");
    world.gateway("gw", &[("http", 80)]).await;
    world.until::<Deployment>("gw", |_| true).await;
    world.until::<ConfigMap>("gw-vcl", |map| map.pointer("/data/routing.json").is_some()).await;
    world
        .edit::<Service>(
            "gw",
            json!({ "metadata": { "labels": { "theirs": "1", "app.kubernetes.io/managed-by": "me" } } }),
        )
        .await;
    world.edit::<ConfigMap>("gw-vcl", json!({ "data": { "main.vcl": "vcl 4.1;", "theirs": "x" } })).await;
    world
        .edit::<Deployment>(
            "gw",
            json!({ "spec": { "replicas": 3 }, "metadata": { "annotations": { "theirs": "1" } } }),
        )
        .await;
    let map = world
        .until::<ConfigMap>("gw-vcl", |map| {
            map["data"]["main.vcl"].as_str().is_some_and(|v| v.contains("ghost"))
        })
        .await;
    assert_eq!(map["data"]["theirs"], "x");
    let service = world
        .until::<Service>("gw", |s| {
            s.pointer("/metadata/labels/app.kubernetes.io~1managed-by") == Some(&json!("varnish-gateway"))
        })
        .await;
    assert_eq!(service["metadata"]["labels"]["theirs"], "1");
    let deployment = world.get::<Deployment>("gw").await;
    assert_eq!(deployment["metadata"]["annotations"]["theirs"], "1");
    // What is as it should be is not written again, whoever starts.
    let before = world.settled("gw").await;
    operator.stop().await;
    let again = world.operator("b");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(world.versions("gw").await, before);
    // What was deleted comes back.
    world.delete::<Service>("gw").await;
    world.until::<Service>("gw", |_| true).await;
    again.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn what_is_not_ours_is_never_written() {
    let world = World::new("foreign").await;
    let operator = world.operator("a");
    world.service("taken").await;
    let before = world.get::<Service>("taken").await;
    world.gateway("taken", &[("http", 80)]).await;
    world.gateway("free", &[("http", 80)]).await;
    world.until::<Deployment>("free", |_| true).await;
    let gateway = world
        .until_gateway("taken", |g| {
            condition(g, "Programmed")
                .is_some_and(|c| c["message"].as_str().is_some_and(|m| m.contains("not ours")))
        })
        .await;
    assert_eq!(condition(&gateway, "Programmed").unwrap()["status"], "False");
    assert_eq!(world.get::<Service>("taken").await, before);

    // Another controller's entry in a route's status stays.
    world.service("cart").await;
    world.route("shared", "free", "cart").await;
    world.until_route("shared", |r| !r["status"]["parents"].is_null()).await;
    world.foreign_parent("shared").await;
    world.route_with_rule("shared", "free", "cart", "/changed").await;
    let route = world
        .until_route("shared", |r| {
            let ours = r["status"]["parents"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|p| p["controllerName"] == "varnish-software.com/gateway");
            ours.is_some_and(|p| p["conditions"][0]["observedGeneration"] == r["metadata"]["generation"])
        })
        .await;
    let parents = route["status"]["parents"].as_array().unwrap();
    assert!(parents.iter().any(|p| p["controllerName"] == "example.com/other"), "{route:#}");
    // And when the route leaves us, our entry goes and theirs stays.
    world.route("shared", "elsewhere", "cart").await;
    let route = world
        .until_route("shared", |r| r["status"]["parents"].as_array().is_some_and(|p| p.len() == 1))
        .await;
    assert_eq!(route["status"]["parents"][0]["controllerName"], "example.com/other");
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn deleting_a_gateway_deletes_all_in_every_namespace() {
    let world = World::new("gc").await;
    let other = world.beside("gc-backends").await;
    let operator = world.operator("a");
    world.gateway("gw", &[("http", 80)]).await;
    other.service("cart").await;
    other.grant(&world.namespace).await;
    world.route_across("cart", "gw", &other.namespace, "cart").await;
    let bindings = other.until_list::<RoleBinding>(|all| all.len() == 1).await;
    assert_eq!(bindings[0]["roleRef"]["name"], "varnish-gateway-chaperone");
    world.until_gateway("gw", |g| g["metadata"]["finalizers"].as_array().is_some_and(|f| f.len() == 1)).await;
    // Without the route, the rights go.
    world.delete_route("cart").await;
    other.until_list::<RoleBinding>(|all| all.is_empty()).await;
    world.until_gateway("gw", |g| g["metadata"]["finalizers"].is_null()).await;
    world.route_across("cart", "gw", &other.namespace, "cart").await;
    other.until_list::<RoleBinding>(|all| all.len() == 1).await;

    world.delete_gateway("gw").await;
    other.until_list::<RoleBinding>(|all| all.is_empty()).await;
    world.until_list::<Deployment>(|all| all.is_empty()).await;
    world
        .until_list::<ConfigMap>(|all| all.iter().all(|map| map["metadata"]["name"] == "kube-root-ca.crt"))
        .await;
    world.until_list::<Secret>(|all| all.is_empty()).await;
    world.until_list::<Service>(|all| all.is_empty()).await;
    world.until_list::<RoleBinding>(|all| all.is_empty()).await;

    // Deleted while it is being made.
    for round in 0..5_u64 {
        world.gateway("brief", &[("http", 80)]).await;
        tokio::time::sleep(std::time::Duration::from_millis(round * 30)).await;
        world.delete_gateway("brief").await;
    }
    world.until_list::<Deployment>(|all| all.is_empty()).await;
    world.until_list::<Service>(|all| all.is_empty()).await;
    world.until_list::<Secret>(|all| all.is_empty()).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    world.until_list::<Secret>(|all| all.is_empty()).await;
    operator.stop().await;
    world.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn two_gateways_of_one_name_do_not_touch_each_other() {
    let one = World::new("one").await;
    let two = one.beside("two").await;
    let operator = one.operator("a");
    one.gateway("gw", &[("http", 80)]).await;
    two.gateway("gw", &[("http", 8080)]).await;
    one.until::<Service>("gw", |s| s["spec"]["ports"][0]["port"] == 80).await;
    two.until::<Service>("gw", |s| s["spec"]["ports"][0]["port"] == 8080).await;
    two.until::<ConfigMap>("gw-vcl", |map| map.pointer("/data/routing.json").is_some()).await;
    one.delete_gateway("gw").await;
    one.until_list::<Deployment>(|all| all.is_empty()).await;
    assert_eq!(two.get::<Deployment>("gw").await["metadata"]["name"], "gw");
    operator.stop().await;
    one.end().await;
    two.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn of_two_operators_one_writes_and_the_other_takes_over() {
    let world = World::new("leader").await;
    let first = world.operator("first");
    world.until_leader("first").await;
    let second = world.operator("second");
    world.gateway("one", &[("http", 80)]).await;
    world.until::<Deployment>("one", |_| true).await;
    assert_eq!(world.leader().await, "first");
    first.stop().await;
    world.until_leader("second").await;
    world.gateway("two", &[("http", 80)]).await;
    world.until::<Deployment>("two", |_| true).await;
    // Gone without a word: the next one waits for the Lease to run out.
    second.kill().await;
    let third = world.operator("third");
    world.until_leader("third").await;
    third.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn an_operator_killed_at_any_moment_converges_when_it_is_back() {
    let world = World::new("killed").await;
    for round in 0..8_u64 {
        world.gateway(&format!("gw{round}"), &[("http", 80)]).await;
        let operator = world.operator("a");
        tokio::time::sleep(std::time::Duration::from_millis(100 + round * 60)).await;
        operator.kill().await;
    }
    let operator = world.operator("a");
    for round in 0..8 {
        let name = format!("gw{round}");
        world.until::<Deployment>(&name, |_| true).await;
        world.until::<Service>(&name, |_| true).await;
        world
            .until::<ConfigMap>(&format!("{name}-vcl"), |map| map.pointer("/data/routing.json").is_some())
            .await;
        world.until_gateway(&name, |g| condition(g, "Accepted").is_some_and(|c| c["status"] == "True")).await;
    }
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn nothing_is_lost_while_the_api_server_is_away() {
    let world = World::new("away").await;
    let operator = world.operator("a");
    world.gateway("gw", &[("http", 80)]).await;
    world.service("cart").await;
    world.until::<ConfigMap>("gw-vcl", |map| map.pointer("/data/routing.json").is_some()).await;
    for seconds in [0, 20] {
        world::api_server("stop");
        tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
        world::api_server("start");
        world.until_api().await;
        let name = format!("after-{seconds}");
        world.route_with_rule(&name, "gw", "cart", &format!("/{name}")).await;
        world
            .until::<ConfigMap>("gw-vcl", |map| {
                map["data"]["routing.json"].as_str().is_some_and(|r| r.contains(&format!("/{name}")))
            })
            .await;
    }
    operator.stop().await;
    world.end().await;
}
