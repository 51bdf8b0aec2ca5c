//! The front as it carries HTTP: what clients send, byte by byte, and what origins get.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "http/access_log.rs"]
mod access_log;
#[path = "http/cache.rs"]
mod cache;
#[path = "http/chunks.rs"]
mod chunks;
#[path = "http/clients.rs"]
mod clients;
#[path = "http/corpus.rs"]
mod corpus;
#[path = "http/crowds.rs"]
mod crowds;
#[path = "http/direct.rs"]
mod direct;
#[path = "http/endpoints.rs"]
mod endpoints;
#[path = "http/floods.rs"]
mod floods;
#[path = "http/frames.rs"]
mod frames;
#[path = "http/framing.rs"]
mod framing;
#[path = "http/grpc.rs"]
mod grpc;
#[path = "http/h2_bad_origins.rs"]
mod h2_bad_origins;
#[path = "http/h2_origins.rs"]
mod h2_origins;
#[path = "http/headers.rs"]
mod headers;
#[path = "http/hosts.rs"]
mod hosts;
#[path = "http/hot.rs"]
mod hot;
#[path = "http/http2.rs"]
mod http2;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/mirrors.rs"]
mod mirrors;
#[path = "http/misses.rs"]
mod misses;
#[path = "http/origins.rs"]
mod origins;
#[path = "http/parked.rs"]
mod parked;
#[path = "http/proxy_protocol.rs"]
mod proxy_protocol;
#[path = "http/request_lines.rs"]
mod request_lines;
#[path = "http/retries.rs"]
mod retries;
#[path = "http/sessions.rs"]
mod sessions;
#[path = "http/spans.rs"]
mod spans;
#[path = "http/support.rs"]
mod support;
#[path = "http/timeouts.rs"]
mod timeouts;
#[path = "http/uploads.rs"]
mod uploads;
