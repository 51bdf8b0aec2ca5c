//! A Gateway's pods: what they have told the operator, and what Kubernetes says of those that tell nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod as KubernetesPod};
use kube::Api;
use model::Report;
use model::names::{GATEWAY_NAME_LABEL, MANAGED_BY, MANAGED_BY_LABEL};

use super::{Cluster, text};
use crate::api_server::{self, is_absent, is_forbidden};
use crate::running::Pod;

pub(super) fn labels(gateway: &str) -> String {
    format!("{MANAGED_BY_LABEL}={MANAGED_BY},{GATEWAY_NAME_LABEL}={gateway}")
}

/// Those that run, or will. `None`: we may not know.
pub(super) async fn listed(
    cluster: &Cluster,
    namespace: &str,
    gateway: &str,
) -> anyhow::Result<Option<Vec<KubernetesPod>>> {
    match cluster.list::<KubernetesPod>(Some(namespace), &labels(gateway)).await {
        Ok(pods) => Ok(Some(pods.into_iter().filter(|pod| !is_over(pod)).collect())),
        Err(e) if is_forbidden(&e) => Ok(None),
        Err(e) => Err(api_server::said(&e).context(format!("pods of Gateway {namespace}/{gateway}"))),
    }
}

/// With the hash of what the newest configuration is.
pub(super) async fn of_gateway(
    cluster: &Cluster,
    namespace: &str,
    gateway: &str,
    hash: &str,
) -> anyhow::Result<Vec<Pod>> {
    let mut reports = reports(cluster, namespace, gateway).await?;
    let told = |report: Option<(Report, Option<String>)>| {
        let (report, since) = report.unwrap_or_default();
        (report.serving.as_deref() == Some(hash), report.refused, since, report.engine)
    };
    let Some(pods) = listed(cluster, namespace, gateway).await? else {
        tracing::warn!(
            "pods of namespace {namespace} may not be listed: of Gateway {gateway} only what its pods told"
        );
        let pods = reports.into_iter().map(|(name, report)| {
            let (current, refused, since, engine) = told(Some(report));
            Pod { name, ready: current, current, refused, trouble: None, since, engine }
        });
        return Ok(pods.collect());
    };
    let pods = pods.iter().map(|pod| {
        let name = text(&pod.metadata.name).to_owned();
        let (current, refused, since, engine) = told(reports.remove(&name));
        let ready = is_ready(pod);
        Pod { ready, current: current && ready, refused, trouble: trouble(pod), since, engine, name }
    });
    Ok(pods.collect())
}

/// By pod, and when it last told something else.
async fn reports(
    cluster: &Cluster,
    namespace: &str,
    gateway: &str,
) -> anyhow::Result<BTreeMap<String, (Report, Option<String>)>> {
    let api: Api<ConfigMap> = cluster.api(Some(namespace));
    let name = workload::pods_config_map(gateway);
    let map = match api.get(&name).await {
        Ok(map) => map,
        Err(e) if is_absent(&e) => return Ok(BTreeMap::new()),
        Err(e) => return Err(api_server::said(&e).context(format!("ConfigMap {namespace}/{name}"))),
    };
    let managed = map.metadata.managed_fields.unwrap_or_default();
    let since = |pod: &str| {
        let of_pod = managed.iter().filter(|entry| entry.manager.as_deref() == Some(pod));
        of_pod.filter_map(|entry| entry.time.as_ref()).map(|time| time.0.to_string()).max()
    };
    let all = map.data.unwrap_or_default().into_iter().map(|(name, text)| {
        let since = since(&name);
        (name, (serde_json::from_str(&text).unwrap_or_default(), since))
    });
    Ok(all.collect())
}

/// One that was evicted stays in the list, and does nothing.
fn is_over(pod: &KubernetesPod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub(super) fn is_ready(pod: &KubernetesPod) -> bool {
    condition(pod, "Ready").is_some_and(|(value, _)| value == "True")
}

/// Its value and its message.
fn condition<'a>(pod: &'a KubernetesPod, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((&found.status, found.message.as_deref().unwrap_or_default()))
}

/// Why it is not ready, as far as Kubernetes knows.
fn trouble(pod: &KubernetesPod) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it ends".to_owned());
    }
    if is_ready(pod) {
        return None;
    }
    let status = pod.status.as_ref();
    let init = status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let containers = init.chain(status.iter().flat_map(|status| status.container_statuses.iter().flatten()));
    let unscheduled = || match condition(pod, "PodScheduled") {
        Some(("False", message)) => Some(format!("no node takes it: {message}")),
        _ => None,
    };
    let why = containers.filter_map(container_trouble).next().or_else(unscheduled);
    Some(why.unwrap_or_else(|| "it is not ready yet".to_owned()))
}

fn container_trouble(container: &ContainerStatus) -> Option<String> {
    let name = &container.name;
    let state = container.state.as_ref()?;
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = before.map(|end| {
        let why = end.reason.as_deref().unwrap_or("ended");
        format!(" (it last ended with {}, {why})", end.exit_code)
    });
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().filter(|reason| !BEGINNINGS.contains(reason))?;
        let message = waiting.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        return Some(format!("container {name}: {reason}{message}{}", ended.unwrap_or_default()));
    }
    if state.running.is_some() && !container.ready && container.restart_count > 0 {
        let ended = ended.unwrap_or_default();
        return Some(format!("container {name}: restarted {} times{ended}", container.restart_count));
    }
    None
}

/// What every pod goes through.
const BEGINNINGS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &serde_json::Value) -> KubernetesPod {
        serde_json::from_value(json!({ "metadata": { "name": "web-1" }, "status": status })).unwrap()
    }

    #[test]
    fn a_pod_that_does_not_come_up_says_why() {
        let ready = pod(&json!({ "conditions": [{ "type": "Ready", "status": "True" }] }));
        assert_eq!(trouble(&ready), None);
        let no_image = pod(&json!({ "containerStatuses": [{
            "name": "varnish", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } },
        }] }));
        assert_eq!(trouble(&no_image).unwrap(), "container varnish: ImagePullBackOff: no such image");
        let crashing = pod(&json!({ "containerStatuses": [{
            "name": "varnish", "ready": false, "restartCount": 4, "image": "", "imageID": "",
            "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } },
        }] }));
        assert_eq!(
            trouble(&crashing).unwrap(),
            "container varnish: CrashLoopBackOff (it last ended with 137, OOMKilled)"
        );
        let homeless = pod(&json!({ "conditions": [
            { "type": "PodScheduled", "status": "False", "message": "0/1 nodes are available" },
        ] }));
        assert_eq!(trouble(&homeless).unwrap(), "no node takes it: 0/1 nodes are available");
        assert_eq!(trouble(&pod(&json!({}))).unwrap(), "it is not ready yet");
        assert!(is_over(&pod(&json!({ "phase": "Failed" }))));
    }
}
