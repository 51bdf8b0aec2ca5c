//! GatewayClassParameters: what a GatewayClass, or one Gateway, sets beyond the Gateway API.

mod dashboard;
mod data_path;
mod engine;
mod external_names;
mod hot_objects;
mod ingress;
mod limits;
mod logging;
mod metrics;
mod paths;
mod pod;
mod service;
mod storage;
mod tls;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::dashboard::DashboardParameters;
pub use self::data_path::DataPath;
pub use self::engine::Engine;
pub use self::external_names::ExternalNames;
pub use self::hot_objects::HotObjectParameters;
pub use self::ingress::{HostlessRules, ImplementationSpecific, IngressMerge, IngressParameters};
pub use self::limits::{LimitParameters, ProxyProtocolMode, ProxyProtocolParameters};
pub use self::logging::{LogMode, LoggingParameters};
pub use self::metrics::{MetricsParameters, TracingParameters};
pub use self::paths::{DotSegments, DuplicateSlashes, EncodedSeparators, PathParameters};
pub use self::pod::{DisruptionBudgetParameters, Embedded, ResourceParameters};
pub use self::service::{ServiceParameters, ServiceType, TrafficPolicy};
pub use self::storage::{StorageParameters, StorageType};
pub use self::tls::TlsParameters;
use crate::schema;

/// Settings for the Gateways of a class (`GatewayClass.spec.parametersRef`) or for one Gateway
/// (`Gateway.spec.infrastructure.parametersRef`, which wins field by field).
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gateway.varnish-software.com",
    version = "v1alpha1",
    kind = "GatewayClassParameters",
    plural = "gatewayclassparameters",
    shortname = "gcp",
    category = "gateway-api",
    doc = "What a GatewayClass, or one Gateway, sets beyond the Gateway API.",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Pods of each Gateway"
    ),
    printcolumn(
        name = "Service",
        type_ = "string",
        json_path = ".spec.service.type",
        description = "Type of the Service"
    ),
    printcolumn(
        name = "Logging",
        type_ = "string",
        json_path = ".spec.logging.mode",
        description = "Program that writes the log of requests"
    ),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".spec.image",
        description = "Image of the pods",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    (
        "!has(self.tls) || !has(self.limits) || !has(self.tls.maxConnections) || !has(self.limits.maxConnections)",
        "tls.maxConnections and limits.maxConnections are the same limit: remove tls.maxConnections",
    ),
    (
    "!has(self.storage) || !has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) \
     || self.storage.all(s, s.type != 'malloc' || !isQuantity(s.size) || \
     quantity(s.size).compareTo(quantity(string(self.resources.limits['memory']))) <= 0)",
    "a storage of type malloc must be smaller than resources.limits.memory",
),
])))]
pub struct GatewayClassParametersSpec {
    /// The cache engine of the pods: `varnish-7` (Varnish Cache 7.7, the default) or `vinyl-9` (Vinyl Cache 9.0). It chooses the image,
    /// the operator's `GATEWAY_IMAGE` or `GATEWAY_IMAGE_VINYL_9`; where `image` is set too, it says which engine is in that image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// The image of the pods, instead of the operator's `GATEWAY_IMAGE` or `GATEWAY_IMAGE_VINYL_9`. Name the engine in it by `engine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), extend("pattern" = "^\\S+$"))]
    pub image: Option<String>,
    /// Pods of each Gateway. Where absent nothing is written, which gives one pod, and leaves the number to
    /// `kubectl scale` or a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// CPU and memory of varnishd's container. Where absent it requests 20m of CPU and 128Mi of memory, without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceParameters>,
    /// Where varnishd keeps its objects. Where absent: in memory, five eighths of what resources.limits.memory
    /// leaves beside 128Mi for varnishd itself; 256Mi without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub storage: Option<Vec<StorageParameters>>,
    /// Further arguments for varnishd, one element an argument: `["-p", "thread_pool_min=50"]`.
    /// Refused: -M, -S, -F, -f, -n, -a, -j, -T, -C, -d, -b, -I, -x, -V and -?, which belong to the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        inner(length(max = 1024)),
        extend("x-kubernetes-validations" = schema::rules(&[
            (
                "!self.exists(a, a.matches('^-[CdFV?]*[abCdFfIjMnSTVx?]'))",
                "-M, -S, -F, -f, -n, -a, -j, -T, -C, -d, -b, -I, -x, -V and -? belong to the gateway",
            ),
            (
                "!self.exists(a, a.matches('^(-p)?(vmod_path|auto_restart|pipe_timeout)='))",
                "vmod_path and auto_restart are set by the gateway, pipe_timeout by timeouts.upgradeIdle",
            ),
            ("!self.exists(a, a.contains(';'))", "an argument must not contain a semicolon"),
        ]))
    )]
    pub varnishd_extra_args: Option<Vec<String>>,
    /// A ConfigMap with VCL of your own, run after the generated VCL of the same subroutine.
    #[serde(default, rename = "userVCLConfigMapRef", skip_serializing_if = "Option::is_none")]
    pub user_vcl_config_map_ref: Option<UserVclConfigMapRef>,
    /// A container beside varnishd that writes requests to its standard output. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<LoggingParameters>,
    /// Which process owns the ports. `Auto`, the default: the front owns all ports, requests
    /// without a cache policy never reach varnishd, and listeners are opened and closed without a restart; with user VCL, or with a
    /// `logging.mode` other than `json`, `Auto` means `Varnish`. `Varnish`: varnishd owns the plain HTTP ports, and every
    /// request goes through VCL. A change restarts varnishd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_path: Option<DataPath>,
    /// How long varnishd waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<TimeoutParameters>,
    /// What clients of HTTPS and TLS listeners may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsParameters>,
    /// What clients of all listeners may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitParameters>,
    /// Hits that the front answers from its own memory, without varnishd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_objects: Option<HotObjectParameters>,
    /// PROXY protocol from load balancers. Where absent no PROXY header is read. A Gateway that sets it takes nothing of its
    /// class: networks of the two are not mixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocolParameters>,
    /// Whether a Service of type ExternalName may be a backend. `Deny`, the default: no. `PublicOnly`: the pods resolve its name by DNS
    /// and use public addresses only. `Allow`: private addresses, too. Anyone who may create a Service in the namespace of a route can
    /// then choose the hosts that the pods send requests to. Loopback, link-local and cloud metadata addresses are never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_names: Option<ExternalNames>,
    /// Networks (`10.0.0.0/8`, `fd00::/8`, or one address) whose X-Forwarded-* headers are trusted.
    /// Without any, what clients send in these headers is overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        inner(length(max = 64)),
        extend("x-kubernetes-validations" = schema::networks())
    )]
    pub trusted_proxies: Option<Vec<String>>,
    /// How the paths of requests are read before they are routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<PathParameters>,
    /// Whether answers say in `X-Cache` what the cache did: HIT, MISS, PASS or STALE. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_status_header: Option<bool>,
    /// What is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsParameters>,
    /// Spans of requests for OpenTelemetry. Default: none; what clients send as `traceparent` is handed on all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<TracingParameters>,
    /// The page of each pod, on its loopback: `kubectl port-forward POD 9000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard: Option<DashboardParameters>,
    /// How Ingresses are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressParameters>,
    /// The Service in front of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceParameters>,
    /// How many pods may be taken away at once. Without it there is no PodDisruptionBudget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<DisruptionBudgetParameters>,
    /// As in a Pod; without labelSelector it counts the pods of the same Gateway. Where absent pods are spread over zones
    /// and nodes as well as that is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::topology_spread")]
    pub topology_spread_constraints: Option<Vec<Embedded>>,
    /// Labels of the nodes that pods may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// As in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Option<Vec<Toleration>>,
    /// As in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::open")]
    pub affinity: Option<Embedded>,
    /// Which pods go first where nodes are full: the name of a PriorityClass. Default: the cluster's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = schema::HOSTNAME))]
    pub priority_class_name: Option<String>,
    /// Further volumes of the pods, as in a Pod. Names that begin with `gateway-` belong to the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::volumes")]
    pub extra_volumes: Option<Vec<Embedded>>,
    /// Where varnishd's container sees these volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::volume_mounts")]
    pub extra_volume_mounts: Option<Vec<Embedded>>,
    /// Containers that run before varnishd starts, as in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::init_containers")]
    pub extra_init_containers: Option<Vec<Embedded>>,
}

/// Where user VCL is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserVclConfigMapRef {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Default: the Gateway's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("pattern" = schema::LABEL))]
    pub namespace: Option<String>,
    /// The key in the ConfigMap. Default: `user.vcl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = "^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
}

/// Durations in the Gateway API's form: `3s500ms`, `1m`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeoutParameters {
    /// For the TCP connection to an endpoint. Default: 3s500ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub connect: Option<String>,
    /// From the request's last byte to the answer's first. Default: 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub first_byte: Option<String>,
    /// Between two reads of the answer's body. Default: 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub idle: Option<String>,
    /// A WebSocket on which nothing moves is closed after this time. Default: 5m. A change restarts varnishd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub upgrade_idle: Option<String>,
    /// How long requests may take to finish once their pod has to end. Default: 30s. A change restarts varnishd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub drain: Option<String>,
}
