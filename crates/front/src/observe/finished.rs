//! One recorded request, from which spans are made.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use router::trace::Trace;

/// A request that is over. Values are as the client sent them, shortened to a sane length.
#[derive(Debug, Clone)]
pub struct Finished {
    pub trace: Trace,
    /// Microseconds since 1970.
    pub began_micros: u64,
    pub took: Duration,
    pub client: IpAddr,
    pub method: String,
    pub host: String,
    /// Without its query.
    pub path: String,
    /// `HTTP/1.1`
    pub protocol: &'static str,
    pub user_agent: String,
    /// `TLSv1.3`; empty for plain HTTP.
    pub tls: String,
    /// None where the client left before it got one.
    pub status: Option<u16>,
    pub bytes: u64,
    pub way: &'static str,
    pub cache: &'static str,
    /// Why it failed, if it did.
    pub reason: Option<&'static str>,
    /// Kind, `namespace/name` and position of its rule.
    pub route: Option<(&'static str, String, u32)>,
    pub listener: Option<String>,
    /// `namespace/name:port`
    pub service: String,
    pub upstream: Option<Upstream>,
}

/// A request to an origin that bypassed the cache.
#[derive(Debug, Clone, Copy)]
pub struct Upstream {
    /// The span that the origin sees as its parent.
    pub span: u64,
    /// The last endpoint that was tried.
    pub endpoint: SocketAddr,
    pub tries: u32,
    /// After the beginning of the request.
    pub after: Duration,
    /// Of a new connection.
    pub connect: Option<Duration>,
    /// To the head of the answer; none where there was none.
    pub first_byte: Option<Duration>,
}
