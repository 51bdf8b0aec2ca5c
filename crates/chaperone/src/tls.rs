//! The configuration of the front: the HTTPS, TLS, TCP and UDP listeners of routing.json, the plain HTTP ones where the front carries
//! HTTP, the certificates that they name, and how backends are verified.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use certificate::{Authorities, Pair, Pem};
use model::ghost::Group;
use model::host::HostPattern;
use model::names::{ANY_HOST, socket_parts};
use model::notice::{Notice, Severity};
use model::routing::Routing;
use model::{Listener, ListenerTls, SubjectAltName, TlsHost};
use resolve::{TlsGroups, tls_key};

use crate::{limits, streams};

/// Pairs by the name of their Secret, in their last good version: if a Secret becomes invalid, the previous pair stays in use.
#[derive(Debug, Default)]
pub struct Pairs(BTreeMap<String, Arc<Pair>>);

/// The result of routing.json and certificates.
#[derive(Debug)]
pub struct Tls {
    pub front: front::Config,
    pub backends: front::Profiles,
    pub notices: Vec<Notice>,
}

impl Pairs {
    /// The configuration for these listeners with these certificates, by `namespace/name`; all sockets on the address
    /// `bind`, if it is given. Of a name that is in `certificates` and broken, or not in it, the last good pair counts, as
    /// long as a listener names it.
    pub fn tls(
        &mut self,
        routing: &Routing,
        certificates: &BTreeMap<String, Pem>,
        groups: &TlsGroups,
        bind: Option<IpAddr>,
    ) -> Tls {
        let mut notices = Vec::new();
        self.take(routing, certificates, &mut notices);
        let backends = self.profiles(routing, &mut notices);
        let mut front = self.front_config(routing, bind, &mut notices);
        self.add_tls_listeners(&mut front, routing, groups, &backends, bind, &mut notices);
        add_http_listeners(&mut front, routing, bind);
        streams::add(&mut front, routing, groups, bind, &mut notices);
        // Where client certificates cannot be checked, there is no HTTPS: no client gets in unchecked. TLSRoutes do not check any.
        for (port, validation) in &routing.client_validation {
            match client_validation(routing, validation) {
                Ok(validation) => drop(front.client_validation.insert(*port, validation)),
                Err(why) => {
                    if close_https(&mut front, *port) {
                        notices.push(warning(
                            format!("port {port}"),
                            format!("has no HTTPS, since certificates of clients cannot be checked: {why}"),
                        ));
                    }
                }
            }
        }
        front.listeners.retain(|listener| listener.hosts.iter().any(is_served));
        front.limits = limits::limits(routing);
        front.proxy_protocol = limits::proxy_protocol(routing, &mut notices);
        Tls { front, backends, notices }
    }

    /// Names of TLS listeners lead to the endpoints of their routes; names that no route takes are refused.
    fn add_tls_listeners(
        &self,
        config: &mut front::Config,
        routing: &Routing,
        groups: &TlsGroups,
        profiles: &front::Profiles,
        bind: Option<IpAddr>,
        notices: &mut Vec<Notice>,
    ) {
        for listener in &routing.tls_listeners {
            let Some((_, port)) = socket_parts(&listener.socket) else { continue };
            let pairs =
                listener.tls.as_ref().map(|tls| self.pairs_of(&listener.name, &tls.certificates, notices));
            let options = listener.tls.as_ref().map(|tls| tls.options.clone()).unwrap_or_default();
            let mut hosts = Vec::new();
            let own = listener.hostname.as_deref();
            // The most specific listener of the port takes a name, even if another listener has a route for it.
            let is_ours = |host: &&TlsHost| {
                !names_of(routing, port).any(|other| goes_before(other, own, &host.hostname))
            };
            for host in listener.hosts.iter().filter(is_ours) {
                let groups =
                    groups.get(&tls_key(&listener.name, &host.hostname)).map_or(&[][..], Vec::as_slice);
                let backends = Arc::new(tls_backends(groups, profiles));
                let action = match &pairs {
                    Some(pairs) => front::Action::Forward { certificates: pairs.clone(), backends },
                    None => front::Action::Passthrough { backends },
                };
                let hostname = Some(host.hostname.clone()).filter(|name| name != ANY_HOST);
                hosts.push(front::Host { action, options: options.clone(), ..front::Host::refuse(hostname) });
            }
            if hosts.iter().all(|host| host.hostname != listener.hostname) {
                let waits = pairs.as_ref().is_some_and(Vec::is_empty);
                let action = match pairs {
                    Some(certificates) if waits => front::Action::Terminate { certificates },
                    _ => front::Action::Refuse,
                };
                hosts.push(front::Host { action, ..front::Host::refuse(listener.hostname.clone()) });
            }
            match config.listeners.iter_mut().find(|known| known.port == port) {
                Some(known) => known.hosts.extend(hosts),
                None => {
                    let socket = listener.socket.clone();
                    config.listeners.push(front::Listener { socket, address: bind, port, hosts });
                }
            }
        }
    }

    fn pairs_of(&self, listener: &str, names: &[String], notices: &mut Vec<Notice>) -> Vec<Arc<Pair>> {
        let pairs: Vec<_> = names.iter().filter_map(|name| self.0.get(name).cloned()).collect();
        if pairs.is_empty() {
            notices.extend(without_pair(listener, None, names));
        }
        pairs
    }

    fn front_config(
        &self,
        routing: &Routing,
        bind: Option<IpAddr>,
        notices: &mut Vec<Notice>,
    ) -> front::Config {
        let mut config = front::Config::default();
        for (listener, tls) in tls_listeners(routing) {
            let Some((_, port)) = socket_parts(&listener.socket) else { continue };
            let of_listener = std::iter::once((listener.hostname.as_ref(), &tls.certificates));
            // One that has certificates for single names only takes no others.
            let of_listener = of_listener
                .filter(|(hostname, names)| hostname.is_some() || !names.is_empty() || tls.hosts.is_empty());
            let of_listener = of_listener.map(|(hostname, names)| (hostname, names, false));
            let of_hosts = tls.hosts.iter().map(|(host, names)| (Some(host), names, true));
            let mut hosts = Vec::with_capacity(1 + tls.hosts.len());
            for (hostname, names, one_label) in of_listener.chain(of_hosts) {
                let pairs: Vec<_> = names.iter().filter_map(|name| self.0.get(name).cloned()).collect();
                if pairs.is_empty() {
                    let host = hostname.filter(|name| Some(*name) != listener.hostname.as_ref());
                    notices.extend(without_pair(&listener.name, host, names));
                }
                // Without pairs, too: its names are then refused, and not another listener's to take.
                let options = tls.options.clone();
                hosts.push(front::Host {
                    one_label,
                    options,
                    ..front::Host::terminate(hostname.cloned(), pairs)
                });
            }
            match config.listeners.iter_mut().find(|known| known.port == port) {
                Some(known) => known.hosts.extend(hosts),
                None => config.listeners.push(front::Listener {
                    socket: listener.socket.clone(),
                    address: bind,
                    port,
                    hosts,
                }),
            }
        }
        config
    }

    /// A profile without any CA that can be read is left out: the front then refuses its backends.
    fn profiles(&self, routing: &Routing, notices: &mut Vec<Notice>) -> front::Profiles {
        let timeouts = routing.timeouts.unwrap_or_default();
        let connect_timeout = Duration::from_secs_f64(timeouts.connect_seconds.clamp(0.001, 3600.0));
        let mut profiles = front::Profiles::new();
        for (name, tls) in &routing.backend_tls {
            let trust = if tls.system { Ok(front::Trust::System) } else { trust(routing, &tls.authorities) };
            let trust = match trust {
                Ok(trust) => trust,
                Err(why) => {
                    notices.push(warning(
                        format!("backend_tls {name}"),
                        format!("cannot be used, so its backends get no requests: {why}"),
                    ));
                    continue;
                }
            };
            let names = tls.names.iter().map(|name| match name {
                SubjectAltName::Dns(name) => front::BackendName::Dns(name.clone()),
                SubjectAltName::Uri(uri) => front::BackendName::Uri(uri.clone()),
            });
            let client = tls.client_certificate.as_ref().and_then(|name| self.0.get(name).cloned());
            profiles.insert(
                name.clone(),
                front::BackendTls {
                    hostname: tls.hostname.clone(),
                    names: names.collect(),
                    trust,
                    client,
                    alpn: true,
                    connect_timeout,
                    options: tls.options.clone(),
                },
            );
        }
        profiles
    }

    /// Replaces pairs by new ones that are good, and forgets pairs that no listener names.
    fn take(&mut self, routing: &Routing, certificates: &BTreeMap<String, Pem>, notices: &mut Vec<Notice>) {
        let mut kept = BTreeMap::new();
        for name in routing.certificate_names() {
            if kept.contains_key(name) {
                continue;
            }
            let old = self.0.get(name);
            let new = match certificates.get(name) {
                // Reading a key is expensive, and most have not changed.
                Some(pem) if old.is_some_and(|old| old.pem() == pem) => None,
                Some(pem) => Pair::new(pem)
                    .map_err(|e| {
                        let stays = if old.is_some() { "; the last good pair stays in use" } else { "" };
                        notices.push(warning(
                            format!("Secret {name}"),
                            format!("holds no usable pair: {e}{stays}"),
                        ));
                    })
                    .ok(),
                None => {
                    if old.is_some() {
                        let message = "holds no good pair any more; the last good one stays in use";
                        notices.push(warning(format!("Secret {name}"), message.to_owned()));
                    }
                    None
                }
            };
            if let Some(pair) = new.map(Arc::new).or_else(|| old.cloned()) {
                kept.insert(name.clone(), pair);
            }
        }
        self.0 = kept;
    }
}

fn tls_listeners(routing: &Routing) -> impl Iterator<Item = (&Listener, &ListenerTls)> {
    routing.listeners.iter().filter_map(|listener| Some((listener, listener.tls.as_ref()?)))
}

/// The ports of plain HTTP listeners, where they are the front's. Listeners of one port share its socket.
fn add_http_listeners(config: &mut front::Config, routing: &Routing, bind: Option<IpAddr>) {
    config.http = routing.http_in_front;
    config.through_varnishd = routing.through_varnishd;
    config.hot_objects_off = routing.hot_objects_off;
    for socket in routing.http_sockets().filter(|_| routing.http_in_front) {
        let Some((_, port)) = socket_parts(socket) else { continue };
        if config.listeners.iter().all(|known| known.port != port) {
            let hosts = vec![front::Host::http()];
            config.listeners.push(front::Listener { socket: socket.to_owned(), address: bind, port, hosts });
        }
    }
}

/// All bundles of a profile as one.
fn trust(routing: &Routing, names: &[String]) -> Result<front::Trust, String> {
    authorities(routing, names).map(front::Trust::Authorities)
}

fn authorities(routing: &Routing, names: &[String]) -> Result<Arc<Authorities>, String> {
    let mut pem = String::new();
    for name in names {
        let bundle = routing.authorities.get(name).ok_or_else(|| format!("authorities lacks {name}"))?;
        pem.push_str(bundle);
        pem.push('\n');
    }
    Authorities::new(pem.as_bytes()).map(Arc::new).map_err(|e| e.to_string())
}

/// Hostnames of all listeners of the front's port.
fn names_of(routing: &Routing, port: u16) -> impl Iterator<Item = Option<&str>> {
    let https = routing.listeners.iter().filter(|listener| listener.tls.is_some());
    let https = https.map(|listener| (&listener.socket, listener.hostname.as_deref()));
    let tls = routing.tls_listeners.iter().map(|listener| (&listener.socket, listener.hostname.as_deref()));
    https
        .chain(tls)
        .filter(move |(socket, _)| socket_parts(socket).is_some_and(|(_, of)| of == port))
        .map(|(_, name)| name)
}

/// Does another listener, and not our own, take this host?
fn goes_before(other: Option<&str>, own: Option<&str>, host: &str) -> bool {
    let (other, own) = (HostPattern::of_optional(other), HostPattern::of_optional(own));
    other.contains(HostPattern::new(host)) && other.closeness() > own.closeness()
}

/// Its names are refused, and not another listener's to take. Was there any that is served?
fn close_https(config: &mut front::Config, port: u16) -> bool {
    let of_port = config.listeners.iter_mut().filter(|listener| listener.port == port);
    let mut served = false;
    for host in of_port.flat_map(|listener| &mut listener.hosts) {
        if let front::Action::Terminate { certificates } = &mut host.action {
            served |= !std::mem::take(certificates).is_empty();
        }
    }
    served
}

fn is_served(host: &front::Host) -> bool {
    match &host.action {
        front::Action::Terminate { certificates } | front::Action::Forward { certificates, .. } => {
            !certificates.is_empty()
        }
        front::Action::Passthrough { .. }
        | front::Action::Http
        | front::Action::Relay(_)
        | front::Action::Refuse => true,
    }
}

/// A group whose profile cannot be used has no endpoints: never plain text.
fn tls_backends(groups: &[Group], profiles: &front::Profiles) -> front::Backends {
    let group = |group: &Group| {
        let tls = group.tls.as_ref().map(|name| profiles.get(name).cloned().map(Arc::new));
        let endpoints = match tls {
            Some(None) => Vec::new(),
            _ => group.endpoints.iter().map(|one| SocketAddr::new(one.address, one.port)).collect(),
        };
        let name = group.name.clone().unwrap_or_default();
        front::BackendGroup {
            name,
            weight: group.weight,
            endpoints,
            tls: tls.flatten(),
            ..Default::default()
        }
    };
    front::Backends { groups: groups.iter().map(group).collect() }
}

fn client_validation(
    routing: &Routing,
    validation: &model::ClientValidation,
) -> Result<front::ClientValidation, String> {
    if validation.authorities.is_empty() {
        return Err("there is no CA certificate; the Gateway's status says why".to_owned());
    }
    let authorities = authorities(routing, &validation.authorities)?;
    let mode = if validation.insecure_fallback {
        front::ClientMode::InsecureFallback
    } else {
        front::ClientMode::ValidOnly
    };
    Ok(front::ClientValidation { authorities, mode })
}

/// Where no Secret is named, the listener's status says what is missing.
fn without_pair(listener: &str, host: Option<&String>, names: &[String]) -> Option<Notice> {
    if names.is_empty() {
        return None;
    }
    let host = host.map(|name| format!(", host {name},")).unwrap_or_default();
    Some(warning(
        format!("listener {listener}{host}"),
        format!(
            "is not served, because it has no valid certificate: put a certificate and its key into Secret {}",
            names.join(" or ")
        ),
    ))
}

fn warning(object: String, message: String) -> Notice {
    Notice { object, severity: Severity::Warning, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem() -> Pem {
        let made = rcgen::generate_simple_self_signed(vec!["shop.example.com".to_owned()]).unwrap();
        Pem { chain: made.cert.pem().into_bytes(), key: made.signing_key.serialize_pem().into_bytes() }
    }

    fn listener(name: &str, port: u16, hostname: Option<&str>, certificates: &[&str]) -> Listener {
        Listener {
            name: name.to_owned(),
            socket: format!("https-{port}"),
            hostname: hostname.map(str::to_owned),
            tls: Some(ListenerTls {
                certificates: certificates.iter().map(|c| (*c).to_owned()).collect(),
                ..ListenerTls::default()
            }),
        }
    }

    fn routing(listeners: Vec<Listener>) -> Routing {
        Routing { listeners, ..Routing::default() }
    }

    fn front_config(
        pairs: &mut Pairs,
        routing: &Routing,
        certificates: &BTreeMap<String, Pem>,
        bind: Option<IpAddr>,
    ) -> (front::Config, Vec<Notice>) {
        let Tls { front, notices, .. } = pairs.tls(routing, certificates, &TlsGroups::new(), bind);
        (front, notices)
    }

    fn texts(notices: &[Notice]) -> Vec<String> {
        notices.iter().map(ToString::to_string).collect()
    }

    fn pairs_of(host: &front::Host) -> usize {
        match &host.action {
            front::Action::Terminate { certificates } => certificates.len(),
            _ => 0,
        }
    }

    #[test]
    fn listeners_of_one_port_share_a_socket() {
        let http = Listener { name: "http".into(), socket: "http-80".into(), hostname: None, tls: None };
        let routing = routing(vec![
            http,
            listener("a", 443, Some("a.example.com"), &["d/a"]),
            listener("any", 443, None, &["d/a", "d/b"]),
            listener("b", 8443, None, &["d/b"]),
        ]);
        let certificates = BTreeMap::from([("d/a".to_owned(), pem()), ("d/b".to_owned(), pem())]);
        let bind = Some(IpAddr::from([127, 0, 0, 1]));
        let (config, notices) = front_config(&mut Pairs::default(), &routing, &certificates, bind);
        assert_eq!(texts(&notices), [""; 0]);
        let sockets: Vec<_> =
            config.listeners.iter().map(|l| (l.socket.as_str(), l.port, l.address)).collect();
        assert_eq!(sockets, [("https-443", 443, bind), ("https-8443", 8443, bind)]);
        let hosts: Vec<_> =
            config.listeners[0].hosts.iter().map(|host| (host.hostname.as_deref(), pairs_of(host))).collect();
        assert_eq!(hosts, [(Some("a.example.com"), 1), (None, 2)]);
    }

    #[test]
    fn plain_http_ports_are_the_fronts_where_it_carries_http() {
        let http = |name: &str, port: u16, hostname: Option<&str>| Listener {
            socket: format!("http-{port}"),
            tls: None,
            ..listener(name, port, hostname, &[])
        };
        let listeners = vec![
            http("http", 80, None),
            listener("https", 443, None, &["d/a"]),
            http("admin", 80, Some("admin.example.com")),
            http("other", 8080, None),
        ];
        let certificates = BTreeMap::from([("d/a".to_owned(), pem())]);
        let bind = Some(IpAddr::from([127, 0, 0, 1]));
        let of = |http_in_front| {
            let routing = Routing { http_in_front, ..routing(listeners.clone()) };
            let (config, notices) = front_config(&mut Pairs::default(), &routing, &certificates, bind);
            assert_eq!(texts(&notices), [""; 0]);
            config
        };
        let config = of(true);
        assert!(config.http);
        let socket = |socket: &str, port, hosts| front::Listener {
            socket: socket.to_owned(),
            address: bind,
            port,
            hosts,
        };
        let plain = |name, port| socket(name, port, vec![front::Host::http()]);
        assert_eq!(config.listeners[1..], [plain("http-80", 80), plain("http-8080", 8080)]);
        assert_eq!(config.listeners[0].socket, "https-443");
        let config = of(false);
        assert!(!config.http);
        assert_eq!(config.listeners.len(), 1);
    }

    #[test]
    fn a_pair_that_breaks_leaves_the_last_good_one_in_use() {
        let routing = routing(vec![listener("a", 443, None, &["d/a"])]);
        let (one, two) = (pem(), pem());
        let with = |pem: &Pem| BTreeMap::from([("d/a".to_owned(), pem.clone())]);
        let broken = Pem { key: two.key.clone(), ..one.clone() };
        let mut pairs = Pairs::default();
        let (good, _) = front_config(&mut pairs, &routing, &with(&one), None);
        for certificates in [with(&broken), BTreeMap::new()] {
            let (config, notices) = front_config(&mut pairs, &routing, &certificates, None);
            assert_eq!(config, good);
            assert!(texts(&notices)[0].ends_with("stays in use"), "{notices:?}");
        }
        let (config, notices) = front_config(&mut pairs, &routing, &with(&two), None);
        assert_ne!(config, good);
        assert_eq!(texts(&notices), [""; 0]);
    }

    #[test]
    fn a_listener_without_a_pair_has_no_socket() {
        let routing = routing(vec![listener("a", 443, None, &["d/a"])]);
        let mut pairs = Pairs::default();
        let (config, notices) = front_config(&mut pairs, &routing, &BTreeMap::new(), None);
        assert_eq!(config.listeners, []);
        assert_eq!(
            texts(&notices),
            [
                "listener a is not served, because it has no valid certificate: put a certificate and its key into Secret d/a"
            ]
        );
    }

    #[test]
    fn names_of_a_listener_without_a_pair_are_not_another_ones() {
        let routing = routing(vec![
            listener("any", 443, None, &["d/a"]),
            listener("b", 443, Some("b.example.com"), &["d/b"]),
        ]);
        let certificates = BTreeMap::from([("d/a".to_owned(), pem())]);
        let (config, notices) = front_config(&mut Pairs::default(), &routing, &certificates, None);
        assert_eq!(config.listeners[0].hosts.iter().map(pairs_of).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(notices.len(), 1);
    }

    #[test]
    fn without_a_ca_for_clients_there_is_no_https_and_tls_routes_stay() {
        let hosts = vec![TlsHost { hostname: "db.example.com".to_owned(), ..TlsHost::default() }];
        let hostname = Some("db.example.com".to_owned());
        let (name, socket) = ("pass".to_owned(), "tls-443".to_owned());
        let tls = model::TlsListener { name, socket, hostname, hosts, ..Default::default() };
        let certificates = BTreeMap::from([("d/a".to_owned(), pem())]);
        let bad = model::ClientValidation::default();
        let mut routing = Routing {
            client_validation: BTreeMap::from([(443, bad.clone()), (8443, bad)]),
            tls_listeners: vec![tls],
            ..routing(vec![listener("a", 443, None, &["d/a"]), listener("b", 8443, None, &["d/a"])])
        };
        let (config, notices) = front_config(&mut Pairs::default(), &routing, &certificates, None);
        let [open] = config.listeners.as_slice() else { panic!("{config:?}") };
        assert_eq!((open.port, pairs_of(&open.hosts[0])), (443, 0));
        assert!(matches!(open.hosts[1].action, front::Action::Passthrough { .. }));
        assert_eq!(config.client_validation.len(), 0);
        assert_eq!(
            texts(&notices),
            [443, 8443].map(|port| format!(
                "port {port} has no HTTPS, since certificates of clients cannot be checked: there is no CA certificate; \
                 the Gateway's status says why"
            ))
        );
        // Listeners that are refused are not in the file: nothing more is closed.
        routing.listeners.clear();
        let (config, notices) = front_config(&mut Pairs::default(), &routing, &certificates, None);
        assert_eq!((config.listeners.len(), texts(&notices)), (1, vec![]));
    }

    #[test]
    fn a_secret_that_no_listener_names_is_forgotten() {
        let mut pairs = Pairs::default();
        let named = routing(vec![listener("a", 443, None, &["d/a"])]);
        let _ = front_config(&mut pairs, &named, &BTreeMap::from([("d/a".to_owned(), pem())]), None);
        let _ = front_config(&mut pairs, &routing(vec![]), &BTreeMap::new(), None);
        assert_eq!(front_config(&mut pairs, &named, &BTreeMap::new(), None).0.listeners, []);
    }
}
