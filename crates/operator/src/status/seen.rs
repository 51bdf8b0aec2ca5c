//! What was seen at the last look, so that only changes are handled again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{TcpRoute, UdpRoute, VarnishCachePolicy};
use gateway_api::backendtlspolicies::BackendTlsPolicy;
use gateway_api::experimental::grpcroutes::GrpcRoute;
use gateway_api::experimental::httproutes::HttpRoute;
use gateway_api::gateways::Gateway;
use gateway_api::listenersets::ListenerSet;
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::api::networking::v1::Ingress;
use model::SharedMap;
use translate::snapshot::Objects;
use translate::{Key, Statuses};

use crate::owned::Look;

/// The objects and their desired statuses at the last look. All of it is shared with the stores.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) statuses: Arc<Statuses>,
    pub(super) look: Look,
    pub(super) gateways: Objects<Gateway>,
    pub(super) listener_sets: Objects<ListenerSet>,
    pub(super) http_routes: Objects<HttpRoute>,
    pub(super) grpc_routes: Objects<GrpcRoute>,
    pub(super) tls_routes: Objects<TlsRoute>,
    pub(super) tcp_routes: Objects<TcpRoute>,
    pub(super) udp_routes: Objects<UdpRoute>,
    pub(super) backend_tls_policies: Objects<BackendTlsPolicy>,
    pub(super) cache_policies: Objects<VarnishCachePolicy>,
    pub(super) ingresses: Objects<Ingress>,
    /// Of each Gateway: is it programmed?
    pub(super) programmed: BTreeMap<Key, bool>,
}

/// The keys of objects that have changed, or whose desired status has changed. The cost depends on the number of changes only.
pub(super) fn changed<T, S: PartialEq>(
    (old, new): (&Objects<T>, &Objects<T>),
    (old_statuses, statuses): (&SharedMap<Key, S>, &SharedMap<Key, S>),
) -> BTreeSet<Key> {
    let objects = old.differences(new, Arc::ptr_eq).map(|(key, ..)| key.clone());
    objects.chain(old_statuses.differences(statuses, S::eq).map(|(key, ..)| key.clone())).collect()
}

#[cfg(test)]
mod tests {
    use translate::{ParentStatus, RouteStatus};

    use super::*;

    #[test]
    fn a_route_is_looked_at_where_it_or_its_status_has_changed() {
        let key = |at: usize| Key::new("a", format!("r{at}"));
        let objects: Objects<HttpRoute> = (0..1000).map(|at| (key(at), Arc::default())).collect();
        let statuses: SharedMap<Key, RouteStatus> =
            (0..1000).map(|at| (key(at), RouteStatus::default())).collect();
        assert!(changed((&objects, &objects), (&statuses, &statuses)).is_empty());
        let (mut new, mut wanted) = (objects.clone(), statuses.clone());
        new.insert(key(5), Arc::default());
        new.remove(&key(6));
        wanted.insert(key(7), RouteStatus { parents: vec![ParentStatus::default()] });
        // The same value is not a change.
        wanted.insert(key(8), RouteStatus::default());
        let found = changed((&objects, &new), (&statuses, &wanted));
        assert_eq!(found, BTreeSet::from([key(5), key(6), key(7)]));
    }
}
