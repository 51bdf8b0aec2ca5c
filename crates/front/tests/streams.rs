//! TCP and UDP listeners, with real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "streams/support.rs"]
mod support;
#[path = "streams/tcp.rs"]
mod tcp;
#[path = "streams/udp.rs"]
mod udp;
#[path = "streams/udp_floods.rs"]
mod udp_floods;
