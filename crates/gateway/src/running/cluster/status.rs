//! `status` of a cluster: what the operator has written, what pods make of it, and where it can be reached.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use chaperone::State;
use dashboard::view::{self, Row};
use gateway_api::gateways::Gateway;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use super::{Cluster, Known, pods};
use crate::conditions::{self, Condition};
use crate::running::Status;

impl Cluster {
    pub(crate) async fn status(&self) -> anyhow::Result<(Vec<Status>, Vec<Row>)> {
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        let (known, unseen) = self.known().await?;
        if let Some(why) = unseen {
            tracing::warn!("Gateways cannot be listed, so their conditions are not shown: {why}");
        }
        for (name, known) in known {
            let (namespace, short) = name.split_once('/').unwrap_or_default();
            let (config, routing, _, hash) = match &known.config {
                Some(config) => self.config(namespace, config).await?,
                None => Default::default(),
            };
            let pods = pods::of_gateway(self, namespace, short, &hash).await?;
            let mut state = State::default();
            state.serving = pods.iter().any(|pod| pod.ready);
            state.refused = pods.iter().find_map(|pod| pod.refused.clone());
            let mut gateway = view::of_config(&name, &state, &config);
            gateway.arrangement = routing.arrangement().into();
            let engines: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.engine.as_deref()).collect();
            let engines = engines.into_iter().collect::<Vec<_>>().join(", ");
            gateway.engine = Some(engines).filter(|engines| !engines.is_empty());
            let addresses = self.addresses(namespace, short, &known).await;
            let closed = known.gateway.as_ref().map(closed).unwrap_or_default();
            let ip = addresses.iter().find_map(|address| address.parse::<IpAddr>().ok());
            for listener in
                gateway.listeners.iter_mut().filter(|one| state.serving && !closed.contains(&one.name))
            {
                listener.address = ip.map(|ip| SocketAddr::new(ip, listener.port));
            }
            rows.extend(view::all_rows(&name, &config, routing.http_in_front));
            let problems = &mut gateway.problems;
            problems.extend(known.gateway.as_ref().map(self::problems).unwrap_or_default());
            problems.extend(self.no_more_pods(namespace, short).await);
            if pods.is_empty() && problems.is_empty() {
                problems
                    .push("it has no pods: does the operator run, and are replicas more than 0?".to_owned());
            }
            all.push(Status { gateway, pods, addresses, closed });
        }
        Ok((all, rows))
    }

    /// Why no pod can be made: a quota, Pod Security, a PriorityClass that is not there.
    async fn no_more_pods(&self, namespace: &str, name: &str) -> Option<String> {
        let api: Api<Deployment> = self.api(Some(namespace));
        // Who may not see it sees the rest.
        let status = api.get(name).await.ok()?.status?;
        let failed = |one: &DeploymentCondition| one.type_ == "ReplicaFailure" && one.status == "True";
        let condition = status.conditions?.into_iter().find(failed)?;
        Some(format!("no pod can be made: {}", condition.message.unwrap_or_default()))
    }

    /// As the Gateway says; what an IngressClass made has a Service alone.
    async fn addresses(&self, namespace: &str, name: &str, known: &Known) -> Vec<String> {
        if let Some(gateway) = &known.gateway {
            let addresses = gateway.status.iter().flat_map(|status| status.addresses.iter().flatten());
            return addresses.map(|address| address.value.clone()).collect();
        }
        let api: Api<Service> = self.api(Some(namespace));
        // Who may not see it sees the rest.
        let Ok(service) = api.get(name).await else { return Vec::new() };
        let balancer = service.status.and_then(|status| status.load_balancer).unwrap_or_default();
        let outside: Vec<String> =
            balancer.ingress.into_iter().flatten().filter_map(|one| one.ip.or(one.hostname)).collect();
        if !outside.is_empty() {
            return outside;
        }
        service.spec.and_then(|spec| spec.cluster_ip).into_iter().collect()
    }
}

/// Listeners that are not served, by name.
fn closed(gateway: &Gateway) -> BTreeSet<String> {
    let listeners = gateway.status.iter().flat_map(|status| status.listeners.iter().flatten());
    let closed = listeners.filter(|listener| {
        listener.conditions.iter().any(|one| one.type_ == "Programmed" && one.status != "True")
    });
    closed.map(|listener| listener.name.clone()).collect()
}

/// What its conditions say, and those of its listeners.
fn problems(gateway: &Gateway) -> Vec<String> {
    let Some(status) = &gateway.status else { return vec!["the operator has not seen it yet".to_owned()] };
    let own = status.conditions.iter().flatten().map(|condition| (None, condition));
    let listeners = status.listeners.iter().flatten().flat_map(|listener| {
        listener.conditions.iter().map(|condition| (Some(listener.name.as_str()), condition))
    });
    conditions::problems(own.chain(listeners).map(|(listener, condition)| Condition {
        listener,
        kind: &condition.type_,
        status: &condition.status,
        reason: &condition.reason,
        message: &condition.message,
    }))
}

#[cfg(test)]
mod tests;
