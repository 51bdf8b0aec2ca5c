//! The parts of a large routing.json: found after a start, and deleted once no pod needs them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams};
use serde_json::json;
use translate::Key;
use workload::packing;

use super::{Actor, Before, Of, delete, gateway_of};
use crate::Error;
use crate::apply::Ledger;

/// On each of them.
const SHARD_LABEL: &str = "gateway.varnish-software.com/routing-shard";
/// The number of old bases to keep for pods that report an unknown configuration. There is a limit, so that a pod that is stuck
/// does not keep all of them: it has read its own already.
const OLD_BASES: usize = 8;

/// One of them.
pub(super) fn shard(mut metadata: ObjectMeta, part: &ByteString) -> ConfigMap {
    metadata.labels.get_or_insert_default().insert(SHARD_LABEL.to_owned(), "true".to_owned());
    let binary_data = Some([(packing::PART.to_owned(), part.clone())].into());
    ConfigMap { metadata, binary_data, immutable: Some(true), ..ConfigMap::default() }
}

/// The base that a part belongs to: its name without the number.
fn base_of(part: &str) -> &str {
    part.rsplit_once('-').map_or(part, |(base, _)| base)
}

/// Of these parts, those bases that were made last.
fn newest<'p, T: Ord>(parts: impl Iterator<Item = (&'p str, Option<T>)>) -> BTreeSet<&'p str> {
    let mut bases: BTreeMap<&str, Option<T>> = BTreeMap::new();
    for (part, made) in parts {
        let known = bases.entry(base_of(part)).or_insert(None);
        if *known < made {
            *known = made;
        }
    }
    let mut bases: Vec<(&str, Option<T>)> = bases.into_iter().collect();
    bases.sort_by(|(_, a), (_, b)| b.cmp(a));
    bases.into_iter().take(OLD_BASES).map(|(base, _)| base).collect()
}

impl Actor {
    /// The base that an earlier operator wrote. It stays in use, so that a restart of the operator changes nothing.
    pub(super) fn found(&self) -> Before {
        Before { base: self.adopted(), pairs: self.pairs(), lately: VecDeque::new() }
    }

    fn adopted(&self) -> Option<(packing::Base, Of)> {
        let map = |name: &str| {
            let map = self.owned.config_maps.get(&Key::new(&self.key.namespace, name))?;
            (gateway_of(map.as_ref()).as_ref() == Some(&self.key)).then_some(map)
        };
        let index = packing::stored(map(&workload::vcl_config_map(&self.key.name))?.as_ref()).ok()?.base?;
        let part = |name: &String| Some(map(name)?.binary_data.as_ref()?.get(packing::PART)?.clone());
        let parts: Vec<ByteString> = index.shards.iter().map(part).collect::<Option<_>>()?;
        // One of an earlier version is not read: the first change makes a new base.
        let routing = serde_json::from_slice(&packing::join(&index, &parts).ok()?).ok()?;
        let shards = index.shards.iter().cloned().zip(parts).collect();
        Some((packing::Base { index, shards }, Of::Adopted(Arc::new(routing))))
    }

    /// A shard that exists needs no check of its content: it is immutable.
    pub(super) fn has_shard(&self, name: &str) -> bool {
        let there = self.owned.config_maps.get(&Key::new(&self.key.namespace, name));
        there.is_some_and(|map| {
            map.immutable == Some(true) && gateway_of(map.as_ref()).as_ref() == Some(&self.key)
        })
    }

    /// The parts of routing.json that are there, new and old.
    pub(super) fn shards(&self) -> Vec<(Key, Arc<ConfigMap>)> {
        let all = self.owned.config_maps.objects();
        all.into_iter()
            .filter(|(key, map)| {
                map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(SHARD_LABEL))
                    && self.is_mine(key, map.as_ref())
            })
            .collect()
    }

    /// Old parts of routing.json, once no pod needs them, and reports of pods that are gone.
    pub(super) async fn tidy(
        &self,
        lately: &VecDeque<(String, Arc<[String]>)>,
        ledger: &mut Ledger,
    ) -> Result<(), Error> {
        let pods = self.owned.pods.objects();
        let mine = pods.values().filter(|pod| gateway_of(pod.as_ref()).as_ref() == Some(&self.key));
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let (mut all, mut running) = (BTreeSet::new(), BTreeSet::new());
        for pod in mine {
            let name = pod.metadata.name.clone().unwrap_or_default();
            if !matches!(phase(pod).as_deref(), Some("Failed" | "Succeeded")) {
                running.insert(name.clone());
            }
            all.insert(name);
        }
        let reports_key = Key::new(&self.key.namespace, workload::pods_config_map(&self.key.name));
        let reports =
            self.owned.config_maps.get(&reports_key).and_then(|map| map.data.clone()).unwrap_or_default();
        let mut gone = serde_json::Map::new();
        for pod in reports.keys().filter(|pod| !all.contains(*pod)) {
            // The watch may be behind.
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.key.namespace);
            if matches!(api.get_opt(pod).await, Ok(None)) {
                gone.insert(pod.clone(), serde_json::Value::Null);
            }
        }
        if !gone.is_empty() {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.key.namespace);
            let patch = Patch::Merge(json!({ "data": gone }));
            let done = api.patch(&reports_key.name, &PatchParams::default(), &patch).await;
            done.map_err(Error::write("ConfigMap", &reports_key))?;
        }
        // Pods that have never reported begin with the newest configuration.
        let mut needed: BTreeSet<&String> = lately.back().iter().flat_map(|(_, shards)| &**shards).collect();
        let mut unknown = false;
        for (_, report) in reports.iter().filter(|(pod, _)| running.contains(*pod)) {
            match lately.iter().find(|(hash, _)| report.contains(hash)) {
                Some((_, shards)) => needed.extend(&**shards),
                None => unknown = true,
            }
        }
        let all = self.shards();
        let old = all.iter().filter(|(key, _)| !needed.contains(&key.name));
        let old = old.map(|(key, map)| (key.name.as_str(), map.metadata.creation_timestamp.clone()));
        let kept = if unknown { newest(old) } else { BTreeSet::new() };
        for (key, map) in &all {
            if !needed.contains(&key.name) && !kept.contains(base_of(&key.name)) {
                delete::<ConfigMap>(&self.client, key, map.metadata.uid.clone()).await?;
                ledger.forget("ConfigMap", key);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bases_stay_with_all_their_parts() {
        let names: Vec<String> =
            (0..20).flat_map(|at| [0, 1].map(|part| format!("gw-routing-{at:02}-{part}"))).collect();
        let parts = names.iter().enumerate().map(|(at, name)| (name.as_str(), Some(100 - at / 2)));
        let kept = newest(parts);
        assert_eq!(kept.len(), OLD_BASES);
        assert!(kept.contains("gw-routing-00") && !kept.contains("gw-routing-08"), "{kept:?}");
    }
}
