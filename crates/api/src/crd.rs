//! The CustomResourceDefinitions of our kinds, as `varnish-gateway crds` prints them and deploy/crds holds them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{GatewayClassParameters, VarnishCacheInvalidation, VarnishCachePolicy};

/// All of them, each with the name of its file.
pub fn all() -> Vec<(&'static str, Value)> {
    [
        ("gatewayclassparameters", GatewayClassParameters::crd()),
        ("varnishcacheinvalidations", VarnishCacheInvalidation::crd()),
        ("varnishcachepolicies", VarnishCachePolicy::crd()),
    ]
    .into_iter()
    .map(|(file, definition)| (file, tidy(&definition)))
    .collect()
}

/// One YAML document for each.
pub fn yaml() -> Result<String, serde_saphyr::SerializeError> {
    let documents: Result<Vec<String>, _> =
        all().iter().map(|(_, definition)| serde_saphyr::to_string(definition)).collect();
    Ok(documents?.join("---\n"))
}

/// As the API server should see it: absent is the only way to leave a field out. With `nullable` an explicit null would
/// be kept, and be neither there nor absent for CEL.
fn tidy(definition: &CustomResourceDefinition) -> Value {
    // A definition is made of strings, numbers and maps by name: nothing in it can fail to serialize.
    let mut definition = serde_json::to_value(definition).unwrap_or_default();
    simplify(&mut definition);
    definition
}

fn simplify(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // kube's rewriter takes the types out of the two branches, and what is left says nothing.
            if fields.contains_key("x-kubernetes-int-or-string") {
                fields.remove("anyOf");
            }
            if fields.get("nullable").is_some_and(Value::is_boolean) {
                fields.remove("nullable");
            }
            // schemars lists null among the values of an optional enum.
            if let Some(Value::Array(choices)) = fields.get_mut("enum") {
                choices.retain(|choice| !choice.is_null());
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}
