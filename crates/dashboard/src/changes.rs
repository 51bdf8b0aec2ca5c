//! What a new configuration changed, where nothing else tells: endpoints and certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use router::Router;

/// More Services than this at once are only counted.
const LISTED: usize = 10;
/// More addresses of one Service than this are only counted.
const NAMED: usize = 4;

/// Endpoints by Service.
type Endpoints = BTreeMap<String, BTreeSet<SocketAddr>>;
/// Fingerprints of what the front shows, with their names.
pub(crate) type Shown = BTreeMap<String, String>;

/// Of Services that both configurations have and whose endpoints may differ: what is not the same object in both.
fn differing(old: &Router, new: &Router) -> (Endpoints, Endpoints) {
    let same_base = match (old.base(), new.base()) {
        (Some(old), Some(new)) if Arc::ptr_eq(old, new) => Some(new),
        _ => None,
    };
    let Some(base) = same_base else {
        return (endpoints(layers(old), None), endpoints(layers(new), None));
    };
    let (mut before, mut now) = (endpoints([old], None), endpoints([new], None));
    let names: BTreeSet<String> = before.keys().chain(now.keys()).cloned().collect();
    // What only one of them says, the base says for the other.
    let below = endpoints([&**base], Some(&names));
    for all in [&mut before, &mut now] {
        for (name, of_base) in &below {
            if !all.contains_key(name) {
                all.insert(name.clone(), of_base.clone());
            }
        }
    }
    (before, now)
}

/// The router's own rules first: they count.
fn layers(router: &Router) -> impl Iterator<Item = &Router> {
    std::iter::once(router).chain(router.base().map(AsRef::as_ref))
}

fn endpoints<'r>(routers: impl IntoIterator<Item = &'r Router>, of: Option<&BTreeSet<String>>) -> Endpoints {
    let mut all = Endpoints::new();
    let rules = routers.into_iter().flat_map(|router| router.rules());
    for group in rules.flat_map(|rule| rule.groups()) {
        let is_asked = of.is_none_or(|of| of.contains(group.name()));
        if is_asked && !group.name().is_empty() && !all.contains_key(group.name()) {
            all.insert(group.name().to_owned(), group.endpoints().iter().copied().collect());
        }
    }
    all
}

pub(crate) fn shown(tls: &front::Config) -> Shown {
    let mut all = Shown::new();
    for host in tls.listeners.iter().flat_map(|port| &port.hosts) {
        for pair in host.certificates() {
            all.entry(pair.fingerprint()).or_insert_with(|| pair.names().join(", "));
        }
    }
    all
}

/// One sentence for each Service that both have and whose endpoints differ. Services that come and go do so with their routes.
pub(crate) fn of_endpoints(old: &Router, new: &Router) -> Vec<String> {
    let (old, new) = differing(old, new);
    sentences(&old, &new)
}

fn sentences(old: &Endpoints, new: &Endpoints) -> Vec<String> {
    let differing: Vec<_> = new
        .iter()
        .filter_map(|(name, now)| Some((name, old.get(name)?, now)))
        .filter(|(_, b, n)| b != n)
        .collect();
    let mut told: Vec<String> = differing
        .iter()
        .take(LISTED)
        .map(|(name, before, now)| {
            let parts: Vec<String> = [("+", now.difference(before)), ("-", before.difference(now))]
                .into_iter()
                .filter_map(|(sign, addresses)| listed(sign, &addresses.collect::<Vec<_>>()))
                .collect();
            let count = now.len();
            let endpoints = if count == 1 { "endpoint" } else { "endpoints" };
            format!("Service {name}: {count} {endpoints} ({})", parts.join(", "))
        })
        .collect();
    if differing.len() > LISTED {
        told.push(format!("and {} more Services have other endpoints", differing.len() - LISTED));
    }
    told
}

fn listed(sign: &str, addresses: &[&SocketAddr]) -> Option<String> {
    match addresses {
        [] => None,
        few if few.len() <= NAMED => {
            Some(few.iter().map(|address| format!("{sign}{address}")).collect::<Vec<_>>().join(", "))
        }
        many => Some(format!("{sign}{} addresses", many.len())),
    }
}

/// One sentence for what came, what was replaced, and what went.
pub(crate) fn of_certificates(old: &Shown, new: &Shown) -> Vec<String> {
    let only_in = |from: &Shown, other: &Shown| -> BTreeSet<String> {
        let differing = from.iter().filter(|(fingerprint, _)| !other.contains_key(*fingerprint));
        differing.map(|(_, names)| names.clone()).collect()
    };
    let (came, went) = (only_in(new, old), only_in(old, new));
    let names = |all: Vec<&String>| {
        let more = all.len().saturating_sub(LISTED);
        let text = all.into_iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join("; ");
        if more > 0 { format!("{text} and {more} more") } else { text }
    };
    [
        ("new certificate", names(came.difference(&went).collect())),
        ("certificate replaced", names(came.intersection(&went).collect())),
        ("certificate gone", names(went.difference(&came).collect())),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(what, names)| format!("{what}: {names}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(services: &[(&str, &[u16])]) -> Endpoints {
        let address = |port: &u16| SocketAddr::from(([127, 0, 0, 1], *port));
        services
            .iter()
            .map(|(name, ports)| ((*name).to_owned(), ports.iter().map(address).collect()))
            .collect()
    }

    #[test]
    fn endpoints_that_come_and_go_are_named() {
        let old = of(&[("a/b:80", &[1, 2]), ("a/same:80", &[7])]);
        let new = of(&[("a/b:80", &[2, 3]), ("a/same:80", &[7]), ("a/new:80", &[8])]);
        assert_eq!(sentences(&old, &new), ["Service a/b:80: 2 endpoints (+127.0.0.1:3, -127.0.0.1:1)"]);
        assert_eq!(sentences(&new, &new), [""; 0]);
        let gone = of(&[("a/b:80", &[])]);
        assert_eq!(sentences(&old, &gone), ["Service a/b:80: 0 endpoints (-127.0.0.1:1, -127.0.0.1:2)"]);
    }

    #[test]
    fn many_are_counted() {
        let names: Vec<String> = (0..50).map(|n| format!("a/{n}:80")).collect();
        let with =
            |ports: &'static [u16]| of(&names.iter().map(|name| (name.as_str(), ports)).collect::<Vec<_>>());
        let told = sentences(&with(&[1, 2, 3, 4, 5, 6]), &with(&[1]));
        assert_eq!(told.len(), LISTED + 1);
        assert_eq!(told[0], "Service a/0:80: 1 endpoint (-5 addresses)");
        assert_eq!(told[LISTED], "and 40 more Services have other endpoints");
    }

    #[test]
    fn certificates_come_go_and_are_replaced() {
        let shown = |all: &[(&str, &str)]| -> Shown {
            all.iter().map(|(print, name)| ((*print).to_owned(), (*name).to_owned())).collect()
        };
        let told =
            of_certificates(&shown(&[("1", "shop"), ("3", "old")]), &shown(&[("2", "shop"), ("4", "new")]));
        assert_eq!(told, ["new certificate: new", "certificate replaced: shop", "certificate gone: old"]);
    }
}
