//! The Gateways of a cluster, as its API server knows them. kubectl's own credentials count; nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use chaperone::State;
use chaperone::stats::Sample;
use dashboard::view::{self, Row, Top};
use dashboard::{Asked, Explained, Traffic};
use gateway_api::gatewayclasses::GatewayClass;
use gateway_api::gateways::Gateway;
use k8s_openapi::api::core::v1::{ConfigMap, Pod as KubernetesPod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use model::Report;
use model::names::{CONTROLLER_NAME, GATEWAY_NAME_LABEL, MANAGED_BY, MANAGED_BY_LABEL, socket_parts};
use model::routing::Routing;
use model::stats::{RouteStats, Stats};
use router::Router;
use serde::de::DeserializeOwned;
use translate::{EndpointIndex, packing, resolve, workload};

use super::{Pod, Status, qualified, scrape};
use crate::cli::Target;

pub(crate) struct Cluster {
    client: Client,
    /// All where absent.
    namespace: Option<String>,
    /// `namespace/name`
    gateway: Option<String>,
    /// What `top` has seen, by `namespace/name`.
    traffic: BTreeMap<String, Traffic>,
}

/// What the API server has of one Gateway.
#[derive(Default)]
struct Known {
    /// Absent where an IngressClass made it.
    gateway: Option<Gateway>,
    /// Absent until the operator has written it.
    config: Option<ConfigMap>,
}

impl Cluster {
    pub(super) async fn connect(target: &Target, all_namespaces: bool) -> anyhow::Result<Self> {
        let (client, default) =
            source::kubernetes::connect_to(target.kubeconfig.as_deref(), target.context.as_deref()).await?;
        let namespace = target.namespace.clone().unwrap_or(default);
        let gateway = target.gateway.as_ref().map(|gateway| qualified(gateway, &namespace));
        let namespace = match gateway.as_deref().and_then(|gateway| gateway.split_once('/')) {
            Some((namespace, _)) => Some(namespace.to_owned()),
            None => Some(namespace).filter(|_| !all_namespaces),
        };
        Ok(Self { client, namespace, gateway, traffic: BTreeMap::new() })
    }

    fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    async fn list<K>(&self, namespace: Option<&str>, labels: &str) -> anyhow::Result<Vec<K>>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let what = K::kind(&K::DynamicType::default()).into_owned();
        let listed = self.api::<K>(namespace).list(&ListParams::default().labels(labels)).await;
        Ok(listed.with_context(|| format!("{what}s cannot be listed"))?.items)
    }

    /// By `namespace/name`.
    async fn known(&self) -> anyhow::Result<BTreeMap<String, Known>> {
        let namespace = self.namespace.as_deref();
        let mut all: BTreeMap<String, Known> = BTreeMap::new();
        let ours = format!("{MANAGED_BY_LABEL}={MANAGED_BY}");
        for config in self.list::<ConfigMap>(namespace, &ours).await? {
            let (namespace, name) = (of(&config.metadata.namespace), of(&config.metadata.name));
            let labels = config.metadata.labels.as_ref();
            let Some(gateway) = labels.and_then(|labels| labels.get(GATEWAY_NAME_LABEL)) else { continue };
            if name == workload::vcl_config_map(gateway) {
                let key = format!("{namespace}/{gateway}");
                all.entry(key).or_default().config = Some(config);
            }
        }
        let classes: Api<GatewayClass> = Api::all(self.client.clone());
        let classes = classes.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        let classes: BTreeSet<&str> = classes
            .iter()
            .filter(|class| class.spec.controller_name.starts_with(CONTROLLER_NAME))
            .filter_map(|class| class.metadata.name.as_deref())
            .collect();
        for gateway in self.list::<Gateway>(namespace, "").await? {
            let key = format!("{}/{}", of(&gateway.metadata.namespace), of(&gateway.metadata.name));
            if all.contains_key(&key) || classes.contains(gateway.spec.gateway_class_name.as_str()) {
                all.entry(key).or_default().gateway = Some(gateway);
            }
        }
        let names: Vec<String> = all.keys().cloned().collect();
        all.retain(|key, _| self.gateway.as_ref().is_none_or(|wanted| wanted == key));
        if let Some(gateway) = self.gateway.as_ref().filter(|_| all.is_empty()) {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("no such Gateway of ours: {gateway} (in its namespace: {there})");
        }
        Ok(all)
    }

    /// routing.json with endpoints, and the hash of the whole.
    async fn config(
        &self,
        namespace: &str,
        config: &ConfigMap,
    ) -> anyhow::Result<(model::ghost::Config, String)> {
        let packing::Stored { json, base } = packing::stored(config)?;
        let vcl = config.data.as_ref().and_then(|data| data.get(packing::MAIN_VCL)).cloned();
        let json = json.unwrap_or_default();
        let hash = packing::hash(&vcl.unwrap_or_default(), json.as_bytes());
        if json.is_empty() {
            return Ok((model::ghost::Config::default(), hash));
        }
        let mut routing: Routing = serde_json::from_str(&json).context("routing.json")?;
        if let Some(index) = base {
            let api: Api<ConfigMap> = self.api(Some(namespace));
            let mut parts = Vec::with_capacity(index.shards.len());
            for name in &index.shards {
                let shard = api.get(name).await.with_context(|| format!("ConfigMap {namespace}/{name}"))?;
                let part = shard.binary_data.and_then(|mut data| data.remove(packing::PART));
                parts.push(part.with_context(|| format!("ConfigMap {namespace}/{name} is empty"))?);
            }
            let bytes = packing::join(&index, &parts)?;
            routing = routing.over(serde_json::from_slice(&bytes).context("the base of routing.json")?);
        }
        let mut slices: Vec<EndpointSlice> = Vec::new();
        for namespace in routing.service_namespaces() {
            slices.extend(self.list::<EndpointSlice>(Some(&namespace), "").await?);
        }
        let (ghost, _) = resolve(&routing, &EndpointIndex::new(slices.iter()));
        Ok((ghost, hash))
    }

    pub(super) async fn status(&self) -> anyhow::Result<(Vec<Status>, Vec<Row>)> {
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        for (name, known) in self.known().await? {
            let (namespace, short) = name.split_once('/').unwrap_or_default();
            let (config, hash) = match &known.config {
                Some(config) => self.config(namespace, config).await?,
                None => (model::ghost::Config::default(), String::new()),
            };
            let pods = self.pods(namespace, short, &hash).await?;
            let serving = pods.iter().any(|pod| pod.current) || programmed(known.gateway.as_ref());
            let refused = pods.iter().find_map(|pod| pod.refused.clone());
            let mut state = State::default();
            (state.serving, state.refused) = (serving, refused);
            let gateway = view::of_config(&name, &state, &config);
            rows.extend(view::all_rows(&name, &config));
            let problems = known.gateway.as_ref().map(problems).unwrap_or_default();
            all.push(Status { gateway, pods, problems });
        }
        Ok((all, rows))
    }

    /// What each has reported to the operator.
    async fn pods(&self, namespace: &str, gateway: &str, hash: &str) -> anyhow::Result<Vec<Pod>> {
        let api: Api<ConfigMap> = self.api(Some(namespace));
        let name = workload::pods_config_map(gateway);
        let Some(map) = api.get_opt(&name).await.with_context(|| format!("ConfigMap {namespace}/{name}"))?
        else {
            return Ok(Vec::new());
        };
        let managed = map.metadata.managed_fields.unwrap_or_default();
        let since = |pod: &str| {
            let of_pod = managed.iter().filter(|entry| entry.manager.as_deref() == Some(pod));
            of_pod.filter_map(|entry| entry.time.as_ref()).map(|time| time.0.to_string()).max()
        };
        let pods = map.data.unwrap_or_default().into_iter().map(|(name, text)| {
            let report: Report = serde_json::from_str(&text).unwrap_or_default();
            let current = report.serving.as_deref() == Some(hash);
            Pod { since: since(&name), name, current, refused: report.refused }
        });
        Ok(pods.collect())
    }

    pub(super) async fn explain(&self, asked: &Asked, port: Option<u16>) -> anyhow::Result<Vec<Explained>> {
        let mut all = Vec::new();
        for (name, known) in self.known().await? {
            let (namespace, _) = name.split_once('/').unwrap_or_default();
            let Some(config) = &known.config else { continue };
            let (config, _) = self.config(namespace, config).await?;
            let router = Router::compile(&config)?.router;
            let sockets = config.listeners.iter().map(|listener| listener.socket.as_str());
            let sockets: BTreeMap<u16, &str> =
                sockets.filter_map(|s| Some((socket_parts(s)?.1, s))).collect();
            for (_, socket) in sockets.into_iter().filter(|(at, _)| port.is_none_or(|port| port == *at)) {
                all.push(dashboard::explain(&router, &name, socket, asked));
            }
        }
        Ok(all)
    }

    /// By the metrics of all pods, through the API server. The first look needs two.
    pub(super) async fn top(&mut self, seconds: u64, limit: usize) -> anyhow::Result<Top> {
        if self.traffic.is_empty() {
            self.look().await?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        self.look().await?;
        let second = |(name, traffic): (&String, &Traffic)| traffic.second(name, 1, limit);
        Ok(Top { gateways: self.traffic.iter().map(second).collect() })
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        let known = self.known().await?;
        self.traffic.retain(|name, _| known.contains_key(name));
        for name in known.into_keys() {
            let (namespace, short) = name.split_once('/').unwrap_or_default();
            let labels = format!("{MANAGED_BY_LABEL}={MANAGED_BY},{GATEWAY_NAME_LABEL}={short}");
            let mut sum = Stats { per_route: true, ..Stats::default() };
            for pod in self.list::<KubernetesPod>(Some(namespace), &labels).await? {
                let Some(path) = metrics_of(namespace, &pod) else { continue };
                let request = hyper::Request::get(&path).body(Vec::new())?;
                let pod = of(&pod.metadata.name);
                let text = self.client.request_text(request).await.with_context(|| {
                    format!("the metrics of pod {namespace}/{pod} cannot be read: it takes the right to get pods/proxy")
                })?;
                add(&mut sum, scrape::parse(&text));
            }
            let sample = Sample { at: Instant::now(), stats: Arc::new(sum) };
            self.traffic.entry(name.clone()).or_default().take(Some(&sample));
        }
        Ok(())
    }
}

/// Of one that is ready, where its probe is: metrics are there, too.
fn metrics_of(namespace: &str, pod: &KubernetesPod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let probe = containers.find_map(|container| container.readiness_probe.as_ref()?.http_get.as_ref())?;
    let port = match &probe.port {
        IntOrString::Int(port) => port.to_string(),
        IntOrString::String(name) => name.clone(),
    };
    let name = of(&pod.metadata.name);
    Some(format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"))
}

fn add(sum: &mut Stats, one: Stats) {
    sum.in_flight += one.in_flight;
    sum.unrouted.add(&one.unrouted);
    for rule in one.routes {
        let same = |known: &&mut RouteStats| {
            (known.kind, known.rule) == (rule.kind, rule.rule) && known.route == rule.route
        };
        match sum.routes.iter_mut().find(same) {
            Some(known) => known.counts.add(&rule.counts),
            None => sum.routes.push(rule),
        }
    }
}

fn of(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or_default()
}

fn programmed(gateway: Option<&Gateway>) -> bool {
    let status = gateway.and_then(|gateway| gateway.status.as_ref());
    let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Programmed" && condition.status == "True")
}

/// What its conditions say, and those of its listeners.
fn problems(gateway: &Gateway) -> Vec<String> {
    let Some(status) = &gateway.status else { return vec!["the operator has not seen it yet".to_owned()] };
    let bad = |kind: &str, value: &str| {
        matches!(kind, "Accepted" | "Programmed" | "ResolvedRefs") && value != "True"
    };
    let own = status.conditions.iter().flatten();
    let own = own.filter(|c| bad(&c.type_, &c.status)).map(|c| format!("{}: {}", c.reason, c.message));
    let listeners = status.listeners.iter().flatten().flat_map(|listener| {
        let conditions = listener.conditions.iter().filter(|c| bad(&c.type_, &c.status));
        conditions.map(|c| format!("listener {}: {}: {}", listener.name, c.reason, c.message))
    });
    own.chain(listeners).collect()
}
