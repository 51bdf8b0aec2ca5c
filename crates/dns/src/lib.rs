//! Names of ExternalName Services, looked up by DNS and kept up to date in the background.
//!
//! [`Names`] takes the names that are wanted, and gives the addresses that may be used. Guarantees that the number of names and of their
//! addresses is bounded, that an answer is asked for again when its TTL ends (within a floor and a ceiling), that the last good
//! answer is kept for a stated time while DNS fails, and that no address is given that leads to the pod itself or to its node's
//! neighbourhood. Never uses search domains or `/etc/hosts`: the name of a Service is absolute.

mod address;
mod counts;
mod lookup;
mod names;

use std::net::SocketAddr;
use std::time::Duration;

pub use address::{Refused, refused};
pub use counts::{Counts, counts};
pub use names::{Known, Name, Names, Wanted};

/// Names that are looked up, at most. More are never sent to DNS.
pub const MOST_NAMES: usize = 4096;
/// Addresses of one name that are used, in the order of addresses.
pub const MOST_ADDRESSES: usize = 32;

/// Where names are looked up, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Those of `/etc/resolv.conf` where empty.
    pub servers: Vec<SocketAddr>,
    /// Addresses of this machine itself are good, too: for trials on one machine.
    pub allow_loopback: bool,
    pub times: Times,
}

/// How long answers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// An answer is used for this time, whatever its TTL is.
    pub floor: Duration,
    /// After this time DNS is asked again, whatever the TTL is.
    pub ceiling: Duration,
    /// The last good answer is used for this time while DNS fails.
    pub keep: Duration,
    /// Between two tries while DNS fails: from the one, doubled each time, to the other.
    pub retry: (Duration, Duration),
}

impl Default for Times {
    fn default() -> Self {
        Self {
            floor: Duration::from_secs(5),
            ceiling: Duration::from_secs(300),
            keep: Duration::from_secs(3600),
            retry: (Duration::from_secs(1), Duration::from_secs(30)),
        }
    }
}
