//! TLS to backends: varnishd connects to a unix socket, says with PROXY v2 which endpoint it means and, in the authority, by
//! which profile to verify it; here the endpoint is reached and verified.
//!
//! Guarantees that no byte goes to an endpoint that was not verified. Never falls back to plain text.

mod counters;
mod profile;
mod serve;
mod verify;

pub use counters::{BackendCounters, BackendFailure};
pub(crate) use profile::Ready;
pub use profile::{BackendName, BackendTls, Profiles, Trust};
pub use serve::{BackendEvent, BackendSide, Peers, run_backends};
pub(crate) use serve::{reach, reach_http2};
