//! A page that shows what one `serve`, or one chaperone, does; and the JSON beneath it, which the command line reads, too.
//!
//! Takes the [`chaperone::State`] of every varnishd that runs, its events and its numbers. Guarantees that it changes nothing
//! unless actions are allowed, that it answers only whom [`Door`] lets in, and that what it remembers is bounded. Never decides
//! what is served, and never keeps a request waiting.

mod answer;
mod api;
mod assets;
mod backends;
mod board;
mod changes;
mod door;
mod events;
mod explain;
mod flows;
mod journal;
pub mod names;
mod purge;
mod server;
mod stream_traffic;
pub mod streams;
mod traffic;
pub mod view;

pub use board::{Board, Options};
pub use door::Door;
pub use explain::{Asked, Explained, Faults, explain};
pub use journal::{Entry, Journal};
pub use server::{serve, serve_local};
pub use stream_traffic::StreamTraffic;
pub use traffic::Traffic;
