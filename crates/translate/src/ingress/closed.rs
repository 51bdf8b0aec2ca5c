//! The hosts and paths of an Ingress that was rejected as a whole: their requests get 503 instead of a wider rule.
//!
//! Takes what can be read of the Ingress, without compiling its regular expressions: they may be the reason why it was rejected.
//! Rules without a host are left out, since they would close every host.

use api::ImplementationSpecific;
use k8s_openapi::api::networking::v1::HTTPIngressPath;
use model::RouteKind;
use model::matches::{PathMatch, PathMatchType};
use model::routing::{Route, Routing};

use super::attach;
use super::class::Ours;
use super::options::Options;
use super::rules::Host;
use crate::hostname;

/// Hosts in a message.
const NAMED: usize = 3;

/// Its hosts, with entries that have no backend.
pub(super) fn hosts(ours: &Ours<'_>, options: &Options) -> Vec<Host> {
    let rules = ours.object.spec.iter().flat_map(|spec| spec.rules.iter().flatten());
    let mut hosts: Vec<Host> = Vec::new();
    for (index, rule) in rules.enumerate() {
        let Some(name) = hostname::normal(rule.host.as_deref()) else { continue };
        let mut paths: Vec<PathMatch> =
            rule.http.iter().flat_map(|http| &http.paths).map(|path| readable(path, options)).collect();
        if paths.is_empty() {
            // It would be the default backend's.
            paths.push(PathMatch::everything());
        }
        let at = hosts.iter().position(|host| host.name == name).unwrap_or_else(|| {
            hosts.push(Host { name: name.clone(), entries: Vec::new(), is_copy: false });
            hosts.len() - 1
        });
        for path in paths {
            let entries = &mut hosts[at].entries;
            if !entries.iter().any(|entry: &Route| entry.path_match.as_ref() == Some(&path)) {
                entries.push(Route {
                    path_match: Some(path),
                    kind: RouteKind::Ingress,
                    route_name: ours.key.to_string(),
                    rule_index: u32::try_from(index).unwrap_or(u32::MAX),
                    ..Route::default()
                });
            }
        }
    }
    hosts
}

/// A path that includes every path that the user meant.
fn readable(path: &HTTPIngressPath, options: &Options) -> PathMatch {
    let value = path.path.as_deref().filter(|path| path.starts_with('/'));
    let is_pattern = path.path_type == "ImplementationSpecific"
        && options.implementation_specific == ImplementationSpecific::RegularExpression;
    match value {
        Some(value) if is_pattern => beginning(value),
        Some(value) if path.path_type == "Exact" => {
            PathMatch { kind: PathMatchType::Exact, value: value.to_owned() }
        }
        Some(value) => PathMatch { kind: PathMatchType::PathPrefix, value: value.to_owned() },
        None => PathMatch::everything(),
    }
}

/// The whole elements that a regular expression begins with, read as text.
fn beginning(pattern: &str) -> PathMatch {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_~".contains(c);
    let plain = pattern.find(|c| !is_plain(c)).unwrap_or(pattern.len());
    // An alternative may begin with anything. A quantifier is about the last character, which is behind the last slash.
    let end = if pattern.contains('|') { 0 } else { pattern[..plain].rfind('/').unwrap_or_default() };
    let value = &pattern[..end];
    if value.is_empty() || pattern[plain..].starts_with(['?', '*', '{']) && pattern[..plain].ends_with('/') {
        return PathMatch::everything();
    }
    PathMatch { kind: PathMatchType::PathPrefix, value: value.to_owned() }
}

/// Adds the hosts behind all that is there, and returns the names of those that some listener takes.
pub(super) fn write(routing: &mut Routing, hosts: &[Host]) -> Vec<String> {
    let mut names = Vec::new();
    for host in hosts {
        for attached in attach::attach(&routing.listeners, &host.name) {
            let routes = &mut routing.vhosts.or_default(&attached.host).routes;
            routes.extend(host.entries.iter().map(|entry| Route {
                hostname: attached.host.clone(),
                listeners: attached.sockets.clone(),
                listener_names: attached.names.clone(),
                ..entry.clone()
            }));
            names.push(attached.host);
        }
    }
    names
}

/// For the status.
pub(super) fn told(names: &[String]) -> String {
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => format!("; until it is corrected, requests for its paths of {first} get 503"),
        more => format!("; until it is corrected, requests for its paths of {first} and {more} more get 503"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_pattern_holds_all_that_it_matches() {
        for (pattern, path) in [
            ("/shop/[a-z]+", "/shop"),
            ("/shop/item", "/shop"),
            ("/shop/items?/x", "/shop"),
            ("/shop/*", "/"),
            ("/shop/?x", "/"),
            ("/a/b|/c", "/"),
            ("/shop", "/"),
            ("/(", "/"),
            ("", "/"),
        ] {
            assert_eq!(beginning(pattern).value, path, "{pattern}");
        }
    }
}
