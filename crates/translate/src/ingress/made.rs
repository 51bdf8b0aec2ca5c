//! Varnishes that IngressClasses ask for: each is a Gateway without an object of its own.
//!
//! It stands in no cluster and in no file. What it owns belongs to the IngressClass, and goes with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::GatewayClassParametersSpec;
use gateway_api::gateways::{
    Gateway, GatewayInfrastructure, GatewayInfrastructureParametersRef, GatewayListeners, GatewaySpec,
};
use k8s_openapi::api::networking::v1::{IngressClass, IngressClassParametersReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use model::names::{API_GROUP, VARNISH_SERVICE_LABEL};

use super::class::is_ours;
use super::options::port;
use crate::listener::GATEWAY_API_GROUP;
use crate::parameters::{self, Reference};
use crate::pods;
use crate::snapshot::{Key, Objects, Snapshot};

/// The kind of who owns what such a Gateway owns.
pub const OWNER_KIND: &str = "IngressClass";
const OWNER_API_VERSION: &str = "networking.k8s.io/v1";
const HTTP_PORT: u16 = 80;

/// What the parameters of our IngressClasses come to.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Of each class with parameters: the Varnish Service that they mean, or what is wrong with them.
    pub(crate) by_class: BTreeMap<String, Result<Key, String>>,
    /// Those that no Gateway of the snapshot stands for.
    pub(crate) gateways: Objects<Gateway>,
}

impl Made {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let mut made = Self::default();
        for (key, class) in snapshot.ingress_classes.iter().filter(|(_, class)| is_ours(class, snapshot)) {
            let Some(reference) = class.spec.as_ref().and_then(|spec| spec.parameters.as_ref()) else {
                continue;
            };
            let meant = meant(key, class, reference, snapshot, &made.gateways).map(|(key, gateway)| {
                if let Some(gateway) = gateway {
                    made.gateways.insert(key.clone(), Arc::new(gateway));
                }
                key
            });
            made.by_class.insert(key.name.clone(), meant);
        }
        made
    }
}

/// Was this Gateway made for an IngressClass?
pub fn owner(gateway: &Gateway) -> Option<&OwnerReference> {
    gateway.metadata.owner_references.iter().flatten().find(|owner| owner.kind == OWNER_KIND)
}

fn meant(
    class_key: &Key,
    class: &IngressClass,
    reference: &IngressClassParametersReference,
    snapshot: &Snapshot,
    others: &Objects<Gateway>,
) -> Result<(Key, Option<Gateway>), String> {
    let group = reference.api_group.as_deref().unwrap_or_default();
    let (kind, name) = (reference.kind.as_str(), reference.name.as_str());
    // Both name a Varnish Service that is there.
    if (group, kind) == (GATEWAY_API_GROUP, "Gateway") || (group, kind) == ("", "Service") {
        let Some(namespace) = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty()) else {
            return Err(format!(
                "names {kind} {name} without its namespace: set scope to Namespace, and namespace"
            ));
        };
        return Ok((Key::new(namespace, name), None));
    }
    let former;
    let (namespace, spec) = match parameters::find(Reference { group, kind, name }, snapshot) {
        Ok(found) => {
            let spec = &found.spec;
            (spec.ingress.as_ref().and_then(|ingress| ingress.namespace.as_deref()), spec)
        }
        // What runs goes on as it was.
        Err(why) => {
            let (key, spec) = parameters::former_of_class(&class_key.name, snapshot).ok_or(why)?;
            former = spec;
            (Some(key.namespace.as_str()), &former)
        }
    };
    let key = Key::new(namespace.unwrap_or(&snapshot.ingress_settings.namespace), &class_key.name);
    pods::check_name(&key.name).map_err(|_| {
        format!(
            "asks for a Service of the class's name, which {} cannot be: use up to 63 lower-case letters, digits and `-`",
            key.name
        )
    })?;
    if snapshot.gateways.contains_key(&key) || others.contains_key(&key) {
        return Err(format!(
            "asks for a Varnish Service {key}, and a Gateway of that name is there: rename one of them, or set \
             ingress.namespace of GatewayClassParameters {name}"
        ));
    }
    let gateway = gateway(&key, class_key, class, name, spec);
    Ok((key, Some(gateway)))
}

fn gateway(
    key: &Key,
    class_key: &Key,
    class: &IngressClass,
    parameters: &str,
    spec: &GatewayClassParametersSpec,
) -> Gateway {
    let http = port(spec.ingress.as_ref().and_then(|ingress| ingress.http_port)).unwrap_or(HTTP_PORT);
    let (label, value) = VARNISH_SERVICE_LABEL;
    Gateway {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            uid: class.metadata.uid.clone(),
            generation: class.metadata.generation,
            creation_timestamp: class.metadata.creation_timestamp.clone(),
            deletion_timestamp: class.metadata.deletion_timestamp.clone(),
            owner_references: Some(vec![OwnerReference {
                api_version: OWNER_API_VERSION.to_owned(),
                kind: OWNER_KIND.to_owned(),
                name: class_key.name.clone(),
                uid: class.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: GatewaySpec {
            gateway_class_name: String::new(),
            infrastructure: Some(GatewayInfrastructure {
                labels: Some([(label.to_owned(), value.to_owned())].into()),
                annotations: None,
                parameters_ref: Some(GatewayInfrastructureParametersRef {
                    group: API_GROUP.to_owned(),
                    kind: "GatewayClassParameters".to_owned(),
                    name: parameters.to_owned(),
                }),
            }),
            listeners: vec![GatewayListeners {
                name: "http".to_owned(),
                port: i32::from(http),
                protocol: "HTTP".to_owned(),
                ..GatewayListeners::default()
            }],
            ..GatewaySpec::default()
        },
        status: None,
    }
}
