//! TCPRoutes and UDPRoutes: bytes and datagrams between clients and endpoints, whatever they are.
//!
//! Takes a group by weight and one of its endpoints at random. Endpoints that refused lately are tried last. Guarantees bounded
//! memory for each connection and session, and a bounded number of sessions.

mod avoid;
mod counters;
mod log;
mod pick;
pub(crate) mod tcp;
pub(crate) mod udp;

use std::sync::Arc;

pub use self::counters::{Loss, StreamCounters, Transport};
pub(crate) use self::counters::{Opened, Streams};
pub(crate) use self::pick::Target;
use crate::Backends;

/// Where connections or datagrams of one listener go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stream {
    /// `namespace/name` of the TCPRoute or UDPRoute; empty where there is none.
    pub route: String,
    pub backends: Arc<Backends>,
}
