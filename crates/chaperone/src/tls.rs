//! What the front is to serve: the HTTPS listeners of routing.json, and the certificates that they name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use certificate::{Pair, Pem};
use model::names::socket_parts;
use model::routing::Routing;
use model::{Listener, ListenerTls};
use translate::{Notice, Severity};

/// Pairs by the name of their Secret, as they last were good: one that breaks leaves its forerunner in use.
#[derive(Debug, Default)]
pub struct Pairs(BTreeMap<String, Arc<Pair>>);

impl Pairs {
    /// The configuration for these listeners with these certificates, by `namespace/name`; all sockets on the address
    /// `bind`, if it is given. Of a name that is in `certificates` and broken, or not in it, the last good pair counts, as
    /// long as a listener names it.
    pub fn front_config(
        &mut self,
        routing: &Routing,
        certificates: &BTreeMap<String, Pem>,
        bind: Option<IpAddr>,
    ) -> (front::Config, Vec<Notice>) {
        let mut notices = Vec::new();
        self.take(routing, certificates, &mut notices);
        let mut config = front::Config::default();
        for (listener, tls) in tls_listeners(routing) {
            let Some((_, port)) = socket_parts(&listener.socket) else { continue };
            let of_listener = std::iter::once((listener.hostname.as_ref(), &tls.certificates));
            // One that has certificates for single names only takes no others.
            let of_listener = of_listener.filter(|(_, names)| !names.is_empty() || tls.hosts.is_empty());
            let of_hosts = tls.hosts.iter().map(|(host, names)| (Some(host), names));
            let mut hosts = Vec::with_capacity(1 + tls.hosts.len());
            for (hostname, names) in of_listener.chain(of_hosts) {
                let pairs: Vec<_> = names.iter().filter_map(|name| self.0.get(name).cloned()).collect();
                if pairs.is_empty() {
                    let host = hostname.filter(|name| Some(*name) != listener.hostname.as_ref());
                    let host = host.map(|name| format!(", host {name},")).unwrap_or_default();
                    notices.push(warning(
                        format!("listener {}", listener.name),
                        format!(
                            "{host} is not served, for want of a certificate: put a good pair into Secret {}",
                            names.join(" or ")
                        )
                        .trim_start()
                        .to_owned(),
                    ));
                }
                // Without pairs, too: its names are then refused, and not another listener's to take.
                hosts.push(front::Host::terminate(hostname.cloned(), pairs));
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
        config.listeners.retain(|listener| listener.hosts.iter().any(has_pairs));
        (config, notices)
    }

    /// The new for the old, where it is good. What no listener names is forgotten.
    fn take(&mut self, routing: &Routing, certificates: &BTreeMap<String, Pem>, notices: &mut Vec<Notice>) {
        let mut kept = BTreeMap::new();
        for name in tls_listeners(routing).flat_map(|(_, tls)| tls.names()) {
            if kept.contains_key(name) {
                continue;
            }
            let old = self.0.get(name);
            let new = match certificates.get(name) {
                // Reading a key costs, and most have not changed.
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

fn has_pairs(host: &front::Host) -> bool {
    matches!(&host.action, front::Action::Terminate { certificates } if !certificates.is_empty())
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
        let (config, notices) = Pairs::default().front_config(&routing, &certificates, bind);
        assert_eq!(texts(&notices), [""; 0]);
        let sockets: Vec<_> =
            config.listeners.iter().map(|l| (l.socket.as_str(), l.port, l.address)).collect();
        assert_eq!(sockets, [("https-443", 443, bind), ("https-8443", 8443, bind)]);
        let hosts: Vec<_> =
            config.listeners[0].hosts.iter().map(|host| (host.hostname.as_deref(), pairs_of(host))).collect();
        assert_eq!(hosts, [(Some("a.example.com"), 1), (None, 2)]);
    }

    #[test]
    fn a_pair_that_breaks_leaves_the_last_good_one_in_use() {
        let routing = routing(vec![listener("a", 443, None, &["d/a"])]);
        let (one, two) = (pem(), pem());
        let with = |pem: &Pem| BTreeMap::from([("d/a".to_owned(), pem.clone())]);
        let broken = Pem { key: two.key.clone(), ..one.clone() };
        let mut pairs = Pairs::default();
        let (good, _) = pairs.front_config(&routing, &with(&one), None);
        for certificates in [with(&broken), BTreeMap::new()] {
            let (config, notices) = pairs.front_config(&routing, &certificates, None);
            assert_eq!(config, good);
            assert!(texts(&notices)[0].ends_with("stays in use"), "{notices:?}");
        }
        let (config, notices) = pairs.front_config(&routing, &with(&two), None);
        assert_ne!(config, good);
        assert_eq!(texts(&notices), [""; 0]);
    }

    #[test]
    fn a_listener_without_a_pair_has_no_socket() {
        let routing = routing(vec![listener("a", 443, None, &["d/a"])]);
        let mut pairs = Pairs::default();
        let (config, notices) = pairs.front_config(&routing, &BTreeMap::new(), None);
        assert_eq!(config.listeners, []);
        assert_eq!(
            texts(&notices),
            ["listener a is not served, for want of a certificate: put a good pair into Secret d/a"]
        );
    }

    #[test]
    fn names_of_a_listener_without_a_pair_are_not_another_ones() {
        let routing = routing(vec![
            listener("any", 443, None, &["d/a"]),
            listener("b", 443, Some("b.example.com"), &["d/b"]),
        ]);
        let certificates = BTreeMap::from([("d/a".to_owned(), pem())]);
        let (config, notices) = Pairs::default().front_config(&routing, &certificates, None);
        assert_eq!(config.listeners[0].hosts.iter().map(pairs_of).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(notices.len(), 1);
    }

    #[test]
    fn a_secret_that_no_listener_names_is_forgotten() {
        let mut pairs = Pairs::default();
        let named = routing(vec![listener("a", 443, None, &["d/a"])]);
        let _ = pairs.front_config(&named, &BTreeMap::from([("d/a".to_owned(), pem())]), None);
        let _ = pairs.front_config(&routing(vec![]), &BTreeMap::new(), None);
        assert_eq!(pairs.front_config(&named, &BTreeMap::new(), None).0.listeners, []);
    }
}
