//! What the tests stand on.

#[path = "support/authority.rs"]
pub(crate) mod authority;
#[path = "support/client.rs"]
pub(crate) mod client;
#[path = "support/fixture.rs"]
pub(crate) mod fixture;

pub(crate) use authority::Authority;
pub(crate) use client::Client;
pub(crate) use fixture::*;
