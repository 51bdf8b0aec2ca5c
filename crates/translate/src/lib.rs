//! Snapshot in; routing.json, main.vcl, infrastructure and statuses out. A pure function: no clock, no async, no IO.
//!
//! Takes a [`Snapshot`] of admitted objects. Guarantees that the same snapshot gives the same bytes, that one bad
//! object affects no other, and that everything that is not carried out is reported in a status or a notice. Does not
//! know which process runs the Gateway: that process adds the `Programmed` conditions.
//!
//! The crate `resolve` is the second half, called by the process that watches endpoints: routing.json and EndpointSlices in,
//! ghost.json out. The crate `workload` makes the Kubernetes objects that run a Gateway.

mod addresses;
mod attach;
mod authorities;
mod backend_tls_policy;
mod cache_policy;
mod certificates;
mod claims;
mod client_validation;
mod external_name;
pub mod features;
mod gateway;
mod gateway_class;
mod grants;
mod grpc_route;
mod hostname;
mod http_route;
pub mod incremental;
mod infra;
mod ingress;
pub mod invalidation;
mod kinds;
mod listener;
mod listener_set;
mod namespaces;
mod parameters;
mod patterns;
mod referenced;
mod refused;
mod service_port;
pub mod snapshot;
pub mod status;
mod stream_route;
mod tls_options;
mod tls_route;
pub mod varnishd_args;
pub mod vcl;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use addresses::Addresses;
use backend_tls_policy::Policies;
use grants::Grants;
pub use incremental::Incremental;
pub use infra::{HotObjects, Infra, Socket, sha256};
pub use ingress::{OWNER_KIND as INGRESS_CLASS, owner as ingress_class_of};
use model::notice;
pub use model::notice::{Notice, Severity};
pub use parameters::{DEFAULT_DATA_PATH, pods, storage};
pub use referenced::referenced_secrets;
pub use refused::REFUSED_ANNOTATION;
pub use router::cache::may_be_normalized;
use serde::{Serialize, Serializer};
pub use snapshot::{Key, Snapshot};
pub use status::{
    AncestorStatus, Condition, GatewayClassStatus, GatewayStatus, IngressStatus, ListenerSetStatus,
    ListenerStatus, ParentStatus, PolicyStatus, RouteStatus, Statuses,
};

/// Everything that one snapshot asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Translation {
    /// One for each Gateway whose GatewayClass names our controller.
    pub gateways: BTreeMap<Key, GatewayPlan>,
    /// Of those: the ones without a Gateway object, made for IngressClasses with parameters.
    #[serde(skip)]
    pub made: snapshot::Objects<gateway_api::gateways::Gateway>,
    pub statuses: Statuses,
    /// Messages for users that are not part of a status.
    pub notices: Vec<Notice>,
}

/// What one Gateway's varnishd has to serve.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GatewayPlan {
    pub routing: model::routing::Routing,
    /// The good pairs among the Secrets that the routing names for listeners and backends, by `namespace/name`. If one is
    /// named and missing here, the process that serves the Gateway keeps the last good pair.
    #[serde(serialize_with = "shared")]
    pub certificates: Arc<BTreeMap<String, certificate::Pem>>,
    /// The GatewayClassParameters that the routing was made with, as JSON, for [`Snapshot::former_parameters`]. `None`: some are
    /// missing, and there are no former ones: the routing has defaults in their place, and must not be served.
    #[serde(skip)]
    pub parameters: Option<Arc<str>>,
    /// `None`: cannot be decided now, because a ConfigMap or GatewayClassParameters is missing. The process that runs this
    /// Gateway keeps the VCL that runs; if none runs, it does not start, since user VCL may have access rules.
    pub main_vcl: Option<String>,
    /// `None`: as above. Without sockets: varnishd listens on no port, since all listeners are the front's. There is nothing to
    /// serve where the routing has no listeners.
    pub infra: Option<Infra>,
    /// `None`: as above. What the crate `workload` needs beside it, to run the Gateway in a cluster.
    pub workload: Option<pods::Workload>,
}

impl GatewayPlan {
    /// Ports of plain HTTP listeners, of varnishd or of the front.
    pub fn http_ports(&self) -> impl Iterator<Item = u16> {
        let of_varnishd = self.infra.iter().flat_map(|infra| &infra.sockets).map(|socket| socket.port);
        let of_front = self.routing.http_sockets().filter(|_| self.routing.http_in_front);
        of_varnishd.chain(of_front.filter_map(|socket| Some(model::names::socket_parts(socket)?.1)))
    }
}

fn shared<T: Serialize, S: Serializer>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.serialize(serializer)
}

/// Decides, for all Gateways of ours, what they serve, and the status of every object.
pub fn translate(snapshot: &Snapshot) -> Translation {
    translate_noting(snapshot).0
}

/// The same, with the data that a later translation of a single route needs.
pub(crate) fn translate_noting(snapshot: &Snapshot) -> (Translation, incremental::Noted) {
    let mut notices = Vec::new();
    let classes = gateway_class::ours(snapshot);
    let grants = Grants::new(snapshot);
    let made = ingress::Made::new(snapshot);
    let sets = listener_set::Sets::new(snapshot, &mut notices);
    let mut gateways = gateway::ours(snapshot, &made.gateways, &classes, &sets, &grants, &mut notices);
    let backend_tls = Policies::new(snapshot, &grants);
    let routes = http_route::translate(snapshot, &grants, &backend_tls, &mut gateways, &mut notices);
    let http_route::Statuses { http: mut http_routes, grpc: mut grpc_routes, patterns, irregular } = routes;
    let tls_routes = tls_route::translate(snapshot, &grants, &backend_tls, &mut gateways, &mut notices);
    let streams = stream_route::translate(snapshot, &grants, &backend_tls, &mut gateways, &mut notices);
    let stream_route::Statuses { tcp: tcp_routes, udp: udp_routes } = streams;
    let (mut ingresses, plain_varnishes) = ingress::translate(snapshot, &made, &mut gateways);
    let budgets =
        patterns::enforce(snapshot, &mut gateways, &mut http_routes, &mut grpc_routes, &mut ingresses);
    let mut routes =
        Statuses { http_routes, grpc_routes, tls_routes, tcp_routes, udp_routes, ..Statuses::default() };
    external_name::enforce(snapshot, &mut gateways, &mut routes, &mut ingresses);
    let backend_tls_policies = backend_tls.apply(snapshot, &routes, &mut gateways, &mut notices);
    let cache_policies = cache_policy::translate(snapshot, &ingresses, &mut gateways);

    let statuses = Statuses {
        gateway_classes: classes.iter().map(|class| (class.key.clone(), class.status())).collect(),
        ingress_classes: ingress::class_statuses(snapshot, &made, &gateways),
        gateways: gateways
            .iter()
            .filter(|(key, _)| !made.gateways.contains_key(**key))
            .map(|(key, gateway)| ((*key).clone(), gateway.status()))
            .collect(),
        listener_sets: gateways.values().flat_map(|gateway| gateway.set_statuses()).collect(),
        ingresses,
        cache_policies,
        backend_tls_policies,
        ..routes
    };
    snapshot.checked.tidy();
    let for_ingresses = gateways.iter().filter(|(_, gateway)| gateway.is_varnish_service());
    let for_ingresses = for_ingresses.map(|(key, _)| (*key).clone()).collect();
    let noted = incremental::Noted { patterns, irregular, budgets, for_ingresses, plain_varnishes };
    let gateways = gateways.into_iter().map(|(key, gateway)| (key.clone(), gateway.into_plan())).collect();
    (Translation { gateways, made: made.gateways, statuses, notices: notice::each_once(&notices) }, noted)
}
