//! TCP and UDP listeners, for `explain`: which route each has, and the backends that it chooses from.

use std::net::SocketAddr;

use model::names::{is_udp_socket, socket_parts};
use model::routing::Routing;
use resolve::TlsGroups;

use crate::explain::{Explained, Faults};

/// Of a front that runs: what the listeners of this port do.
pub(crate) fn of_front(gateway: &str, tls: &front::Config, faults: &Faults, port: u16) -> Vec<Explained> {
    let tcp = tls.listeners.iter().flat_map(|listener| {
        listener.hosts.iter().filter_map(move |host| match &host.action {
            front::Action::Relay(stream) => Some((listener.port, &listener.socket, stream)),
            _ => None,
        })
    });
    let udp = tls.datagrams.iter().map(|listener| (listener.port, &listener.socket, &listener.stream));
    let here = tcp.chain(udp).filter(|(at, ..)| *at == port);
    here.map(|(_, socket, stream)| {
        let groups = stream.backends.groups.iter();
        let groups = groups.map(|group| (group.weight, group.name.as_str(), group.endpoints.clone()));
        explained(gateway, (socket, None), &stream.route, &groups.collect::<Vec<_>>(), faults)
    })
    .collect()
}

/// Of a front that would have this configuration.
pub fn of_routing(
    gateway: &str,
    routing: &Routing,
    groups: &TlsGroups,
    faults: &Faults,
    port: u16,
) -> Vec<Explained> {
    let is_here = |socket: &str| socket_parts(socket).is_some_and(|(_, at)| at == port);
    let here = routing.stream_listeners.iter().filter(|listener| is_here(&listener.socket));
    here.map(|listener| {
        let groups = groups.get(&listener.socket).map(Vec::as_slice).unwrap_or_default().iter();
        let groups = groups.map(|group| {
            let endpoints = group.endpoints.iter().map(|one| SocketAddr::new(one.address, one.port));
            (group.weight, group.name.as_deref().unwrap_or_default(), endpoints.collect())
        });
        let at = (listener.socket.as_str(), Some(listener.name.as_str()));
        explained(gateway, at, &listener.route_name, &groups.collect::<Vec<_>>(), faults)
    })
    .collect()
}

/// Weight, name and endpoints of a backendRef.
type Group<'a> = (u32, &'a str, Vec<SocketAddr>);

fn explained(
    gateway: &str,
    (socket, name): (&str, Option<&str>),
    route: &str,
    groups: &[Group<'_>],
    faults: &Faults,
) -> Explained {
    let (kind, lost) = if is_udp_socket(socket) {
        ("UDPRoute", "datagrams are dropped")
    } else {
        ("TCPRoute", "connections are closed")
    };
    let total: u64 = groups.iter().map(|(weight, ..)| u64::from(*weight)).sum();
    let shares = groups.iter().filter(|(weight, ..)| *weight > 0).map(|(weight, name, endpoints)| {
        let share = 100.0 * f64::from(*weight) / total.max(1) as f64;
        let endpoints: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
        match endpoints.as_slice() {
            [] if name.is_empty() => format!("an invalid backendRef ({share:.0} %, {lost})"),
            [] => format!("{name} ({share:.0} %, {lost}: no endpoints)"),
            all => format!("{name} ({share:.0} %: {})", all.join(", ")),
        }
    });
    let shares: Vec<String> = shares.collect();
    let answer = match shares.as_slice() {
        _ if route.is_empty() => format!("none, {lost}: no {kind} is attached to the listener"),
        [] => format!("none, {lost}: the route has no backendRef with a weight"),
        all => format!("relayed to {}", all.join(" or ")),
    };
    let route = (!route.is_empty()).then(|| format!("{kind} {route}"));
    Explained {
        gateway: gateway.to_owned(),
        socket: socket.to_owned(),
        listener: name.map_or("a listener of streams".to_owned(), |name| format!("listener {name}")),
        problem: route.as_ref().and_then(|route| faults.get(route).cloned()),
        route,
        answer,
        ..Explained::default()
    }
}
