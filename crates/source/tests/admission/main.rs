//! Objects are admitted or refused as the API server does it, with one clear message.
#![allow(clippy::unwrap_used)]

mod cache;
mod core_kinds;
mod filters;
mod gateway;
mod http_route;
mod other_routes;
mod support;
