//! What every object has: name, namespace, labels, annotations.

use serde_json::{Map, Value, json};

use super::super::kind::Kind;
use super::super::object::ObjectId;
use super::super::schema::Node;
use super::format;

pub(super) fn describe(kind: Kind, schema: &mut Node) {
    let name = match kind {
        Kind::Service | Kind::Namespace => format::label,
        _ => format::subdomain,
    };
    schema.at("metadata.name").format(name);
    schema.at("metadata.namespace").format(format::label);
    schema.at("metadata.labels").keys(format::qualified_name);
    schema.at("metadata.labels").values().format(format::label_value);
    schema.at("metadata.annotations").keys(format::qualified_name);
    schema.at("metadata.generation").range(1..=i64::MAX);
}

/// A string in the metadata, before anything is known of its form.
pub(super) fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// Writes what the API server writes itself, and takes away what is not the writer's to say.
pub(super) fn normalise(id: &ObjectId, value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    object.remove("status");
    object.insert("apiVersion".to_owned(), json!(id.kind.api_version()));
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.remove("managedFields");
    if id.kind.namespaced() {
        metadata.insert("namespace".to_owned(), json!(id.key.namespace));
    } else {
        // As kubectl does: manifests of cluster-wide objects often name one.
        metadata.remove("namespace");
    }
}
