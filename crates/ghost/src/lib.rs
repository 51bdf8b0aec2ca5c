//! ghost: the VMOD inside varnishd. Varnish's C API around `router`, and the only crate with `unsafe`.
//!
//! Takes ghost.json; guarantees that a request sees one configuration from its first byte to its last, and that a
//! reload drops none; never decides a route itself.
//!
//! Request flow: `vmod.rs` (what VCL calls) → `task.rs` (the decision, kept while the request lives) →
//! `target.rs` (a director that carries the decision to the fetch and picks the endpoint) or `answer.rs` (404, 500,
//! redirects); `cache.rs` carries out the rule's cache policy on both sides. The way of a reload: `door.rs` (the control socket) → `control.rs` → `object.rs` → `table.rs` → `backend.rs`, and
//! `retire.rs` for endpoints that are gone. What is counted: `stats.rs`. WebSockets: `tunnel.rs`. The way out of the cache: `control.rs` → `invalidate.rs` → `index.rs`.

mod answer;
mod aside;
mod asked;
mod backend;
mod bound;
mod cache;
mod cache_status;
mod client;
mod conditions;
mod control;
mod door;
mod error;
mod events;
mod ffi;
mod forwarded;
mod framing;
mod guard;
mod hot;
mod index;
mod invalidate;
mod journal;
mod lookup;
mod message;
mod object;
mod posted;
mod preamble;
mod query;
mod retire;
mod search;
mod secret;
mod sent;
mod socket;
mod stats;
mod storage;
mod table;
mod target;
mod task;
mod trace;
mod tunnel;
mod unshared;
mod vmod;
mod writes;

/// Where varnishd finds the VMOD's descriptor; the shim's constructor fills it.
#[repr(C, align(16))]
pub struct Descriptor(std::cell::UnsafeCell<[u8; 256]>);

// SAFETY: written once, by the constructor, before any thread can read it.
unsafe impl Sync for Descriptor {}

#[unsafe(no_mangle)]
pub static Vmod_ghost_Data: Descriptor = Descriptor(std::cell::UnsafeCell::new([0; 256]));
