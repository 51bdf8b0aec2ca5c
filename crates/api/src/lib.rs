//! Our own resources in the group `gateway.varnish-software.com`, and those of the Gateway API that the crate `gateway-api` lacks.
//!
//! Types, and the CustomResourceDefinitions made of them: what they mean is decided in `translate`.

// On attributes of kube: each printer column says its type.
#![allow(clippy::duplicated_attributes, reason = "columns of one type are no repetition")]

mod cache_invalidation;
mod cache_policy;
pub mod crd;
mod gateway_class_parameters;
mod policy_status;
mod schema;
mod stream_routes;

pub use cache_invalidation::{
    GatewayRef, InvalidationPhase, InvalidationType, PathResult, PodResult, VarnishCacheInvalidation,
    VarnishCacheInvalidationSpec, VarnishCacheInvalidationStatus,
};
pub use cache_policy::{
    AuthorizedRequests, BypassHeader, BypassParameters, CacheKeyParameters, ClientCacheControl,
    HeuristicParameters, KeptMethod, NoVarySearch, NormalizedHeader, PolicyTargetRef, QueryParameters,
    VarnishCachePolicy, VarnishCachePolicySpec,
};
pub use gateway_class_parameters::{
    DashboardParameters, DataPath, DisruptionBudgetParameters, DotSegments, DuplicateSlashes, Embedded,
    EncodedSeparators, Engine, ExternalNames, GatewayClassParameters, GatewayClassParametersSpec,
    HostlessRules, HotObjectParameters, ImplementationSpecific, IngressMerge, IngressParameters,
    LimitParameters, LogMode, LoggingParameters, MetricsParameters, PathParameters, ProxyProtocolMode,
    ProxyProtocolParameters, ResourceParameters, ServiceParameters, ServiceType, StorageParameters,
    StorageType, TimeoutParameters, TlsParameters, TracingParameters, TrafficPolicy, UserVclConfigMapRef,
};
pub use policy_status::{AncestorRef, PolicyAncestorStatus, PolicyStatus};
pub use stream_routes::{
    StreamBackendRef, StreamRouteStatus, StreamRule, TcpRoute, TcpRouteSpec, UdpRoute, UdpRouteSpec,
};
