//! HTTP of our own processes, beside the data path: a client for one request ([`client`]), and small servers for probes, metrics and the
//! dashboard ([`server`]). Requests of users never come here.

pub mod client;
mod patient;
pub mod server;
