//! Objects one by one: a field that we cannot read must not hide all objects of its kind.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object, or why it cannot be read.
#[derive(Debug, Clone)]
pub struct Read<T> {
    metadata: ObjectMeta,
    /// Fields of `spec` that we do not know: of a newer Gateway API, or of its experimental channel.
    pub ignored: Vec<String>,
    pub object: Result<T, Unread>,
}

/// What is left of an object that has a value we do not know, say a filter of a newer Gateway API.
#[derive(Debug, Clone)]
pub struct Unread {
    pub why: String,
    pub raw: Value,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut raw = Value::deserialize(deserializer)?;
        if let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) {
            // Large, and nobody's here.
            metadata.remove("managedFields");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        let metadata = raw.get("metadata").cloned().unwrap_or_default();
        let metadata = ObjectMeta::deserialize(metadata).map_err(D::Error::custom)?;
        let mut ignored = Vec::new();
        let object = serde_ignored::deserialize(&raw, |field| {
            let field = field.to_string();
            if field.starts_with("spec.") {
                // `spec.rules.0.retry`, without serde's marks of optional values.
                ignored.push(field.replace("?.", "").replace(".?", ""));
            }
        })
        .map_err(|e: serde_json::Error| Unread { why: e.to_string(), raw });
        Ok(Self { metadata, ignored, object })
    }
}

impl<T: Resource> Resource for Read<T> {
    type DynamicType = T::DynamicType;
    type Scope = T::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        T::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
