//! Hosts of Ingresses and listeners. An Ingress comes by all listeners of its Varnish whose hostname fits: what listeners
//! allow is said of routes, and a Varnish Service takes Ingresses of all namespaces.

use model::host::HostPattern;

/// The part of an Ingress's host that a listener takes, as a key of the host table; `None`: nothing. A wildcard of an
/// Ingress stands for one label, one of a listener for any number.
pub(super) fn takes(listener: Option<&str>, host: &str) -> Option<String> {
    let of_listener = HostPattern::of_optional(listener);
    let of_ingress = HostPattern::new(host).of_one_label();
    if of_listener.contains(of_ingress) {
        return Some(host.to_owned());
    }
    of_ingress.contains(of_listener).then(|| of_listener.to_string())
}

/// The listeners by which one host comes, as keys of the host table with names and sockets.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) host: String,
    /// Empty: all.
    pub(super) names: Vec<String>,
    pub(super) sockets: Vec<String>,
}

/// Where a host comes in.
pub(super) fn attach(listeners: &[model::Listener], host: &str) -> Vec<Attached> {
    if listeners.iter().all(|listener| listener.hostname.is_none()) {
        return vec![Attached { host: host.to_owned(), names: Vec::new(), sockets: Vec::new() }];
    }
    let mut all: Vec<Attached> = Vec::new();
    for listener in listeners {
        let Some(host) = takes(listener.hostname.as_deref(), host) else { continue };
        let at = all.iter().position(|attached| attached.host == host).unwrap_or_else(|| {
            all.push(Attached { host, names: Vec::new(), sockets: Vec::new() });
            all.len() - 1
        });
        let attached = &mut all[at];
        attached.names.push(listener.name.clone());
        if !attached.sockets.contains(&listener.socket) {
            attached.sockets.push(listener.socket.clone());
        }
    }
    for attached in &mut all {
        attached.names.sort();
        attached.sockets.sort();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_of_one_label_meets_those_of_listeners() {
        for (listener, host, expected) in [
            (None, "*.example.com", Some("*.example.com")),
            (None, "*", Some("*")),
            (Some("shop.example.com"), "*", Some("shop.example.com")),
            (Some("*.example.com"), "*.example.com", Some("*.example.com")),
            (Some("*.com"), "*.example.com", Some("*.example.com")),
            (Some("a.example.com"), "*.example.com", Some("a.example.com")),
            (Some("a.b.example.com"), "*.example.com", None),
            (Some("*.shop.example.com"), "*.example.com", None),
            (Some("*.example.com"), "a.example.com", Some("a.example.com")),
            (Some("*.example.org"), "a.example.com", None),
        ] {
            assert_eq!(takes(listener, host).as_deref(), expected, "{listener:?} and {host}");
        }
    }
}
