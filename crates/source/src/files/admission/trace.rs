//! The readable parts of an object whose identity is broken: enough to find its earlier version.

use serde_json::{Map, Value};
use translate::snapshot::Key;

use super::super::kind::Kind;
use super::super::object::ObjectId;
use super::metadata;

/// The parts of an identity that could be read. An absent one fits everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    kind: Option<Kind>,
    namespace: Option<String>,
    name: Option<String>,
}

impl Trace {
    pub(super) fn of(kind_name: &str, object: &Map<String, Value>) -> Self {
        let kind = Kind::meant(kind_name);
        let good = |field: &str| {
            let text = metadata::text(object, field)?;
            let form = if field == "name" { metadata::name_form(kind) } else { metadata::NAMESPACE_FORM };
            form(text).is_ok().then(|| text.to_owned())
        };
        Self { kind, namespace: good("namespace"), name: good("name") }
    }

    /// Whose identity it is, as far as nothing but the version is wrong.
    pub(super) fn id(&self) -> Option<ObjectId> {
        let (kind, name) = (self.kind?, self.name.clone()?);
        let namespace = match kind.namespaced() {
            true => self.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            false => String::new(),
        };
        Some(ObjectId { kind, key: Key::new(namespace, name) })
    }

    pub(super) fn is_of(&self, kind: Kind) -> bool {
        self.kind == Some(kind)
    }

    /// Of a kind that is not read: it is a slip where the kind's name is nearly one of ours, and where a document of a group of
    /// ours has not even a name, as one that is half-written. A Job with `generateName` is none.
    pub(super) fn of_a_slip(self, api_version: &str, object: &Map<String, Value>) -> Option<Self> {
        let is_half_written = self.name.is_none()
            && Kind::has_group_of(api_version)
            && metadata::text(object, "generateName").is_none();
        (self.kind.is_some() || is_half_written).then_some(self)
    }

    /// Whether the object may have been this one.
    pub(crate) fn fits(&self, id: &ObjectId) -> bool {
        let same = |part: &Option<String>, other: &str| part.as_deref().is_none_or(|part| part == other);
        self.kind.is_none_or(|kind| kind == id.kind)
            && same(&self.name, &id.key.name)
            && (!id.kind.namespaced() || same(&self.namespace, &id.key.namespace))
    }
}
