//! The front as its clients and varnishd see it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "front/backends.rs"]
mod backends;
#[path = "front/change.rs"]
mod change;
#[path = "front/clients.rs"]
mod clients;
#[path = "front/limits.rs"]
mod limits;
#[path = "front/names.rs"]
mod names;
#[path = "front/panics.rs"]
mod panics;
#[path = "front/passthrough.rs"]
mod passthrough;
#[path = "front/programs.rs"]
mod programs;
#[path = "front/proxy_protocol.rs"]
mod proxy_protocol;
#[path = "front/support.rs"]
mod support;
#[path = "front/tls_options.rs"]
mod tls_options;
#[path = "front/transport.rs"]
mod transport;
