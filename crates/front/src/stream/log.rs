//! One line of the access log for each TCP connection and UDP session, at its end.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Loss, Transport};
use crate::http::Line;
use crate::run::Shared;

/// Longer names are cut.
const LONGEST_NAME: usize = 256;

/// What is known of a connection or session once it is over.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    pub(super) transport: Transport,
    pub(super) client: SocketAddr,
    pub(super) socket: &'a str,
    pub(super) route: &'a str,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) took: Duration,
    /// From the client, and to it.
    pub(super) bytes: (u64, u64),
    pub(super) datagrams: Option<(u64, u64)>,
    pub(super) loss: Option<Loss>,
}

impl Ended<'_> {
    pub(super) fn log(&self, shared: &Shared) {
        let Some(log) =
            shared.http.as_ref().and_then(|http| http.observer()).and_then(|observer| observer.access_log())
        else {
            return;
        };
        log.add(|to| {
            let mut line = Line::new(to);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let began = now.saturating_sub(self.took).as_micros();
            line.date("time", u64::try_from(began).unwrap_or_default());
            if let Some(gateway) = &log.gateway {
                line.text("gateway", gateway.as_bytes(), LONGEST_NAME);
            }
            line.plain("client", self.client.ip().to_canonical());
            line.number("client_port", self.client.port().into());
            line.word("protocol", if self.transport == Transport::Tcp { "TCP" } else { "UDP" });
            line.number("bytes", self.bytes.1);
            line.number("bytes_in", self.bytes.0);
            if let Some((from, to)) = self.datagrams {
                line.number("datagrams", to);
                line.number("datagrams_in", from);
            }
            line.time("duration_ms", self.took);
            if let Some(loss) = self.loss {
                line.word("reason", loss.name());
            }
            if !self.route.is_empty() {
                line.word("kind", self.transport.route_kind());
                line.text("route", self.route.as_bytes(), LONGEST_NAME);
            }
            line.text("socket", self.socket.as_bytes(), LONGEST_NAME);
            if let Some(endpoint) = self.endpoint {
                line.plain("backend", endpoint);
            }
            line.end();
        });
    }
}
