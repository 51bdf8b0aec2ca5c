//! Checks whether a port is free, before varnishd is started, because varnishd's own error message is hard to read.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use crate::{Error, ListenSocket};

/// Binds and lets go. Another process may still be faster; varnishd's own failure is reported then.
pub(crate) fn check(ListenSocket { name, address, port }: &ListenSocket) -> Result<(), Error> {
    let address = SocketAddr::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), *port);
    // The standard library sets SO_REUSEADDR as varnishd does: connections that linger do not count.
    TcpListener::bind(address).map(drop).map_err(|source| {
        let socket = name.clone();
        match source.kind() {
            ErrorKind::AddrInUse => Error::PortTaken { socket, address },
            ErrorKind::PermissionDenied => Error::PortForbidden { socket, address },
            _ => Error::Port { socket, address, source },
        }
    })
}
