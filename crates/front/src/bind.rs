//! Sockets that listen.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;

/// As many as the kernel allows (`net.core.somaxconn`) wait to be accepted.
const BACKLOG: i32 = 65_535;

/// Finds clients that are gone without a word, when nothing else would.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Without an address: all of IPv6 and IPv4 by one socket, or IPv4 alone where there is no IPv6.
pub(crate) fn bind(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    match address {
        Some(address) => open(SocketAddr::new(address, port), true),
        None => match open(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port), false) {
            Err(e) if !matches!(e.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
                open(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port), true)
            }
            result => result,
        },
    }
}

/// Linux hands nodelay and keepalive on to the sockets that are accepted.
fn open(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// What to tell the person who reads the log.
pub(crate) fn advice(error: &io::Error, port: u16) -> String {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => {
            return format!(
                "port {port} is taken by another process: stop that process (`ss -ltnp 'sport = :{port}'` names it), or \
                 give the listener another port"
            );
        }
        ErrorKind::PermissionDenied => {
            "low ports need the sysctl net.ipv4.ip_unprivileged_port_start or the capability NET_BIND_SERVICE"
        }
        ErrorKind::AddrNotAvailable => "this machine does not have the address",
        _ => "it is tried again",
    };
    format!("port {port}: {error}; {remedy}")
}
