//! All objects that the gateway has read, at one moment. Sources fill it; `translate` reads nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::DataPath;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use model::SharedMap;
use model::names::{CONTROLLER_NAME, INGRESS_CONTROLLER};

pub use crate::certificates::Checked;

/// Namespace and name; the namespace of cluster-wide objects is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-wide object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Objects by kind and key. A snapshot shares them with the one before it, and what it shares is found unchanged without a look.
pub type Objects<T> = SharedMap<Key, Arc<T>>;

/// Oldest first, then by `namespace/name`: who comes first, where two cannot both have it.
pub(crate) fn oldest_first<T>(
    objects: &Objects<T>,
    metadata: impl Fn(&T) -> &ObjectMeta,
) -> Vec<(&Key, &Arc<T>)> {
    let mut objects: Vec<_> = objects.iter().collect();
    objects.sort_by_cached_key(|(key, object)| age(key, metadata(object)));
    objects
}

/// What objects are sorted by where the oldest comes first.
pub(crate) fn age(key: &Key, metadata: &ObjectMeta) -> (bool, Option<Timestamp>, String) {
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    // An object without a time counts as the youngest. The name is one text: `a-b/c` comes before `a/b`, though
    // namespace `a` comes before `a-b`.
    (created.is_none(), created, key.to_string())
}

macro_rules! snapshot {
    ($($class:ident { $($kind:ident: $type:ty, $field:ident, $name:literal, $group:ident, $versions:tt, $scope:ident,
        $describe:path, $rules:path $(, when $same:ident)? $(, else $stand_in:ident $effect:literal)?;)* })*) => {
        /// The objects of one moment. Each has been admitted: defaults filled in, schema checked, `metadata.namespace`,
        /// `creationTimestamp` and `generation` set, by the API server or by the file source.
        #[derive(Debug, Clone, Default)]
        pub struct Snapshot {
            $($(pub $field: Objects<$type>,)*)*
            /// Of each Gateway that was translated before: [`crate::GatewayPlan::parameters`]. In use while the
            /// GatewayClassParameters that it names are missing.
            pub former_parameters: BTreeMap<Key, Arc<str>>,
            /// The `dataPath` of Gateways whose parameters have none; [`crate::DEFAULT_DATA_PATH`] where absent.
            pub default_data_path: Option<DataPath>,
            /// The process that runs the Gateways reads varnishd's log of requests (an access log, spans), so every request must
            /// reach varnishd: `dataPath: Auto` means `Varnish`.
            pub reads_varnishd_log: bool,
            /// Of the process that runs us.
            pub ingress_settings: IngressSettings,
            /// Who we are.
            pub controllers: Controllers,
            /// Shared with the snapshots before it, where the source keeps it.
            pub checked: Checked,
        }
    };
}

crate::kinds!(snapshot);

/// Whose classes are ours. Several installations in one cluster have different names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers {
    /// What GatewayClasses say in `spec.controllerName`.
    pub gateway: String,
    /// What IngressClasses say in `spec.controller`.
    pub ingress: String,
}

impl Default for Controllers {
    fn default() -> Self {
        Self { gateway: CONTROLLER_NAME.to_owned(), ingress: INGRESS_CONTROLLER.to_owned() }
    }
}

/// What concerns all Ingresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressSettings {
    /// What the annotation `kubernetes.io/ingress.class` says of Ingresses that are ours.
    pub class: String,
    /// Where the Varnish of an IngressClass runs, unless its parameters say otherwise.
    pub namespace: String,
}

impl Default for IngressSettings {
    fn default() -> Self {
        Self { class: "varnish".to_owned(), namespace: "default".to_owned() }
    }
}
