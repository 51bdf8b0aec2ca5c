//! An admitted object of any kind, shared.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use translate::snapshot::{Key, Snapshot};

use super::kind::Kind;
use super::schema::Node;

/// What an object is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

macro_rules! objects {
    ($($class:ident { $($kind:ident: $type:ty, $field:ident, $name:literal, $group:ident, $versions:tt, $scope:ident,
        $describe:path, $rules:path $(, when $same:ident)? $(, else $stand_in:ident $effect:literal)?;)* })*) => {
        #[derive(Debug, Clone)]
        pub(crate) enum Object {
            $($($kind(Arc<$type>),)*)*
        }

        impl Object {
            /// Reads a checked value into its type.
            pub(crate) fn read(kind: Kind, value: Value) -> Result<Self, serde_json::Error> {
                match kind {
                    $($(Kind::$kind => Ok(Self::$kind(Arc::new(serde_json::from_value(value)?))),)*)*
                }
            }

            /// Fields and types of a kind.
            pub(crate) fn schema(kind: Kind) -> Node {
                match kind {
                    $($(Kind::$kind => Node::of_object::<$type>(),)*)*
                }
            }

            pub(crate) fn insert_into(&self, key: Key, snapshot: &mut Snapshot) {
                match self {
                    $($(Self::$kind(object) => {
                        snapshot.$field.insert(key, object.clone());
                    })*)*
                }
            }

            /// Whether both are one object in memory.
            pub(crate) fn is(&self, other: &Self) -> bool {
                match (self, other) {
                    $($((Self::$kind(one), Self::$kind(two)) => Arc::ptr_eq(one, two),)*)*
                    _ => false,
                }
            }

            /// Fills in age and generation. `before` is what the object was at the last load: it becomes that very
            /// one if nothing has changed since.
            pub(crate) fn stamp(&mut self, now: Timestamp, before: Option<&Self>) {
                match self {
                    $($(Self::$kind(shared) => {
                        let before = match before {
                            Some(Self::$kind(before)) => Some(before),
                            _ => None,
                        };
                        let object = Arc::make_mut(shared);
                        let mut metadata = std::mem::take(&mut object.metadata);
                        // What is left to compare is the content.
                        object.metadata = before.map(|before| before.metadata.clone()).unwrap_or_default();
                        let same_content = before.is_none_or(|before| **before == *object);
                        fill_in(&mut metadata, now, before.map(|before| &before.metadata), same_content);
                        object.metadata = metadata;
                        if let Some(before) = before
                            && same_content
                            && before.metadata == object.metadata
                        {
                            *shared = before.clone();
                        }
                    })*)*
                }
            }
        }
    };
}

translate::kinds!(objects);

/// Age: as written, else as before, else now. Generation: as written, at least one more than before if the content
/// has changed, at least 1.
fn fill_in(metadata: &mut ObjectMeta, now: Timestamp, before: Option<&ObjectMeta>, same_content: bool) {
    let earlier = before.and_then(|before| before.creation_timestamp.clone());
    metadata.creation_timestamp = metadata.creation_timestamp.take().or(earlier).or(Some(Time(now)));
    let reached = before.and_then(|before| before.generation).unwrap_or(0) + i64::from(!same_content);
    metadata.generation = Some(metadata.generation.unwrap_or(1).max(reached));
}
