//! The Gateways of a cluster, as its API server knows them. kubectl's own credentials count; nothing is written.

mod pods;
mod status;
mod summed;
mod top;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use dashboard::{Asked, Explained, Faults};
use gateway_api::gatewayclasses::GatewayClass;
use gateway_api::gateways::Gateway;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use model::names::{CONTROLLER_NAME, GATEWAY_NAME_LABEL, MANAGED_BY, MANAGED_BY_LABEL, socket_parts};
use model::routing::Routing;
use resolve::{EndpointIndex, TlsGroups, resolve, resolve_tls};
use router::Router;
use serde::de::DeserializeOwned;
use workload::packing;

use self::top::Watched;
use super::qualified;
use crate::api_server::{self, is_absent, is_forbidden};
use crate::cli::Target;
use crate::external;

pub(crate) struct Cluster {
    client: Client,
    /// The user has not named it: there was no `serve`.
    guessed: bool,
    /// All where absent.
    namespace: Option<String>,
    /// `namespace/name`
    gateway: Option<String>,
    /// What `top` has seen, by `namespace/name`.
    watched: BTreeMap<String, Watched>,
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
        let guessed = !target.names_cluster() && !all_namespaces;
        let connected =
            source::kubernetes::connect_to(target.kubeconfig.as_deref(), target.context.as_deref()).await;
        let (client, default) = match connected {
            Err(e) if guessed => {
                let which = "no `varnish-gateway serve` of this user runs, and the cluster of the current kubeconfig \
                             cannot be asked: start one, or name another";
                return Err(anyhow::Error::from(e).context(which));
            }
            connected => connected?,
        };
        let namespace = target.namespace.clone().unwrap_or(default);
        let gateway = target.gateway.as_ref().map(|gateway| qualified(gateway, &namespace));
        let namespace = match gateway.as_deref().and_then(|gateway| gateway.split_once('/')) {
            Some((namespace, _)) => Some(namespace.to_owned()),
            None => Some(namespace).filter(|_| !all_namespaces),
        };
        Ok(Self { client, guessed, namespace, gateway, watched: BTreeMap::new() })
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

    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// What of all this is not there, in words.
    pub(super) fn nothing(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!(
                "No Gateway of ours is in namespace {namespace}: --namespace names another one, -A looks at all."
            ),
            None => "No Gateway of ours is in the cluster.".to_owned(),
        }
    }

    async fn list<K>(&self, namespace: Option<&str>, labels: &str) -> kube::Result<Vec<K>>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        Ok(self.api::<K>(namespace).list(&ListParams::default().labels(labels)).await?.items)
    }

    /// By `namespace/name`. And why Gateways themselves cannot be seen, where that is so.
    async fn known(&self) -> anyhow::Result<(BTreeMap<String, Known>, Option<String>)> {
        let mut unseen = None;
        let namespace = self.namespace.as_deref();
        let mut all: BTreeMap<String, Known> = BTreeMap::new();
        let ours = format!("{MANAGED_BY_LABEL}={MANAGED_BY}");
        let configs = self.list::<ConfigMap>(namespace, &ours).await.map_err(|e| api_server::said(&e));
        let which = if self.guessed {
            "no `varnish-gateway serve` of this user runs, and in the cluster of the current kubeconfig "
        } else {
            ""
        };
        for config in configs.with_context(|| format!("{which}ConfigMaps cannot be listed"))? {
            let (namespace, name) = (text(&config.metadata.namespace), text(&config.metadata.name));
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
        let gateways = match self.list::<Gateway>(namespace, "").await {
            Ok(gateways) => gateways,
            // Without the Gateway API there are Ingresses.
            Err(e) if is_absent(&e) => Vec::new(),
            Err(e) if is_forbidden(&e) && !all.is_empty() => {
                unseen = Some(api_server::sentence(&e));
                Vec::new()
            }
            Err(e) => return Err(api_server::said(&e).context("Gateways cannot be listed")),
        };
        for gateway in gateways {
            let key = format!("{}/{}", text(&gateway.metadata.namespace), text(&gateway.metadata.name));
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
        Ok((all, unseen))
    }

    /// routing.json with endpoints, and the hash of the whole.
    async fn config(
        &self,
        namespace: &str,
        config: &ConfigMap,
    ) -> anyhow::Result<(model::ghost::Config, Routing, TlsGroups, String)> {
        let packing::Stored { json, base } = packing::stored(config)?;
        let vcl = config.data.as_ref().and_then(|data| data.get(packing::MAIN_VCL)).cloned();
        let json = json.unwrap_or_default();
        let hash = packing::hash(&vcl.unwrap_or_default(), json.as_bytes());
        if json.is_empty() {
            return Ok((model::ghost::Config::default(), Routing::default(), TlsGroups::new(), hash));
        }
        let mut routing = Routing::read(json.as_bytes()).context("routing.json")?;
        if let Some(index) = base {
            let api: Api<ConfigMap> = self.api(Some(namespace));
            let mut parts = Vec::with_capacity(index.shards.len());
            for name in &index.shards {
                let shard = api.get(name).await.map_err(|e| api_server::said(&e));
                let shard = shard.with_context(|| format!("ConfigMap {namespace}/{name}"))?;
                let part = shard.binary_data.and_then(|mut data| data.remove(packing::PART));
                parts.push(part.with_context(|| format!("ConfigMap {namespace}/{name} is empty"))?);
            }
            let bytes = packing::join(&index, &parts)?;
            routing = routing.over(Routing::read(&bytes).context("the base of routing.json")?);
        }
        let mut slices: Vec<EndpointSlice> = Vec::new();
        for namespace in routing.service_namespaces() {
            match self.list::<EndpointSlice>(Some(&namespace), "").await {
                Ok(found) => slices.extend(found),
                Err(e) if is_forbidden(&e) => tracing::warn!(
                    "endpoints in namespace {namespace} are not known: {}",
                    api_server::sentence(&e)
                ),
                Err(e) => {
                    let why = api_server::said(&e);
                    return Err(
                        why.context(format!("EndpointSlices of namespace {namespace} cannot be listed"))
                    );
                }
            }
        }
        let mut externals = external::look_up(&routing.external_names).await;
        let index = EndpointIndex::new(slices.iter());
        let index = externals.endpoints_of(&routing, &index);
        let (ghost, _) = resolve(&routing, &index);
        let (groups, _) = resolve_tls(&routing, &index);
        Ok((ghost, routing, groups, hash))
    }

    pub(super) async fn explain(&self, asked: &Asked, port: Option<u16>) -> anyhow::Result<Vec<Explained>> {
        let mut all = Vec::new();
        for (name, known) in self.known().await?.0 {
            let (namespace, _) = name.split_once('/').unwrap_or_default();
            let Some(config) = &known.config else { continue };
            let (config, routing, groups, _) = self.config(namespace, config).await?;
            let router = Router::compile(&config)?.router;
            let names = dashboard::names::of_routing(&routing);
            if let Some(port) = port {
                all.extend(dashboard::streams::of_routing(&name, &routing, &groups, &Faults::new(), port));
            }
            let of_tls = routing.tls_listeners.iter().map(|listener| listener.socket.as_str());
            let sockets = of_tls.chain(config.listeners.iter().map(|listener| listener.socket.as_str()));
            let sockets: BTreeMap<u16, &str> =
                sockets.filter_map(|s| Some((socket_parts(s)?.1, s))).collect();
            for (_, socket) in sockets.into_iter().filter(|(at, _)| port.is_none_or(|port| port == *at)) {
                let (at, arrangement) = ((name.as_str(), socket), routing.arrangement());
                all.push(dashboard::explain(&router, &names, &Faults::new(), at, arrangement, asked));
            }
        }
        Ok(all)
    }
}

fn text(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or_default()
}
