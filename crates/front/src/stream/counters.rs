//! What happened to the connections and datagrams of each route.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The protocol of a listener whose bytes are relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// For labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// The kind of its routes.
    pub fn route_kind(self) -> &'static str {
        match self {
            Self::Tcp => "TCPRoute",
            Self::Udp => "UDPRoute",
        }
    }
}

/// Why a connection was closed before it reached an endpoint, or a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The listener has no route.
    NoRoute,
    /// The backendRef is not valid, or its Service has no endpoint.
    NoEndpoint,
    /// No endpoint takes the connection, or the endpoint answered that nothing listens there.
    Unreachable,
    /// There are as many sessions as there may be, and none of them can be replaced.
    TableFull,
    /// The client has as many sessions as one address may have.
    PerAddress,
    /// More sessions began within a second than may begin.
    TooManyNew,
    /// The operating system has no socket or port left.
    Exhausted,
    /// The gateway is stopping, and takes no new session.
    Draining,
    /// The operating system did not take the datagram: its queue is full, or the datagram is too large for the network.
    NotSent,
}

impl Loss {
    pub const ALL: [Self; 9] = [
        Self::NoRoute,
        Self::NoEndpoint,
        Self::Unreachable,
        Self::TableFull,
        Self::PerAddress,
        Self::TooManyNew,
        Self::Exhausted,
        Self::Draining,
        Self::NotSent,
    ];

    /// For labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::NoEndpoint => "no_endpoint",
            Self::Unreachable => "unreachable",
            Self::TableFull => "table_full",
            Self::PerAddress => "per_address",
            Self::TooManyNew => "too_many_new",
            Self::Exhausted => "exhausted",
            Self::Draining => "draining",
            Self::NotSent => "not_sent",
        }
    }

    /// Can it happen to a TCP connection of a route?
    pub fn is_of(self, transport: Transport) -> bool {
        transport == Transport::Udp || matches!(self, Self::NoRoute | Self::NoEndpoint | Self::Unreachable)
    }
}

/// Counts of one route, over all its listeners.
#[derive(Debug, Default)]
pub struct StreamCounters {
    begun: AtomicU64,
    open: AtomicU64,
    /// Bytes from clients, and to them.
    bytes: [AtomicU64; 2],
    /// Datagrams from clients, and to them.
    datagrams: [AtomicU64; 2],
    losses: [AtomicU64; Loss::ALL.len()],
}

impl StreamCounters {
    /// TCP connections, or UDP sessions, that began.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Those that are open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Bytes from clients, and to clients.
    pub fn bytes(&self) -> [u64; 2] {
        self.bytes.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Datagrams from clients, and to clients.
    pub fn datagrams(&self) -> [u64; 2] {
        self.datagrams.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Connections closed, or datagrams dropped, for this reason.
    pub fn losses(&self, why: Loss) -> u64 {
        self.losses.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn lost(&self, why: Loss) {
        if let Some(count) = self.losses.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn carried(&self, from_client: u64, to_client: u64) {
        let [from, to] = &self.bytes;
        from.fetch_add(from_client, Ordering::Relaxed);
        to.fetch_add(to_client, Ordering::Relaxed);
    }

    pub(crate) fn datagram_from_client(&self, bytes: usize) {
        self.datagrams[0].fetch_add(1, Ordering::Relaxed);
        self.bytes[0].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn datagram_to_client(&self, bytes: usize) {
        self.datagrams[1].fetch_add(1, Ordering::Relaxed);
        self.bytes[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn opened(self: &Arc<Self>) -> Opened {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Opened(Arc::clone(self))
    }
}

/// A connection or session that counts as open until this is dropped.
#[derive(Debug)]
pub(crate) struct Opened(Arc<StreamCounters>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

type Routes = BTreeMap<(Transport, String), Arc<StreamCounters>>;

/// The counters of all routes.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Routes>);

impl Streams {
    pub(crate) fn of_route(&self, transport: Transport, route: &str) -> Arc<StreamCounters> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((transport, route.to_owned())).or_default())
    }

    /// Routes that are gone are forgotten once their last connection is closed.
    pub(crate) fn forget_unused(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, counters| Arc::strong_count(counters) > 1);
    }

    pub(crate) fn all(&self) -> Vec<(Transport, String, Arc<StreamCounters>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = |((transport, route), counters): (&(Transport, String), &Arc<StreamCounters>)| {
            (*transport, route.clone(), Arc::clone(counters))
        };
        all.iter().map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_has_its_own_count() {
        let counters = StreamCounters::default();
        for (times, why) in (1..).zip(Loss::ALL) {
            (0..times).for_each(|_| counters.lost(why));
        }
        for (times, why) in (1..).zip(Loss::ALL) {
            assert_eq!(counters.losses(why), times, "{}", why.name());
        }
    }

    #[test]
    fn a_route_that_is_gone_is_forgotten_with_its_last_connection() {
        let streams = Streams::default();
        let open = streams.of_route(Transport::Tcp, "d/a").opened();
        let kept = streams.of_route(Transport::Udp, "d/a");
        streams.forget_unused();
        assert_eq!(streams.all().len(), 2);
        drop(open);
        streams.forget_unused();
        assert_eq!(
            streams.all().iter().map(|(transport, ..)| *transport).collect::<Vec<_>>(),
            [Transport::Udp]
        );
        drop(kept);
    }
}
