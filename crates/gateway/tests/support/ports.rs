//! Ports for listeners.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to outgoing connections, which could take one at any moment.
const FIRST: u16 = 18_000;
const COUNT: u16 = 14_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A free port that no other test of this run gets. Another run begins elsewhere.
pub(crate) fn free_port() -> u16 {
    let start = u16::try_from(u64::from(std::process::id()) * 37 % u64::from(COUNT)).unwrap();
    loop {
        let port = FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}
