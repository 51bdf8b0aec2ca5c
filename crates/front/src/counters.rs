//! Counters of the front. Plain atomics, so that reading them slows nothing down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stream::{StreamCounters, Streams, Transport};

/// Counts of one front, since it began.
#[derive(Debug, Default)]
pub struct Counters {
    handshakes: AtomicU64,
    resumed: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
    passed: AtomicU64,
    accepted: AtomicU64,
    open: AtomicU64,
    upstream_failures: [AtomicU64; UpstreamFailure::ALL.len()],
    refusals: [AtomicU64; Refusal::ALL.len()],
    from_clients: AtomicU64,
    to_clients: AtomicU64,
    pub(crate) streams: Streams,
}

impl Counters {
    /// What happened to the connections and datagrams of each TCPRoute and UDPRoute, by `namespace/name`; empty for listeners
    /// without a route.
    pub fn streams(&self) -> Vec<(Transport, String, Arc<StreamCounters>)> {
        self.streams.all()
    }

    /// TCP connections and UDP sessions of all routes that are open now.
    pub fn open_streams(&self) -> u64 {
        self.streams.all().iter().map(|(.., counters)| counters.open()).sum()
    }

    pub(crate) fn carried(&self, from_client: u64, to_client: u64) {
        self.from_clients.fetch_add(from_client, Ordering::Relaxed);
        self.to_clients.fetch_add(to_client, Ordering::Relaxed);
    }

    /// Handshakes that succeeded.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// Those of them that took up an earlier session.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// Handshakes that failed, by reason.
    pub fn failures(&self, why: Failure) -> u64 {
        self.failures.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Connections handed on undecrypted.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Connections accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections closed because varnishd, or an endpoint of a TLSRoute or TCPRoute, could not be reached, by reason.
    pub fn upstream_failures(&self, why: UpstreamFailure) -> u64 {
        self.upstream_failures.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Connections closed because of a limit, by reason.
    pub fn refusals(&self, why: Refusal) -> u64 {
        self.refusals.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Bytes that clients sent, after decryption where we do it.
    pub fn from_clients(&self) -> u64 {
        self.from_clients.load(Ordering::Relaxed)
    }

    /// Bytes that went to clients, before encryption where we do it.
    pub fn to_clients(&self) -> u64 {
        self.to_clients.load(Ordering::Relaxed)
    }

    pub(crate) fn opened(&self) -> Opened<'_> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Opened(self)
    }

    pub(crate) fn greeted(&self, resumed: bool) {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(u64::from(resumed), Ordering::Relaxed);
    }

    pub(crate) fn passed_on(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, why: Failure) {
        if let Some(count) = self.failures.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn upstream_failed(&self, why: UpstreamFailure) {
        if let Some(count) = self.upstream_failures.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn refused(&self, why: Refusal) {
        if let Some(count) = self.refusals.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn traffic(&self) -> (&AtomicU64, &AtomicU64) {
        (&self.from_clients, &self.to_clients)
    }
}

/// A connection that counts as open until this is dropped.
pub(crate) struct Opened<'a>(&'a Counters);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Not done within the time.
    Timeout,
    /// No hello yet, and others needed the place.
    CrowdedOut,
    /// The client went away.
    Gone,
    /// No ClientHello, or a broken one.
    NotTls,
    /// A ClientHello with too many bytes.
    TooLarge,
    /// No listener has the name that the client asked for, or it asked for none.
    UnknownName,
    /// The listener has no certificate.
    NoCertificate,
    /// No version, cipher or signature that both sides can do.
    Incompatible,
    /// The client refused what it got, mostly our certificate.
    Refused,
    /// The client showed no certificate, or none that is valid.
    ClientCertificate,
    /// The client broke the protocol.
    Misbehaved,
}

impl Failure {
    pub const ALL: [Self; 11] = [
        Self::Timeout,
        Self::CrowdedOut,
        Self::Gone,
        Self::NotTls,
        Self::TooLarge,
        Self::UnknownName,
        Self::NoCertificate,
        Self::Incompatible,
        Self::Refused,
        Self::ClientCertificate,
        Self::Misbehaved,
    ];

    /// For labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::CrowdedOut => "crowded_out",
            Self::Gone => "gone",
            Self::NotTls => "not_tls",
            Self::TooLarge => "too_large",
            Self::UnknownName => "unknown_name",
            Self::NoCertificate => "no_certificate",
            Self::Incompatible => "incompatible",
            Self::Refused => "refused",
            Self::ClientCertificate => "client_certificate",
            Self::Misbehaved => "misbehaved",
        }
    }
}

/// Why a client's bytes reached no backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// varnishd was not there.
    Varnishd,
    /// The backendRef is invalid, or its Service has no endpoint.
    NoEndpoint,
    /// None of the endpoints that were tried takes connections.
    Unreachable,
    /// TLS to them failed, or they could not be verified.
    Unverified,
}

impl UpstreamFailure {
    pub const ALL: [Self; 4] = [Self::Varnishd, Self::NoEndpoint, Self::Unreachable, Self::Unverified];

    /// For labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Varnishd => "varnishd",
            Self::NoEndpoint => "no_endpoint",
            Self::Unreachable => "unreachable",
            Self::Unverified => "unverified",
        }
    }
}

/// Which limit closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// An HTTP/2 client reset more streams within a second than it may, or sent more of other frames than h2 takes.
    Http2Flood,
    /// The client has as many connections as one address may have.
    PerAddress,
    /// A load balancer sent no PROXY header, an invalid one, or none in time.
    ProxyHeader,
}

impl Refusal {
    pub const ALL: [Self; 3] = [Self::Http2Flood, Self::PerAddress, Self::ProxyHeader];

    /// For labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http2Flood => "http2_flood",
            Self::PerAddress => "per_address",
            Self::ProxyHeader => "proxy_header",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_own_count() {
        let counters = Counters::default();
        for (times, why) in (1..).zip(Failure::ALL) {
            for _ in 0..times {
                counters.failed(why);
            }
        }
        for (times, why) in (1..).zip(Failure::ALL) {
            assert_eq!(counters.failures(why), times, "{}", why.name());
        }
    }
}
