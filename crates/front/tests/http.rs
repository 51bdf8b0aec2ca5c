//! The front as it carries HTTP: what clients send, byte by byte, and what origins get.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "http/direct.rs"]
mod direct;
#[path = "http/http2.rs"]
mod http2;
#[path = "http/parked.rs"]
mod parked;
#[path = "http/support.rs"]
mod support;
