//! The TCP and UDP listeners of routing.json, as configuration of the front.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use model::ghost::Group;
use model::names::socket_parts;
use model::notice::{Notice, Severity};
use model::routing::Routing;
use model::{StreamListener, TlsBackend};
use resolve::TlsGroups;

/// Adds them to the configuration, after all others: a port that HTTP or TLS has is theirs.
pub(crate) fn add(
    config: &mut front::Config,
    routing: &Routing,
    groups: &TlsGroups,
    bind: Option<IpAddr>,
    notices: &mut Vec<Notice>,
) {
    for listener in &routing.stream_listeners {
        let (stream, socket) = (stream(listener, groups), listener.socket.clone());
        let is_free = match socket_parts(&socket) {
            Some(("udp", port)) => {
                let is_free = config.datagrams.iter().all(|known| known.port != port);
                let listener = front::UdpListener { socket, address: bind, port, stream, drains: false };
                config.datagrams.extend(is_free.then_some(listener));
                is_free
            }
            Some((_, port)) => {
                let of_varnishd = !routing.http_in_front
                    && routing
                        .http_sockets()
                        .any(|socket| socket_parts(socket).is_some_and(|(_, of)| of == port));
                let is_free = !of_varnishd && config.listeners.iter().all(|known| known.port != port);
                let hosts = vec![front::Host::relay(stream)];
                let listener = front::Listener { socket, address: bind, port, hosts };
                config.listeners.extend(is_free.then_some(listener));
                is_free
            }
            None => false,
        };
        if !is_free {
            notices.push(Notice {
                object: format!("listener {}", listener.name),
                severity: Severity::Warning,
                message: format!(
                    "is not served, since another listener has the socket {}: give it another port",
                    listener.socket
                ),
            });
        }
    }
}

fn stream(listener: &StreamListener, groups: &TlsGroups) -> front::Stream {
    let groups = groups.get(&listener.socket).map_or(&[][..], Vec::as_slice);
    let groups = groups.iter().zip(&listener.backends).map(|(group, backend)| backend_group(group, backend));
    let backends = Arc::new(front::Backends { groups: groups.collect() });
    front::Stream { route: listener.route_name.clone(), backends }
}

fn backend_group(group: &Group, backend: &TlsBackend) -> front::BackendGroup {
    front::BackendGroup {
        name: group.name.clone().unwrap_or_default(),
        weight: group.weight,
        endpoints: group.endpoints.iter().map(|one| SocketAddr::new(one.address, one.port)).collect(),
        tls: None,
        proxy_protocol: backend.proxy_protocol,
    }
}

#[cfg(test)]
mod tests {
    use model::ghost::Endpoint;

    use super::*;

    fn listener(socket: &str, proxy_protocol: bool) -> StreamListener {
        StreamListener {
            name: socket.to_owned(),
            socket: socket.to_owned(),
            route_name: "d/r".to_owned(),
            backends: vec![TlsBackend { weight: 2, proxy_protocol, ..TlsBackend::default() }],
        }
    }

    fn added(routing: &Routing) -> (front::Config, Vec<Notice>) {
        let group = Group {
            weight: 2,
            endpoints: vec![Endpoint { address: [10, 0, 0, 1].into(), port: 5 }],
            name: Some("d/s".to_owned()),
            ..Group::default()
        };
        let sockets = routing.stream_listeners.iter().map(|one| (one.socket.clone(), vec![group.clone()]));
        let (mut config, mut notices) = (front::Config::default(), Vec::new());
        add(&mut config, routing, &sockets.collect(), None, &mut notices);
        (config, notices)
    }

    #[test]
    fn tcp_and_udp_may_have_the_same_port_and_each_knows_its_endpoints() {
        let stream_listeners = vec![listener("tcp-53", true), listener("udp-53", false)];
        let (config, notices) = added(&Routing { stream_listeners, ..Routing::default() });
        assert_eq!(notices, []);
        let [tcp] = config.listeners.as_slice() else { panic!("{config:?}") };
        let [udp] = config.datagrams.as_slice() else { panic!("{config:?}") };
        assert_eq!((tcp.port, tcp.socket.as_str()), (53, "tcp-53"));
        assert_eq!((udp.port, udp.socket.as_str(), udp.drains), (53, "udp-53", false));
        let front::Action::Relay(stream) = &tcp.hosts[0].action else { panic!("{tcp:?}") };
        assert!(stream.backends.groups[0].proxy_protocol && !udp.stream.backends.groups[0].proxy_protocol);
        let [group] = udp.stream.backends.groups.as_slice() else { panic!("{udp:?}") };
        assert_eq!((udp.stream.route.as_str(), group.weight, group.name.as_str()), ("d/r", 2, "d/s"));
        assert_eq!(group.endpoints, ["10.0.0.1:5".parse().unwrap()]);
    }

    #[test]
    fn a_port_that_another_listener_has_stays_its_own() {
        let http =
            model::Listener { name: "http".into(), socket: "http-80".into(), hostname: None, tls: None };
        let stream_listeners = vec![listener("tcp-80", false), listener("udp-80", false)];
        let routing = Routing { listeners: vec![http], stream_listeners, ..Routing::default() };
        let (config, notices) = added(&routing);
        assert_eq!((config.listeners.len(), config.datagrams.len(), notices.len()), (0, 1, 1));
        assert!(notices[0].to_string().contains("tcp-80"), "{notices:?}");
    }
}
