//! Before the first byte of a client: who it is, by its connection or by a PROXY header, and whether it may have one more.

use std::net::SocketAddr;
use std::time::Duration;

use router::forwarded::TrustedProxies;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::addresses::Place;
use crate::gate::Gate;
use crate::run::Shared;
use crate::{Refusal, proxy};

/// A header that arrives in pieces is checked again after this time, later after longer times.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// PROXY protocol from load balancers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// Whose headers are believed. Of others, a header is the beginning of what they say.
    pub sources: TrustedProxies,
    /// Connections from these networks without a valid header are closed.
    pub required: bool,
}

/// Makes `client`, which is at the other end of the connection, the one that a PROXY header names. Returns its place among the
/// connections of its address, where they are counted; in a box, since most connections have none.
pub(crate) async fn enter<'s>(
    stream: &mut TcpStream,
    client: &mut SocketAddr,
    gate: &Gate,
    shared: &'s Shared,
) -> Result<Option<Box<Place<'s>>>, Refusal> {
    if let Some(by) = shared.proxy_protocol.load_full()
        && by.sources.contains(client.ip())
    {
        let patience = gate.limits.handshake_timeout;
        let read = timeout(patience, Box::pin(client_of(stream, by.required))).await;
        if let Some(named) = read.unwrap_or(Err(Refusal::ProxyHeader))? {
            *client = named;
        }
    }
    match gate.limits.connections_per_address {
        None => Ok(None),
        Some(most) => {
            let place = shared.addresses.enter(client.ip(), most).ok_or(Refusal::PerAddress)?;
            Ok(Some(Box::new(place)))
        }
    }
}

/// Takes the header off the stream, and nothing else. None: the peer itself is the client.
async fn client_of(stream: &mut TcpStream, required: bool) -> Result<Option<SocketAddr>, Refusal> {
    // The bytes are only looked at until the header is complete: the rest is read by others.
    let mut bytes = vec![0; proxy::MAXIMUM];
    let mut pause = FIRST_PAUSE;
    loop {
        let count = stream.peek(&mut bytes).await.map_err(|_| Refusal::ProxyHeader)?;
        let seen = bytes.get(..count).unwrap_or_default();
        match proxy::received(seen) {
            _ if seen.is_empty() => return Err(Refusal::ProxyHeader),
            Ok(Some((client, length))) => {
                let header = bytes.get_mut(..length).ok_or(Refusal::ProxyHeader)?;
                stream.read_exact(header).await.map_err(|_| Refusal::ProxyHeader)?;
                return Ok(client);
            }
            Ok(None) => {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(proxy::Error::Signature) if !required => return Ok(None),
            Err(_) => return Err(Refusal::ProxyHeader),
        }
    }
}
