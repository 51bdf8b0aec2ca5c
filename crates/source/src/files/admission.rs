//! Admits objects the way the API server does: known fields only, defaults, validation.
//!
//! Takes a parsed document, gives the typed object, or one message that says everything that is wrong with it. Never
//! looks at other objects: whether a reference leads somewhere is `translate`'s to say.

mod backend_tls_policy;
mod cache;
mod endpoint_slice;
pub(crate) mod format;
mod gateway;
mod gateway_class;
mod http_route;
mod ingress;
mod metadata;
mod reference_grant;
mod secret;
mod service;
mod tls_route;
mod trace;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use translate::snapshot::Key;

use super::kind::{Kind, Recognised};
use super::object::{Object, ObjectId};
use super::schema::{self, Node, Violations};
use crate::stand_in;

pub(crate) use trace::Trace;

/// What became of one object in a file.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    Admitted {
        id: ObjectId,
        object: Object,
    },
    /// Not usable as it is written. `id` is known if at least kind and name could be read.
    Refused {
        id: Option<ObjectId>,
        trace: Trace,
        shown: Option<String>,
        message: String,
        /// What counts in its place where there is no good version of it.
        stand_in: Option<StandIn>,
    },
    /// Not a kind that is read. With a trace where it may be a slip.
    Skipped {
        trace: Option<Trace>,
        shown: Option<String>,
        message: String,
    },
}

/// What counts in the place of a refused object, so that its absence opens nothing.
#[derive(Debug, Clone)]
pub(crate) struct StandIn {
    pub(crate) id: ObjectId,
    pub(crate) object: Object,
    /// What it does, for people.
    pub(crate) effect: String,
}

static SCHEMAS: LazyLock<BTreeMap<Kind, Node>> =
    LazyLock::new(|| Kind::ALL.into_iter().map(|kind| (kind, described(kind))).collect());

fn described(kind: Kind) -> Node {
    let mut schema = Object::schema(kind);
    metadata::describe(kind, &mut schema);
    match kind {
        Kind::GatewayClass => gateway_class::describe(&mut schema),
        Kind::Gateway => gateway::describe(&mut schema),
        Kind::HttpRoute => http_route::describe(&mut schema),
        Kind::TlsRoute => tls_route::describe(&mut schema),
        Kind::BackendTlsPolicy => backend_tls_policy::describe(&mut schema),
        Kind::ReferenceGrant => reference_grant::describe(&mut schema),
        Kind::Parameters => gateway_class::describe_parameters(&mut schema),
        Kind::CachePolicy => cache::describe_policy(&mut schema),
        Kind::CacheInvalidation => cache::describe_invalidation(&mut schema),
        Kind::Service => service::describe(&mut schema),
        Kind::EndpointSlice => endpoint_slice::describe(&mut schema),
        Kind::Secret => secret::describe(&mut schema),
        Kind::ConfigMap => secret::describe_config_map(&mut schema),
        Kind::Namespace => {}
        Kind::Ingress => ingress::describe(&mut schema),
        Kind::IngressClass => ingress::describe_class(&mut schema),
    }
    schema
}

/// The objects that a document holds: itself, or the items of a `List`. In a `ServiceList` they may leave out what the
/// list says already.
pub(crate) fn items(document: Value) -> Vec<Value> {
    let kind = text(&document, "kind").strip_suffix("List").map(str::to_owned);
    let api_version = text(&document, "apiVersion").to_owned();
    match (document, kind) {
        (Value::Null, _) => Vec::new(),
        (Value::Object(mut list), Some(kind))
            if matches!(list.get("items"), Some(Value::Array(_) | Value::Null)) =>
        {
            let mut items = match list.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            if !kind.is_empty() {
                for item in items.iter_mut().filter_map(Value::as_object_mut) {
                    item.entry("kind").or_insert_with(|| kind.as_str().into());
                    item.entry("apiVersion").or_insert_with(|| api_version.as_str().into());
                }
            }
            items.into_iter().flat_map(self::items).collect()
        }
        (document, _) => vec![document],
    }
}

pub(crate) fn admit(value: Value) -> Verdict {
    let raw = kind_of_stand_in(&value).map(|kind| (kind, value.clone()));
    with_stand_in(judge(value), raw)
}

/// The kind of an object that must not merely be left out where it is refused.
fn kind_of_stand_in(value: &Value) -> Option<Kind> {
    let name = text(value, "kind");
    // Nobody else has a kind of such a name.
    if Kind::meant(name) == Some(Kind::CachePolicy) {
        return Some(Kind::CachePolicy);
    }
    let kind = [Kind::HttpRoute, Kind::TlsRoute, Kind::BackendTlsPolicy, Kind::Ingress];
    let kind = kind.into_iter().find(|kind| kind.name() == name)?;
    let (group, _) = text(value, "apiVersion").rsplit_once('/').unwrap_or_default();
    // Without a group it is a slip; with another one it is somebody else's.
    (group.is_empty() || kind.api_version().starts_with(&format!("{group}/"))).then_some(kind)
}

fn judge(mut value: Value) -> Verdict {
    let Some(object) = value.as_object_mut() else {
        let message = "this is no Kubernetes object; begin it with `apiVersion:` and `kind:`";
        return refused(None, Trace::default(), None, message);
    };
    let word = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind_name) = (word("apiVersion"), word("kind"));
    let name = metadata::text(object, "name");
    let namespace = metadata::text(object, "namespace");
    let shown = shown(&kind_name, namespace, name);
    let trace = Trace::of(&kind_name, object);
    if kind_name.is_empty() || api_version.is_empty() {
        let missing = if kind_name.is_empty() { "kind" } else { "apiVersion" };
        let message = format!("{missing} is missing; every object needs apiVersion and kind");
        return refused(trace.id(), trace, shown, message);
    }
    let kind = match Kind::recognise(&api_version, &kind_name) {
        Recognised::Known(kind) => kind,
        Recognised::WrongVersion(kind) => {
            let versions = kind.api_versions();
            let message = format!("apiVersion `{api_version}` is not read for a {kind}; write {versions}");
            return refused(trace.id(), trace, shown, message);
        }
        Recognised::Unknown(namesake) => {
            let hint = namesake.map_or_else(String::new, |kind| {
                format!(" (the {kind} that is read has the apiVersion {})", kind.api_versions())
            });
            if trace.is_of(Kind::CachePolicy) {
                let kind = Kind::CachePolicy;
                let versions = kind.api_versions();
                let message = format!(
                    "the kind {kind_name} of {api_version} is not read; write kind {kind} and apiVersion {versions}"
                );
                return refused(trace.id(), trace, shown, message);
            }
            let message = format!("the kind {kind_name} of {api_version} is not read; skipped{hint}");
            return Verdict::Skipped { trace: trace.of_a_slip(&api_version, object), shown, message };
        }
    };
    let Some(name) = name.map(str::to_owned) else {
        let what = metadata::without_name(object);
        return refused(None, trace, shown, what);
    };
    if let Some(what) = metadata::not_text(object, "namespace") {
        return refused(None, trace, shown, what);
    }
    let namespace = match (kind.namespaced(), namespace) {
        (true, namespace) => namespace.unwrap_or("default").to_owned(),
        (false, _) => String::new(),
    };
    let id = ObjectId { kind, key: Key::new(namespace, name) };
    let mut violations = Violations::new(kind == Kind::Secret);
    check(&id, &mut value, &mut violations);
    if !violations.is_empty() {
        return refused(Some(id), trace, None, violations.into_message());
    }
    match Object::read(kind, value) {
        Ok(object) => Verdict::Admitted { id, object: secret::merged(object) },
        // The schema has passed it, so this is a form that only the type knows, such as that of a time.
        Err(_) if kind == Kind::Secret => {
            refused(Some(id), trace, None, "a value has the wrong form (not shown, as this is a Secret)")
        }
        Err(error) => refused(Some(id), trace, None, format!("a value has the wrong form: {error}")),
    }
}

fn check(id: &ObjectId, value: &mut Value, violations: &mut Violations) {
    let kind = id.kind;
    metadata::normalise(id, value);
    if let Some(schema) = SCHEMAS.get(&kind) {
        schema::apply(schema, value, violations);
    }
    // Rules across fields may count on every field having its form.
    if !violations.is_empty() {
        return;
    }
    match kind {
        Kind::Gateway => gateway::rules(value, violations),
        Kind::HttpRoute => http_route::rules(value, violations),
        Kind::TlsRoute => tls_route::rules(value, violations),
        Kind::BackendTlsPolicy => backend_tls_policy::rules(value, violations),
        Kind::CachePolicy => cache::policy_rules(value, violations),
        Kind::Parameters => gateway_class::parameter_rules(value, violations),
        Kind::CacheInvalidation => cache::invalidation_rules(value, violations),
        Kind::Service => service::rules(value, violations),
        Kind::EndpointSlice => endpoint_slice::rules(value, violations),
        Kind::Secret | Kind::ConfigMap => secret::rules(value, violations),
        Kind::Ingress => ingress::rules(value, violations),
        Kind::IngressClass => ingress::class_rules(value, violations),
        Kind::GatewayClass | Kind::ReferenceGrant | Kind::Namespace => {}
    }
}

fn refused(id: Option<ObjectId>, trace: Trace, shown: Option<String>, message: impl Into<String>) -> Verdict {
    let shown = shown.or_else(|| id.as_ref().map(ObjectId::to_string));
    Verdict::Refused { id, trace, shown, message: message.into(), stand_in: None }
}

/// Its absence must not leave requests to a wider route or policy, nor Services with plain text.
fn with_stand_in(mut verdict: Verdict, raw: Option<(Kind, Value)>) -> Verdict {
    let (Some((kind, raw)), Verdict::Refused { message, stand_in, .. }) = (raw, &mut verdict) else {
        return verdict;
    };
    macro_rules! stand_in {
        ($kind:ident, $object:expr, $effect:expr) => {{
            let mut object = $object;
            let name = object.metadata.name.clone().unwrap_or_default();
            let namespace = object.metadata.namespace.get_or_insert_with(|| "default".to_owned()).clone();
            let id = ObjectId { kind, key: Key::new(namespace, name) };
            *stand_in =
                Some(StandIn { id, object: Object::$kind(Arc::new(object)), effect: $effect.to_owned() });
        }};
    }
    match kind {
        Kind::HttpRoute => stand_in!(
            HttpRoute,
            stand_in::http_route(&raw, message),
            "the requests that it can be seen to be for get 500"
        ),
        Kind::TlsRoute => stand_in!(
            TlsRoute,
            stand_in::tls_route(&raw, message),
            "connections for its hostnames are closed"
        ),
        Kind::Ingress => {
            stand_in!(Ingress, stand_in::ingress(&raw, message), "requests for its hosts get 503");
        }
        Kind::CachePolicy => {
            let policy = stand_in::cache_policy(&raw, message);
            let effect = if policy.spec.target_ref.name.is_empty() {
                "its target cannot be told, so nothing that a policy of its namespace can be for is cached"
            } else {
                "its target is not cached"
            };
            stand_in!(CachePolicy, policy, effect);
        }
        Kind::BackendTlsPolicy => {
            if let Some(policy) = stand_in::backend_tls_policy(&raw, message) {
                stand_in!(BackendTlsPolicy, policy, "requests to the Services that it is for get 500");
            }
        }
        _ => {}
    }
    verdict
}

/// What stands for all cache policies that a file may hold: they may be for anything.
pub(crate) fn closes_all(file: &str) -> (ObjectId, Object) {
    let mut policy = stand_in::cache_policy(&Value::Null, "its file cannot be parsed");
    let key = Key::cluster(file);
    policy.metadata.name = Some(key.name.clone());
    policy.metadata.namespace = None;
    (ObjectId { kind: Kind::CachePolicy, key }, Object::CachePolicy(Arc::new(policy)))
}

/// As much of `HTTPRoute default/shop` as is there.
fn shown(kind: &str, namespace: Option<&str>, name: Option<&str>) -> Option<String> {
    match (kind, namespace, name) {
        ("", _, None) => None,
        ("", _, Some(name)) => Some(name.to_owned()),
        (kind, _, None) => Some(kind.to_owned()),
        (kind, None, Some(name)) => Some(format!("{kind} {name}")),
        (kind, Some(namespace), Some(name)) => Some(format!("{kind} {namespace}/{name}")),
    }
}

/// The items of a list that may be absent.
fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A string that may be absent.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_is_described_exists_in_its_type() {
        for kind in Kind::ALL {
            described(kind);
        }
    }
}
