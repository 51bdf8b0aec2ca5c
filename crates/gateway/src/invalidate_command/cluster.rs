//! A Gateway of a cluster: a VarnishCacheInvalidation is made, and waited for. kubectl's own credentials count.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{
    GatewayRef, InvalidationPhase, VarnishCacheInvalidation, VarnishCacheInvalidationSpec,
    VarnishCacheInvalidationStatus,
};
use gateway_api::gateways::Gateway;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::report::Report;
use super::{Wanted, code};
use crate::api_server;
use crate::cli::{LogFormat, Target};

const LOOK: Duration = Duration::from_millis(100);
/// The operator ends every invalidation before that.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(wanted: &Wanted, target: &Target, log: LogFormat) -> anyhow::Result<ExitCode> {
    let (client, default) =
        source::kubernetes::connect_to(target.kubeconfig.as_deref(), target.context.as_deref()).await?;
    let (mut namespace, mut gateway) = (target.namespace.clone().unwrap_or(default), target.gateway.clone());
    if let Some((of, name)) = target.gateway.as_deref().and_then(|gateway| gateway.split_once('/')) {
        (namespace, gateway) = (of.to_owned(), Some(name.to_owned()));
    }
    let gateway = match gateway {
        Some(name) => name,
        None => only_gateway(&client, &namespace).await?,
    };
    let api: Api<VarnishCacheInvalidation> = Api::namespaced(client, &namespace);
    let spec = VarnishCacheInvalidationSpec {
        gateway_ref: GatewayRef { name: gateway.clone() },
        kind: wanted.kind,
        hostname: wanted.hostname.clone(),
        paths: Some(wanted.paths.clone()).filter(|paths| !paths.is_empty()),
        tags: Some(wanted.tags.clone()).filter(|tags| !tags.is_empty()),
        ttl: None,
    };
    let mut one = VarnishCacheInvalidation::new("", spec);
    one.metadata.name = None;
    one.metadata.generate_name = Some(format!("{}-", format!("{:?}", wanted.kind).to_ascii_lowercase()));
    let made = api.create(&PostParams::default(), &one).await.map_err(|e| api_server::said(&e));
    let made =
        made.with_context(|| format!("no VarnishCacheInvalidation can be made in namespace {namespace}"))?;
    let name = made.metadata.name.unwrap_or_default();
    let begun = Instant::now();
    loop {
        let one = api.get(&name).await.map_err(|e| api_server::said(&e));
        let one = one.with_context(|| format!("VarnishCacheInvalidation {namespace}/{name}"))?;
        let status = one.status.unwrap_or_default();
        if let Some(phase) = status.phase.filter(|phase| phase.is_final()) {
            let report = report(&namespace, &gateway, &name, phase, &status);
            report.print(log)?;
            return Ok(code(report.good));
        }
        if begun.elapsed() > PATIENCE {
            bail!(
                "VarnishCacheInvalidation {namespace}/{name} has not ended within {} s: does the operator run?",
                PATIENCE.as_secs()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn report(
    namespace: &str,
    gateway: &str,
    name: &str,
    phase: InvalidationPhase,
    status: &VarnishCacheInvalidationStatus,
) -> Report {
    let text = |message: &Option<String>| message.clone().unwrap_or_default();
    let mut details = Vec::new();
    for result in status.pod_results.iter().flatten() {
        details.push(format!("pod {}: {}", result.pod_name, text(&result.message)));
        let bad = result.path_results.iter().flatten().filter(|path| !path.success);
        details.extend(bad.map(|path| format!("  {}: {}", path.path, text(&path.message))));
    }
    Report {
        object: format!("Gateway {namespace}/{gateway}"),
        message: format!("{phase:?}: {} (VarnishCacheInvalidation {name})", text(&status.message)),
        good: phase == InvalidationPhase::Complete,
        details,
        fields: json!({
            "invalidation": format!("{namespace}/{name}"), "phase": phase, "podResults": status.pod_results,
        }),
    }
}

async fn only_gateway(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let api: Api<Gateway> = Api::namespaced(client.clone(), namespace);
    let all = api.list(&ListParams::default()).await.map_err(|e| api_server::said(&e));
    let all = all.context("Gateways cannot be listed: name one by --gateway")?;
    let mut names: Vec<String> = all.items.into_iter().filter_map(|gateway| gateway.metadata.name).collect();
    match (names.pop(), names.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => bail!("namespace {namespace} has no Gateway: name one by --gateway NAMESPACE/NAME"),
        (Some(last), false) => {
            names.push(last);
            bail!(
                "namespace {namespace} has several Gateways ({}): choose one by --gateway",
                names.join(", ")
            )
        }
    }
}
