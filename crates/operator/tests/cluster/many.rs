//! More than one object holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
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
