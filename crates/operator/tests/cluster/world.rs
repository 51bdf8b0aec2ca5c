//! A namespace of its own for each test, and the few things that tests do in it.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use api::{GatewayClassParameters, VarnishCacheInvalidation, VarnishCachePolicy};
use gateway_api::experimental::httproutes::HttpRoute;
use gateway_api::gatewayclasses::GatewayClass;
use gateway_api::gateways::Gateway;
use gateway_api::referencegrants::ReferenceGrant;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, Resource};
use operator::Settings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(120);
const LEASE: &str = "varnish-gateway-operator";

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// Everything that can be asked for by name.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
}

impl<T> Kind for T where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + fmt::Debug
        + Send
        + Sync
        + 'static
{
}

pub(crate) fn settings(identity: &str) -> Settings {
    let loopback = |port| ([127, 0, 0, 1], port).into();
    Settings {
        image: "localhost/gateway-chaperone:dev".to_owned(),
        vinyl_image: "localhost/gateway-chaperone-vinyl-9:dev".to_owned(),
        image_pull_secrets: Vec::new(),
        namespace: Some("default".to_owned()),
        identity: identity.to_owned(),
        health_address: loopback(0),
        metrics_address: loopback(0),
        log_level: None,
        ingress_class: "varnish".to_owned(),
        controllers: translate::snapshot::Controllers::default(),
        cluster_role: workload::CHAPERONE_CLUSTER_ROLE.to_owned(),
        lease: LEASE.to_owned(),
        watch_namespaces: Default::default(),
        default_data_path: None,
    }
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub(crate) struct Operator {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), operator::Error>>,
}

impl Operator {
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap().unwrap();
    }

    /// In the middle of whatever it does.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl World {
    pub(crate) async fn new(name: &str) -> Self {
        let client = source::kubernetes::connect().await.expect("KUBECONFIG names a cluster");
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": { "name": "varnish" },
            "spec": { "controllerName": "varnish-software.com/gateway" },
        });
        let classes: Api<GatewayClass> = Api::all(client.clone());
        let begun = Instant::now();
        // Its CRD may have come a moment ago.
        while let Err(e) = classes.patch("varnish", &apply(), &Patch::Apply(&class)).await {
            assert!(begun.elapsed() < PATIENCE, "GatewayClass: {e}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let crds: Api<
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        > = Api::all(client.clone());
        for crd in [GatewayClassParameters::crd(), VarnishCachePolicy::crd(), VarnishCacheInvalidation::crd()]
        {
            let crd_name = crd.metadata.name.clone().unwrap();
            crds.patch(&crd_name, &apply(), &Patch::Apply(&crd)).await.unwrap();
        }
        let _ =
            Api::<Lease>::namespaced(client.clone(), "default").delete(LEASE, &DeleteParams::default()).await;
        let world = Self { client, namespace: format!("t-{name}-{}", std::process::id()) };
        world.make_namespace().await;
        world
    }

    pub(crate) async fn beside(&self, name: &str) -> Self {
        let world =
            Self { client: self.client.clone(), namespace: format!("t-{name}-{}", std::process::id()) };
        world.make_namespace().await;
        world
    }

    async fn make_namespace(&self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } });
        api.patch(&self.namespace, &apply(), &Patch::Apply(body)).await.unwrap();
    }

    pub(crate) async fn end(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let _ = api.delete(&self.namespace, &DeleteParams::background()).await;
    }

    pub(crate) fn operator(&self, identity: &str) -> Operator {
        self.operator_with(self.client.clone(), settings(identity))
    }

    pub(crate) fn operator_with(&self, client: Client, settings: Settings) -> Operator {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(operator::run(client, settings, stopped));
        Operator { stop, task }
    }

    /// What an uninstallation begins with.
    pub(crate) async fn clean_up(&self) {
        operator::clean_up(&self.client, &settings("clean-up"), None).await.unwrap();
    }

    pub(crate) fn api<T: Kind>(&self) -> Api<T> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn apply<T: Kind>(&self, name: &str, mut body: Value) {
        body["apiVersion"] = json!(T::api_version(&()));
        body["kind"] = json!(T::kind(&()));
        body["metadata"] = json!({ "name": name, "namespace": self.namespace });
        let api = self.api::<T>();
        let begun = Instant::now();
        while let Err(e) = api.patch(name, &apply(), &Patch::Apply(&body)).await {
            assert!(begun.elapsed() < PATIENCE, "{name}: {e}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub(crate) async fn gateway(&self, name: &str, listeners: &[(&str, u16)]) {
        let listeners: Vec<Value> = listeners
            .iter()
            .map(|(name, port)| json!({ "name": name, "port": port, "protocol": "HTTP" }))
            .collect();
        self.apply::<Gateway>(
            name,
            json!({ "spec": { "gatewayClassName": "varnish", "listeners": listeners } }),
        )
        .await;
    }

    pub(crate) async fn service(&self, name: &str) {
        let ports = json!([{ "name": "http", "port": 80 }]);
        self.apply::<Service>(name, json!({ "spec": { "selector": { "app": name }, "ports": ports } })).await;
    }

    pub(crate) async fn route(&self, name: &str, gateway: &str, service: &str) {
        self.route_with_rule(name, gateway, service, &format!("/{name}")).await;
    }

    pub(crate) async fn route_with_rule(&self, name: &str, gateway: &str, service: &str, path: &str) {
        self.route_to(name, gateway, json!({ "name": service, "port": 80 }), path).await;
    }

    pub(crate) async fn route_across(&self, name: &str, gateway: &str, namespace: &str, service: &str) {
        let backend = json!({ "name": service, "namespace": namespace, "port": 80 });
        self.route_to(name, gateway, backend, &format!("/{name}")).await;
    }

    async fn route_to(&self, name: &str, gateway: &str, backend: Value, path: &str) {
        let rules = json!([{
            "matches": [{ "path": { "type": "PathPrefix", "value": path } }], "backendRefs": [backend],
        }]);
        let spec = json!({ "parentRefs": [{ "name": gateway }], "rules": rules });
        self.apply::<HttpRoute>(name, json!({ "spec": spec })).await;
    }

    pub(crate) async fn grant(&self, from: &str) {
        let spec = json!({
            "from": [{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": from }],
            "to": [{ "group": "", "kind": "Service" }],
        });
        self.apply::<ReferenceGrant>("grant", json!({ "spec": spec })).await;
    }

    /// A pod as the Deployment would make it, that serves `hash`.
    pub(crate) async fn pod(&self, gateway: &str, name: &str, infra_hash: &str, hash: &str) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/managed-by": "varnish-gateway",
                    "gateway.networking.k8s.io/gateway-name": gateway,
                    "gateway.varnish-software.com/gateway-namespace": self.namespace,
                },
                "annotations": { "varnish.io/infra-hash": infra_hash },
            },
            "spec": { "containers": [{ "name": "chaperone", "image": "none" }] },
        }))
        .unwrap();
        let api = self.api::<Pod>();
        let begun = Instant::now();
        while let Err(e) = api.create(&PostParams::default(), &pod).await {
            // Its namespace's account takes a moment.
            assert!(begun.elapsed() < PATIENCE, "{e}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let ready = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
        api.patch_status(name, &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
        self.report(gateway, name, json!({ "serving": hash })).await;
    }

    /// As a chaperone does.
    pub(crate) async fn report(&self, gateway: &str, pod: &str, report: Value) {
        let name = format!("{gateway}-pods");
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": self.namespace },
            "data": { pod: report.to_string() },
        });
        let parameters = PatchParams::apply(pod).force();
        self.api::<ConfigMap>().patch(&name, &parameters, &Patch::Apply(body)).await.unwrap();
    }

    /// As a LoadBalancer's controller does.
    pub(crate) async fn address(&self, service: &str, address: &str) {
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        self.api::<Service>()
            .patch_status(service, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    pub(crate) async fn policy(&self, name: &str, kind: &str, target: &str) {
        let target = json!({ "group": "gateway.networking.k8s.io", "kind": kind, "name": target });
        let spec = json!({ "targetRef": target, "defaultTTL": "1m" });
        self.apply::<VarnishCachePolicy>(name, json!({ "spec": spec })).await;
    }

    pub(crate) async fn invalidation(&self, name: &str, gateway: &str, ttl: &str) {
        let spec = json!({
            "gatewayRef": { "name": gateway }, "type": "Purge", "hostname": "a.example.com", "paths": ["/"], "ttl": ttl,
        });
        self.apply::<VarnishCacheInvalidation>(name, json!({ "spec": spec })).await;
    }

    /// As a chaperone does.
    pub(crate) async fn invalidated(&self, name: &str, pod: &str, success: bool) {
        let body = json!({
            "apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "VarnishCacheInvalidation",
            "metadata": { "name": name, "namespace": self.namespace },
            "status": { "podResults": [{ "podName": pod, "success": success, "message": "why" }] },
        });
        let parameters = PatchParams::apply(pod).force();
        let api = self.api::<VarnishCacheInvalidation>();
        api.patch_status(name, &parameters, &Patch::Apply(body)).await.unwrap();
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until::<VarnishCacheInvalidation>(name, |one| one["status"]["phase"] == phase).await
    }

    pub(crate) async fn foreign_parent(&self, route: &str) {
        let there = self.get::<HttpRoute>(route).await;
        let mut parents = there["status"]["parents"].as_array().cloned().unwrap_or_default();
        let mut foreign = parents[0].clone();
        foreign["controllerName"] = json!("example.com/other");
        parents.push(foreign);
        let patch = Patch::Merge(json!({ "status": { "parents": parents } }));
        self.api::<HttpRoute>().patch_status(route, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn edit<T: Kind>(&self, name: &str, patch: Value) {
        self.api::<T>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn delete<T: Kind>(&self, name: &str) {
        self.api::<T>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn delete_gateway(&self, name: &str) {
        self.delete::<Gateway>(name).await;
    }

    pub(crate) async fn delete_route(&self, name: &str) {
        self.delete::<HttpRoute>(name).await;
    }

    pub(crate) async fn get<T: Kind>(&self, name: &str) -> Value {
        let object = self.api::<T>().get(name).await.unwrap();
        let mut value = serde_json::to_value(object).unwrap();
        value["metadata"].as_object_mut().unwrap().remove("managedFields");
        value
    }

    pub(crate) async fn get_gateway(&self, name: &str) -> Value {
        self.get::<Gateway>(name).await
    }

    /// The object, once it is there and as it should be.
    pub(crate) async fn until<T: Kind>(&self, name: &str, good: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let there =
                self.api::<T>().get_opt(name).await.ok().flatten().map(|o| serde_json::to_value(o).unwrap());
            match there {
                Some(there) if good(&there) => return there,
                there => assert!(
                    begun.elapsed() < PATIENCE,
                    "{} {}/{name} is not as it should be: {}",
                    T::kind(&()),
                    self.namespace,
                    there.map_or("not there".to_owned(), |there| format!("{there:#}")),
                ),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn until_gateway(&self, name: &str, good: impl Fn(&Value) -> bool) -> Value {
        self.until::<Gateway>(name, good).await
    }

    pub(crate) async fn until_route(&self, name: &str, good: impl Fn(&Value) -> bool) -> Value {
        self.until::<HttpRoute>(name, good).await
    }

    pub(crate) async fn until_list<T: Kind>(&self, good: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let all = self.api::<T>().list(&ListParams::default()).await.unwrap().items;
            let all: Vec<Value> = all.into_iter().map(|one| serde_json::to_value(one).unwrap()).collect();
            if good(&all) {
                return all;
            }
            assert!(begun.elapsed() < PATIENCE, "{} in {}: {all:#?}", T::kind(&()), self.namespace);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn until_event(&self, about: &str, good: impl Fn(&str) -> bool) {
        self.until_list::<Event>(|all| {
            all.iter()
                .any(|event| event["regarding"]["name"] == about && event["note"].as_str().is_some_and(&good))
        })
        .await;
    }

    /// Which manager owns each key of a ConfigMap's data.
    pub(crate) async fn managers<T: Kind>(&self, name: &str) -> BTreeMap<String, String> {
        let object = serde_json::to_value(self.api::<T>().get(name).await.unwrap()).unwrap();
        let mut managers = BTreeMap::new();
        for entry in object["metadata"]["managedFields"].as_array().unwrap() {
            for field in ["f:data", "f:binaryData"] {
                for key in entry["fieldsV1"][field].as_object().into_iter().flatten().map(|(key, _)| key) {
                    if let Some(key) = key.strip_prefix("f:") {
                        managers.insert(key.to_owned(), entry["manager"].as_str().unwrap().to_owned());
                    }
                }
            }
        }
        managers
    }

    /// Versions of everything that belongs to a Gateway.
    pub(crate) async fn versions(&self, gateway: &str) -> BTreeMap<String, String> {
        use k8s_openapi::api::apps::v1::Deployment;
        use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
        use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
        let mut versions = BTreeMap::new();
        macro_rules! of {
            ($($kind:ty: $name:expr),+) => {$(
                let object = self.get::<$kind>(&$name).await;
                versions.insert(format!("{} {}", stringify!($kind), $name), object["metadata"]["resourceVersion"].to_string());
            )+};
        }
        of!(
            Deployment: gateway, Service: gateway, ServiceAccount: gateway, Role: gateway, RoleBinding: gateway,
            ConfigMap: format!("{gateway}-vcl"), ConfigMap: format!("{gateway}-pods"),
            Secret: format!("{gateway}-admin"), Secret: format!("{gateway}-varnish-tls"), Gateway: gateway
        );
        versions
    }

    /// The versions once nothing has changed for four seconds: the controller manager has work of its own.
    pub(crate) async fn settled(&self, gateway: &str) -> BTreeMap<String, String> {
        let begun = Instant::now();
        loop {
            let before = self.versions(gateway).await;
            tokio::time::sleep(Duration::from_secs(4)).await;
            if self.versions(gateway).await == before {
                return before;
            }
            assert!(begun.elapsed() < PATIENCE, "Gateway {gateway} does not come to rest");
        }
    }

    pub(crate) async fn leader(&self) -> String {
        let lease = Api::<Lease>::namespaced(self.client.clone(), "default").get(LEASE).await;
        lease.ok().and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
    }

    pub(crate) async fn until_leader(&self, name: &str) {
        let begun = Instant::now();
        while self.leader().await != name {
            assert!(begun.elapsed() < PATIENCE, "{} leads", self.leader().await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub(crate) async fn until_api(&self) {
        let begun = Instant::now();
        while self.client.apiserver_version().await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "the API server does not come back");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn apply() -> PatchParams {
    PatchParams::apply("test").force()
}

/// `stop` or `start` for the cluster's API server: the kit's `component` works from inside, too.
pub(crate) fn api_server(action: &str) {
    let kit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cluster/component");
    let done = Command::new(kit).args(["apiserver", action]).status().unwrap();
    assert!(done.success(), "component apiserver {action}");
}
