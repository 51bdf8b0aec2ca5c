//! GatewayClassParameters: what a GatewayClass, or one Gateway, sets beyond the Gateway API.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings for the Gateways of a class (`GatewayClass.spec.parametersRef`) or for one Gateway
/// (`Gateway.spec.infrastructure.parametersRef`, which wins field by field).
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gateway.varnish-software.com",
    version = "v1alpha1",
    kind = "GatewayClassParameters",
    plural = "gatewayclassparameters",
    shortname = "gcp",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassParametersSpec {
    /// A ConfigMap with VCL of your own, run after the generated VCL of the same subroutine.
    #[serde(default, rename = "userVCLConfigMapRef", skip_serializing_if = "Option::is_none")]
    pub user_vcl_config_map_ref: Option<UserVclConfigMapRef>,
    /// Further arguments for varnishd, one element an argument: `["-p", "thread_pool_min=50"]`.
    /// Refused: -M, -S, -F, -f, -n, -a, -j, -T, -C, -d, -b, -I and -x, which belong to the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub varnishd_extra_args: Option<Vec<String>>,
    /// How long varnishd waits for backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<TimeoutParameters>,
    /// Networks (`10.0.0.0/8`, `fd00::/8`, or one address) whose X-Forwarded-* headers are believed.
    /// Without any, what clients send in these headers is overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_proxies: Option<Vec<String>>,
}

/// Where user VCL is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserVclConfigMapRef {
    pub name: String,
    /// The Gateway's own namespace where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The key in the ConfigMap, `user.vcl` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Durations in the Gateway API's form: `3s500ms`, `1m`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeoutParameters {
    /// For the TCP connection to an endpoint; 3s500ms where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<String>,
    /// From the request's last byte to the answer's first; 60s where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<String>,
    /// Between two reads of the answer's body; 60s where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// A WebSocket on which nothing moves is closed after this time; 5m where absent. A change restarts varnishd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_idle: Option<String>,
}
