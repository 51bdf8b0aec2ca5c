//! The ports of a pod: a container listens on the very ports of its Gateway, so what is internal keeps out of their way. Where the
//! front owns all ports it is the other way round: internal ports stay, so that no listener changes the pod.

use std::collections::{BTreeMap, BTreeSet};

use model::names::{ADMIN_PORT, HEALTH_PORT, socket_parts};
use model::routing::Routing;

use translate::{Infra, Socket};

#[derive(Debug)]
pub(super) struct Ports<'a> {
    /// Socket names by port, of all TCP listeners that are served.
    pub(super) public: BTreeMap<u16, String>,
    /// The same of UDP listeners, which may have the same ports.
    pub(super) datagrams: BTreeMap<u16, String>,
    /// The pod's own ports for some of them, where they are others.
    moved: BTreeMap<u16, u16>,
    /// varnishd's own sockets. The front opens and closes its sockets without a restart.
    pub(super) varnishd: Vec<&'a Socket>,
    pub(super) health: u16,
    /// Loopback. `None`: the chaperone's default.
    pub(super) admin: Option<u16>,
}

impl<'a> Ports<'a> {
    pub(super) fn new(infra: &'a Infra, routing: &Routing) -> Self {
        let varnishd: Vec<&Socket> =
            infra.sockets.iter().filter(|socket| socket.protocol == "http").collect();
        let mut public: BTreeMap<u16, String> =
            varnishd.iter().map(|socket| (socket.port, socket.name.clone())).collect();
        let mut datagrams = BTreeMap::new();
        for socket in routing.sockets() {
            if let Some((protocol, port)) = socket_parts(socket) {
                let of_protocol = if protocol == "udp" { &mut datagrams } else { &mut public };
                of_protocol.entry(port).or_insert_with(|| socket.to_owned());
            }
        }
        let moved: BTreeMap<u16, u16> = public
            .keys()
            .chain(datagrams.keys())
            .map(|port| (*port, routing.pod_port(*port)))
            .filter(|(port, of_pod)| port != of_pod)
            .collect();
        if routing.http_in_front {
            return Self { public, datagrams, moved, varnishd, health: HEALTH_PORT, admin: None };
        }
        let mut taken: BTreeSet<u16> = public.keys().copied().collect();
        // A listener on the usual port moves the internal one, which rolls the pods: two sockets cannot share a port.
        let mut free = |usual: u16| {
            let port = (usual..=u16::MAX).find(|port| !taken.contains(port)).unwrap_or(usual);
            taken.insert(port);
            port
        };
        let health = free(HEALTH_PORT);
        let admin = free(ADMIN_PORT);
        Self { public, datagrams, moved, varnishd, health, admin: (admin != ADMIN_PORT).then_some(admin) }
    }

    /// Where pods listen for a port of the Service.
    pub(super) fn target(&self, port: u16) -> u16 {
        self.moved.get(&port).copied().unwrap_or(port)
    }

    /// `VARNISH_LISTEN`: `http-80=:80,http;http-8080=:8080,http`, or `none` where all listeners are the front's.
    pub(super) fn listen(&self) -> String {
        let sockets: Vec<String> = self
            .varnishd
            .iter()
            .map(|Socket { name, protocol, port }| format!("{name}=:{port},{protocol}"))
            .collect();
        if sockets.is_empty() { "none".to_owned() } else { sockets.join(";") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_ports_keep_out_of_the_way_of_listeners() {
        let socket = |port| Socket { name: format!("http-{port}"), protocol: "http".into(), port };
        let infra = Infra { sockets: vec![socket(80), socket(6082), socket(8081)], ..Infra::default() };
        let routing =
            Routing { listeners: vec![listener("http-80"), listener("https-8082")], ..Routing::default() };
        let ports = Ports::new(&infra, &routing);
        assert_eq!((ports.health, ports.admin), (8083, Some(6083)));
        assert_eq!(ports.public[&8082], "https-8082");
        assert_eq!(ports.listen(), "http-80=:80,http;http-6082=:6082,http;http-8081=:8081,http");
    }

    #[test]
    fn where_the_front_owns_all_ports_internal_ones_stay_whatever_listeners_there_are() {
        let listeners = vec![listener("http-8081"), listener("https-6082")];
        let routing = Routing { listeners, http_in_front: true, ..Routing::default() };
        let infra = Infra::default();
        let ports = Ports::new(&infra, &routing);
        assert_eq!((ports.health, ports.admin), (8081, None));
        assert_eq!(
            ports.public.keys().map(|port| ports.target(*port)).collect::<Vec<_>>(),
            [6082 + 10_000, 18081]
        );
    }

    #[test]
    fn udp_listeners_take_no_port_from_others() {
        let stream = |socket: &str| model::StreamListener { socket: socket.into(), ..Default::default() };
        let stream_listeners = ["tcp-53", "udp-53", "udp-8081", "udp-6082"].map(stream).into();
        let routing = Routing { stream_listeners, ..Routing::default() };
        let infra = Infra::default();
        let ports = Ports::new(&infra, &routing);
        assert_eq!((ports.health, ports.admin, ports.listen().as_str()), (8081, None, "none"));
        assert_eq!(ports.public.values().collect::<Vec<_>>(), ["tcp-53"]);
        assert_eq!(
            ports.datagrams.keys().map(|port| ports.target(*port)).collect::<Vec<_>>(),
            [53, 6082, 8081]
        );
    }

    #[test]
    fn a_gateway_of_https_alone_opens_no_socket_of_varnishd() {
        let routing = Routing { listeners: vec![listener("https-443")], ..Routing::default() };
        let infra = Infra::default();
        let ports = Ports::new(&infra, &routing);
        assert_eq!(ports.listen(), "none");
        assert_eq!(ports.public.len(), 1);
    }

    fn listener(socket: &str) -> model::Listener {
        serde_json::from_value(serde_json::json!({"name": socket, "socket": socket})).unwrap()
    }
}
