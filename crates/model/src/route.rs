//! One entry of `routes`, the same in both files but for where its requests go.

use serde::{Deserialize, Serialize};

use crate::filters::Filters;
use crate::matches::{PathMatch, ValueMatch};
use crate::{CachePolicy, Retry, RouteKind, RuleTimeouts, SessionPersistence};

/// One match of one rule: what a request must look like, and what the rule does with it.
///
/// `B` is one of its backends and `M` one of its mirrors: Services by name in routing.json, endpoints in ghost.json.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "schema",
    schemars(
        bound = "B: schemars::JsonSchema + Default + Serialize, M: schemars::JsonSchema + Default + Serialize"
    )
)]
#[serde(default)]
pub struct Route<B, M> {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_match: Option<PathMatch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ValueMatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<ValueMatch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<Box<Filters>>,
    /// Requests are split between them by weight. Empty where the rule redirects; any other rule without backends answers 500, one of
    /// an Ingress 503. Not a `Vec`, which would have room for four of them.
    // Version 2 of ghost.json has the second name.
    #[serde(alias = "backend_groups", skip_serializing_if = "<[_]>::is_empty")]
    pub backends: Box<[B]>,
    /// Socket names; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<String>,
    /// Names out of the file's `listeners`; empty in files without `listeners`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listener_names: Vec<String>,
    #[serde(skip_serializing_if = "RouteKind::is_http_route")]
    pub kind: RouteKind,
    pub route_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    pub rule_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_policy: Option<Box<CachePolicy>>,
    /// Copies of the rule's requests go there as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<M>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<RuleTimeouts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<Retry>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<Box<SessionPersistence>>,
}

impl<B, M> Route<B, M> {
    /// Its requests are answered by a redirect, and never reach a backend.
    pub fn redirects(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.request_redirect.is_some())
    }

    /// The same match of the same rule, with other backends and mirrors.
    pub fn leading_to<C, N>(&self, backends: Box<[C]>, mirrors: Vec<N>) -> Route<C, N> {
        Route {
            hostname: self.hostname.clone(),
            path_match: self.path_match.clone(),
            method: self.method.clone(),
            headers: self.headers.clone(),
            query_params: self.query_params.clone(),
            filters: self.filters.clone(),
            backends,
            listeners: self.listeners.clone(),
            listener_names: self.listener_names.clone(),
            kind: self.kind,
            route_name: self.route_name.clone(),
            rule_name: self.rule_name.clone(),
            rule_index: self.rule_index,
            cache_policy: self.cache_policy.clone(),
            mirrors,
            timeouts: self.timeouts,
            retry: self.retry.clone(),
            session_persistence: self.session_persistence.clone(),
        }
    }
}
