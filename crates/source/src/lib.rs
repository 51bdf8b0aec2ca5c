//! Reads the objects that the gateway is made of into a [`translate::snapshot::Snapshot`].
//!
//! Takes manifests from [`files`], or watches a cluster ([`kubernetes`]). Guarantees that every object in the snapshot
//! has been admitted the way the API server admits it: known fields only, defaults filled in, validated, with
//! `metadata.namespace`, `creationTimestamp` and `generation` set. Never decides what an object means: that is
//! `translate`'s.

mod error;
pub mod files;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod stand_in;

pub use error::Error;
