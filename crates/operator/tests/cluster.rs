//! The operator against a real API server (`make test-cluster`): etcd, API server and controller manager, without a node.
//! Pods are therefore made by hand, and speak as a chaperone would.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "cluster/bursts.rs"]
mod bursts;
#[path = "cluster/ingress.rs"]
mod ingress;
#[path = "cluster/many.rs"]
mod many;
#[path = "cluster/missing.rs"]
mod missing;
#[path = "cluster/secrets.rs"]
mod secrets;
#[path = "cluster/tls.rs"]
mod tls;
#[path = "cluster/world.rs"]
mod world;

use api::{VarnishCacheInvalidation, VarnishCachePolicy};
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

    world
        // The API server begins with conditions of its own, which are Unknown and Pending.
        .until_gateway("shop", |g| {
            condition(g, "Accepted").is_some_and(|c| c["status"] == "True")
                && condition(g, "Programmed").is_some_and(|c| c["reason"] == "Pending")
        })
        .await;
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
    let serving = workload::packing::hash(
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
async fn a_clean_up_takes_what_we_made_and_nothing_that_wears_our_labels() {
    let world = World::new("clean-up").await;
    let other = world.beside("clean-up-backends").await;
    let operator = world.operator("a");
    world.gateway("gw", &[("http", 80)]).await;
    other.service("cart").await;
    other.grant(&world.namespace).await;
    world.route_across("cart", "gw", &other.namespace, "cart").await;
    other.until_list::<RoleBinding>(|all| all.len() == 1).await;
    let made = world.until::<ConfigMap>("gw-vcl", |_| true).await;
    // Somebody's copy of it, with all labels.
    let labels = json!({ "metadata": { "labels": made["metadata"]["labels"] } });
    for (place, name) in [(&world, "copy"), (&other, "gw-vcl")] {
        place.apply::<ConfigMap>(name, json!({ "data": { "mine": "kept" } })).await;
        place.edit::<ConfigMap>(name, labels.clone()).await;
    }
    operator.stop().await;

    world.clean_up().await;
    world.until_list::<Deployment>(|all| all.is_empty()).await;
    world.until_list::<Service>(|all| all.is_empty()).await;
    world.until_list::<Secret>(|all| all.is_empty()).await;
    world.until_list::<RoleBinding>(|all| all.is_empty()).await;
    other.until_list::<RoleBinding>(|all| all.is_empty()).await;
    world.until_gateway("gw", |g| g["metadata"]["finalizers"].is_null()).await;
    assert_eq!(world.get::<ConfigMap>("copy").await["data"]["mine"], "kept");
    assert_eq!(other.get::<ConfigMap>("gw-vcl").await["data"]["mine"], "kept");
    world
        .until_list::<ConfigMap>(|all| {
            all.iter()
                .all(|map| map["metadata"]["name"] == "kube-root-ca.crt" || map["metadata"]["name"] == "copy")
        })
        .await;
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_cache_policy_is_told_what_becomes_of_it_by_each_gateway() {
    let world = World::new("policies").await;
    let operator = world.operator("a");
    world.gateway("shop", &[("http", 80)]).await;
    world.gateway("blog", &[("http", 80)]).await;
    world.service("cart").await;
    world.route("cart", "shop", "cart").await;
    world.policy("older", "HTTPRoute", "cart").await;
    let ancestors =
        |policy: &serde_json::Value| policy["status"]["ancestors"].as_array().cloned().unwrap_or_default();
    let reason = |policy: &serde_json::Value, at: usize| {
        ancestors(policy)
            .get(at)
            .map_or(serde_json::Value::Null, |one| one["conditions"][0]["reason"].clone())
    };
    let policy = world.until::<VarnishCachePolicy>("older", |policy| reason(policy, 0) == "Accepted").await;
    let ancestor = &ancestors(&policy)[0];
    assert_eq!(ancestor["controllerName"], "varnish-software.com/gateway");
    assert_eq!(ancestor["ancestorRef"]["kind"], "Gateway");
    assert_eq!(ancestor["ancestorRef"]["name"], "shop");
    world
        .until::<ConfigMap>("shop-vcl", |map| {
            map["data"]["routing.json"].as_str().is_some_and(|json| json.contains("default_ttl_seconds"))
        })
        .await;

    // A second is older by a second at least.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    world.policy("younger", "HTTPRoute", "cart").await;
    world.until::<VarnishCachePolicy>("younger", |policy| reason(policy, 0) == "Conflicted").await;
    world.policy("lost", "HTTPRoute", "nobody").await;
    world.until::<VarnishCachePolicy>("lost", |policy| reason(policy, 0) == "TargetNotFound").await;

    // Another controller's word stays, and ours follows the route.
    let foreign = json!({
        "controllerName": "example.com/other", "ancestorRef": { "name": "x" },
        "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                         "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    });
    let patch = json!({ "status": { "ancestors": [ancestor, foreign] } });
    let api = world.api::<VarnishCachePolicy>();
    api.patch_status("older", &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    world
        .edit::<gateway_api::experimental::httproutes::HttpRoute>(
            "cart",
            json!({ "spec": { "parentRefs": [{ "name": "shop" }, { "name": "blog" }] } }),
        )
        .await;
    let policy = world.until::<VarnishCachePolicy>("older", |policy| ancestors(policy).len() == 3).await;
    assert!(ancestors(&policy).iter().any(|one| one["controllerName"] == "example.com/other"), "{policy:#}");
    world.delete::<VarnishCachePolicy>("older").await;
    world.until::<VarnishCachePolicy>("younger", |policy| reason(policy, 0) == "Accepted").await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn an_invalidation_always_comes_to_an_end() {
    let world = World::new("invalidations").await;
    let operator = world.operator("a");
    world.gateway("shop", &[("http", 80)]).await;
    world.until::<ConfigMap>("shop-pods", |_| true).await;
    let gateway =
        world.until_gateway("shop", |g| condition(g, "varnish-software.com/Storage").is_some()).await;
    let storage = condition(&gateway, "varnish-software.com/Storage").unwrap();
    assert!(storage["message"].as_str().unwrap().contains("malloc, 256m"), "{storage}");

    // No pod: no cache.
    world.invalidation("none", "shop", "1h").await;
    let none = world.until_phase("none", "Complete").await;
    assert!(none["status"]["message"].as_str().unwrap().contains("No pod"), "{none:#}");
    // No Gateway, here or in another namespace.
    world.invalidation("lost", "nobody", "1h").await;
    let lost = world.until_phase("lost", "Failed").await;
    assert!(lost["status"]["message"].as_str().unwrap().contains("does not exist"), "{lost:#}");

    for pod in ["shop-1", "shop-2"] {
        world.pod("shop", pod, "hash", "hash").await;
    }
    world.invalidation("both", "shop", "1h").await;
    let both = world.until_phase("both", "InProgress").await;
    assert_eq!(both["status"]["pods"], json!(["shop-1", "shop-2"]));
    world.invalidated("both", "shop-1", true).await;
    // One that comes meanwhile is not waited for.
    world.pod("shop", "shop-3", "hash", "hash").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let there = world.get::<VarnishCacheInvalidation>("both").await;
    assert_eq!(there["status"]["phase"], "InProgress", "{there:#}");
    // The operator goes, and another one takes over.
    operator.kill().await;
    world.invalidated("both", "shop-2", true).await;
    let operator = world.operator("b");
    let both = world.until_phase("both", "Complete").await;
    assert_eq!(both["status"]["message"], "2 of 2 pods");
    assert_eq!(both["status"]["podResults"].as_array().unwrap().len(), 2);

    // One fails: all is failed, and it says why.
    world.invalidation("bad", "shop", "15s").await;
    for (pod, success) in [("shop-1", true), ("shop-2", false), ("shop-3", true)] {
        world.invalidated("bad", pod, success).await;
    }
    let bad = world.until_phase("bad", "Failed").await;
    assert!(bad["status"]["message"].as_str().unwrap().contains("shop-2 with: why"), "{bad:#}");
    // And it is swept away.
    world
        .until_list::<VarnishCacheInvalidation>(|all| all.iter().all(|one| one["metadata"]["name"] != "bad"))
        .await;

    // Its pods go before they have spoken.
    world.invalidation("gone", "shop", "1h").await;
    world.until_phase("gone", "InProgress").await;
    world.invalidated("gone", "shop-1", true).await;
    for pod in ["shop-2", "shop-3"] {
        let now = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
        world.api::<k8s_openapi::api::core::v1::Pod>().delete(pod, &now).await.unwrap();
    }
    let gone = world.until_phase("gone", "Complete").await;
    assert!(gone["status"]["message"].as_str().unwrap().contains("gone meanwhile"), "{gone:#}");
    operator.stop().await;
    world.end().await;
}
