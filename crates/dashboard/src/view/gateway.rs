//! One Gateway: its listeners, certificates and counts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use chaperone::State;
use model::Arrangement;
use model::ghost::{Config, Route};
use model::names::socket_parts;

use super::certificates::certificates;
use super::routes::groups_of_front;
use super::{Counts, Gateway, Listener, Stream, TlsHost};

pub(crate) fn gateway(name: &str, state: &State, config: &Config) -> Gateway {
    let tls = &state.configuration.tls;
    Gateway {
        engine: None,
        name: name.to_owned(),
        serving: state.serving,
        draining: state.draining,
        refused: state.refused.clone(),
        arrangement: arrangement(tls).into(),
        problems: closed(state, config),
        listeners: listeners(state, config),
        certificates: certificates(&config.listeners, tls),
        counts: counts(config),
        last_reload: None,
        last_change: state.last_change.as_deref().map(Into::into),
        last_failure: None,
        cache: None,
        tls_hosts: tls_hosts(tls),
        streams: streams(state),
    }
}

pub(crate) fn arrangement(tls: &front::Config) -> Arrangement {
    Arrangement {
        http_in_front: tls.http,
        through_varnishd: tls.through_varnishd,
        hot_objects_off: tls.hot_objects_off,
    }
}

/// Why sockets of listeners are not open. What was said of others is over.
fn closed(state: &State, config: &Config) -> Vec<String> {
    let of_tls = state.configuration.tls.sockets();
    let wanted: BTreeSet<&str> =
        config.listeners.iter().map(|one| one.socket.as_str()).chain(of_tls).collect();
    let open =
        |socket: &String| state.sockets.iter().chain(&state.front_sockets).any(|(name, _)| name == socket);
    let closed = state.closed.iter().filter(|(socket, _)| wanted.contains(socket.as_str()) && !open(socket));
    closed.map(|(_, why)| why.clone()).collect()
}

/// Every route of the file.
pub(super) fn routes(config: &Config) -> impl Iterator<Item = &Route> {
    let of_hosts = config.vhosts.values().flat_map(|host| host.routes.iter().chain(&host.default_route));
    of_hosts.chain(&config.default)
}

fn counts(config: &Config) -> Counts {
    let named = || routes(config).filter(|route| !route.route_name.is_empty());
    let names: BTreeSet<_> = named().map(|route| (route.kind, &route.route_name)).collect();
    let groups = || named().flat_map(|route| &route.backends);
    let services: BTreeSet<_> = groups().filter_map(|group| group.name.as_ref()).collect();
    let endpoints: BTreeSet<_> = groups().flat_map(|group| &group.endpoints).collect();
    Counts {
        hosts: config.vhosts.len(),
        routes: names.len(),
        rules: named().count(),
        services: services.len(),
        endpoints: endpoints.len(),
    }
}

fn listeners(state: &State, config: &Config) -> Vec<Listener> {
    let address = |socket: &str| -> Option<SocketAddr> {
        let mut open = state.sockets.iter().chain(&state.front_sockets);
        open.find(|(name, _)| name == socket).map(|(_, address)| *address)
    };
    let attached = |name: &String, socket: &String| {
        let here = |route: &&Route| {
            !route.route_name.is_empty()
                && (route.listener_names.is_empty() || route.listener_names.contains(name))
                && (route.listeners.is_empty() || route.listeners.contains(socket))
        };
        let names: BTreeSet<_> =
            routes(config).filter(here).map(|route| (route.kind, &route.route_name)).collect();
        names.len()
    };
    let mut all: Vec<Listener> = config
        .listeners
        .iter()
        .map(|listener| {
            let (protocol, port) = parts(&listener.socket);
            let secrets: BTreeSet<String> =
                listener.tls.iter().flat_map(model::ListenerTls::names).cloned().collect();
            Listener {
                name: listener.name.clone(),
                protocol,
                port,
                hostname: listener.hostname.clone().unwrap_or_else(|| "*".to_owned()),
                socket: listener.socket.clone(),
                address: address(&listener.socket),
                secrets: secrets.into_iter().collect(),
                routes: attached(&listener.name, &listener.socket),
            }
        })
        .collect();
    // Files of the seeds' form name no listeners, and those of protocol TLS are the front's alone: sockets are all there is.
    let known: BTreeSet<String> = all.iter().map(|listener| listener.socket.clone()).collect();
    let open = state.sockets.iter().chain(&state.front_sockets);
    for (socket, at) in open.filter(|(socket, _)| !known.contains(socket)) {
        let (protocol, port) = parts(socket);
        let of_front = state.configuration.tls.listeners.iter().find(|one| one.socket == *socket);
        let hosts = of_front.map_or(&[][..], |one| one.hosts.as_slice());
        let names: BTreeSet<&str> =
            hosts.iter().map(|host| host.hostname.as_deref().unwrap_or("*")).collect();
        let leads = |host: &&front::Host| match &host.action {
            front::Action::Passthrough { .. } | front::Action::Forward { .. } => true,
            front::Action::Relay(stream) => !stream.route.is_empty(),
            _ => false,
        };
        let of_datagrams = state.configuration.tls.datagrams.iter().find(|one| one.socket == *socket);
        let has_datagrams = of_datagrams.is_some_and(|one| !one.stream.route.is_empty());
        all.push(Listener {
            name: socket.clone(),
            protocol,
            port: if port == 0 { at.port() } else { port },
            hostname: match names.len() {
                0 => "*".to_owned(),
                _ => names.into_iter().collect::<Vec<_>>().join(", "),
            },
            socket: socket.clone(),
            address: Some(*at),
            secrets: Vec::new(),
            // Names that lead somewhere: the front does not know whose they are.
            routes: hosts.iter().filter(leads).count() + usize::from(has_datagrams),
        });
    }
    all.sort_by(|one, other| (one.port, &one.name).cmp(&(other.port, &other.name)));
    all
}

fn parts(socket: &str) -> (String, u16) {
    socket_parts(socket).map_or((String::new(), 0), |(protocol, port)| (protocol.to_ascii_uppercase(), port))
}

pub(crate) fn streams(state: &State) -> Vec<Stream> {
    let each = |(transport, route, counters): (front::Transport, String, Arc<front::StreamCounters>)| {
        let [bytes_in, bytes_out] = counters.bytes();
        Stream {
            kind: transport.route_kind().to_owned(),
            route,
            connections: counters.begun(),
            open: counters.open(),
            bytes_in,
            bytes_out,
            lost: front::Loss::ALL.into_iter().map(|why| counters.losses(why)).sum(),
        }
    };
    state.streams().into_iter().map(each).collect()
}

fn tls_hosts(tls: &front::Config) -> Vec<TlsHost> {
    let all = tls.listeners.iter().flat_map(|port| port.hosts.iter().map(move |host| (port, host)));
    all.filter_map(|(port, host)| {
        let (mode, backends) = match &host.action {
            front::Action::Passthrough { backends } => ("passed through", backends),
            front::Action::Forward { backends, .. } => ("decrypted", backends),
            front::Action::Terminate { .. }
            | front::Action::Http
            | front::Action::Relay(_)
            | front::Action::Refuse => return None,
        };
        Some(TlsHost {
            socket: port.socket.clone(),
            hostname: host.hostname.clone().unwrap_or_else(|| "*".to_owned()),
            mode: mode.to_owned(),
            groups: groups_of_front(backends),
        })
    })
    .collect()
}
