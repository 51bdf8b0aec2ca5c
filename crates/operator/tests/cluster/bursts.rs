//! More changes than anybody wants: nobody else waits for them, and the last state is what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use gateway_api::experimental::httproutes::HttpRoute;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};
use source::kubernetes::Pod;

use crate::world::World;

/// How long the routes of a Gateway may change without end.
const BURST: Duration = Duration::from_secs(4);
/// The operator writes a Gateway at most so often.
const PACE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);

fn routing(map: &Value) -> &str {
    map["data"]["routing.json"].as_str().unwrap_or_default()
}

fn leads_to(map: &Value, service: &str) -> bool {
    routing(map).contains(&format!("\"service\":\"{service}\""))
}

/// Waits until a pod reads such a routing.json: its own part, and the base below it.
async fn until_stored(pod: &Pod, good: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let stored = pod.stored(None).await;
        let text = stored.as_ref().map(|stored| {
            let base = stored.base.as_ref().map(|base| String::from_utf8_lossy(&base.bytes).into_owned());
            stored.routing.clone().unwrap_or_default() + &base.unwrap_or_default()
        });
        match text {
            Ok(text) if good(&text) => return,
            other => assert!(
                begun.elapsed() < PATIENCE,
                "routing.json is not as it should be: {:?}",
                other.map(|text| text.len())
            ),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Counts how often an object is written, until the task is aborted.
async fn count_writes(world: &World, name: &str, counted: Arc<AtomicUsize>) -> tokio::task::JoinHandle<()> {
    let api = world.api::<ConfigMap>();
    let there = api.get(name).await.unwrap();
    let version = there.metadata.resource_version.unwrap();
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    tokio::spawn(async move {
        let events = api.watch(&only, &version).await.unwrap();
        let _ = events
            .try_for_each(|event| {
                if matches!(event, WatchEvent::Modified(_)) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                async { Ok(()) }
            })
            .await;
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_route_that_flips_delays_no_other_gateway_and_its_last_state_counts() {
    let world = World::new("flips").await;
    let operator = world.operator("a");
    for service in ["tea", "coffee", "juice"] {
        world.service(service).await;
    }
    for gateway in ["busy", "quiet"] {
        world.gateway(gateway, &[("http", 80)]).await;
    }
    world.route("flips", "busy", "tea").await;
    world.until::<ConfigMap>("busy-vcl", |map| leads_to(map, "tea")).await;
    world.until::<ConfigMap>("quiet-vcl", |_| true).await;

    let writes = Arc::new(AtomicUsize::new(0));
    let counting = count_writes(&world, "busy-vcl", Arc::clone(&writes)).await;
    let (begun, flips) = (Instant::now(), AtomicUsize::new(0));
    let flip = |route: &'static str| {
        let (world, flips) = (&world, &flips);
        async move {
            while begun.elapsed() < BURST {
                let nth = flips.fetch_add(1, Ordering::Relaxed);
                world.route(route, "busy", if nth.is_multiple_of(2) { "coffee" } else { "tea" }).await;
            }
        }
    };
    let flipping = async {
        tokio::join!(flip("flips"), flip("flaps"), flip("flops"), flip("flies"));
        world.route("flips", "busy", "juice").await;
    };
    // In the middle of it, and long before its end.
    let other = async {
        tokio::time::sleep(BURST / 4).await;
        world.route("calm", "quiet", "tea").await;
        world.until::<ConfigMap>("quiet-vcl", |map| leads_to(map, "tea")).await;
        begun.elapsed()
    };
    let ((), served) = tokio::join!(flipping, other);
    assert!(served < BURST, "the route of another Gateway was written after {served:?}");
    world.until::<ConfigMap>("busy-vcl", |map| leads_to(map, "juice")).await;
    let took = begun.elapsed();
    counting.abort();
    let most = took.as_millis() / PACE.as_millis() + 2;
    let [flips, writes] = [&flips, &*writes].map(|count| count.load(Ordering::Relaxed));
    assert!(flips as u128 > most && writes > 0, "{flips} changes, {writes} writes");
    assert!(writes as u128 <= most, "{writes} writes in {took:?}");

    // A Gateway that is deleted while its routes change takes nobody with it.
    for at in 0..30 {
        world.route(&format!("r{at}"), "busy", if at % 2 == 0 { "tea" } else { "coffee" }).await;
        if at == 15 {
            world.delete_gateway("busy").await;
        }
    }
    world.route("calm", "quiet", "coffee").await;
    world.until::<ConfigMap>("quiet-vcl", |map| leads_to(map, "coffee")).await;
    world.until_list::<ConfigMap>(|all| !all.iter().any(|map| map["metadata"]["name"] == "busy-vcl")).await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_route_of_a_mebibyte_is_served_and_holds_up_nobody() {
    let world = World::new("large").await;
    let operator = world.operator("a");
    world.gateway("shop", &[("http", 80)]).await;
    world.service("tea").await;
    world.service("coffee").await;
    world.route("small", "shop", "tea").await;
    world.until::<ConfigMap>("shop-vcl", |map| leads_to(map, "tea")).await;

    let header = |rule: usize, at: usize, nth: usize| {
        let value = format!("{rule}-{at}-{nth}-").repeat(800);
        json!({ "name": format!("x-{nth}"), "value": value[..3900] })
    };
    let matching = |rule: usize, at: usize| json!({ "headers": [header(rule, at, 1), header(rule, at, 2)] });
    let rule = |rule: usize| {
        let matches: Vec<Value> = (0..8).map(|at| matching(rule, at)).collect();
        json!({ "matches": matches, "backendRefs": [{ "name": "coffee", "port": 80 }] })
    };
    let spec = json!({ "parentRefs": [{ "name": "shop" }], "rules": (0..16).map(rule).collect::<Vec<_>>() });
    assert!(spec.to_string().len() > 950_000, "{}", spec.to_string().len());
    world.apply::<HttpRoute>("large", json!({ "spec": spec })).await;
    let is_told = |route: &Value| {
        let all = route["status"]["parents"][0]["conditions"].as_array();
        all.is_some_and(|all| all.iter().any(|one| one["type"] == "Accepted" && one["status"] == "True"))
    };
    world.until_route("large", is_told).await;
    // It is too large for one ConfigMap: pods put it together.
    let pod = Pod::watch(Client::try_default().await.unwrap(), &world.namespace, "shop");
    pod.synced().await;
    until_stored(&pod, |text| text.contains("15-7-2-")).await;

    world.route("small", "shop", "coffee").await;
    world.route("other", "shop", "tea").await;
    until_stored(&pod, |text| text.contains("/other") && text.contains("15-7-2-")).await;
    world.delete_route("large").await;
    world.route("last", "shop", "tea").await;
    until_stored(&pod, |text| text.contains("/last")).await;
    operator.stop().await;
    world.end().await;
}
