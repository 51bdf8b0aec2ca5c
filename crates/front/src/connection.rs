//! One client, from its first byte to its last.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use crate::gate::Pass;
use crate::hosts::Hosts;
use crate::run::Shared;
use crate::{Failure, Limits, Shutdown, hello, proxy, relay, upstream};

/// What a port does with each name. None: the listener has no certificate.
pub(crate) type Services = Hosts<Option<Arc<ServerConfig>>>;

/// Serves one client until it or varnishd is done, or until all is to end now.
pub(crate) async fn serve(
    stream: TcpStream,
    client: SocketAddr,
    services: Arc<Services>,
    limits: Limits,
    pass: Pass,
    shared: Arc<Shared>,
) {
    let _open = shared.counters.opened();
    let mut shutdown = shared.shutdown.clone();
    let now = async {
        if shutdown.wait_for(|asked| *asked == Shutdown::Now).await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = now => {}
        () = exchange(stream, client, services, limits, pass, &shared) => {}
    }
}

async fn exchange(
    stream: TcpStream,
    client: SocketAddr,
    services: Arc<Services>,
    limits: Limits,
    pass: Pass,
    shared: &Shared,
) {
    // Boxed, so that its memory is given back for the long time that follows.
    let greeted =
        timeout(limits.handshake_timeout, Box::pin(handshake(stream, services, limits.hello_bytes))).await;
    let Pass { handshake: permit, connection: _connection } = pass;
    drop(permit);
    let counters = &shared.counters;
    let mut stream = match greeted.unwrap_or(Err(Failure::Timeout)) {
        Ok(stream) => stream,
        Err(why) => return counters.failed(why),
    };
    let tls = stream.get_ref().1;
    counters.greeted(tls.handshake_kind() == Some(HandshakeKind::Resumed));
    let Ok(local) = stream.get_ref().0.local_addr() else { return };
    let header = header(client, local, tls);
    let Ok(mut upstream) = reach(shared, &header).await else {
        counters.upstream_failed();
        return;
    };
    let (from_clients, to_clients) = counters.traffic();
    // Whoever broke off knows it; nobody else has to.
    let _ = relay::relay(&mut stream, &mut upstream, from_clients, to_clients).await;
}

async fn handshake(
    mut stream: TcpStream,
    services: Arc<Services>,
    hello_bytes: usize,
) -> Result<TlsStream<TcpStream>, Failure> {
    let accepted = hello::read(&mut stream, hello_bytes).await?;
    let found = match services.find(accepted.client_hello().server_name()) {
        None => Err(Failure::UnknownName),
        Some(None) => Err(Failure::NoCertificate),
        Some(Some(server)) => Ok(Arc::clone(server)),
    };
    match found {
        Ok(server) => {
            StartHandshake::from_parts(accepted, stream).into_stream(server).await.map_err(|e| failure(&e))
        }
        Err(why) => {
            hello::refuse(&mut stream, why).await;
            Err(why)
        }
    }
}

fn failure(error: &io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        None => Failure::Gone,
        Some(rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol) => {
            Failure::Incompatible
        }
        Some(rustls::Error::AlertReceived(_)) => Failure::Refused,
        Some(_) => Failure::Misbehaved,
    }
}

fn header(client: SocketAddr, local: SocketAddr, tls: &ServerConnection) -> Vec<u8> {
    let version = match tls.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLS",
    };
    proxy::Header {
        addresses: Some((client, local)),
        alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
        authority: tls.server_name().map(str::to_owned),
        tls: Some(proxy::Tls { version: version.to_owned(), client_certificate: None }),
    }
    .encode()
}

async fn reach(shared: &Shared, header: &[u8]) -> io::Result<UnixStream> {
    let mut upstream = upstream::connect(&shared.upstream).await?;
    upstream.write_all(header).await?;
    Ok(upstream)
}
