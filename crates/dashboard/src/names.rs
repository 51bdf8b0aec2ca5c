//! Names in TLS handshakes: what the front of one Gateway does with each, for `explain`.

use model::host::HostPattern;
use model::names::{ANY_HOST, socket_parts};
use model::routing::Routing;
use router::NormalHost;

/// One name of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub port: u16,
    /// `*.example.com`, or `*` for all.
    pub hostname: String,
    /// A wildcard stands for exactly one label.
    pub one_label: bool,
    pub goes: Goes,
}

impl Name {
    fn pattern(&self) -> HostPattern<&str> {
        let pattern = HostPattern::new(&self.hostname);
        if self.one_label { pattern.of_one_label() } else { pattern }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goes {
    /// TLS ends in the front, and HTTP goes its way.
    ToVarnish,
    /// By a TLSRoute: which, if it is known, and what becomes of the connection.
    ByTlsRoute { route: Option<String>, answer: String },
    /// No certificate, or no route: the handshake is refused.
    Nowhere,
}

/// Of a front that runs.
pub fn of_front(tls: &front::Config) -> Vec<Name> {
    // Ports of plain HTTP and TCP see no handshake.
    let has_tls = |(_, host): &(u16, &front::Host)| {
        !matches!(host.action, front::Action::Http | front::Action::Relay(_))
    };
    let all = tls.listeners.iter().flat_map(|at| at.hosts.iter().map(move |host| (at.port, host)));
    let name = |(port, host): (u16, &front::Host)| Name {
        port,
        hostname: host.hostname.clone().unwrap_or_else(|| ANY_HOST.to_owned()),
        one_label: host.one_label,
        goes: match &host.action {
            front::Action::Terminate { certificates } if certificates.is_empty() => Goes::Nowhere,
            front::Action::Terminate { .. } => Goes::ToVarnish,
            front::Action::Forward { certificates, .. } if certificates.is_empty() => Goes::Nowhere,
            front::Action::Forward { backends, .. } => by_route("decrypted, and passed on to", backends),
            front::Action::Passthrough { backends } => by_route("passed through, encrypted, to", backends),
            front::Action::Http => Goes::ToVarnish,
            front::Action::Relay(_) | front::Action::Refuse => Goes::Nowhere,
        },
    };
    all.filter(has_tls).map(name).collect()
}

fn by_route(what: &str, backends: &front::Backends) -> Goes {
    let groups = backends.groups.iter().filter(|group| group.weight > 0).map(|group| {
        let name = if group.name.is_empty() { "an invalid backendRef" } else { &group.name };
        let endpoints: Vec<_> = group.endpoints.iter().map(ToString::to_string).collect();
        match endpoints.as_slice() {
            [] => format!("{name} (no endpoints: the connection is closed)"),
            all => format!("{name} ({})", all.join(", ")),
        }
    });
    answer(what, &groups.collect::<Vec<_>>(), None)
}

/// Of a front that would have this configuration, and all its certificates.
pub fn of_routing(routing: &Routing) -> Vec<Name> {
    let mut all = Vec::new();
    let any = || ANY_HOST.to_owned();
    for listener in &routing.listeners {
        let (Some((_, port)), Some(tls)) = (socket_parts(&listener.socket), &listener.tls) else { continue };
        let goes = if tls.certificates.is_empty() { Goes::Nowhere } else { Goes::ToVarnish };
        let hostname = listener.hostname.clone().unwrap_or_else(any);
        all.push(Name { port, hostname, one_label: false, goes });
        for hostname in tls.hosts.keys() {
            all.push(Name { port, hostname: hostname.clone(), one_label: true, goes: Goes::ToVarnish });
        }
    }
    for listener in &routing.tls_listeners {
        let Some((_, port)) = socket_parts(&listener.socket) else { continue };
        let what = if listener.tls.is_some() {
            "decrypted, and passed on to"
        } else {
            "passed through, encrypted, to"
        };
        for host in &listener.hosts {
            let backends = host.backends.iter().filter(|backend| backend.weight > 0).map(|backend| {
                let part = |part: &Option<String>| part.clone().unwrap_or_default();
                match (&backend.service, backend.port) {
                    (Some(service), Some(port)) => {
                        format!("{}/{service}:{port}", part(&backend.namespace))
                    }
                    _ => "an invalid backendRef (the connection is closed)".to_owned(),
                }
            });
            let goes = answer(what, &backends.collect::<Vec<_>>(), Some(host.route_name.clone()));
            all.push(Name { port, hostname: host.hostname.clone(), one_label: false, goes });
        }
        let hostname = listener.hostname.clone().unwrap_or_else(any);
        if listener.hosts.iter().all(|host| host.hostname != hostname) {
            all.push(Name { port, hostname, one_label: false, goes: Goes::Nowhere });
        }
    }
    all
}

fn answer(what: &str, groups: &[String], route: Option<String>) -> Goes {
    let to = if groups.is_empty() {
        "no backend (the connection is closed)".to_owned()
    } else {
        groups.join(" or ")
    };
    Goes::ByTlsRoute { route, answer: format!("{what} {to}") }
}

/// What a port does with a name; `None` where it has no such name. Exact before the longest wildcard before none.
pub(crate) fn find<'a>(names: &'a [Name], port: u16, host: &str) -> Option<&'a Goes> {
    let host = NormalHost::new(host.as_bytes());
    let host = host.as_bytes();
    let here = names.iter().filter(|name| name.port == port && name.pattern().matches(host));
    here.max_by_key(|name| (name.pattern().closeness(), name.goes != Goes::Nowhere)).map(|name| &name.goes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_of_the_port_counts() {
        let name = |hostname: &str, one_label, goes| Name {
            port: 443,
            hostname: hostname.to_owned(),
            one_label,
            goes,
        };
        let passed = Goes::ByTlsRoute { route: None, answer: "passed".to_owned() };
        let names = [
            name("*.example.com", false, Goes::ToVarnish),
            name("pass.example.com", false, passed.clone()),
            name("*.one.example.org", true, Goes::ToVarnish),
            name("gone.example.com", false, Goes::Nowhere),
        ];
        for (host, expected) in [
            ("Pass.Example.com:443", Some(&passed)),
            ("a.example.com", Some(&Goes::ToVarnish)),
            ("a.b.example.com", Some(&Goes::ToVarnish)),
            ("gone.example.com", Some(&Goes::Nowhere)),
            ("example.com", None),
            ("a.one.example.org", Some(&Goes::ToVarnish)),
            ("a.b.one.example.org", None),
        ] {
            assert_eq!(find(&names, 443, host), expected, "{host}");
        }
        assert_eq!(find(&names, 444, "a.example.com"), None);
    }
}
