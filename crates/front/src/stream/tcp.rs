//! One connection of a TCPRoute.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::log::Ended;
use super::{Loss, Target, Transport};
use crate::run::Shared;
use crate::{BackendGroup, UpstreamFailure, proxy, relay};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects the client to one of the endpoints, and relays until both are done, or nothing has moved for `idle`.
pub(crate) async fn carry(
    mut stream: TcpStream,
    (client, local): (SocketAddr, SocketAddr),
    socket: &Arc<str>,
    target: &Target,
    idle: Duration,
    shared: &Shared,
) {
    let began = Instant::now();
    let _open = target.counters.opened();
    let (from, to) = (AtomicU64::new(0), AtomicU64::new(0));
    let reached = Box::pin(connect(target, (client, local), shared)).await;
    let (endpoint, loss) = match reached {
        Ok((mut backend, endpoint)) => {
            let count = |up: u64, down: u64| {
                from.fetch_add(up, Ordering::Relaxed);
                to.fetch_add(down, Ordering::Relaxed);
                target.counters.carried(up, down);
                shared.counters.carried(up, down);
            };
            let relayed = relay::relay_reported(&mut stream, &mut backend, idle, count);
            // How a connection ends is between its ends.
            let _ = Box::pin(relayed).await;
            (Some(endpoint), None)
        }
        Err(why) => {
            target.counters.lost(why);
            shared.counters.upstream_failed(match why {
                Loss::Unreachable => UpstreamFailure::Unreachable,
                _ => UpstreamFailure::NoEndpoint,
            });
            (None, Some(why))
        }
    };
    Ended {
        transport: Transport::Tcp,
        client,
        socket,
        route: &target.stream.route,
        endpoint,
        took: began.elapsed(),
        bytes: (from.into_inner(), to.into_inner()),
        datagrams: None,
        loss,
    }
    .log(shared);
}

async fn connect(
    target: &Target,
    addresses: (SocketAddr, SocketAddr),
    shared: &Shared,
) -> Result<(TcpStream, SocketAddr), Loss> {
    let (group, endpoints) = target.pick()?;
    if endpoints.is_empty() {
        shared.trouble.ill(&group.name, None, "it has no endpoint that is ready".to_owned());
        return Err(Loss::NoEndpoint);
    }
    for endpoint in endpoints {
        match timeout(CONNECT_TIMEOUT, reach(endpoint, group, addresses)).await {
            Ok(Ok(stream)) => {
                target.answered(endpoint);
                shared.trouble.well(&group.name, endpoint);
                return Ok((stream, endpoint));
            }
            failed => {
                let why = match failed {
                    Ok(Err(e)) => e.to_string(),
                    _ => format!("no connection in {CONNECT_TIMEOUT:?}"),
                };
                target.refused(endpoint);
                shared.trouble.ill(&group.name, Some(endpoint), why);
            }
        }
    }
    Err(Loss::Unreachable)
}

async fn reach(
    endpoint: SocketAddr,
    group: &BackendGroup,
    addresses: (SocketAddr, SocketAddr),
) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(endpoint).await?;
    let _ = stream.set_nodelay(true);
    if group.proxy_protocol {
        let header = proxy::Header { addresses: Some(addresses), ..proxy::Header::default() };
        stream.write_all(&header.encode()).await?;
    }
    Ok(stream)
}
