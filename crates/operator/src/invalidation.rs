//! The life of VarnishCacheInvalidations: which pods must report, what they report, and the cleanup afterwards.
//!
//! Pods carry them out on their own. This module decides when one is complete. Every one completes, even if its pods disappear.

mod next;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{InvalidationPhase, VarnishCacheInvalidation};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod as PodObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::{Value, json};
use source::kubernetes::Cluster;
use translate::Key;

use crate::events::Events;
use crate::gateway::{delete, gateway_of};
use crate::metrics::Metrics;
use crate::owned::Owned;
use next::{Next, Pod, Target, next};

const MANAGER: &str = "varnish-gateway-invalidation";
const AT_ONCE: usize = 16;
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Many changes often come at the same time.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) struct Invalidations {
    pub(crate) client: Client,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) owned: Arc<Owned>,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
}

impl Invalidations {
    /// Runs until the future is dropped.
    pub(crate) async fn run(self) {
        let mut objects = self.cluster.invalidations_changed();
        let mut gateways = self.cluster.changed();
        let mut owned = self.owned.changed();
        // What was written, by uid, at which version: until the watch shows it there is nothing to do.
        let mut written: HashMap<String, (String, Instant)> = HashMap::new();
        loop {
            objects.mark_unchanged();
            gateways.mark_unchanged();
            owned.mark_unchanged();
            let all = self.cluster.cache_invalidations.objects();
            self.metrics.count_invalidations(
                all.values()
                    .map(|one| one.status.as_ref().and_then(|status| status.phase).unwrap_or_default()),
            );
            let mut wait = LONGEST_WAIT;
            let mut due = Vec::new();
            written.retain(|_, (_, at)| at.elapsed() < RETRY);
            if !all.is_empty() {
                let now = Timestamp::now();
                let pods = self.pods();
                for (key, one) in &all {
                    let uid = one.metadata.uid.clone().unwrap_or_default();
                    let version = one.metadata.resource_version.clone().unwrap_or_default();
                    if written.get(&uid).is_some_and(|(at, _)| *at == version) {
                        wait = wait.min(RETRY);
                        continue;
                    }
                    let gateway = Key::new(&key.namespace, &one.spec.gateway_ref.name);
                    let none = BTreeMap::new();
                    match next(one, self.target(&gateway, &pods), pods.get(&gateway).unwrap_or(&none), now) {
                        Next::Nothing => {}
                        Next::Wait(time) => wait = wait.min(time),
                        step => {
                            written.insert(uid, (version, Instant::now()));
                            due.push((key.clone(), Arc::clone(one), step));
                        }
                    }
                }
            }
            for (key, unread) in self.cluster.cache_invalidations.unread() {
                let name = unread.raw.pointer("/spec/gatewayRef/name").and_then(Value::as_str);
                let target = name.map_or(Target::Missing, |name| {
                    self.target(&Key::new(&key.namespace, name), &self.pods())
                });
                let metadata = ObjectMeta::deserialize(&unread.raw["metadata"]).unwrap_or_default();
                let uid = metadata.uid.clone().unwrap_or_default();
                let version = metadata.resource_version.clone().unwrap_or_default();
                if written.get(&uid).is_some_and(|(at, _)| *at == version) {
                    wait = wait.min(RETRY);
                } else if let Some(status) = next::unreadable(&unread, target, Timestamp::now()) {
                    written.insert(uid, (version, Instant::now()));
                    let one = VarnishCacheInvalidation { metadata, ..VarnishCacheInvalidation::default() };
                    due.push((key, Arc::new(one), Next::Write(status)));
                }
            }
            let again = !due.is_empty();
            futures::stream::iter(due)
                .for_each_concurrent(AT_ONCE, |(key, one, step)| self.take(key, one, step))
                .await;
            tokio::select! {
                _ = objects.changed() => {}
                _ = gateways.changed(), if !all.is_empty() => {}
                _ = owned.changed(), if !all.is_empty() => {}
                () = tokio::time::sleep(if again { wait.min(RETRY) } else { wait }) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn take(&self, key: Key, one: Arc<VarnishCacheInvalidation>, step: Next) {
        let status = match step {
            Next::Nothing | Next::Wait(_) => return,
            Next::Delete => {
                let gone =
                    delete::<VarnishCacheInvalidation>(&self.client, &key, one.metadata.uid.clone()).await;
                if let Err(e) = gone {
                    tracing::warn!("{e}");
                }
                return;
            }
            Next::Write(status) => status,
        };
        let api: Api<PartialObjectMeta<VarnishCacheInvalidation>> =
            Api::namespaced(self.client.clone(), &key.namespace);
        let body = json!({
            "metadata": { "resourceVersion": one.metadata.resource_version, "uid": one.metadata.uid },
            "status": {
                "phase": status.phase, "message": status.message, "startedAt": status.started_at,
                "completedAt": status.completed_at, "pods": status.pods,
            },
        });
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch_status(&key.name, &parameters, &Patch::Merge(body)).await {
            Ok(_) => {}
            // It was changed or deleted at the same time. The watch reports it, and it is handled then.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
            Err(e) => {
                tracing::warn!("status of VarnishCacheInvalidation {key} cannot be written: {e}");
                return;
            }
        }
        if let Some(phase) = status.phase.filter(|phase| phase.is_final()) {
            let message = status.message.unwrap_or_default();
            tracing::info!("VarnishCacheInvalidation {key}: {phase:?}: {message}");
            let good = phase == InvalidationPhase::Complete;
            self.events.tell(one.as_ref(), good, if good { "Complete" } else { "Failed" }, &message).await;
        }
    }

    fn target(&self, key: &Key, pods: &BTreeMap<Key, BTreeMap<String, Pod>>) -> Target {
        let Some(gateway) = self.cluster.gateways.get(key) else {
            // The pods are ours alone: they run for an IngressClass, or for a Gateway that has just been deleted.
            let known = pods.contains_key(key) || self.cluster.gateways.unread().contains_key(key);
            return if known { Target::Ours } else { Target::Missing };
        };
        let class = self.cluster.gateway_classes.get(&Key::cluster(&gateway.spec.gateway_class_name));
        match class {
            Some(class) if class.spec.controller_name == self.cluster.controllers.gateway => Target::Ours,
            _ => Target::Others,
        }
    }

    /// By Gateway and name.
    fn pods(&self) -> BTreeMap<Key, BTreeMap<String, Pod>> {
        let mut all: BTreeMap<Key, BTreeMap<String, Pod>> = BTreeMap::new();
        for (key, pod) in self.owned.pods.objects() {
            if let Some(gateway) =
                gateway_of(pod.as_ref()).filter(|gateway| gateway.namespace == key.namespace)
            {
                all.entry(gateway).or_default().insert(key.name, look_at(&pod));
            }
        }
        all
    }
}

fn look_at(pod: &PodObject) -> Pod {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let ready = status.and_then(|status| status.conditions.as_ref()).is_some_and(|all| {
        all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    if matches!(phase, Some("Failed" | "Succeeded")) {
        Pod::Over
    } else if pod.metadata.deletion_timestamp.is_some() {
        Pod::Going
    } else if ready {
        Pod::Ready
    } else {
        Pod::NotReady
    }
}
