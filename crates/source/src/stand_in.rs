//! What stands for a BackendTLSPolicy that cannot be used: without it, its Services would get plain text.

use gateway_api::backendtlspolicies::{BackendTlsPolicy, BackendTlsPolicySpec, BackendTlsPolicyTargetRefs};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use translate::REFUSED_ANNOTATION;

/// A policy for the same targets, as far as they can be read, which says why it is refused. None: it names none.
pub(crate) fn backend_tls_policy(raw: &Value, why: &str) -> Option<BackendTlsPolicy> {
    let spec = raw.get("spec")?;
    let several = spec.get("targetRefs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // As in the first versions of the kind.
    let single = spec.get("targetRef");
    let target_refs: Vec<BackendTlsPolicyTargetRefs> =
        several.iter().chain(single).filter_map(target).collect();
    if target_refs.is_empty() {
        return None;
    }
    let metadata = raw.get("metadata").cloned().unwrap_or_default();
    let mut metadata: ObjectMeta = serde_json::from_value(metadata.clone())
        .unwrap_or_else(|_| ObjectMeta { name: text(&metadata, "name"), ..ObjectMeta::default() });
    metadata.annotations = Some([(REFUSED_ANNOTATION.to_owned(), why.to_owned())].into());
    let spec = BackendTlsPolicySpec { target_refs, ..BackendTlsPolicySpec::default() };
    Some(BackendTlsPolicy { metadata, spec, status: None })
}

fn target(raw: &Value) -> Option<BackendTlsPolicyTargetRefs> {
    Some(BackendTlsPolicyTargetRefs {
        group: text(raw, "group").unwrap_or_default(),
        kind: text(raw, "kind").unwrap_or_else(|| "Service".to_owned()),
        name: text(raw, "name")?,
        section_name: text(raw, "sectionName"),
    })
}

fn text(raw: &Value, field: &str) -> Option<String> {
    raw.get(field).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_it_is_for_is_kept() {
        let raw = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "shop", "sectionName": "web"}, {"name": 3}],
                     "validation": {"hostname": 7}}
        });
        let policy = backend_tls_policy(&raw, "no good").unwrap();
        assert_eq!(policy.spec.target_refs.len(), 1);
        assert_eq!(policy.spec.target_refs[0].section_name.as_deref(), Some("web"));
        assert_eq!(policy.metadata.annotations.unwrap()[REFUSED_ANNOTATION], "no good");
        assert!(backend_tls_policy(&json!({"spec": {}}), "").is_none());
        let old =
            json!({"metadata": {"name": 5}, "spec": {"targetRef": {"kind": "Service", "name": "shop"}}});
        assert_eq!(backend_tls_policy(&old, "").unwrap().spec.target_refs[0].name, "shop");
    }
}
