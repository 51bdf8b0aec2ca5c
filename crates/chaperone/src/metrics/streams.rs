//! What the front has counted for each TCPRoute and UDPRoute.

use super::exposition::{Families, Kind};

const CONNECTIONS: (&str, &str) =
    ("varnish_gateway_stream_connections_total", "TCP connections and UDP sessions that began");
const OPEN: (&str, &str) =
    ("varnish_gateway_stream_connections", "TCP connections and UDP sessions that are open");
const BYTES: (&str, &str) =
    ("varnish_gateway_stream_bytes_total", "Bytes from clients (in) and to clients (out)");
const DATAGRAMS: (&str, &str) =
    ("varnish_gateway_stream_datagrams_total", "UDP datagrams from clients (in) and to clients (out)");
const LOST: (&str, &str) = (
    "varnish_gateway_stream_lost_total",
    "TCP connections closed without an endpoint, and UDP datagrams dropped, by reason",
);

pub(super) fn add(to: &mut Families, clients: &front::Counters) {
    for (name, help) in [CONNECTIONS, BYTES, DATAGRAMS, LOST] {
        to.announce(name, Kind::Counter, help);
    }
    to.announce(OPEN.0, Kind::Gauge, OPEN.1);
    for (transport, route, counters) in clients.streams() {
        // Without a route: listeners that have none.
        let (namespace, name) = route.split_once('/').unwrap_or_default();
        let labels = [("kind", transport.route_kind()), ("namespace", namespace), ("name", name)];
        let with = |label: (&'static str, &'static str)| [labels[0], labels[1], labels[2], label];
        to.counter(CONNECTIONS.0, CONNECTIONS.1, &labels, counters.begun());
        to.gauge(OPEN.0, OPEN.1, &labels, counters.open());
        for (direction, bytes) in ["in", "out"].into_iter().zip(counters.bytes()) {
            to.counter(BYTES.0, BYTES.1, &with(("direction", direction)), bytes);
        }
        if transport == front::Transport::Udp {
            for (direction, count) in ["in", "out"].into_iter().zip(counters.datagrams()) {
                to.counter(DATAGRAMS.0, DATAGRAMS.1, &with(("direction", direction)), count);
            }
        }
        for why in front::Loss::ALL.into_iter().filter(|why| why.is_of(transport)) {
            to.counter(LOST.0, LOST.1, &with(("reason", why.name())), counters.losses(why));
        }
    }
}
