//! One session: a client, and the endpoint that it talks to.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::Room;
use crate::addresses::OwnedPlace;
use crate::stream::{Opened, Target};

/// It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Session {
    /// Connected to the endpoint.
    pub(super) socket: Arc<UdpSocket>,
    pub(super) endpoint: SocketAddr,
    pub(super) target: Arc<Target>,
    /// Brings answers to the client.
    pub(super) answers: AbortHandle,
    pub(super) began: Instant,
    /// Datagrams and bytes from the client.
    pub(super) up: (u64, u64),
    /// The same to the client.
    pub(super) down: (u64, u64),
    pub(super) _room: Room,
    pub(super) _place: Option<OwnedPlace>,
    pub(super) _open: Opened,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.answers.abort();
    }
}

/// A socket that hears nothing but the endpoint's answers.
pub(super) fn connect(endpoint: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(endpoint), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    let any = match endpoint {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    socket.bind(&any.into())?;
    socket.connect(&endpoint.into())?;
    Ok(socket)
}

/// Sends at once or not at all. tokio's own way asks first whether the socket is writable, and it does not know that of a new one.
pub(super) fn send(socket: &UdpSocket, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(socket).send(bytes)
}

/// The same, to a client.
pub(super) fn send_to(socket: &UdpSocket, bytes: &[u8], client: SocketAddr) -> io::Result<usize> {
    SockRef::from(socket).send_to(bytes, &client.into())
}
