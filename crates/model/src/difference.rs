//! What two routing.json differ in, host by host: a large one is written once, and then only what has changed since.

use std::collections::{BTreeMap, BTreeSet};

use crate::routing::{Routing, Vhost};

impl Routing {
    /// This one by what differs from `base`, whose name is `name`. Whoever reads it needs no host of the base to know the
    /// hosts that stand here: those that share routes come together.
    pub fn since(&self, base: &Self, name: &str) -> Self {
        let (mut vhosts, removed) = difference(&base.vhosts, &self.vhosts);
        let shares = |host: &Vhost| host.same_as.as_ref().is_some_and(|other| vhosts.contains_key(other));
        let sharing: Vec<&String> = match vhosts.is_empty() {
            true => Vec::new(),
            false => self.vhosts.iter().filter(|(_, host)| shares(host)).map(|(name, _)| name).collect(),
        };
        let shared: BTreeSet<&String> =
            vhosts.keys().filter_map(|name| self.vhosts.get(name)?.same_as.as_ref()).collect();
        for name in sharing.into_iter().chain(shared) {
            if let Some(host) = self.vhosts.get(name) {
                vhosts.insert(name.clone(), host.clone());
            }
        }
        Self { base: Some(name.to_owned()), removed, vhosts, ..self.without_hosts() }
    }

    /// This one, which says what has changed since `base`, and its base as one.
    pub fn over(mut self, base: Self) -> Self {
        let vhosts = laid_over(base.vhosts, &self.removed, std::mem::take(&mut self.vhosts));
        Self { base: None, removed: Vec::new(), vhosts, ..self }
    }

    /// Can what has changed since `base` be told by exact hosts alone? Then ghost goes on with what it made of the base.
    pub fn is_near(&self, base: &Self) -> bool {
        // What is the front's and the chaperone's concern is theirs to follow. Names with certificates are ghost's, too: it
        // tells misdirected requests by them.
        let Self {
            version,
            listeners,
            timeouts,
            trusted_proxies,
            cache_status_header,
            route_metrics,
            request_log,
            trace_sampling,
            default,
            tls_listeners: _,
            client_validation: _,
            tls_limits: _,
            backend_tls: _,
            authorities: _,
            unready_without_routes: _,
            base: _,
            removed: _,
            vhosts: _,
        } = self;
        *version == base.version
            && *listeners == base.listeners
            && *timeouts == base.timeouts
            && *trusted_proxies == base.trusted_proxies
            && *cache_status_header == base.cache_status_header
            && *route_metrics == base.route_metrics
            && *request_log == base.request_log
            && *trace_sampling == base.trace_sampling
            && *default == base.default
            && self.wildcards().eq(base.wildcards())
    }

    /// Sorted, so that `*` stands before all letters.
    fn wildcards(&self) -> impl Iterator<Item = (&String, &Vhost)> {
        self.vhosts.range("*".to_owned()..="*~".to_owned())
    }

    fn without_hosts(&self) -> Self {
        Self {
            version: self.version,
            listeners: self.listeners.clone(),
            timeouts: self.timeouts,
            trusted_proxies: self.trusted_proxies.clone(),
            cache_status_header: self.cache_status_header,
            route_metrics: self.route_metrics,
            request_log: self.request_log,
            trace_sampling: self.trace_sampling,
            tls_listeners: self.tls_listeners.clone(),
            client_validation: self.client_validation.clone(),
            tls_limits: self.tls_limits.clone(),
            backend_tls: self.backend_tls.clone(),
            authorities: self.authorities.clone(),
            base: None,
            removed: Vec::new(),
            vhosts: BTreeMap::new(),
            default: self.default.clone(),
            unready_without_routes: self.unready_without_routes,
        }
    }
}

/// Hosts of a base, less those that are no more, and those that came or changed.
pub(crate) fn laid_over<V>(
    mut base: BTreeMap<String, V>,
    removed: &[String],
    mut hosts: BTreeMap<String, V>,
) -> BTreeMap<String, V> {
    for host in removed {
        base.remove(host);
    }
    base.append(&mut hosts);
    base
}

/// What is new or other, and what is no more.
fn difference(
    base: &BTreeMap<String, Vhost>,
    new: &BTreeMap<String, Vhost>,
) -> (BTreeMap<String, Vhost>, Vec<String>) {
    let (mut changed, mut removed) = (BTreeMap::new(), Vec::new());
    let (mut old, mut now) = (base.iter().peekable(), new.iter().peekable());
    loop {
        match (old.peek().copied(), now.peek().copied()) {
            (None, None) => return (changed, removed),
            (Some((name, before)), Some((same, host))) if name == same => {
                if before != host {
                    changed.insert(name.clone(), host.clone());
                }
                old.next();
                now.next();
            }
            (Some((gone, _)), other) if other.is_none_or(|(name, _)| gone < name) => {
                removed.push(gone.clone());
                old.next();
            }
            (_, Some((name, host))) => {
                changed.insert(name.clone(), host.clone());
                now.next();
            }
            (Some(_), None) => {
                old.next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(route: &str) -> Vhost {
        let route = crate::routing::Route { route_name: route.to_owned(), ..Default::default() };
        Vhost { routes: vec![route], ..Vhost::default() }
    }

    fn same_as(other: &str) -> Vhost {
        Vhost { same_as: Some(other.to_owned()), ..Vhost::default() }
    }

    fn routing(hosts: &[(&str, Vhost)]) -> Routing {
        let vhosts = hosts.iter().map(|(name, host)| ((*name).to_owned(), host.clone())).collect();
        Routing { vhosts, ..Routing::default() }
    }

    #[test]
    fn a_name_with_a_certificate_of_its_own_needs_a_new_base() {
        let with = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|name| ((*name).to_owned(), vec!["a/pair".to_owned()])).collect();
            let tls = Some(crate::ListenerTls { hosts, ..Default::default() });
            let (name, socket) = ("s".to_owned(), "https-443".to_owned());
            let listener = crate::Listener { name, socket, hostname: None, tls };
            Routing { listeners: vec![listener], ..routing(&[("a", host("1"))]) }
        };
        assert!(with(&["a"]).is_near(&with(&["a"])));
        assert!(!with(&["a", "b"]).is_near(&with(&["a"])));
    }

    #[test]
    fn only_what_differs_is_said() {
        let base = routing(&[("a", host("1")), ("b", host("2")), ("d", host("3"))]);
        let new = routing(&[("a", host("1")), ("b", host("9")), ("c", host("4")), ("e", host("5"))]);
        let head = new.since(&base, "x");
        assert_eq!(head.vhosts.keys().collect::<Vec<_>>(), ["b", "c", "e"]);
        assert_eq!((head.base.as_deref(), head.removed.as_slice()), (Some("x"), &["d".to_owned()][..]));
        assert_eq!(head.over(base), new);
        assert!(new.since(&new, "x").vhosts.is_empty());
    }

    #[test]
    fn hosts_that_share_routes_come_together() {
        let base = routing(&[("a", host("1")), ("b", same_as("a")), ("c", host("2"))]);
        let changed = routing(&[("a", host("9")), ("b", same_as("a")), ("c", host("2"))]);
        assert_eq!(changed.since(&base, "x").vhosts.keys().collect::<Vec<_>>(), ["a", "b"]);
        let more = routing(&[("a", host("1")), ("b", same_as("a")), ("c", host("2")), ("d", same_as("a"))]);
        assert_eq!(more.since(&base, "x").vhosts.keys().collect::<Vec<_>>(), ["a", "d"]);
    }

    #[test]
    fn wildcards_and_listeners_are_not_near() {
        let base = routing(&[("a", host("1")), ("*.b", host("2"))]);
        assert!(routing(&[("*.b", host("2"))]).is_near(&base));
        assert!(!routing(&[("a", host("1"))]).is_near(&base));
        assert!(!routing(&[("a", host("1")), ("*.b", host("2")), ("*", host("3"))]).is_near(&base));
        let default = Some(crate::routing::Route::default());
        assert!(!Routing { default, ..base.clone() }.is_near(&base));
    }
}
