//! Events that the front reports, and orders that it gets.

use std::net::SocketAddr;

/// Events to log or report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Listening {
        socket: String,
        address: SocketAddr,
    },
    /// Tried again until it works. Told once for each reason.
    CannotListen {
        socket: String,
        why: String,
    },
    Closed {
        socket: String,
    },
    /// An endpoint of a TLSRoute was not reached, or its Service has none. Reported once for each reason, until it recovers.
    Unreached {
        service: String,
        endpoint: Option<SocketAddr>,
        why: String,
    },
}

/// Whether and how the front shuts down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    #[default]
    Run,
    /// Accept no more connections, finish those that are open, then stop.
    Drain,
    Now,
}
