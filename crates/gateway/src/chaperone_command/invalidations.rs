//! VarnishCacheInvalidations in a pod: seen, carried out at once, and told in their status.
//!
//! A pod does not wait for the operator: what appears while it runs concerns its cache. What was there before it started does not,
//! unless the operator counts on this pod: then its container was started again meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::{PathResult, PodResult, VarnishCacheInvalidation};
use chaperone::State;
use dashboard::Board;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use model::invalidation::Outcome;
use serde_json::json;
use source::kubernetes::{Scope, Signal, Store, never_same};
use tokio::sync::{Semaphore, watch};
use translate::invalidation;

/// Results that are written at the same time.
const AT_ONCE: usize = 16;
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
const TRIES: u32 = 12;

/// The pod whose cache it is.
#[derive(Clone)]
pub(super) struct Here {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) gateway: String,
    pub(super) pod: String,
    pub(super) board: Arc<Board>,
}

/// Works until it is dropped.
pub(super) async fn run(here: Here, state: watch::Receiver<State>) {
    let signal = Signal::default();
    let mut changed = signal.subscribe();
    let api = Api::namespaced(here.client.clone(), &here.namespace);
    let store: Store<VarnishCacheInvalidation> =
        Store::watch(api, &Scope::default(), never_same, signal, Signal::default());
    store.synced().await;
    let old: HashSet<String> = store.objects().values().filter_map(|one| one.metadata.uid.clone()).collect();
    let mut done: HashSet<String> = HashSet::new();
    let writing = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        changed.mark_unchanged();
        let objects = store.objects();
        let mut there = HashSet::new();
        let mut new = Vec::new();
        for one in objects.values() {
            let Some(uid) = one.metadata.uid.clone() else { continue };
            if is_due(&here.gateway, &here.pod, one, old.contains(&uid)) && !done.contains(&uid) {
                new.push((uid.clone(), Arc::clone(one)));
            }
            there.insert(uid);
        }
        done.retain(|uid| there.contains(uid));
        if !new.is_empty() {
            let orders: Vec<_> = new.iter().map(|(_, one)| invalidation::order(&one.spec)).collect();
            let outcomes = chaperone::invalidate(&state, &orders).await;
            for (((uid, one), outcomes), order) in new.into_iter().zip(outcomes).zip(&orders) {
                done.insert(uid);
                here.board.invalidated(&format!("{}/{}", here.namespace, here.gateway), order, &outcomes);
                let result = result(&here.pod, &one, &outcomes);
                tracing::info!(
                    event = "invalidated",
                    "VarnishCacheInvalidation {}: {}",
                    one.metadata.name.as_deref().unwrap_or_default(),
                    result.message.as_deref().unwrap_or_default()
                );
                let (here, writing) = (here.clone(), Arc::clone(&writing));
                tokio::spawn(async move {
                    // It is never closed.
                    let _turn = writing.acquire().await;
                    tell(&here, &one, result).await;
                });
            }
            // What came meanwhile is looked at together.
            continue;
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Is it for this pod to carry out? `old`: it was there before the pod started.
fn is_due(gateway: &str, here: &str, one: &VarnishCacheInvalidation, old: bool) -> bool {
    let status = one.status.clone().unwrap_or_default();
    let counted = status.pods.iter().flatten().any(|pod| pod == here);
    let told = status.pod_results.iter().flatten().any(|result| result.pod_name == here);
    one.spec.gateway_ref.name == gateway
        && one.metadata.deletion_timestamp.is_none()
        && !status.phase.is_some_and(api::InvalidationPhase::is_final)
        && !told
        && (counted || !old)
}

fn result(pod: &str, one: &VarnishCacheInvalidation, outcomes: &[Outcome]) -> PodResult {
    let names = one.spec.paths.iter().flatten().chain(one.spec.tags.iter().flatten());
    let of = |(name, outcome): (&String, &Outcome)| PathResult {
        path: name.clone(),
        success: outcome.error.is_none(),
        message: Some(invalidation::told(outcome)),
    };
    PodResult {
        pod_name: pod.to_owned(),
        success: outcomes.iter().all(|outcome| outcome.error.is_none()),
        message: Some(invalidation::summary(one.spec.kind, outcomes)),
        completed_at: Some(Time(Timestamp::now())),
        path_results: Some(names.zip(outcomes).map(of).collect()),
    }
}

/// Each pod owns its entry of the list.
async fn tell(here: &Here, one: &VarnishCacheInvalidation, mut result: PodResult) {
    let api: Api<PartialObjectMeta<VarnishCacheInvalidation>> =
        Api::namespaced(here.client.clone(), &here.namespace);
    let name = one.metadata.name.as_deref().unwrap_or_default();
    let manager = &here.pod[..here.pod.floor_char_boundary(super::kubernetes::LONGEST_MANAGER)];
    let mut pause = RETRY.0;
    for _ in 0..TRIES {
        let patch = Patch::Apply(json!({
            "apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "VarnishCacheInvalidation",
            // Not another one that has the same name by now.
            "metadata": { "name": name, "namespace": here.namespace, "uid": one.metadata.uid },
            "status": { "podResults": [result] },
        }));
        match api.patch_status(name, &PatchParams::apply(manager).force(), &patch).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
            Err(e) => {
                tracing::warn!("the result of VarnishCacheInvalidation {name} cannot be written: {e}");
                // Many long paths, many pods: what is left says how it went.
                if matches!(&e, kube::Error::Api(status) if matches!(status.code, 413 | 422 | 500)) {
                    result.path_results = None;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn object(status: &Value) -> VarnishCacheInvalidation {
        serde_json::from_value(json!({
            "apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "VarnishCacheInvalidation",
            "metadata": { "name": "purge" },
            "spec": { "gatewayRef": { "name": "shop" }, "type": "Purge", "hostname": "a", "paths": ["/", "/b"] },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_appears_is_carried_out_and_what_was_there_is_not() {
        let due = |status: Value, old| is_due("shop", "pod-1", &object(&status), old);
        assert!(due(json!({}), false));
        assert!(due(json!({ "phase": "InProgress", "pods": ["pod-2"] }), false));
        // Before its start there was nothing in its cache.
        assert!(!due(json!({}), true));
        assert!(!due(json!({ "phase": "InProgress", "pods": ["pod-2"] }), true));
        // Its container was started again, and the operator waits for it.
        assert!(due(json!({ "phase": "InProgress", "pods": ["pod-1", "pod-2"] }), true));
        for phase in ["Complete", "Failed"] {
            assert!(!due(json!({ "phase": phase, "pods": ["pod-1"] }), false));
        }
        let told = json!([{ "podName": "pod-1", "success": true }]);
        assert!(!due(json!({ "phase": "InProgress", "pods": ["pod-1"], "podResults": told }), true));
        assert!(!is_due("other", "pod-1", &object(&json!({})), false));
    }

    #[test]
    fn a_result_names_every_path() {
        let good = Outcome { objects: Some(2), error: None };
        let bad = Outcome { objects: None, error: Some("no".to_owned()) };
        let result = result("pod-1", &object(&json!({})), &[good, bad]);
        assert!(!result.success);
        assert_eq!(result.message.as_deref(), Some("1 of 2 failed: no"));
        let paths = result.path_results.unwrap();
        assert_eq!((paths[0].path.as_str(), paths[0].success), ("/", true));
        assert_eq!((paths[1].path.as_str(), paths[1].message.as_deref()), ("/b", Some("no")));
    }
}
