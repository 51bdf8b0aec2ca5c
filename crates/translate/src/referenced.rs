//! Which Secrets a translation reads for certificates, so that the operator gets these and no others.

use std::collections::BTreeSet;

use gateway_api::gateways::Gateway;

use crate::grants::{From, Grants, To};
use crate::ingress;
use crate::listener::GATEWAY_API_GROUP;
use crate::listener_set;
use crate::snapshot::{Key, Snapshot};

/// Secrets with the pairs of our Gateways' listeners and of our Ingresses, and those that are shown to backends. A Secret of
/// another namespace counts where a ReferenceGrant lets the Gateway refer to it.
pub fn referenced_secrets(snapshot: &Snapshot) -> BTreeSet<Key> {
    let grants = Grants::new(snapshot);
    let is_ours = |gateway: &Gateway| {
        let class = snapshot.gateway_classes.get(&Key::cluster(&gateway.spec.gateway_class_name));
        class.is_some_and(|class| class.spec.controller_name == snapshot.controllers.gateway)
    };
    let mut secrets = BTreeSet::new();
    for (key, gateway) in snapshot.gateways.iter().filter(|(_, gateway)| is_ours(gateway)) {
        let mut add =
            |group: Option<&String>, kind: Option<&String>, namespace: Option<&String>, name: &str| {
                let of_core = group.is_none_or(String::is_empty) && kind.is_none_or(|kind| kind == "Secret");
                let namespace = namespace.unwrap_or(&key.namespace);
                let from = From { group: GATEWAY_API_GROUP, kind: "Gateway", namespace: &key.namespace };
                if of_core && grants.permit(from, To { group: "", kind: "Secret", namespace, name }) {
                    secrets.insert(Key::new(namespace, name));
                }
            };
        let tls = gateway.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        for one in tls.flat_map(|tls| tls.certificate_refs.iter().flatten()) {
            add(one.group.as_ref(), one.kind.as_ref(), one.namespace.as_ref(), &one.name);
        }
        let backend = gateway.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref());
        if let Some(one) = backend.and_then(|backend| backend.client_certificate_ref.as_ref()) {
            add(one.group.as_ref(), one.kind.as_ref(), one.namespace.as_ref(), &one.name);
        }
    }
    for (key, set) in &snapshot.listener_sets {
        let gateway = listener_set::gateway(key, set).and_then(|gateway| snapshot.gateways.get(&gateway));
        if !gateway.is_some_and(|gateway| is_ours(gateway)) {
            continue;
        }
        let tls = set.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        for one in tls.flat_map(|tls| tls.certificate_refs.iter().flatten()) {
            let of_core = one.group.as_ref().is_none_or(String::is_empty)
                && one.kind.as_ref().is_none_or(|kind| kind == "Secret");
            let (namespace, name) = (one.namespace.as_ref().unwrap_or(&key.namespace), &one.name);
            let from = From { group: GATEWAY_API_GROUP, kind: "ListenerSet", namespace: &key.namespace };
            if of_core && grants.permit(from, To { group: "", kind: "Secret", namespace, name }) {
                secrets.insert(Key::new(namespace, name));
            }
        }
    }
    secrets.extend(ingress::secrets(snapshot));
    secrets
}
