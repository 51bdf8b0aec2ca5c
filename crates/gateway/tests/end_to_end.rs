//! The built program, a real varnishd and real origins on loopback.
//!
//! Needs Debian's varnish, and the VMOD: `cargo build -p ghost` (`make test` does). One test: `cargo test -p gateway
//! --test end-to-end NAME`. Every wait has a deadline, and every process ends with the value that stands for it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]
#![allow(clippy::print_stderr, reason = "the gateway's log goes with the failure")]

mod access_log;
mod backend_tls;
mod bad_input;
mod cache;
mod chaperone_env;
mod check;
mod completions;
mod dashboard;
mod explain;
mod external_names;
mod files;
mod grpc;
mod h2_backends;
mod hot;
mod ingress;
mod invalidation;
mod lifecycle;
mod limits;
mod observe;
mod peers;
mod private_keys;
mod proxy;
mod reload;
mod routing;
mod scarce;
mod shared_cache;
mod streams;
mod support;
mod tls;
mod tls_clients;
mod tls_options;
mod tls_route;
mod tls_trouble;
mod twins;
mod upstream;
mod user_vcl;
