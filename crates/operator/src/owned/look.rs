//! Which Gateways' objects have changed since the last look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use source::kubernetes::Signal;
use tokio::sync::watch;
use translate::Key;
use translate::snapshot::Objects;

use super::Owned;
use crate::gateway::gateway_of;

/// The objects at the last look. They are shared with the stores.
#[derive(Debug, Default)]
pub(crate) struct Look {
    deployments: Objects<Deployment>,
    services: Objects<Service>,
    config_maps: Objects<ConfigMap>,
    secrets: Objects<Secret>,
    service_accounts: Objects<ServiceAccount>,
    roles: Objects<Role>,
    role_bindings: Objects<RoleBinding>,
    disruption_budgets: Objects<PodDisruptionBudget>,
    pods: Objects<Pod>,
}

impl Look {
    /// The Gateways whose objects have changed since the last look. The cost depends on the number of changes only.
    pub(crate) fn changed(&mut self, owned: &Owned) -> BTreeSet<Key> {
        let mut gateways = BTreeSet::new();
        macro_rules! look {
            ($($store:ident),+) => {$(
                let now = owned.$store.objects();
                collect(&self.$store, &now, &mut gateways);
                self.$store = now;
            )+};
        }
        look!(
            deployments,
            services,
            config_maps,
            secrets,
            service_accounts,
            roles,
            role_bindings,
            disruption_budgets,
            pods
        );
        gateways
    }
}

fn collect<T: Resource>(old: &Objects<T>, new: &Objects<T>, gateways: &mut BTreeSet<Key>) {
    for (_, old, new) in old.differences(new, Arc::ptr_eq) {
        gateways.extend([old, new].into_iter().flatten().filter_map(|object| gateway_of(object.as_ref())));
    }
}

/// A signal for each Gateway. Its writer wakes only for its own objects.
#[derive(Debug, Default)]
pub(crate) struct Signals(Mutex<BTreeMap<Key, Signal>>);

impl Signals {
    pub(crate) fn subscribe(&self, gateway: &Key) -> watch::Receiver<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(gateway.clone()).or_default().subscribe()
    }

    pub(crate) fn raise(&self, gateways: &BTreeSet<Key>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A Gateway that is gone has no writer.
        all.retain(|_, signal| signal.has_subscribers());
        for signal in gateways.iter().filter_map(|gateway| all.get(gateway)) {
            signal.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use model::names::{GATEWAY_NAME_LABEL, GATEWAY_NAMESPACE_LABEL};
    use serde_json::json;

    use super::*;

    fn pod(gateway: &str, phase: &str) -> Arc<Pod> {
        let labels = json!({GATEWAY_NAME_LABEL: gateway, GATEWAY_NAMESPACE_LABEL: "shop"});
        let pod = json!({"metadata": {"namespace": "shop", "labels": labels}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_wakes_the_writer_of_its_own_gateway_and_no_other() {
        let key = |name: &str| Key::new("shop", name);
        let signals = Signals::default();
        let (mut one, other) = (signals.subscribe(&key("one")), signals.subscribe(&key("other")));
        let old: Objects<Pod> =
            [(key("one-1"), pod("one", "Pending")), (key("other-1"), pod("other", "Running"))].into();
        let mut new = old.clone();
        new.insert(key("one-1"), pod("one", "Running"));
        let mut changed = BTreeSet::new();
        collect(&old, &new, &mut changed);
        assert_eq!(changed, BTreeSet::from([key("one")]));
        signals.raise(&changed);
        assert!(one.has_changed().unwrap() && !other.has_changed().unwrap());
        one.mark_unchanged();
        // One that moves to another Gateway concerns both.
        new.insert(key("other-1"), pod("one", "Running"));
        collect(&old, &new, &mut changed);
        signals.raise(&changed);
        assert!(one.has_changed().unwrap() && other.has_changed().unwrap());
        // Signals of Gateways that are gone go.
        drop((one, other));
        signals.raise(&changed);
        assert!(signals.0.lock().unwrap().is_empty());
    }
}
