//! How Ingresses are served.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What a Varnish does with Ingresses. Of account where it serves any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[(
    "!has(self.httpPort) || !has(self.httpsPort) || self.httpPort != self.httpsPort",
    "httpPort and httpsPort must differ",
)])))]
pub struct IngressParameters {
    /// May one host be in several Ingresses? `distinct-hosts`, the default: no. `same-namespace`: if they are of one
    /// namespace. The oldest keeps the host, the others are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<IngressMerge>,
    /// Rules without a host: `reject`, the default, rejects the Ingress; `allow` makes them rules for every host that no
    /// other rule names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostless_rules: Option<HostlessRules>,
    /// What a path of type ImplementationSpecific is: `prefix`, the default, by path elements; `regular-expression`, which
    /// must match from the beginning of the path on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation_specific: Option<ImplementationSpecific>,
    /// Whether a pod is ready that has neither an Ingress nor a route to serve. It answers 503. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_without_routes: Option<bool>,
    /// Where the Varnish of an IngressClass runs. Default: the operator's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("pattern" = schema::LABEL))]
    pub namespace: Option<String>,
    /// The port for HTTP of an IngressClass's Varnish. Default: 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub http_port: Option<i32>,
    /// The port that is opened for Ingresses with TLS where there is no HTTPS listener. Default: 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub https_port: Option<i32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IngressMerge {
    #[default]
    DistinctHosts,
    SameNamespace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostlessRules {
    #[default]
    Reject,
    Allow,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImplementationSpecific {
    #[default]
    Prefix,
    RegularExpression,
}
