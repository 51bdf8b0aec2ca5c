//! CA certificates that policies and Gateways refer to: which ConfigMaps and Secrets they may use, and what these hold.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use sha2::{Digest, Sha256};

use crate::grants::{From, Grants, To};
use crate::snapshot::{Key, Snapshot};

/// The key of the bundle in a ConfigMap or Secret.
const KEY: &str = "ca.crt";

/// A bundle that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bundle {
    /// Changes with the content.
    pub(crate) name: String,
    pub(crate) pem: String,
}

/// A reference to a bundle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Why a reference cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    Kind(String),
    NotPermitted(String),
    Invalid(String),
}

impl Refused {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Kind(message) | Self::NotPermitted(message) | Self::Invalid(message) => message,
        }
    }
}

/// The bundle that `reference` means, if it is there, is good, and `from` may use it.
pub(crate) fn find(
    reference: Reference<'_>,
    from: From<'_>,
    grants: &Grants<'_>,
    snapshot: &Snapshot,
) -> Result<Bundle, Refused> {
    let Reference { group, kind, namespace, name } = reference;
    if !group.is_empty() || !matches!(kind, "ConfigMap" | "Secret") {
        let of_group = if group.is_empty() { String::new() } else { format!(" of group {group}") };
        return Err(Refused::Kind(format!(
            "{kind} {name}{of_group} cannot hold CA certificates here: refer to a ConfigMap or Secret of the core group"
        )));
    }
    // Before anything else: an owner that may not refer to an object must not learn whether it exists.
    if !grants.permit(from, To { group, kind, namespace, name }) {
        return Err(Refused::NotPermitted(format!(
            "no ReferenceGrant in namespace {namespace} lets {}s of namespace {} refer to {kind} {name}: create one there",
            from.kind, from.namespace
        )));
    }
    let key = Key::new(namespace, name);
    let object = format!("{kind} {key}");
    let (there, pem) = match kind {
        "ConfigMap" => {
            let object = snapshot.config_maps.get(&key);
            (object.is_some(), object.and_then(|object| of_config_map(object)))
        }
        _ => {
            let object = snapshot.secrets.get(&key);
            (object.is_some(), object.and_then(|object| of_secret(object)))
        }
    };
    if !there {
        return Err(Refused::Invalid(format!("{object} does not exist: create it, or correct the name")));
    }
    let Some(pem) = pem else {
        return Err(Refused::Invalid(format!(
            "{object} has no key {KEY}: put the CA certificates there, as PEM"
        )));
    };
    match certificate::Authorities::new(pem) {
        Ok(_) => Ok(Bundle { name: content_name(pem), pem: String::from_utf8_lossy(pem).into_owned() }),
        Err(e) => Err(Refused::Invalid(format!("{object} holds no usable CA certificates: {e}"))),
    }
}

fn of_config_map(object: &ConfigMap) -> Option<&[u8]> {
    let text = object.data.as_ref().and_then(|data| data.get(KEY)).map(String::as_bytes);
    text.or_else(|| object.binary_data.as_ref()?.get(KEY).map(|bytes| bytes.0.as_slice()))
}

fn of_secret(object: &Secret) -> Option<&[u8]> {
    object.data.as_ref()?.get(KEY).map(|bytes| bytes.0.as_slice())
}

/// 64 bits of a SHA-256 are enough to distinguish the bundles of one Gateway.
fn content_name(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
