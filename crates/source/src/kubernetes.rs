//! A cluster's objects, watched.
//!
//! Takes a client. Guarantees that a [`Store`] holds what the API server said last, through expired watches, restarts
//! and absence of the API server; that an object which cannot be read harms no other; and that a kind which the
//! cluster does not have is empty. Never polls, and never writes.

mod client;
mod cluster;
mod named;
mod pod;
mod read;
mod scope;
mod secrets;
mod signal;
mod slices;
mod store;

pub use client::{connect, connect_to};
pub use cluster::{Cluster, Unreadable, snapshot_of};
pub use named::Named;
pub use pod::{Base, Error as PodError, Pod, Stored};
pub use read::{Read, Unread};
pub use scope::{Namespaces, Scope};
pub use signal::Signal;
pub use slices::EndpointSlices;
pub use store::{Same, Store, never_same, watch_errors};
