//! Routes as rows of a table.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use model::CachePolicy;
use model::filters::{Filters, HeaderModifier, RequestRedirect, UrlRewrite};
use model::ghost::{Config, Route};
use model::matches::{PathMatch, ValueMatch, in_words};

use router::counters::Way;

use super::{Endpoint, Group, Health, Row};

/// All rows, in the order of hosts and precedence.
pub(crate) fn rows<'c>(
    gateway: &'c str,
    config: &'c Config,
    in_front: bool,
    health: &'c dyn Fn(SocketAddr) -> Health,
) -> impl Iterator<Item = Row> + 'c {
    let mut same: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (host, vhost) in &config.vhosts {
        if let Some(of) = &vhost.same_as {
            same.entry(of).or_default().push(host);
        }
    }
    let of_hosts = config.vhosts.iter().flat_map(move |(host, vhost)| {
        let others = same.remove(host.as_str()).unwrap_or_default();
        let hosts: Vec<String> = std::iter::once(host.as_str()).chain(others).map(str::to_owned).collect();
        vhost.routes.iter().chain(&vhost.default_route).map(move |route| (hosts.clone(), route))
    });
    let default = config.default.iter().map(|route| (vec!["*".to_owned()], route));
    of_hosts.chain(default).filter(|(_, route)| !route.route_name.is_empty()).map(move |(hosts, route)| Row {
        way: Some(way(route, in_front).to_owned()),
        ..row(gateway, hosts, route, health)
    })
}

/// The usual one: single requests of a rule with a cache policy may go direct.
fn way(route: &Route, in_front: bool) -> &'static str {
    match (in_front, &route.cache_policy) {
        (false, _) => "varnishd",
        (true, _) if route.redirects() => Way::Own.name(),
        (true, Some(_)) => Way::Cache.name(),
        (true, None) => Way::Direct.name(),
    }
}

fn row(gateway: &str, hosts: Vec<String>, route: &Route, health: &dyn Fn(SocketAddr) -> Health) -> Row {
    let total: u64 = route.backends.iter().map(|group| u64::from(group.weight)).sum();
    let groups = route.backends.iter().map(|group| Group {
        name: group.name.clone().unwrap_or_default(),
        weight: group.weight,
        share: share(group.weight, total),
        tls: group.tls.is_some(),
        endpoints: group
            .endpoints
            .iter()
            .map(|one| {
                let address = SocketAddr::new(one.address, one.port);
                Endpoint { address, health: health(address) }
            })
            .collect(),
    });
    let listeners = if route.listener_names.is_empty() { &route.listeners } else { &route.listener_names };
    Row {
        gateway: gateway.to_owned(),
        hosts,
        kind: route.kind.name().to_owned(),
        route: route.route_name.clone(),
        rule: route.rule_index,
        rule_name: route.rule_name.clone(),
        conditions: conditions(route),
        listeners: listeners.clone(),
        filters: route.filters.as_deref().map(filters).unwrap_or_default(),
        way: None,
        cache: route.cache_policy.as_deref().map(cache),
        groups: groups.collect(),
        traffic: None,
    }
}

pub(super) fn groups_of_front(backends: &front::Backends) -> Vec<Group> {
    let total = backends.groups.iter().map(|group| u64::from(group.weight)).sum();
    let group = |group: &front::BackendGroup| Group {
        name: group.name.clone(),
        weight: group.weight,
        share: share(group.weight, total),
        tls: group.tls.is_some(),
        endpoints: group
            .endpoints
            .iter()
            .map(|address| Endpoint { address: *address, health: Health::Untried })
            .collect(),
    };
    backends.groups.iter().map(group).collect()
}

fn share(weight: u32, total: u64) -> f64 {
    let percent = 100.0 * f64::from(weight) / total.max(1) as f64;
    (percent * 10.0).round() / 10.0
}

/// With values: people look for them here.
fn conditions(route: &Route) -> String {
    let path = route.path_match.clone().unwrap_or_else(PathMatch::everything);
    let with_value = |one: &ValueMatch| format!("{}={}", one.name, one.value);
    let (headers, query_params) = (route.headers.iter(), route.query_params.iter());
    in_words(&path, route.method.as_deref(), headers.map(with_value), query_params.map(with_value))
}

fn filters(filters: &Filters) -> Vec<String> {
    let mut all = Vec::new();
    let headers = |modifier: &HeaderModifier, of: &str| {
        let set = modifier.set.iter().map(|header| format!("sets {of} header {}", header.name));
        let add = modifier.add.iter().map(|header| format!("adds {of} header {}", header.name));
        let remove = modifier.remove.iter().map(|name| format!("removes {of} header {name}"));
        set.chain(add).chain(remove).collect::<Vec<_>>()
    };
    if let Some(RequestRedirect { scheme, hostname, port, status_code, .. }) = &filters.request_redirect {
        let scheme = scheme.as_ref().map(|scheme| format!(" {scheme}")).unwrap_or_default();
        let host = hostname.as_ref().map(|host| format!(" {host}")).unwrap_or_default();
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        all.push(format!("redirects ({status_code}){scheme}{host}{port}"));
    }
    if let Some(UrlRewrite { hostname, replace_full_path, replace_prefix_match, .. }) = &filters.url_rewrite {
        let path = replace_full_path.as_ref().or(replace_prefix_match.as_ref());
        let path = path.map(|path| format!(" path to {path}")).unwrap_or_default();
        let host = hostname.as_ref().map(|host| format!(" host to {host}")).unwrap_or_default();
        all.push(format!("rewrites{host}{path}"));
    }
    if let Some(modifier) = &filters.request_header_modifier {
        all.extend(headers(modifier, "request"));
    }
    if let Some(modifier) = &filters.response_header_modifier {
        all.extend(headers(modifier, "response"));
    }
    all
}

fn cache(policy: &CachePolicy) -> String {
    let mut all = vec![match (policy.forced_ttl_seconds, policy.default_ttl_seconds) {
        (Some(seconds), _) => format!("{seconds} s, always (forcedTTL)"),
        (None, Some(seconds)) => format!("{seconds} s, unless the origin says otherwise"),
        (None, None) => "as the origin says".to_owned(),
    }];
    for (name, seconds) in [("grace", policy.grace_seconds), ("keep", policy.keep_seconds)] {
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0.0) {
            all.push(format!("{name} {seconds} s"));
        }
    }
    if !policy.bypass_headers.is_empty() {
        let names: Vec<_> = policy.bypass_headers.iter().map(|header| header.name.as_str()).collect();
        all.push(format!("bypassed by {}", names.join(", ")));
    }
    all.join(", ")
}
