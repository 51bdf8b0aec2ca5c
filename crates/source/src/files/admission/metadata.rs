//! What every object has: name, namespace, labels, annotations.

use serde_json::{Map, Value, json};

use super::super::kind::Kind;
use super::super::object::ObjectId;
use super::super::schema::{Format, Node};
use super::format;

pub(super) const NAMESPACE_FORM: Format = format::label;

pub(super) fn name_form(kind: Option<Kind>) -> Format {
    match kind {
        Some(Kind::Service | Kind::Namespace) => format::label,
        _ => format::subdomain,
    }
}

pub(super) fn describe(kind: Kind, schema: &mut Node) {
    schema.at("metadata.name").format(name_form(Some(kind)));
    schema.at("metadata.namespace").format(NAMESPACE_FORM);
    schema.at("metadata.labels").keys(format::qualified_name);
    schema.at("metadata.labels").values().format(format::label_value);
    schema.at("metadata.annotations").keys(format::qualified_name);
    schema.at("metadata.generation").range(1..=i64::MAX);
}

/// A string in the metadata, before anything is known of its form.
pub(super) fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// What is wrong with an object that has no name.
pub(super) fn without_name(object: &Map<String, Value>) -> String {
    if let Some(what) = not_text(object, "name") {
        return what;
    }
    let what = if text(object, "generateName").is_some() {
        "metadata.name is missing, and generateName needs an API server; give it a name"
    } else {
        "metadata.name is missing; give it one"
    };
    what.to_owned()
}

/// Reports a value in this place that is not a string.
pub(super) fn not_text(object: &Map<String, Value>, name: &str) -> Option<String> {
    let found = object.get("metadata")?.get(name)?;
    let remedy = match found {
        Value::Null | Value::String(_) => return None,
        Value::Number(_) | Value::Bool(_) => "put quotes round it",
        Value::Array(_) | Value::Object(_) => "write one word",
    };
    Some(format!("metadata.{name} must be a string; {remedy}"))
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
