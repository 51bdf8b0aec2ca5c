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

impl Unread {
    /// For people, with what to do.
    pub fn reason(&self) -> String {
        let why = &self.why;
        format!(
            "it has a value that this release does not know: {why}; remove it, or use a release that supports it"
        )
    }
}

impl<T> Read<T> {
    /// One that was read already.
    pub(super) fn known(metadata: ObjectMeta, object: T) -> Self {
        Self { metadata, ignored: Vec::new(), object: Ok(object) }
    }
}

impl<'de, T: DeserializeOwned + Resource<DynamicType = ()>> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut raw = Value::deserialize(deserializer)?;
        if let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) {
            // Large and unused.
            metadata.remove("managedFields");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        if T::kind(&()) == "EndpointSlice" {
            leave_endpoints(&mut raw);
        }
        let metadata = raw.get("metadata").cloned().unwrap_or_default();
        let metadata = ObjectMeta::deserialize(metadata).map_err(D::Error::custom)?;
        let mut ignored = Vec::new();
        let read = serde_ignored::deserialize(&raw, |field| {
            let field = field.to_string();
            if field.starts_with("spec.") {
                // `spec.rules.0.retry`, without serde's marks of optional values.
                ignored.push(field.replace("?.", "").replace(".?", ""));
            }
        });
        let kind = T::kind(&());
        let object = match read {
            Err(e) => Err(e.to_string()),
            Ok(object) => match ignored.iter().find(|field| narrows(&kind, field)) {
                Some(field) => Err(format!("the field {field}")),
                None => Ok(object),
            },
        };
        let object = object.map_err(|why: String| Unread { why, raw });
        if object.is_err() {
            ignored.clear();
        }
        Ok(Self { metadata, ignored, object })
    }
}

/// Takes away what is not read of an EndpointSlice. There are as many as Services, and two thirds of each are references to pods and
/// their owners.
fn leave_endpoints(raw: &mut Value) {
    const METADATA: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "labels"];
    const ENDPOINT: [&str; 2] = ["addresses", "conditions"];
    if let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| METADATA.contains(&name.as_str()));
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|name, _| name == "kubernetes.io/service-name");
        }
    }
    for endpoint in raw.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(endpoint) = endpoint.as_object_mut() {
            endpoint.retain(|name, _| ENDPOINT.contains(&name.as_str()));
        }
    }
}

/// May the object be wider without this field, which we do not know? A condition, a filter or a check must not be skipped.
fn narrows(kind: &str, field: &str) -> bool {
    let within = |part: &str| field.split('.').any(|one| one == part);
    match kind {
        "VarnishCachePolicy" | "ReferenceGrant" => true,
        "HTTPRoute" | "GRPCRoute" | "TLSRoute" => within("matches") || within("filters"),
        "BackendTLSPolicy" => within("validation"),
        "Gateway" | "ListenerSet" => within("tls") || within("allowedRoutes"),
        _ => false,
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

#[cfg(test)]
mod tests {
    use api::VarnishCachePolicy;
    use gateway_api::experimental::httproutes::HttpRoute;
    use gateway_api::gateways::Gateway;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    use super::*;

    #[test]
    fn of_an_endpoint_slice_only_what_is_read_is_kept() {
        let slice = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generateName": "web-",
                "labels": {"kubernetes.io/service-name": "web", "app": "web"}, "annotations": {"a": "b"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s"}],
            },
            "addressType": "IPv4",
            "endpoints": [{
                "addresses": ["10.0.0.1"], "conditions": {"ready": false}, "nodeName": "one", "zone": "z",
                "targetRef": {"kind": "Pod", "name": "web-1-x", "namespace": "shop", "uid": "p"},
            }],
            "ports": [{"name": "http", "port": 80}],
        });
        let expected = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": {"kubernetes.io/service-name": "web"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": false}}],
            "ports": [{"name": "http", "port": 80}],
        });
        let read: Read<EndpointSlice> = serde_json::from_value(slice).unwrap();
        let expected: EndpointSlice = serde_json::from_value(expected).unwrap();
        assert_eq!(read.object.unwrap(), expected);
        assert_eq!(read.metadata, expected.metadata);
    }

    fn why<T: DeserializeOwned + Resource<DynamicType = ()>>(spec: &Value) -> Option<String> {
        let raw = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec});
        let read: Read<T> = serde_json::from_value(raw).unwrap();
        read.object.err().map(|unread| unread.why)
    }

    #[test]
    fn a_field_of_a_newer_release_that_may_narrow_the_object_makes_it_unreadable() {
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"});
        let policy = |bypass: Value| json!({"targetRef": target, "defaultTTL": "1m", "bypass": bypass});
        let known = policy(json!({"headers": [{"name": "Cookie"}]}));
        assert_eq!(why::<VarnishCachePolicy>(&known), None);
        let newer = policy(json!({"headers": [{"name": "Cookie"}], "cookies": ["session"]}));
        assert_eq!(why::<VarnishCachePolicy>(&newer).as_deref(), Some("the field spec.bypass.cookies"));

        let route = |field: Value| json!({"rules": [{"matches": [{"path": {"value": "/a"}}]}, field]});
        assert_eq!(why::<HttpRoute>(&route(json!({"retry": {"attempts": 3}}))), None);
        let newer = route(json!({"matches": [{"path": {"value": "/b"}, "cookies": []}]}));
        assert_eq!(why::<HttpRoute>(&newer).as_deref(), Some("the field spec.rules.1.matches.0.cookies"));

        let gateway = |tls: Value| {
            let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls});
            json!({"gatewayClassName": "varnish", "listeners": [listener]})
        };
        assert_eq!(why::<Gateway>(&gateway(json!({"certificateRefs": [{"name": "a"}]}))), None);
        let older = gateway(json!({"frontendValidation": {"caCertificateRefs": [{"name": "ca"}]}}));
        assert_eq!(
            why::<Gateway>(&older).as_deref(),
            Some("the field spec.listeners.0.tls.frontendValidation")
        );
    }
}
