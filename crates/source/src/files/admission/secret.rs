//! Secret and ConfigMap. The content of a Secret never appears in a message.

use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::Value;

use super::super::object::Object;
use super::super::schema::{Node, Violations};
use super::{format, text};

/// The API server's limit for the content of one object.
const MAX_BYTES: usize = 1024 * 1024;

pub(super) fn describe(schema: &mut Node) {
    schema.at("type").default("Opaque");
    schema.at("data").keys(format::data_key);
    schema.at("stringData").keys(format::data_key);
}

pub(super) fn describe_config_map(schema: &mut Node) {
    schema.at("data").keys(format::data_key);
    schema.at("binaryData").keys(format::data_key);
}

pub(super) fn rules(object: &Value, violations: &mut Violations) {
    let entries = |name: &str| object.get(name).and_then(Value::as_object).into_iter().flatten();
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    // Base64 text is a third longer than the decoded bytes.
    let encoded = |name: &str| entries(name).map(|(_, value)| length(value) * 3 / 4).sum::<usize>();
    let plain = |name: &str| entries(name).map(|(_, value)| length(value)).sum::<usize>();
    let is_secret = text(object, "kind") == "Secret";
    let bytes =
        if is_secret { encoded("data") + plain("stringData") } else { plain("data") + encoded("binaryData") };
    if bytes > MAX_BYTES {
        violations.add("data", format_args!("has {bytes} bytes; at most {MAX_BYTES} are allowed"));
    }
    for (key, _) in entries("binaryData") {
        if entries("data").any(|(other, _)| other == key) {
            violations.add("binaryData", format_args!("has the key {key:?}, which data has too; keep one"));
        }
    }
    if is_secret && text(object, "type") == "kubernetes.io/tls" {
        for key in ["tls.crt", "tls.key"] {
            if !entries("data").chain(entries("stringData")).any(|(name, _)| name == key) {
                let what = format_args!("has no {key:?}, which a Secret of the type kubernetes.io/tls needs");
                violations.add("data", what);
            }
        }
    }
}

/// Merges `stringData` into `data`. `stringData` takes precedence.
pub(super) fn merged(object: Object) -> Object {
    match object {
        Object::Secret(secret) if secret.string_data.is_some() => {
            let mut secret = Arc::unwrap_or_clone(secret);
            let strings = secret.string_data.take().unwrap_or_default();
            let data = secret.data.get_or_insert_default();
            data.extend(strings.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))));
            Object::Secret(Arc::new(secret))
        }
        other => other,
    }
}
