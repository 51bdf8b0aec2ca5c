//! What a route entry asks of a request.

use serde::{Deserialize, Serialize};

/// A condition on the path, without the query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathMatch {
    #[serde(rename = "type")]
    pub kind: PathMatchType,
    pub value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PathMatchType {
    Exact,
    /// By whole path elements: `/shop` matches `/shop` and `/shop/cart`, not `/shopping`.
    PathPrefix,
    /// Matched against the whole path.
    RegularExpression,
}

/// A condition on a header or a query parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValueMatch {
    pub name: String,
    pub value: String,
    #[serde(rename = "type", default)]
    pub kind: ValueMatchType,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ValueMatchType {
    #[default]
    Exact,
    /// Matched against the whole value.
    RegularExpression,
}

impl PathMatchType {
    /// As the Gateway API calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "Exact",
            Self::PathPrefix => "PathPrefix",
            Self::RegularExpression => "RegularExpression",
        }
    }
}

/// Conditions in words: `PathPrefix /shop, method GET, header x-version`. `headers` and `query_params` are names, or `name=value`.
pub fn in_words(
    path: &PathMatch,
    method: Option<&str>,
    headers: impl IntoIterator<Item = String>,
    query_params: impl IntoIterator<Item = String>,
) -> String {
    let method = method.map(|method| format!("method {method}"));
    let headers = headers.into_iter().map(|header| format!("header {header}"));
    let query_params = query_params.into_iter().map(|param| format!("query parameter {param}"));
    let all = method.into_iter().chain(headers).chain(query_params);
    all.fold(format!("{} {}", path.kind.name(), path.value), |text, condition| format!("{text}, {condition}"))
}

impl PathMatch {
    /// The match of a rule that names no path.
    pub fn everything() -> Self {
        Self { kind: PathMatchType::PathPrefix, value: "/".to_owned() }
    }
}
