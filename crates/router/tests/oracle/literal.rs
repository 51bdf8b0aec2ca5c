//! The rules of routing, read literally from the Gateway API and done slowly: every (listener, host, rule) is
//! listed, filtered and sorted for every request. It shares no code with the router.

use std::cmp::Ordering;

use model::ghost::{Config, Route};
use model::matches::{PathMatch, PathMatchType, ValueMatch, ValueMatchType};
use regex::bytes::{Regex, RegexBuilder};

use crate::request::Sample;

/// Where a request belongs.
#[derive(Debug, Default)]
pub(crate) struct Answer<'c> {
    /// Name of the listener that takes the request.
    pub(crate) listener: Option<String>,
    /// Every rule of the host's that fits, best first.
    pub(crate) ranked: Vec<&'c Route>,
    /// For when none of them does.
    pub(crate) default: Option<&'c Route>,
}

impl<'c> Answer<'c> {
    pub(crate) fn chosen(&self) -> Option<&'c Route> {
        self.ranked.first().copied().or(self.default)
    }
}

pub(crate) fn answer<'c>(config: &'c Config, request: &Sample) -> Answer<'c> {
    let host = host_of(&request.host);
    let Some(listener) = listener(config, &request.socket, &host) else { return Answer::default() };
    let here = |route: &Route| compiles(route) && attached(config, route, &listener, &request.socket);

    // Of the hosts that have a rule on this listener, the most specific that fits.
    let vhost = config
        .vhosts
        .iter()
        .filter(|(_, vhost)| vhost.routes.iter().chain(&vhost.default_route).any(here))
        .filter(|(hostname, _)| fits_host(hostname, &host))
        .max_by(|(a, _), (b, _)| specificity(a).cmp(&specificity(b)))
        .map(|(_, vhost)| vhost);
    let Some(vhost) = vhost else {
        let default = config.default.as_ref().filter(|route| here(route));
        return Answer { listener: Some(listener), ranked: Vec::new(), default };
    };
    let mut ranked: Vec<_> =
        vhost.routes.iter().filter(|route| here(route) && fits(route, request)).collect();
    ranked.sort_by(|a, b| precedence(a, b)); // stable: what is equal keeps the order of the file
    let default = vhost.default_route.as_ref().filter(|route| here(route));
    Answer { listener: Some(listener), ranked, default }
}

/// "Among listeners of one socket the most specific hostname takes the request." A file without listeners has one for
/// each socket that a route names, and one without name for all others.
fn listener(config: &Config, socket: &str, host: &str) -> Option<String> {
    if config.listeners.is_empty() {
        let mut routes = config
            .vhosts
            .values()
            .flat_map(|vhost| vhost.routes.iter().chain(&vhost.default_route))
            .chain(&config.default);
        let named = routes.any(|route| route.listeners.iter().any(|s| s == socket));
        return Some(if named { socket.to_owned() } else { String::new() });
    }
    let hostname = |l: &model::Listener| l.hostname.clone().unwrap_or_else(|| "*".to_owned());
    config
        .listeners
        .iter()
        .filter(|l| l.socket == socket && fits_host(&hostname(l), host))
        .max_by(|a, b| specificity(&hostname(a)).cmp(&specificity(&hostname(b))))
        .map(|l| l.name.clone())
}

/// "Empty or absent means the route matches on all listeners."
fn attached(config: &Config, route: &Route, listener: &str, socket: &str) -> bool {
    if config.listeners.is_empty() || route.listener_names.is_empty() {
        route.listeners.is_empty() || route.listeners.iter().any(|s| s == socket)
    } else {
        route.listener_names.iter().any(|name| name == listener)
    }
}

fn host_of(header: &str) -> String {
    header.split(':').next().unwrap_or_default().trim_end_matches('.').to_lowercase()
}

fn fits_host(hostname: &str, host: &str) -> bool {
    match hostname.strip_prefix('*') {
        Some("") => true,
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => hostname == host,
    }
}

/// "Characters in a matching non-wildcard hostname. Characters in a matching hostname."
fn specificity(hostname: &str) -> (usize, usize) {
    let exact = if hostname.starts_with('*') { 0 } else { hostname.len() };
    (exact, hostname.len())
}

/// "An invalid regex marks its own route, all others keep working."
fn compiles(route: &Route) -> bool {
    let path =
        route.path_match.iter().filter(|p| p.kind == PathMatchType::RegularExpression).map(|p| &p.value);
    let values = route.headers.iter().chain(&route.query_params);
    let values = values.filter(|v| v.kind == ValueMatchType::RegularExpression).map(|v| &v.value);
    path.chain(values).all(|pattern| of_bytes(pattern).is_some())
}

fn fits(route: &Route, request: &Sample) -> bool {
    let (path, query) = request.url.split_once('?').unwrap_or((&request.url, ""));
    fits_path(&path_of(route), path)
        && route.method.as_ref().is_none_or(|method| *method == request.method)
        && route.headers.iter().all(|header| fits_header(header, request))
        && route.query_params.iter().all(|param| fits_query(param, query))
}

fn path_of(route: &Route) -> PathMatch {
    let all = PathMatch { kind: PathMatchType::PathPrefix, value: "/".to_owned() };
    route.path_match.clone().unwrap_or(all)
}

fn fits_path(asked: &PathMatch, path: &str) -> bool {
    match asked.kind {
        PathMatchType::Exact => path == asked.value,
        PathMatchType::RegularExpression => fits_whole(&asked.value, path),
        // "Matching is done on a path element by element basis", "a trailing `/` is ignored".
        PathMatchType::PathPrefix => {
            let asked: Vec<_> = without_final_slash(&asked.value).split('/').collect();
            let path_elements: Vec<_> = path.split('/').collect();
            path.starts_with('/') && path_elements.starts_with(&asked)
        }
    }
}

fn without_final_slash(prefix: &str) -> &str {
    prefix.strip_suffix('/').unwrap_or(prefix)
}

fn fits_whole(pattern: &str, text: &str) -> bool {
    of_bytes(&format!(r"\A(?:{pattern})\z")).is_some_and(|regex| regex.is_match(text.as_bytes()))
}

fn of_bytes(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).unicode(false).dot_matches_new_line(true).build().ok()
}

fn fits_value(asked: &ValueMatch, value: &str) -> bool {
    match asked.kind {
        ValueMatchType::Exact => asked.value == value,
        ValueMatchType::RegularExpression => fits_whole(&asked.value, value),
    }
}

fn fits_header(asked: &ValueMatch, request: &Sample) -> bool {
    let same_name = |name: &str| name.to_lowercase() == asked.name.to_lowercase();
    request.headers.iter().any(|(name, value)| same_name(name) && fits_value(asked, value))
}

/// The first parameter of the name counts, as it is written or decoded.
fn fits_query(asked: &ValueMatch, query: &str) -> bool {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut named = pairs.filter(|(name, _)| *name == asked.name || decode(name) == asked.name);
    named.next().is_some_and(|(_, value)| fits_value(asked, value) || fits_value(asked, &decode(value)))
}

/// All the escapes that the generators write.
fn decode(text: &str) -> String {
    text.replace('+', " ").replace("%20", " ").replace("%61", "a").replace("%31", "1")
}

type Compare = fn(&Route, &Route) -> Ordering;

/// The first difference decides. These are the sentences of HTTPRouteRule.matches, with regular expressions put between
/// exact paths and prefixes.
pub(crate) const PRECEDENCE: [(&str, Compare); 6] = [
    ("an exact path", |a, b| is(b, PathMatchType::Exact).cmp(&is(a, PathMatchType::Exact))),
    ("a regular expression", |a, b| {
        is(b, PathMatchType::RegularExpression).cmp(&is(a, PathMatchType::RegularExpression))
    }),
    ("the longest prefix", |a, b| prefix_length(b).cmp(&prefix_length(a))),
    ("a method", |a, b| b.method.is_some().cmp(&a.method.is_some())),
    ("the largest number of headers", |a, b| b.headers.len().cmp(&a.headers.len())),
    ("the largest number of query parameters", |a, b| b.query_params.len().cmp(&a.query_params.len())),
];

fn precedence(a: &Route, b: &Route) -> Ordering {
    PRECEDENCE.iter().fold(Ordering::Equal, |so_far, (_, compare)| so_far.then_with(|| compare(a, b)))
}

fn is(route: &Route, kind: PathMatchType) -> bool {
    path_of(route).kind == kind
}

fn prefix_length(route: &Route) -> usize {
    let path = path_of(route);
    if path.kind == PathMatchType::PathPrefix { without_final_slash(&path.value).len() } else { 0 }
}
