//! Ingresses have no conditions: their address says that they are served, and Events say the rest.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::StreamExt;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use translate::status::ACCEPTED;
use translate::{Condition, IngressStatus, Key, Statuses};

use super::addresses::given;
use super::{AT_ONCE, MANAGER};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::owned::Owned;
use source::kubernetes::Cluster;

/// What was reported about Ingresses so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By Ingress: its uid, and the conditions of the last Events.
    conditions: HashMap<Key, (Option<String>, Vec<Condition>)>,
    /// Ingresses whose address we wrote, and must remove.
    written: HashSet<Key>,
}

/// One Ingress with a status to write or Events to report.
struct Todo {
    key: Key,
    ingress: std::sync::Arc<Ingress>,
    /// The new addresses.
    addresses: Option<Vec<Value>>,
    news: Vec<(bool, String, String)>,
    conditions: Vec<Condition>,
}

impl Told {
    /// Writes statuses and reports Events for what is new. True if something must be retried.
    pub(super) async fn bring(
        &mut self,
        statuses: &Statuses,
        client: &Client,
        cluster: &Cluster,
        owned: &Owned,
        events: &Events,
        metrics: &Metrics,
    ) -> bool {
        // There may be thousands.
        let todo = tokio::task::block_in_place(|| self.todo(statuses, cluster, owned));
        let work = |todo: Todo| async move {
            let written = match &todo.addresses {
                Some(addresses) => write(client, &todo.key, addresses).await,
                None => Ok(()),
            };
            if let Err(e) = written {
                metrics.status_errors.inc();
                tracing::warn!("status of Ingress {} cannot be written: {e}", todo.key);
                return Err(());
            }
            for (good, reason, note) in &todo.news {
                events.tell(todo.ingress.as_ref(), *good, reason, note).await;
            }
            Ok(todo)
        };
        let done: Vec<Result<Todo, ()>> =
            futures::stream::iter(todo).map(work).buffer_unordered(AT_ONCE).collect().await;
        let mut failed = false;
        for one in done {
            let Ok(Todo { key, ingress, addresses, conditions, .. }) = one else {
                failed = true;
                continue;
            };
            if addresses.is_some() {
                self.written.insert(key.clone());
            }
            self.conditions.insert(key, (ingress.metadata.uid.clone(), conditions));
        }
        failed
    }

    fn todo(&mut self, statuses: &Statuses, cluster: &Cluster, owned: &Owned) -> Vec<Todo> {
        let ingresses = cluster.ingresses.objects();
        self.conditions.retain(|key, _| ingresses.contains_key(key));
        self.written.retain(|key| ingresses.contains_key(key));
        let none = IngressStatus::default();
        let mut by_service: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        let mut todo = Vec::new();
        for (key, ingress) in ingresses {
            let status = match statuses.ingresses.get(&key) {
                Some(status) => status,
                // No longer ours: remove what we wrote.
                None if self.written.contains(&key) => &none,
                None => continue,
            };
            let generation = ingress.metadata.generation.unwrap_or_default();
            if status.conditions.iter().any(|condition| condition.observed_generation != generation) {
                // It has just changed: our copy is outdated.
                continue;
            }
            let wanted = status.varnish_service.as_ref().map(|service| {
                by_service
                    .entry(service.clone())
                    .or_insert_with(|| {
                        owned.services.get(service).map(|found| points(&given(&found))).unwrap_or_default()
                    })
                    .clone()
            });
            let wanted = wanted.unwrap_or_default();
            let differs = observed(&ingress) != wanted;
            let known = self.conditions.get(&key).filter(|(uid, _)| *uid == ingress.metadata.uid);
            let news = match known {
                Some((_, conditions)) if same(conditions, &status.conditions) => Vec::new(),
                // The process that wrote the address has reported it.
                None if !differs && !wanted.is_empty() => Vec::new(),
                _ => status.conditions.iter().map(news).collect(),
            };
            if known.is_some() && !differs && news.is_empty() {
                continue;
            }
            let conditions = status.conditions.clone();
            let addresses = differs.then_some(wanted);
            todo.push(Todo { key, ingress, addresses, news, conditions });
        }
        todo
    }
}

/// Compares without the generation.
fn same(one: &[Condition], two: &[Condition]) -> bool {
    let same = |one: &Condition, two: &Condition| {
        one.status == two.status && one.reason == two.reason && one.message == two.message
    };
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(one, two))
}

fn news(condition: &Condition) -> (bool, String, String) {
    let Condition { kind, status, reason, message, .. } = condition;
    match (kind.as_str(), status) {
        (ACCEPTED, true) => (true, "Accepted".to_owned(), message.clone()),
        (ACCEPTED, false) => (false, "Rejected".to_owned(), format!("{message} ({reason})")),
        _ => (*status, reason.clone(), message.clone()),
    }
}

/// A Gateway's addresses as an Ingress has them.
fn points(addresses: &[Value]) -> Vec<Value> {
    let point = |address: &Value| {
        let value = address.get("value")?;
        let kind = if address.get("type")?.as_str()? == "IPAddress" { "ip" } else { "hostname" };
        Some(json!({ kind: value }))
    };
    addresses.iter().filter_map(point).collect()
}

fn observed(ingress: &Ingress) -> Vec<Value> {
    let points = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    let point = |ip: &Option<String>, hostname: &Option<String>| match (ip, hostname) {
        (Some(ip), _) => json!({ "ip": ip }),
        (None, hostname) => json!({ "hostname": hostname }),
    };
    points.into_iter().flatten().map(|one| point(&one.ip, &one.hostname)).collect()
}

async fn write(client: &Client, key: &Key, addresses: &[Value]) -> Result<(), kube::Error> {
    let points = if addresses.is_empty() { Value::Null } else { Value::Array(addresses.to_vec()) };
    let patch = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": points } } }));
    let api: Api<PartialObjectMeta<Ingress>> = Api::namespaced(client.clone(), &key.namespace);
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(&key.name, &parameters, &patch).await {
        Ok(_) => Ok(()),
        // It was deleted at the same time.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(e) => Err(e),
    }
}
