//! Server-side apply. Sends no request for an object that is already as desired.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use model::names::{
    CONTROLLER_LABEL, GATEWAY_NAME_LABEL, GATEWAY_NAMESPACE_LABEL, MANAGED_BY, MANAGED_BY_LABEL,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use source::kubernetes::Store;
use translate::Key;

use crate::Error;

/// How long the watch may take to report an object that was just written.
const ECHO: Duration = Duration::from_secs(5);

/// What one Gateway's writer has written.
pub(crate) struct Ledger {
    client: Client,
    gateway: Key,
    /// The value of our controller label; none for the default controller name.
    controller: Option<String>,
    written: HashMap<(String, Key, &'static str), Entry>,
    count: u64,
}

struct Entry {
    desired: [u8; 32],
    /// Our fields, as the API server gave them back.
    ours: [u8; 32],
    version: String,
    at: Instant,
    /// The watch has reported it since.
    seen: bool,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl Ledger {
    pub(crate) fn new(client: Client, gateway: Key, controller: Option<String>) -> Self {
        Self { client, gateway, controller, written: HashMap::new(), count: 0 }
    }

    /// How often something was written.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Makes our fields of an object what `desired` says, also if another client changed them. All other fields stay as they are.
    /// True if something was written.
    pub(crate) async fn apply<T>(
        &mut self,
        store: &Store<T>,
        manager: &'static str,
        desired: &T,
    ) -> Result<bool, Error>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        let kind = T::kind(&()).into_owned();
        let meta = desired.meta();
        let key = Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let body = body(desired)?;
        let digest = hash(&body);
        let observed = store.get(&key);
        let entry_key = (kind.clone(), key.clone(), manager);
        if let Some(entry) = self.written.get_mut(&entry_key)
            && entry.desired == digest
        {
            match &observed {
                Some(object) if entry.stands(object.as_ref(), &body)? => return Ok(false),
                None if !entry.seen && entry.at.elapsed() < ECHO => return Ok(false),
                _ => {}
            }
        }
        let api: Api<T> = Api::namespaced(self.client.clone(), &key.namespace);
        if !self.written.contains_key(&entry_key) {
            let there = match observed {
                Some(object) => Some(object.as_ref().clone()),
                None => api.get_opt(&key.name).await.map_err(Error::write(&kind, &key))?,
            };
            if there.is_some_and(|object| !self.is_ours(&object)) {
                return Err(Error::Taken { kind, key });
            }
        }
        self.count += 1;
        let parameters = PatchParams::apply(manager).force();
        let result = api
            .patch(&key.name, &parameters, &Patch::Apply(&body))
            .await
            .map_err(Error::write(&kind, &key))?;
        tracing::debug!("{kind} {key} applied");
        let entry = Entry {
            desired: digest,
            ours: hash(&project(&body, &serde_json::to_value(&result)?)),
            version: result.meta().resource_version.clone().unwrap_or_default(),
            at: Instant::now(),
            seen: false,
        };
        self.written.insert(entry_key, entry);
        Ok(true)
    }

    /// Forgets an object that was deleted.
    pub(crate) fn forget(&mut self, kind: &str, key: &Key) {
        self.written.retain(|(k, other, _), _| k != kind || other != key);
    }

    fn is_ours<T: Resource>(&self, object: &T) -> bool {
        let label = |name: &str| object.meta().labels.as_ref()?.get(name).map(String::as_str);
        label(MANAGED_BY_LABEL) == Some(MANAGED_BY)
            && label(CONTROLLER_LABEL) == self.controller.as_deref()
            && label(GATEWAY_NAME_LABEL) == Some(&self.gateway.name)
            && label(GATEWAY_NAMESPACE_LABEL) == Some(&self.gateway.namespace)
    }
}

impl Entry {
    /// Is the object that the watch reported as we wrote it?
    fn stands<T: Resource + Serialize>(&mut self, object: &T, body: &Value) -> Result<bool, Error> {
        let version = object.meta().resource_version.clone().unwrap_or_default();
        if version == self.version {
            self.seen = true;
            return Ok(true);
        }
        if let (Ok(there), Ok(ours)) = (version.parse::<u64>(), self.version.parse::<u64>())
            && there < ours
        {
            // The watch is behind.
            return Ok(self.at.elapsed() < ECHO);
        }
        let same = hash(&project(body, &serde_json::to_value(object)?)) == self.ours;
        if same {
            (self.version, self.seen) = (version, true);
        }
        Ok(same)
    }
}

/// As server-side apply requires it: with its kind, without what only the API server writes.
fn body<T: Resource<DynamicType = ()> + Serialize>(desired: &T) -> Result<Value, Error> {
    let mut body = serde_json::to_value(desired)?;
    if let Some(object) = body.as_object_mut() {
        object.insert("apiVersion".to_owned(), T::api_version(&()).into_owned().into());
        object.insert("kind".to_owned(), T::kind(&()).into_owned().into());
        object.remove("status");
    }
    Ok(body)
}

/// The fields of an object that `shape` has. Lists are taken as a whole.
fn project(shape: &Value, of: &Value) -> Value {
    match (shape, of) {
        (Value::Object(shape), Value::Object(of)) => shape
            .iter()
            .map(|(key, shape)| (key.clone(), of.get(key).map_or(Value::Null, |of| project(shape, of))))
            .collect(),
        (_, of) => of.clone(),
    }
}

fn hash(value: &Value) -> [u8; 32] {
    // Objects are sorted by key, so equal values give equal bytes.
    Sha256::digest(value.to_string()).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_ours_is_compared() {
        let desired = json!({"data": {"main.vcl": "a"}, "metadata": {"labels": {"x": "1"}}});
        let observed = json!({
            "data": {"main.vcl": "a", "routing.json": "b"},
            "metadata": {"labels": {"x": "1", "theirs": "2"}, "resourceVersion": "5"},
        });
        assert_eq!(project(&desired, &observed), desired);
        let edited = json!({"data": {"main.vcl": "edited"}, "metadata": {"labels": {"x": "1"}}});
        assert_ne!(project(&desired, &edited), desired);
        let gone = json!({"metadata": {"labels": {"x": "1"}}});
        assert_ne!(project(&desired, &gone), desired);
    }
}
