//! VarnishCachePolicy: how long answers of a route, of one of its rules, or of a whole Gateway are kept.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy_status::PolicyStatus;
use crate::schema;

/// Which answers Varnish keeps, for how long, and what tells them apart. Without a policy every request bypasses the cache.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gateway.varnish-software.com",
    version = "v1alpha1",
    kind = "VarnishCachePolicy",
    plural = "varnishcachepolicies",
    shortname = "vcp",
    category = "gateway-api",
    namespaced,
    status = "PolicyStatus",
    label("gateway.networking.k8s.io/policy", "Direct"),
    doc = "Which answers Varnish keeps, for how long, and what tells them apart.",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetRef.name"),
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.targetRef.kind"),
    printcolumn(name = "Rule", type_ = "string", json_path = ".spec.targetRef.sectionName"),
    printcolumn(name = "Default TTL", type_ = "string", json_path = ".spec.defaultTTL"),
    printcolumn(name = "Forced TTL", type_ = "string", json_path = ".spec.forcedTTL"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.ancestors[*].conditions[?(@.type==\"Accepted\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("has(self.defaultTTL) != has(self.forcedTTL)", "give exactly one of defaultTTL and forcedTTL"),
    (
        "!has(self.heuristic) || !has(self.forcedTTL)",
        "heuristic is for answers whose origin is silent, which forcedTTL overrules: remove one of them",
    ),
    (
        "!has(self.cacheControlTargets) || !has(self.forcedTTL)",
        "cacheControlTargets say how long an answer is fresh, which forcedTTL overrules: remove one of them",
    ),
    (
        "!has(self.authorization) || self.authorization != 'Share' || !has(self.bypass) || \
         self.bypass.headers.all(header, header.name.lowerAscii() != 'authorization')",
        "authorization: Share lets requests with Authorization ask the cache, which bypass.headers forbids: remove one of them",
    ),
    (
        "!has(self.noVarySearch) || self.noVarySearch != 'Obey' || !has(self.cacheKey) || !has(self.cacheKey.queryParameters)",
        "noVarySearch: Obey lets the origin say which query parameters count, which cacheKey.queryParameters does: remove one of them",
    ),
    (
        "!has(self.methods) || !('POST' in self.methods) || !has(self.invalidateOnUnsafe) || self.invalidateOnUnsafe",
        "methods: POST keeps an answer in place of those that it invalidates, which invalidateOnUnsafe: false leaves: remove one of them",
    ),
    (
        "!has(self.methods) || !('POST' in self.methods) || !has(self.noVarySearch) || self.noVarySearch != 'Obey'",
        "methods: POST keeps an answer by its whole URL, which is not the key with noVarySearch: Obey: remove one of them",
    ),
])))]
pub struct VarnishCachePolicySpec {
    /// What the policy is for. It may be absent where rules of HTTPRoutes name the policy, by a filter of type ExtensionRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<PolicyTargetRef>,
    /// How long an answer is fresh where the origin does not say.
    #[serde(default, rename = "defaultTTL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION))]
    pub default_ttl: Option<String>,
    /// How long an answer is fresh, whatever lifetime the origin gives it.
    #[serde(default, rename = "forcedTTL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub forced_ttl: Option<String>,
    /// How long an answer is fresh whose origin says only when it changed last (Last-Modified). Takes the place of defaultTTL there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heuristic: Option<HeuristicParameters>,
    /// Headers that Cache-Control gives way to, the first that is there counts (RFC 9213). By default CDN-Cache-Control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 8),
        inner(length(min = 1, max = 256), regex(pattern = schema::HEADER_NAME)),
        extend("x-kubernetes-validations" = schema::rules(&[
            (
                "self.all(name, name.lowerAscii().endsWith('-cache-control'))",
                "each must be a header whose name ends in -Cache-Control",
            ),
            (
                "self.all(name, !name.lowerAscii().startsWith('x-ghost-'))",
                "headers that begin with X-Ghost- belong to the gateway",
            ),
        ]))
    )]
    pub cache_control_targets: Option<Vec<String>>,
    /// How long after that it is served stale while it is fetched again. Where absent, the origin's stale-while-revalidate counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION))]
    pub grace: Option<String>,
    /// How long after that it is kept to be revalidated, and served if the origin fails. Where absent, the origin's stale-if-error counts,
    /// and an answer that can be revalidated is kept for an hour for that alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION))]
    pub keep: Option<String>,
    /// A larger answer is delivered and not kept. By default one that takes more than an eighth of its storage; more than half of
    /// the storage is never taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("pattern" = schema::SIZE))]
    pub max_object_size: Option<String>,
    /// Whether a successful POST, PUT, PATCH, DELETE or other unsafe request takes what is stored of its URL out of the cache, and what its
    /// answer names in Location, Content-Location and Cache-Group-Invalidation. By default it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidate_on_unsafe: Option<bool>,
    /// Whether Cache-Control of requests (no-cache, no-store, max-age, min-fresh, max-stale, only-if-cached) is obeyed. By default it is
    /// ignored: a client could send each of its requests to the origin. With Obey, stored answers that a client refuses are validated at
    /// most once a second for each URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cache_control: Option<ClientCacheControl>,
    /// How requests with an Authorization header are served. Bypass, the default: they bypass the cache. Share: they use the cache, with
    /// objects of their own, and only responses with Cache-Control public, s-maxage or must-revalidate are stored. The cache does not check
    /// credentials: a request with any Authorization header gets a stored response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<AuthorizedRequests>,
    /// Request headers of which one of a few values is left, or nothing, before the cache is asked: answers with Vary need fewer variants
    /// then. The origin receives that value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 8),
        extend("x-kubernetes-validations" = schema::rules(&[(
            "self.all(one, self.exists_one(other, other.header.lowerAscii() == one.header.lowerAscii()))",
            "each header may be named once, in upper or lower case",
        )]))
    )]
    pub normalize: Option<Vec<NormalizedHeader>>,
    /// Whether No-Vary-Search of answers says which query parameters tell them apart. By default it is ignored. With Obey, the answers of a
    /// path share objects from the second request on. The origin receives all parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_vary_search: Option<NoVarySearch>,
    /// Methods whose answers are kept beside those of GET and HEAD. QUERY: by URL and content of the request, up to 64 KiB; larger ones
    /// bypass the cache. POST: an answer with status 200 of up to 64 KiB that says how long it is fresh and names its own URL in Content-Location
    /// is kept for GET. POST has no effect on Gateways whose HTTP goes through varnishd (dataPath: Varnish, user VCL).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub methods: Option<Vec<KeptMethod>>,
    /// What tells two answers apart beside host and URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<CacheKeyParameters>,
    /// Which requests bypass the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypass: Option<BypassParameters>,
}

/// Whether Cache-Control of requests counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientCacheControl {
    #[default]
    Ignore,
    Obey,
}

/// Whether the origin says which query parameters count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NoVarySearch {
    #[default]
    Ignore,
    Obey,
}

/// A method whose answers are kept beside those of GET and HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KeptMethod {
    #[serde(rename = "QUERY")]
    Query,
    #[serde(rename = "POST")]
    Post,
}

/// How requests with an Authorization header are served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthorizedRequests {
    #[default]
    Bypass,
    Share,
}

/// A request header, and the values that may be left of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NormalizedHeader {
    /// Such as Accept-Language.
    #[schemars(
        length(min = 1, max = 256),
        extend("pattern" = schema::HEADER_NAME, "x-kubernetes-validations" = schema::rules(&[
            (
                schema::MAY_BE_NORMALIZED,
                "this header says more than which variant is wanted, or is normalized always: choose another one",
            ),
        ]))
    )]
    pub header: String,
    /// The one that the client prefers is left, by its q values; of equal ones the first in the request. The header is removed where none
    /// fits.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 128), regex(pattern = schema::NORMAL_VALUE)))]
    pub values: Vec<String>,
}

/// A part of the time between the last change and the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeuristicParameters {
    /// Which part, such as "0.1".
    #[schemars(length(max = 5), extend("pattern" = schema::FRACTION))]
    pub fraction: String,
    /// Never longer than this.
    #[schemars(length(max = 32), extend("pattern" = schema::DURATION, "x-kubernetes-validations" = schema::not_zero()))]
    pub max: String,
}

/// An object of the policy's own namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    (
        "self.kind in ['Gateway', 'HTTPRoute', 'Ingress']",
        "kind must be Gateway, HTTPRoute or Ingress",
    ),
    (
        "self.group == (self.kind == 'Ingress' ? 'networking.k8s.io' : 'gateway.networking.k8s.io')",
        "group must be gateway.networking.k8s.io, for an Ingress networking.k8s.io",
    ),
    ("!has(self.sectionName) || self.kind == 'HTTPRoute'", "sectionName names a rule, which only an HTTPRoute has"),
])))]
pub struct PolicyTargetRef {
    #[schemars(length(max = 253))]
    pub group: String,
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The name of one rule of an HTTPRoute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
}

/// What tells two answers apart beside host and URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheKeyParameters {
    /// Request headers whose values do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 256), regex(pattern = schema::HEADER_NAME)),
        extend("x-kubernetes-validations" = schema::no_ghost_headers("name"))
    )]
    pub headers: Option<Vec<String>>,
    /// Query parameters that do. Their order does not matter then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_parameters: Option<QueryParameters>,
}

/// Either only those that count, or those that do not. The origin receives all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[(
    "has(self.include) != has(self.exclude)",
    "give exactly one of include and exclude",
)])))]
pub struct QueryParameters {
    /// Only these count. An empty list: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub include: Option<Vec<String>>,
    /// All but these count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub exclude: Option<Vec<String>>,
}

/// Which requests bypass the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BypassParameters {
    /// Those that have one of these.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-validations" = schema::no_ghost_headers("header.name"))
    )]
    pub headers: Vec<BypassHeader>,
}

/// A request header, with any value, or with one that a regular expression matches as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BypassHeader {
    #[schemars(length(min = 1, max = 256), extend("pattern" = schema::HEADER_NAME))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub value_regex: Option<String>,
}
