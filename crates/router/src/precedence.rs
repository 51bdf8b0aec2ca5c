//! Who comes first when several rules fit: the Gateway API's order, field by field.
//!
//! Exact path, regular expression, longest prefix; a method; more headers; more query parameters. Rules that are
//! equal in all of these keep the order of the file, which is that of age, name and position. A sum of bonuses
//! cannot say this: `/foo` with a method must lose to `/foo/bar`.

use std::cmp::Reverse;

use model::matches::PathMatchType;

use crate::path::normal_prefix;
use crate::rule::Rule;

/// Smaller comes first.
pub(crate) fn key(rule: &Rule) -> impl Ord + use<> {
    let path = match rule.path.kind {
        PathMatchType::Exact => (0, Reverse(0)),
        PathMatchType::RegularExpression => (1, Reverse(0)),
        PathMatchType::PathPrefix => (2, Reverse(normal_prefix(&rule.path.value).len())),
    };
    (path, rule.method.is_none(), Reverse(rule.headers.len()), Reverse(rule.query_params.len()))
}

/// In words, why the first goes before the second.
pub(crate) fn reason(first: &Rule, second: &Rule) -> &'static str {
    let rank = |kind| match kind {
        PathMatchType::Exact => 0,
        PathMatchType::RegularExpression => 1,
        PathMatchType::PathPrefix => 2,
    };
    let prefix = |rule: &Rule| normal_prefix(&rule.path.value).len();
    if rank(first.path.kind) != rank(second.path.kind) {
        match first.path.kind {
            PathMatchType::Exact => "an exact path goes before regular expressions and prefixes",
            _ => "a regular expression goes before prefixes",
        }
    } else if first.path.kind == PathMatchType::PathPrefix && prefix(first) != prefix(second) {
        "the longer prefix goes first"
    } else if first.method.is_some() != second.method.is_some() {
        "a rule with a method goes before one without"
    } else if first.headers.len() != second.headers.len() {
        "more header matches go first"
    } else if first.query_params.len() != second.query_params.len() {
        "more query parameter matches go first"
    } else if first.kind() != second.kind() {
        "the matches are equal, and HTTPRoutes go before Ingresses"
    } else if first.route_name() != second.route_name() {
        "the matches are equal, so the older route goes first, then the name in alphabetical order"
    } else {
        "the matches are equal, so the earlier rule of the route goes first"
    }
}
