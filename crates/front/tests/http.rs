//! The front as it carries HTTP: what clients send, byte by byte, and what origins get.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "http/chunks.rs"]
mod chunks;
#[path = "http/clients.rs"]
mod clients;
#[path = "http/corpus.rs"]
mod corpus;
#[path = "http/direct.rs"]
mod direct;
#[path = "http/endpoints.rs"]
mod endpoints;
#[path = "http/framing.rs"]
mod framing;
#[path = "http/headers.rs"]
mod headers;
#[path = "http/hosts.rs"]
mod hosts;
#[path = "http/http2.rs"]
mod http2;
#[path = "http/origins.rs"]
mod origins;
#[path = "http/parked.rs"]
mod parked;
#[path = "http/request_lines.rs"]
mod request_lines;
#[path = "http/support.rs"]
mod support;
#[path = "http/uploads.rs"]
mod uploads;
