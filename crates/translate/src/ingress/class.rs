//! Which Ingresses are ours: by annotation, by IngressClass, or by the default class.

use std::cmp::Reverse;

use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use model::names::{DEFAULT_CLASS_ANNOTATION, INGRESS_CLASS_ANNOTATION};

use crate::snapshot::{Key, Snapshot, oldest_first};

/// An Ingress of ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ours<'a> {
    pub(super) key: &'a Key,
    pub(super) object: &'a Ingress,
    /// Its IngressClass; one by annotation needs none.
    pub(super) class: Option<&'a str>,
}

/// All of ours, oldest first, then by `namespace/name`: who comes first keeps what it has.
pub(super) fn ours(snapshot: &Snapshot) -> Vec<Ours<'_>> {
    let default = default_class(snapshot);
    let all = oldest_first(&snapshot.ingresses, |ingress| &ingress.metadata).into_iter();
    all.filter_map(|(key, object)| {
        let class = class_of(object, default, snapshot)?;
        Some(Ours { key, object, class })
    })
    .collect()
}

/// Does the class name our controller?
pub(super) fn is_ours(class: &IngressClass, snapshot: &Snapshot) -> bool {
    let controller = class.spec.as_ref().and_then(|spec| spec.controller.as_deref());
    controller == Some(snapshot.controllers.ingress.as_str())
}

/// `None`: another controller's. Otherwise its IngressClass, if it has one.
fn class_of<'a>(
    ingress: &'a Ingress,
    default: Option<&'a str>,
    snapshot: &'a Snapshot,
) -> Option<Option<&'a str>> {
    let annotation = ingress.metadata.annotations.as_ref().and_then(|all| all.get(INGRESS_CLASS_ANNOTATION));
    if let Some(name) = annotation {
        let of_ours = |name: &&String| {
            snapshot.ingress_classes.get(&Key::cluster(*name)).is_some_and(|class| is_ours(class, snapshot))
        };
        return (*name == snapshot.ingress_settings.class)
            .then(|| Some(name).filter(of_ours).map(String::as_str));
    }
    let named = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
    let Some(name) = named.filter(|name| !name.is_empty()) else { return default.map(Some) };
    // One that is not there may be another controller's, which does not need the object.
    let class = snapshot.ingress_classes.get(&Key::cluster(name))?;
    is_ours(class, snapshot).then_some(Some(name))
}

/// The default class, if it is ours. Of several the youngest counts, as for the API server.
fn default_class(snapshot: &Snapshot) -> Option<&str> {
    let is_default = |class: &IngressClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(DEFAULT_CLASS_ANNOTATION)).is_some_and(|value| value == "true")
    };
    let defaults = snapshot.ingress_classes.iter().filter(|(_, class)| is_default(class));
    let (key, class) = defaults.min_by_key(|(key, class)| {
        (Reverse(class.metadata.creation_timestamp.as_ref().map(|time| time.0)), key.name.as_str())
    })?;
    is_ours(class, snapshot).then_some(key.name.as_str())
}
