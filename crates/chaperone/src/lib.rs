//! Runs one varnishd, and the front beside it, and keeps both fed.
//!
//! Takes [`Settings`], which hold for the life of varnishd, and a stream of [`Desired`] configurations. Guarantees
//! that a change takes the cheapest path (certificates and HTTPS listeners, ghost reload, VCL reload), that identical bytes cause none, that a
//! failed one leaves the last good configuration serving and is retried, and that no process outlives it. Never
//! decides what the configuration is.

mod backoff;
mod confine;
mod directories;
pub mod engine;
pub mod environment;
mod error;
mod event;
mod feed;
mod feeder;
mod front_side;
mod ghost_files;
pub mod health;
mod hot;
mod invalidate;
mod limits;
pub mod log;
pub mod metrics;
pub mod peers;
mod ports;
mod reload;
mod routes;
mod session_key;
mod settings;
pub mod spans;
pub mod stats;
mod steps;
mod storage;
mod streams;
mod supervise;
mod tally;
mod tls;
mod token;
mod varnishd;
pub mod varnishstat;
mod vcl;

pub use error::Error;
pub use event::{Configuration, Event, Reporter, Severity, State};
pub use feed::{Desired, LastGood};
pub use feeder::{Feeder, FrontPart, Source};
pub use front::Shutdown;
pub use ghost_files::{Ghost, GhostBase, GhostError};
pub use hot::hot_limits;
pub use invalidate::invalidate;
pub use reload::Control;
pub use settings::{ListenSocket, Settings};
pub use steps::{Change, Steps};
pub use supervise::run;
pub use tls::{Pairs, Tls};
pub use vcl::compiler_message;
