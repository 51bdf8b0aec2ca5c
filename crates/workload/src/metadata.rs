//! Names, labels and owners.

use std::collections::BTreeMap;

use gateway_api::gateways::Gateway;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

use model::names::{
    CONTROLLER_LABEL, GATEWAY_API_GROUP, GATEWAY_NAME_LABEL, GATEWAY_NAMESPACE_LABEL, MANAGED_BY,
    MANAGED_BY_LABEL,
};

use super::Options;

type Map = BTreeMap<String, String>;

/// The Gateway that objects are made for.
#[derive(Debug)]
pub(super) struct Owner<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    uid: &'a str,
    /// Of a Gateway without an object of its own: its IngressClass.
    class: Option<&'a OwnerReference>,
    /// Who serves it, unless it is the default controller.
    controller: Option<&'a str>,
    labels: Option<&'a Map>,
    annotations: Option<&'a Map>,
}

impl<'a> Owner<'a> {
    pub(super) fn new(gateway: &'a Gateway, options: &'a Options) -> Self {
        let metadata = &gateway.metadata;
        let infrastructure = gateway.spec.infrastructure.as_ref();
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
            class: translate::ingress_class_of(gateway),
            controller: options.controller.as_deref(),
            labels: infrastructure.and_then(|infrastructure| infrastructure.labels.as_ref()),
            annotations: infrastructure.and_then(|infrastructure| infrastructure.annotations.as_ref()),
        }
    }

    /// What pods are found by. A Deployment's selector cannot be changed later: nothing that users set may be in it.
    pub(super) fn pod_labels(&self) -> Map {
        [(MANAGED_BY_LABEL, MANAGED_BY), (GATEWAY_NAME_LABEL, self.name)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    pub(super) fn selector(&self) -> LabelSelector {
        LabelSelector { match_labels: Some(self.pod_labels()), match_expressions: None }
    }

    /// Over `more`, those of spec.infrastructure; over these, our own.
    pub(super) fn labels(&self, more: &Map) -> Map {
        let mut labels = more.clone();
        labels.extend(self.labels.cloned().unwrap_or_default());
        labels.extend(self.pod_labels());
        labels.insert(GATEWAY_NAMESPACE_LABEL.to_owned(), self.namespace.to_owned());
        // The operator finds by it what it has made: users may not set it.
        match self.controller {
            Some(controller) => drop(labels.insert(CONTROLLER_LABEL.to_owned(), controller.to_owned())),
            None => drop(labels.remove(CONTROLLER_LABEL)),
        }
        labels
    }

    /// Over `more`, those of spec.infrastructure.
    pub(super) fn annotations(&self, more: &Map) -> Option<Map> {
        let mut annotations = more.clone();
        annotations.extend(self.annotations.cloned().unwrap_or_default());
        (!annotations.is_empty()).then_some(annotations)
    }

    /// Of an object with the Gateway's name in its namespace, which goes when the Gateway goes.
    pub(super) fn own(&self) -> ObjectMeta {
        ObjectMeta {
            owner_references: Some(vec![self.class.cloned().unwrap_or_else(|| OwnerReference {
                api_version: format!("{GATEWAY_API_GROUP}/v1"),
                kind: "Gateway".to_owned(),
                name: self.name.to_owned(),
                uid: self.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            })]),
            ..self.at(self.namespace, self.name.to_owned())
        }
    }

    /// Of an object anywhere. Owner references do not cross namespaces, unless the owner has none: labels tell whose it is.
    pub(super) fn at(&self, namespace: &str, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.to_owned()),
            labels: Some(self.labels(&Map::new())),
            annotations: self.annotations(&Map::new()),
            owner_references: self.class.cloned().map(|class| vec![class]),
            ..ObjectMeta::default()
        }
    }
}
