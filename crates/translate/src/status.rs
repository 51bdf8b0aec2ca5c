//! The status of each object. The types follow the Gateway API's status fields; the process that writes them to a cluster
//! adds `lastTransitionTime` and, for what really runs, `Programmed`.

use api::AncestorRef;
use gateway_api::experimental::httproutes::HttpRouteParentRefs;
use model::SharedMap;
use serde::{Serialize, Serializer};

use crate::snapshot::Key;

/// On a Gateway, a listener, a GatewayClass or a route's parent: it is taken on.
pub const ACCEPTED: &str = "Accepted";
/// On a Gateway or a listener: a pod serves it. Added by the process that runs the Gateway.
pub const PROGRAMMED: &str = "Programmed";
/// On a GatewayClass: the CRDs of the Gateway API are of a version that this release was made for.
pub const SUPPORTED_VERSION: &str = "SupportedVersion";
/// On a listener or a route's parent: everything that it refers to is there and may be used.
pub const RESOLVED_REFS: &str = "ResolvedRefs";
/// On a listener: it cannot be distinguished from another one.
pub const CONFLICTED: &str = "Conflicted";
/// On an HTTPS listener: some of its hosts are another one's, too. Absent where there are none.
pub const OVERLAPPING_TLS: &str = "OverlappingTLSConfig";
/// On a Gateway: clients without a valid certificate are served, somewhere. Absent where they are not.
pub const INSECURE_FRONTEND: &str = "InsecureFrontendValidationMode";
/// On a route's parent: some rules are served and some are not.
pub const PARTIALLY_INVALID: &str = "PartiallyInvalid";
/// On a Gateway with GatewayClassParameters: whether every field of them is in use.
pub const PARAMETERS_VALID: &str = "varnish-software.com/ParametersValid";
/// On a Gateway: the storages of its pods' caches, and their sizes. Added by the process that runs the Gateway.
pub const STORAGE: &str = "varnish-software.com/Storage";
/// On a Gateway or a route's parent: fields that are set and not carried out. Absent where there are none.
pub const UNSUPPORTED_FIELDS: &str = "varnish-software.com/UnsupportedFields";

/// The API server refuses longer messages.
const LONGEST_MESSAGE: usize = 32_768;

/// One condition of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(serialize_with = "true_or_false")]
    pub status: bool,
    pub reason: String,
    pub message: String,
    pub observed_generation: i64,
}

impl Condition {
    pub fn new(
        kind: &str,
        status: bool,
        reason: &str,
        message: impl Into<String>,
        observed_generation: i64,
    ) -> Self {
        let mut message = message.into();
        if message.len() > LONGEST_MESSAGE {
            let ellipsis = " …";
            message.truncate(message.floor_char_boundary(LONGEST_MESSAGE - ellipsis.len()));
            message.push_str(ellipsis);
        }
        Self { kind: kind.to_owned(), status, reason: reason.to_owned(), message, observed_generation }
    }
}

/// Statuses of all objects that are ours to speak about.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Statuses {
    /// Those that name our controller.
    pub gateway_classes: SharedMap<Key, GatewayClassStatus>,
    /// Those of our classes.
    pub gateways: SharedMap<Key, GatewayStatus>,
    /// Those of our Gateways.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub listener_sets: SharedMap<Key, ListenerSetStatus>,
    /// Those with at least one parent among our Gateways.
    pub http_routes: SharedMap<Key, RouteStatus>,
    /// Those that name our controller and have parameters.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub ingress_classes: SharedMap<Key, GatewayClassStatus>,
    /// Those of our classes.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub ingresses: SharedMap<Key, IngressStatus>,
    /// The same of GRPCRoutes.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub grpc_routes: SharedMap<Key, RouteStatus>,
    /// The same of TLSRoutes.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub tls_routes: SharedMap<Key, RouteStatus>,
    /// The same of TCPRoutes.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub tcp_routes: SharedMap<Key, RouteStatus>,
    /// The same of UDPRoutes.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub udp_routes: SharedMap<Key, RouteStatus>,
    /// Those with a target that is one of our Gateways, or attached to one, or not there at all.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub cache_policies: SharedMap<Key, PolicyStatus>,
    /// Those for a Service that a route of one of our Gateways leads to.
    #[serde(skip_serializing_if = "SharedMap::is_empty")]
    pub backend_tls_policies: SharedMap<Key, PolicyStatus>,
}

impl Statuses {
    /// The same statuses, sharing with `old` what is equal in both.
    #[must_use]
    pub(crate) fn sharing(&self, old: &Self) -> Self {
        Self {
            gateway_classes: self.gateway_classes.sharing(&old.gateway_classes),
            gateways: self.gateways.sharing(&old.gateways),
            listener_sets: self.listener_sets.sharing(&old.listener_sets),
            http_routes: self.http_routes.sharing(&old.http_routes),
            ingress_classes: self.ingress_classes.sharing(&old.ingress_classes),
            ingresses: self.ingresses.sharing(&old.ingresses),
            grpc_routes: self.grpc_routes.sharing(&old.grpc_routes),
            tls_routes: self.tls_routes.sharing(&old.tls_routes),
            tcp_routes: self.tcp_routes.sharing(&old.tcp_routes),
            udp_routes: self.udp_routes.sharing(&old.udp_routes),
            cache_policies: self.cache_policies.sharing(&old.cache_policies),
            backend_tls_policies: self.backend_tls_policies.sharing(&old.backend_tls_policies),
        }
    }

    /// The statuses of routes, by kind.
    pub fn routes(&self) -> impl Iterator<Item = (&'static str, &SharedMap<Key, RouteStatus>)> {
        let all = [
            ("HTTPRoute", &self.http_routes),
            ("GRPCRoute", &self.grpc_routes),
            ("TLSRoute", &self.tls_routes),
            ("TCPRoute", &self.tcp_routes),
            ("UDPRoute", &self.udp_routes),
        ];
        all.into_iter()
    }

    /// The same of one kind, to change them.
    pub fn routes_mut(&mut self, kind: &str) -> Option<&mut SharedMap<Key, RouteStatus>> {
        match kind {
            "HTTPRoute" => Some(&mut self.http_routes),
            "GRPCRoute" => Some(&mut self.grpc_routes),
            "TLSRoute" => Some(&mut self.tls_routes),
            "TCPRoute" => Some(&mut self.tcp_routes),
            "UDPRoute" => Some(&mut self.udp_routes),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GatewayClassStatus {
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GatewayStatus {
    pub conditions: Vec<Condition>,
    /// In the order of the Gateway's spec.
    pub listeners: Vec<ListenerStatus>,
    /// How many ListenerSets are accepted.
    #[serde(skip_serializing_if = "is_zero")]
    pub attached_listener_sets: i32,
}

fn is_zero(count: &i32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ListenerSetStatus {
    /// Whose it is. Not a field of the API.
    #[serde(skip)]
    pub gateway: Key,
    pub conditions: Vec<Condition>,
    /// In the order of its spec; none where it is not allowed.
    pub listeners: Vec<ListenerStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    pub name: String,
    pub attached_routes: i32,
    pub supported_kinds: Vec<RouteGroupKind>,
    pub conditions: Vec<Condition>,
    /// There is all that it takes to serve it, an HTTPS listener's certificate too. Where not, `Programmed` is false
    /// whatever runs. Not a field of the API.
    #[serde(skip)]
    pub served: bool,
}

/// A kind of route that a listener takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteGroupKind {
    pub group: String,
    pub kind: String,
}

/// The status of a route of any kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RouteStatus {
    /// In the order of the route's parentRefs, those of our Gateways only.
    pub parents: Vec<ParentStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentStatus {
    /// As it stands in the route.
    pub parent_ref: HttpRouteParentRefs,
    pub conditions: Vec<Condition>,
}

/// An Ingress has no conditions in the API: the operator reports them by Events.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressStatus {
    /// Who serves it: a Gateway of ours. Its Service's addresses are the Ingress's. `None`: it was rejected.
    pub varnish_service: Option<Key>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PolicyStatus {
    /// By Gateway.
    pub ancestors: Vec<AncestorStatus>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AncestorStatus {
    pub ancestor_ref: AncestorRef,
    pub conditions: Vec<Condition>,
}

fn true_or_false<S: Serializer>(status: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *status { "True" } else { "False" })
}

/// As `namespace/name`, so that maps of statuses and plans can be written out.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_reads_as_in_the_api() {
        let condition = Condition::new(ACCEPTED, true, "Accepted", "fine", 3);
        assert_eq!(
            serde_json::to_string(&condition).unwrap(),
            r#"{"type":"Accepted","status":"True","reason":"Accepted","message":"fine","observedGeneration":3}"#
        );
    }

    #[test]
    fn statuses_are_keyed_by_namespace_and_name() {
        let statuses = Statuses {
            gateway_classes: [(Key::cluster("varnish"), GatewayClassStatus::default())].into(),
            gateways: [(Key::new("infra", "gw"), GatewayStatus::default())].into(),
            ..Statuses::default()
        };
        assert_eq!(
            serde_json::to_string(&statuses).unwrap(),
            r#"{"gatewayClasses":{"varnish":{"conditions":[]}},"gateways":{"infra/gw":{"conditions":[],"listeners":[]}},"httpRoutes":{}}"#
        );
    }

    #[test]
    fn a_message_never_outgrows_what_the_api_server_takes() {
        let condition = Condition::new(ACCEPTED, false, "Invalid", "ä".repeat(20_000), 1);
        assert!(condition.message.len() <= LONGEST_MESSAGE);
        assert!(condition.message.ends_with('…'));
    }
}
