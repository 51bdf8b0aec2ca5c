//! What two routing.json differ in, host by host: a large one is written once, and then only what has changed since.

use std::collections::{BTreeMap, BTreeSet};

use crate::routing::{Routing, Vhost};
use crate::{Listener, ListenerTls, SharedMap, TlsHost, TlsListener};

impl Routing {
    /// This one by what differs from `base`, whose name is `name`. Its readers need no host of the base to know the
    /// hosts that stand here: those that share routes come together, but for wildcards, whose routes they get as their own.
    pub fn since(&self, base: &Self, name: &str) -> Self {
        let (mut vhosts, mut removed) = (SharedMap::new(), Vec::new());
        for (name, _, new) in base.vhosts.differences(&self.vhosts, Vhost::eq) {
            match new {
                Some(host) => drop(vhosts.insert(name.clone(), host.clone())),
                None => removed.push(name.clone()),
            }
        }
        let shares = |host: &Vhost| host.same_as.as_ref().is_some_and(|other| vhosts.contains_key(other));
        let sharing: Vec<&String> = match vhosts.is_empty() {
            true => Vec::new(),
            false => self.vhosts.iter().filter(|(_, host)| shares(host)).map(|(name, _)| name).collect(),
        };
        let shared: BTreeSet<&String> =
            vhosts.keys().filter_map(|name| self.vhosts.get(name)?.same_as.as_ref()).collect();
        for name in sharing.into_iter().chain(shared.into_iter().filter(|name| !is_wildcard(name))) {
            if let Some(host) = self.vhosts.get(name) {
                vhosts.insert(name.clone(), host.clone());
            }
        }
        let known: BTreeSet<String> = vhosts.keys().filter(|name| is_wildcard(name)).cloned().collect();
        for host in vhosts.values_mut() {
            let of = host.same_as.as_ref().filter(|of| is_wildcard(of) && !known.contains(*of));
            if let Some(of) = of.and_then(|of| self.vhosts.get(of)) {
                (host.routes, host.same_as) = (of.routes.clone(), None);
            }
        }
        let (backend_tls, removed_backend_tls) = difference(&base.backend_tls, &self.backend_tls);
        let (authorities, removed_authorities) = difference(&base.authorities, &self.authorities);
        let listeners = self.listeners.iter().enumerate();
        let tls_listeners = self.tls_listeners.iter().enumerate();
        Self {
            base: Some(name.to_owned()),
            removed,
            vhosts,
            removed_backend_tls,
            backend_tls,
            removed_authorities,
            authorities,
            listeners: listeners.map(|(at, new)| listener_since(new, base.listeners.get(at))).collect(),
            tls_listeners: tls_listeners
                .map(|(at, new)| tls_listener_since(new, base.tls_listeners.get(at)))
                .collect(),
            ..self.settings()
        }
    }

    /// This one, which says what has changed since `base`, and its base as one.
    pub fn over(self, base: Self) -> Self {
        let settings = self.settings();
        Self {
            vhosts: hosts_over(base.vhosts, &self.removed, self.vhosts),
            backend_tls: laid_over(base.backend_tls, &self.removed_backend_tls, self.backend_tls),
            authorities: laid_over(base.authorities, &self.removed_authorities, self.authorities),
            listeners: listeners_over(self.listeners, base.listeners),
            tls_listeners: tls_listeners_over(self.tls_listeners, base.tls_listeners),
            ..settings
        }
    }

    /// The same without hosts: what the front needs to know.
    pub fn front_over(&self, base: &Self) -> Self {
        let head = Self {
            removed_backend_tls: self.removed_backend_tls.clone(),
            removed_authorities: self.removed_authorities.clone(),
            ..self.front()
        };
        head.over(base.front())
    }

    /// Can what has changed since `base` be told by exact hosts alone? Then ghost goes on with what it made of the base.
    pub fn is_near(&self, base: &Self) -> bool {
        // What is the front's and the chaperone's concern is theirs to follow. Names with certificates, and those of TLS
        // listeners on ports of HTTPS, are ghost's, too: it tells misdirected requests by them.
        let Self {
            version,
            listeners,
            timeouts,
            trusted_proxies,
            gateway_id,
            cache_status_header,
            route_metrics,
            request_log,
            trace_sampling,
            paths,
            default,
            tls_listeners: _,
            stream_listeners: _,
            client_validation: _,
            tls_limits: _,
            client_limits: _,
            proxy_protocol: _,
            external_names: _,
            backend_tls: _,
            authorities: _,
            unready_without_routes: _,
            http_in_front: _,
            through_varnishd: _,
            hot_objects_off: _,
            base: _,
            removed: _,
            removed_backend_tls: _,
            removed_authorities: _,
            vhosts: _,
        } = self;
        *version == base.version
            && *timeouts == base.timeouts
            && *trusted_proxies == base.trusted_proxies
            && *gateway_id == base.gateway_id
            && *cache_status_header == base.cache_status_header
            && *route_metrics == base.route_metrics
            && *request_log == base.request_log
            && *trace_sampling == base.trace_sampling
            && *paths == base.paths
            && *default == base.default
            && listeners.len() == base.listeners.len()
            && listeners.iter().zip(&base.listeners).all(|(new, old)| is_near(new, old))
            && self.tls_listeners_beside_https() == base.tls_listeners_beside_https()
            && wildcard_hosts(&self.vhosts).eq(wildcard_hosts(&base.vhosts))
            && self.lent().all(|name| self.vhosts.get(name) == base.vhosts.get(name))
    }

    /// Hosts whose routes are those of a wildcard, too.
    fn lent(&self) -> impl Iterator<Item = &String> {
        wildcard_hosts(&self.vhosts).filter_map(|(_, host)| host.same_as.as_ref())
    }

    /// All but what a base may hold.
    fn settings(&self) -> Self {
        Self {
            version: self.version,
            timeouts: self.timeouts,
            trusted_proxies: self.trusted_proxies.clone(),
            gateway_id: self.gateway_id.clone(),
            cache_status_header: self.cache_status_header,
            route_metrics: self.route_metrics,
            request_log: self.request_log,
            trace_sampling: self.trace_sampling,
            paths: self.paths,
            stream_listeners: self.stream_listeners.clone(),
            client_validation: self.client_validation.clone(),
            tls_limits: self.tls_limits.clone(),
            client_limits: self.client_limits.clone(),
            proxy_protocol: self.proxy_protocol.clone(),
            external_names: self.external_names.clone(),
            default: self.default.clone(),
            unready_without_routes: self.unready_without_routes,
            http_in_front: self.http_in_front,
            through_varnishd: self.through_varnishd,
            hot_objects_off: self.hot_objects_off,
            ..Self::default()
        }
    }

    /// All but hosts.
    fn front(&self) -> Self {
        Self {
            listeners: self.listeners.clone(),
            tls_listeners: self.tls_listeners.clone(),
            backend_tls: self.backend_tls.clone(),
            authorities: self.authorities.clone(),
            ..self.settings()
        }
    }
}

fn is_wildcard(host: &str) -> bool {
    host.starts_with('*')
}

fn wildcard_hosts(hosts: &SharedMap<String, Vhost>) -> impl Iterator<Item = (&String, &Vhost)> {
    hosts.starting_at("*").take_while(|(name, _)| is_wildcard(name))
}

/// Sorted, so that `*` stands before all letters.
fn wildcards<V>(hosts: &BTreeMap<String, V>) -> impl Iterator<Item = (&String, &V)> {
    hosts.range("*".to_owned()..="*~".to_owned())
}

/// A listener without the names that have certificates of their own.
pub(crate) fn bare(listener: &Listener) -> Listener {
    let tls = listener.tls.as_ref();
    Listener {
        name: listener.name.clone(),
        socket: listener.socket.clone(),
        hostname: listener.hostname.clone(),
        tls: tls.map(|tls| ListenerTls {
            certificates: tls.certificates.clone(),
            options: tls.options.clone(),
            ..ListenerTls::default()
        }),
    }
}

/// Do two listeners differ in exact names alone? Whether there are any at all must be the same.
fn is_near(new: &Listener, old: &Listener) -> bool {
    let names = match (&new.tls, &old.tls) {
        (Some(new), Some(old)) => {
            new.certificates == old.certificates
                && new.hosts.is_empty() == old.hosts.is_empty()
                && wildcards(&new.hosts).eq(wildcards(&old.hosts))
        }
        (new, old) => new.is_none() && old.is_none(),
    };
    names && is_same(new, old)
}

fn is_same(new: &Listener, old: &Listener) -> bool {
    new.name == old.name && new.socket == old.socket && new.hostname == old.hostname
}

pub(crate) fn listener_since(new: &Listener, base: Option<&Listener>) -> Listener {
    let (tls, nothing) = (new.tls.as_ref(), BTreeMap::new());
    let below = base.filter(|base| is_same(new, base)).and_then(|base| base.tls.as_ref());
    let below = below.map_or(&nothing, |tls| &tls.hosts);
    let names = tls.map(|tls| difference(below, &tls.hosts));
    let mut since = bare(new);
    if let Some((tls, names)) = since.tls.as_mut().zip(names) {
        (tls.hosts, tls.removed) = names;
    }
    since
}

/// Listeners with the names of the base's in the same place.
pub(crate) fn listeners_over(new: Vec<Listener>, base: Vec<Listener>) -> Vec<Listener> {
    let mut base = base.into_iter();
    let over = |mut new: Listener| {
        let below = base.next().filter(|base| is_same(&new, base)).and_then(|base| base.tls);
        if let Some(tls) = &mut new.tls {
            let removed = std::mem::take(&mut tls.removed);
            let below = below.map(|below| below.hosts).unwrap_or_default();
            tls.hosts = laid_over(below, &removed, std::mem::take(&mut tls.hosts));
        }
        new
    };
    new.into_iter().map(over).collect()
}

fn is_same_tls(new: &TlsListener, old: &TlsListener) -> bool {
    new.name == old.name && new.socket == old.socket && new.hostname == old.hostname
}

/// No name comes twice, so the order does not matter.
fn by_name(hosts: &[TlsHost]) -> BTreeMap<String, TlsHost> {
    hosts.iter().map(|host| (host.hostname.clone(), host.clone())).collect()
}

fn tls_listener_since(new: &TlsListener, base: Option<&TlsListener>) -> TlsListener {
    let below = base.filter(|base| is_same_tls(new, base)).map(|base| by_name(&base.hosts));
    let (hosts, removed) = difference(&below.unwrap_or_default(), &by_name(&new.hosts));
    TlsListener {
        name: new.name.clone(),
        socket: new.socket.clone(),
        hostname: new.hostname.clone(),
        tls: new.tls.clone(),
        hosts: hosts.into_values().collect(),
        removed,
    }
}

fn tls_listeners_over(new: Vec<TlsListener>, base: Vec<TlsListener>) -> Vec<TlsListener> {
    let mut base = base.into_iter();
    let over = |mut new: TlsListener| {
        let below = base.next().filter(|base| is_same_tls(&new, base));
        let below = below.map(|below| by_name(&below.hosts)).unwrap_or_default();
        let removed = std::mem::take(&mut new.removed);
        new.hosts = laid_over(below, &removed, by_name(&new.hosts)).into_values().collect();
        new
    };
    new.into_iter().map(over).collect()
}

/// What a base holds, less what is no more, and what came or changed.
pub(crate) fn laid_over<V>(
    mut base: BTreeMap<String, V>,
    removed: &[String],
    new: BTreeMap<String, V>,
) -> BTreeMap<String, V> {
    for name in removed {
        base.remove(name);
    }
    base.extend(new);
    base
}

fn hosts_over(
    mut base: SharedMap<String, Vhost>,
    removed: &[String],
    new: SharedMap<String, Vhost>,
) -> SharedMap<String, Vhost> {
    for name in removed {
        base.remove(name);
    }
    base.extend(new);
    base
}

/// What is new or other, and what is no more.
fn difference<V: Clone + PartialEq>(
    base: &BTreeMap<String, V>,
    new: &BTreeMap<String, V>,
) -> (BTreeMap<String, V>, Vec<String>) {
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

    fn with_names(names: &[&str]) -> Routing {
        let hosts = names.iter().map(|name| ((*name).to_owned(), vec!["a/pair".to_owned()])).collect();
        let tls = Some(ListenerTls { hosts, ..Default::default() });
        let (name, socket) = ("s".to_owned(), "https-443".to_owned());
        let listener = Listener { name, socket, hostname: None, tls };
        Routing { listeners: vec![listener], ..routing(&[("a", host("1"))]) }
    }

    #[test]
    fn names_with_certificates_are_told_by_what_has_changed() {
        let (base, new) = (with_names(&["a", "b"]), with_names(&["b", "c"]));
        assert!(new.is_near(&base));
        let head = new.since(&base, "x");
        let tls = head.listeners[0].tls.as_ref().unwrap();
        assert_eq!(tls.hosts.keys().collect::<Vec<_>>(), ["c"]);
        assert_eq!(tls.removed, ["a"]);
        let front = head.front_over(&base);
        assert_eq!((front.listeners.clone(), front.vhosts.len()), (new.listeners.clone(), 0));
        assert_eq!(head.over(base.clone()), new);
        assert!(new.since(&new, "x").listeners[0].tls.as_ref().unwrap().hosts.is_empty());
        // The first and the last name of a listener change how ghost sees it, and so does a wildcard.
        for other in [with_names(&[]), with_names(&["*.b", "a", "b"])] {
            assert!(!other.is_near(&base) && !base.is_near(&other));
            assert_eq!(other.since(&base, "x").over(base.clone()), other);
        }
        // Another listener in the same place has nothing of the base's.
        let mut other = new;
        other.listeners[0].name = "t".to_owned();
        assert!(!other.is_near(&base));
        assert_eq!(other.since(&base, "x").over(base.clone()), other);
    }

    #[test]
    fn what_is_the_fronts_is_told_by_what_has_changed() {
        let with = |names: &[&str]| {
            let tls = |name: &&str| TlsHost { hostname: (*name).to_owned(), ..TlsHost::default() };
            let listener = TlsListener { hosts: names.iter().map(tls).collect(), ..TlsListener::default() };
            let text = |name: &&str| ((*name).to_owned(), (*name).to_owned());
            let profile = |name: &&str| ((*name).to_owned(), crate::BackendTls::default());
            Routing {
                tls_listeners: vec![listener],
                authorities: names.iter().map(text).collect(),
                backend_tls: names.iter().map(profile).collect(),
                ..Routing::default()
            }
        };
        let (base, new) = (with(&["a", "b"]), with(&["b", "c"]));
        // Who owns the ports is the front's and the chaperone's concern, and never the base's.
        let new = Routing { http_in_front: true, ..new };
        assert!(new.is_near(&base));
        let head = new.since(&base, "x");
        assert_eq!(head.tls_listeners[0].hosts.len(), 1);
        assert_eq!(head.tls_listeners[0].removed, ["a"]);
        assert_eq!((head.authorities.len(), head.removed_authorities.len()), (1, 1));
        assert_eq!((head.backend_tls.len(), head.removed_backend_tls.len()), (1, 1));
        assert_eq!(head.front_over(&base), new);
        assert_eq!(head.over(base), new);
    }

    #[test]
    fn a_host_that_shares_a_wildcards_routes_gets_them_as_its_own() {
        let base = routing(&[("*.a", host("1")), ("b", host("2"))]);
        let new = routing(&[("*.a", host("1")), ("a", same_as("*.a")), ("b", host("2"))]);
        assert!(new.is_near(&base));
        assert_eq!(new.since(&base, "x").vhosts, routing(&[("a", host("1"))]).vhosts);
        // One whose routes a wildcard has changes the wildcard.
        let base = routing(&[("*.a", same_as("b")), ("b", host("1"))]);
        let new = routing(&[("*.a", same_as("b")), ("b", host("2"))]);
        assert!(!new.is_near(&base) && base.is_near(&base));
        assert_eq!(new.since(&base, "x").over(base), new);
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
