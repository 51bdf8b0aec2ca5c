//! More than one object holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::world::World;

const CERTIFICATES: usize = 600;
const HOSTS: usize = 1000;
/// Each Ingress has so many of them.
const INGRESSES: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A pair as long as usual ones: its chain has two more certificates.
fn pair(host: &str, chain: &str) -> Value {
    let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
    let (own, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    json!({ "type": "kubernetes.io/tls", "stringData": { "tls.crt": format!("{own}{chain}"), "tls.key": key } })
}

fn host(at: usize) -> String {
    format!("h{at}.example")
}

/// The hosts of one Ingress, with a certificate for one or two of them each.
fn ingress(class: &str, hosts: std::ops::Range<usize>) -> Value {
    let backend = json!({ "service": { "name": "tea", "port": { "number": 80 } } });
    let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
    let rules: Vec<Value> =
        hosts.clone().map(|at| json!({ "host": host(at), "http": { "paths": paths } })).collect();
    let mut tls: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for at in hosts {
        tls.entry(format!("c{}", at % CERTIFICATES)).or_default().push(host(at));
    }
    let tls: Vec<Value> =
        tls.into_iter().map(|(name, hosts)| json!({ "secretName": name, "hosts": hosts })).collect();
    json!({ "spec": { "ingressClassName": class, "rules": rules, "tls": tls } })
}

impl World {
    /// With the rights of a Gateway's pods, and no others.
    async fn as_pod_of(&self, gateway: &str) -> Client {
        let mut config = kube::Config::infer().await.unwrap();
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{}:{gateway}", self.namespace));
        Client::try_from(config).unwrap()
    }

    /// Versions of the Secrets with certificates.
    async fn tls_secrets(&self, gateway: &str) -> BTreeMap<String, String> {
        let all = self.api::<Secret>().list_metadata(&ListParams::default()).await.unwrap().items;
        let first = format!("{gateway}-varnish-tls");
        let ours = all.into_iter().filter(|secret| secret.name_any().starts_with(&first));
        ours.map(|secret| (secret.name_any(), secret.resource_version().unwrap())).collect()
    }
}

/// Names of pairs that a pod has, once there are so many.
async fn until_pairs(pod: &source::kubernetes::Pod, count: usize) -> BTreeSet<String> {
    let begun = Instant::now();
    loop {
        let data = pod.certificates().await;
        let names: BTreeSet<String> =
            data.keys().filter_map(|key| model::names::certificate_name(key)).collect();
        if names.len() == count {
            return names;
        }
        assert!(begun.elapsed() < PATIENCE, "{} pairs", names.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn certificates_that_no_secret_could_hold_are_spread_over_several() {
    let world = World::new("many").await;
    let class = world.namespace.clone();
    world.class(&class, None).await;
    let operator = world.operator("a");
    world.varnish("many").await;
    world.service("tea").await;
    let made = rcgen::generate_simple_self_signed(vec!["authority".to_owned()]).unwrap().cert.pem();
    let chain = made.repeat(4);
    for at in 0..CERTIFICATES {
        world.apply::<Secret>(&format!("c{at}"), pair(&host(at), &chain)).await;
    }
    let each = HOSTS / INGRESSES;
    for at in 0..INGRESSES {
        world.apply::<Ingress>(&format!("i{at}"), ingress(&class, at * each..(at + 1) * each)).await;
    }
    world.until::<Role>("many", |_| true).await;
    let pod = source::kubernetes::Pod::watch(world.as_pod_of("many").await, &world.namespace, "many");
    pod.synced().await;
    until_pairs(&pod, CERTIFICATES).await;
    let before = world.tls_secrets("many").await;
    assert!(before.len() >= 4, "{before:?}");

    // One more changes one Secret.
    world.apply::<Secret>("more", pair("more.example", &chain)).await;
    let mut more = ingress(&class, HOSTS..HOSTS + 1);
    more["spec"]["tls"] = json!([{ "secretName": "more", "hosts": [host(HOSTS)] }]);
    world.apply::<Ingress>("more", more).await;
    let names = until_pairs(&pod, CERTIFICATES + 1).await;
    assert!(names.contains(&format!("{}/more", world.namespace)));
    let after = world.tls_secrets("many").await;
    let changed = after.iter().filter(|(name, version)| before.get(*name) != Some(version)).count();
    assert!(changed == 1 && after.len() == before.len(), "{before:?} {after:?}");

    // One that somebody deletes is put back, and a start of the operator moves nothing.
    let third = "many-varnish-tls-2";
    world.delete::<Secret>(third).await;
    world.until::<Secret>(third, |secret| !secret["data"].is_null()).await;
    let before = world.tls_secrets("many").await;
    operator.stop().await;
    let operator = world.operator("b");
    world.until_leader("b").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.tls_secrets("many").await, before);

    // And those that are empty go, with the right to read them.
    for at in 0..INGRESSES {
        world.delete::<Ingress>(&format!("i{at}")).await;
    }
    let names = until_pairs(&pod, 1).await;
    assert!(names.contains(&format!("{}/more", world.namespace)), "{names:?}");
    operator.stop().await;
    world.delete_class(&class).await;
    world.end().await;
}

/// Hosts in one Ingress, with one certificate for all.
fn shared(class: &str, hosts: &[String]) -> Value {
    let backend = json!({ "service": { "name": "tea", "port": { "number": 80 } } });
    let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
    let rules: Vec<Value> =
        hosts.iter().map(|host| json!({ "host": host, "http": { "paths": paths } })).collect();
    let tls = json!([{ "secretName": "shared", "hosts": hosts }]);
    json!({ "spec": { "ingressClassName": class, "rules": rules, "tls": tls } })
}

/// Bases whose parts are there.
async fn bases(world: &World) -> BTreeSet<String> {
    let all = world.api::<ConfigMap>().list_metadata(&ListParams::default()).await.unwrap().items;
    let parts = all.iter().filter_map(|map| map.metadata.name.as_deref()?.strip_prefix("many-routing-"));
    parts.filter_map(|part| Some(part.split_once('-')?.0.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn thousands_of_names_are_in_a_base_that_outlives_the_operator() {
    let world = World::new("names").await;
    let class = world.namespace.clone();
    world.class(&class, None).await;
    let operator = world.operator("a");
    world.varnish("many").await;
    world.service("tea").await;
    world.apply::<Secret>("shared", pair("shared.example", "")).await;
    for at in 0..30 {
        let hosts: Vec<String> = (0..100).map(|host| format!("h{host}.i{at}.example")).collect();
        world.apply::<Ingress>(&format!("i{at}"), shared(&class, &hosts)).await;
    }
    let text = |map: &Value, key: &str| map["data"][key].as_str().unwrap_or_default().to_owned();
    // The last one of them, in the base or not.
    let settled = |map: &Value| text(map, "routing.index.json").contains("many-routing-");
    world.until::<ConfigMap>("many-vcl", settled).await;
    let mut before = world.get::<ConfigMap>("many-vcl").await;
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(180), "routing does not come to rest");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = world.get::<ConfigMap>("many-vcl").await;
        if now["data"] == before["data"] {
            break;
        }
        before = now;
    }
    assert!(text(&before, "routing.json").len() < 100_000, "{}", text(&before, "routing.json").len());

    // One more name is told alone, and a start of the operator changes nothing.
    world.apply::<Ingress>("more", shared(&class, &["more.example".to_owned()])).await;
    let told = |map: &Value| text(map, "routing.json").matches("more.example").count() >= 2;
    let after = world.until::<ConfigMap>("many-vcl", told).await;
    assert_eq!(text(&after, "routing.index.json"), text(&before, "routing.index.json"));
    operator.stop().await;
    let operator = world.operator("b");
    world.until_leader("b").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let again = world.get::<ConfigMap>("many-vcl").await;
    assert_eq!(again["data"], after["data"]);

    // A pod that is stuck does not gather bases for ever: each wildcard makes a new one.
    world.pod("many", "many-stuck", "none", "unknown").await;
    for at in 0..12 {
        let host = format!("*.w{at}.example");
        world.apply::<Ingress>(&format!("w{at}"), shared(&class, std::slice::from_ref(&host))).await;
        world
            .until::<ConfigMap>("many-vcl", |map| {
                text(map, "routing.index.json") != text(&again, "routing.index.json")
            })
            .await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let bases = bases(&world).await;
    assert!((2..=9).contains(&bases.len()), "{bases:?}");
    operator.stop().await;
    world.delete_class(&class).await;
    world.end().await;
}
