//! Sockets that listen.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;

/// As many as the kernel allows (`net.core.somaxconn`) wait to be accepted.
const BACKLOG: i32 = 65_535;

/// Bytes of datagrams that wait to be read.
const UDP_QUEUE: usize = 4 << 20;

/// Finds clients that are gone without a word, when nothing else would.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Without an address: all of IPv6 and IPv4 by one socket, or IPv4 alone where there is no IPv6.
pub(crate) fn bind(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    match address {
        Some(address) => open(SocketAddr::new(address, port), true),
        None => match open(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port), false) {
            Err(e) if !is_final(&e) => open(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port), true),
            result => result,
        },
    }
}

/// `count` sockets on one port, among which the kernel shares clients: all datagrams of one client come to the same socket.
pub(crate) fn bind_udp(
    address: Option<IpAddr>,
    port: u16,
    count: usize,
) -> io::Result<(SocketAddr, Vec<UdpSocket>)> {
    let open = |address: SocketAddr, only_v6: bool| {
        if port != 0 {
            // Sockets that share a port do not notice those of another process that shares it, too. This one does.
            drop(open_udp(address, only_v6, false)?);
        }
        let first = open_udp(address, only_v6, true)?;
        let address = first.local_addr()?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(open_udp(address, only_v6, true)?);
        }
        Ok((address, sockets))
    };
    match address {
        Some(address) => open(SocketAddr::new(address, port), true),
        None => match open(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port), false) {
            Err(e) if !is_final(&e) => open(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port), true),
            result => result,
        },
    }
}

fn open_udp(address: SocketAddr, only_v6: bool, shares: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.set_reuse_port(shares)?;
    socket.set_nonblocking(true)?;
    // As many as the kernel allows (`net.core.rmem_max`) wait to be read.
    let _ = socket.set_recv_buffer_size(UDP_QUEUE);
    socket.bind(&address.into())?;
    Ok(socket.into())
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

/// IPv4 alone would fare no better.
fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
}

/// The remedy, for the person who reads the log.
pub(crate) fn advice(error: &io::Error, port: u16) -> String {
    advise(error, port, ("port", "ss -ltnp"))
}

/// The same for a UDP port.
pub(crate) fn udp_advice(error: &io::Error, port: u16) -> String {
    advise(error, port, ("UDP port", "ss -lunp"))
}

fn advise(error: &io::Error, port: u16, (kind, command): (&str, &str)) -> String {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => {
            return format!(
                "{kind} {port} is taken by another process: stop that process (`{command} 'sport = :{port}'` names it), or \
                 give the listener another port"
            );
        }
        ErrorKind::PermissionDenied => {
            "low ports need the sysctl net.ipv4.ip_unprivileged_port_start or the capability NET_BIND_SERVICE"
        }
        ErrorKind::AddrNotAvailable => "this machine does not have the address",
        _ => "it is tried again",
    };
    format!("{kind} {port}: {error}; {remedy}")
}
