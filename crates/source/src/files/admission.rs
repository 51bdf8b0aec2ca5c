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
mod grpc_route;
mod http_route;
mod ingress;
mod listener_set;
mod metadata;
mod own_endpoints;
mod reference_grant;
mod secret;
mod service;
mod stream_route;
mod tls_route;
mod trace;

use std::collections::BTreeMap;
use std::iter;
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use translate::snapshot::Key;

use super::kind::{Kind, Recognised};
use super::object::{Object, ObjectId};
use super::schema::{self, Node, Violations};
use crate::stand_in;

pub(crate) use trace::Trace;

/// The outcome for one object in a file.
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
        /// The replacement if there is no good version of the object.
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
    /// Its effect, as text for users.
    pub(crate) effect: String,
}

static SCHEMAS: LazyLock<BTreeMap<Kind, Node>> =
    LazyLock::new(|| Kind::ALL.iter().map(|kind| (*kind, described(*kind))).collect());

macro_rules! admission {
    ($($class:ident { $($kind:ident: $type:ty, $field:ident, $name:literal, $group:ident, $versions:tt, $scope:ident,
        $describe:path, $rules:path $(, when $same:ident)? $(, else $stand_in:ident $effect:literal)?;)* })*) => {
        fn described(kind: Kind) -> Node {
            let mut schema = Object::schema(kind);
            metadata::describe(kind, &mut schema);
            match kind {
                $($(Kind::$kind => $describe(&mut schema),)*)*
            }
            schema
        }

        /// Rules across fields.
        fn rules(kind: Kind, value: &mut Value, violations: &mut Violations) {
            match kind {
                $($(Kind::$kind => $rules(value, violations),)*)*
            }
        }

        /// What takes the place of a refused object.
        fn stand_in(kind: Kind, raw: &Value, why: &str) -> Option<(ObjectId, Object)> {
            match kind {
                $($($(Kind::$kind => {
                    let mut object = stand_in::$stand_in(raw, why)?;
                    let name = object.metadata.name.clone().unwrap_or_default();
                    let namespace = object.metadata.namespace.get_or_insert_with(|| "default".to_owned()).clone();
                    let id = ObjectId { kind, key: Key::new(namespace, name) };
                    Some((id, Object::$kind(Arc::new(object))))
                })?)*)*
                _ => None,
            }
        }
    };
}

translate::kinds!(admission);

fn no_description(_: &mut Node) {}

fn no_rules(_: &Value, _: &mut Violations) {}

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
        (document, _) => {
            let endpoints = own_endpoints::slices(&document);
            iter::once(document).chain(endpoints).collect()
        }
    }
}

pub(crate) fn admit(value: Value) -> Verdict {
    let raw = kind_of_stand_in(&value).map(|kind| (kind, value.clone()));
    with_stand_in(judge(value), raw)
}

/// The kind of an object that must not merely be left out where it is refused.
fn kind_of_stand_in(value: &Value) -> Option<Kind> {
    let name = text(value, "kind");
    // No other project has a kind of such a name.
    if Kind::meant(name) == Some(Kind::CachePolicy) {
        return Some(Kind::CachePolicy);
    }
    let has_stand_in = Kind::ALL.iter().copied().filter(|kind| kind.effect_of_stand_in().is_some());
    let kind = has_stand_in.into_iter().find(|kind| kind.name() == name)?;
    let (group, _) = text(value, "apiVersion").rsplit_once('/').unwrap_or_default();
    // Without a group it is a slip; with another one it is another project's.
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
            if let Some(meant) =
                Kind::meant(&kind_name).filter(|_| namesake.is_none() && Kind::has_group_of(&api_version))
            {
                let versions = meant.api_versions();
                let message = format!(
                    "there is no kind {kind_name} of {api_version}; write kind {meant} and apiVersion {versions}"
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
        // The schema has accepted it, so only the Rust type refuses its format, for example that of a time.
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
    rules(kind, value, violations);
}

fn refused(id: Option<ObjectId>, trace: Trace, shown: Option<String>, message: impl Into<String>) -> Verdict {
    let shown = shown.or_else(|| id.as_ref().map(ObjectId::to_string));
    Verdict::Refused { id, trace, shown, message: message.into(), stand_in: None }
}

/// Without it, requests must not go to a wider route or policy, and Services must not get plain text.
fn with_stand_in(mut verdict: Verdict, raw: Option<(Kind, Value)>) -> Verdict {
    let (Some((kind, raw)), Verdict::Refused { message, stand_in, .. }) = (raw, &mut verdict) else {
        return verdict;
    };
    if let (Some((id, object)), Some(effect)) =
        (self::stand_in(kind, &raw, message), kind.effect_of_stand_in())
    {
        let effect = match &object {
            Object::CachePolicy(policy)
                if policy.spec.target_ref.as_ref().is_some_and(|target| target.name.is_empty()) =>
            {
                "its target cannot be told, so nothing that a policy of its namespace may target is cached"
            }
            _ => effect,
        };
        *stand_in = Some(StandIn { id, object, effect: effect.to_owned() });
    }
    verdict
}

/// What stands for all cache policies that a file may hold: they may be for anything.
pub(crate) fn closes_all(file: &str) -> (ObjectId, Object) {
    let mut policy = stand_in::cache_policy_for(&Value::Null, "its file cannot be parsed");
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
            described(*kind);
        }
    }
}
