//! One client, from its first byte to its last.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::names::socket_parts;
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use crate::answering::Answering;
use crate::backends::{Reached, Targets};
use crate::gate::Gate;
use crate::hello::Greeting;
use crate::hosts::Hosts;
use crate::relay::{read_some, relay, relay_until_idle};
use crate::run::Shared;
use crate::stream::{Target, tcp};
use crate::terminate::Server;
use crate::{
    Failure, Http, HttpLimits, Limits, Shutdown, UpstreamFailure, entrance, hello, http, proxy, upstream,
};

/// From the end of the handshake to the first byte. Browsers connect before they have something to ask.
const FIRST_BYTE: Duration = Duration::from_secs(30);

/// How a port handles each server name.
pub(crate) type Services = Hosts<Service>;

/// See [`crate::Action`].
#[derive(Debug, Clone)]
pub(crate) enum Service {
    /// The listener has no certificate.
    Nothing,
    Terminate(Arc<Server>),
    /// Plain HTTP, which is carried here.
    Http,
    /// The same after TLS.
    Https(Arc<Server>),
    Forward(Arc<Server>, Arc<Targets>),
    /// The bytes of a TCPRoute.
    Relay(Arc<Target>),
    /// No route takes the name.
    Refused,
    Passthrough(Arc<Targets>),
}

/// In a box, since it is moved, and futures keep a place for each move.
type Decrypted = Box<TlsStream<TcpStream>>;

/// A client whose hello is answered, or is not ours to answer.
enum Greeted {
    Terminated(Decrypted, Arc<Server>),
    Https(Decrypted, Arc<Server>),
    Forwarded(Decrypted, Arc<Targets>),
    Passed(TcpStream, Vec<u8>, Arc<Targets>),
}

/// Serves one client until it or varnishd closes, or until the front shuts down.
pub(crate) async fn serve(
    stream: TcpStream,
    client: SocketAddr,
    socket: Arc<str>,
    services: Arc<Services>,
    gate: Arc<Gate>,
    connection: OwnedSemaphorePermit,
    shared: Arc<Shared>,
) {
    let _connection = connection;
    let _open = shared.counters.opened();
    let mut shutdown = shared.shutdown.clone();
    let now = async {
        if shutdown.wait_for(|asked| *asked == Shutdown::Now).await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = now => {}
        () = exchange(stream, client, socket, services, gate, &shared) => {}
    }
}

async fn exchange(
    mut stream: TcpStream,
    mut client: SocketAddr,
    socket: Arc<str>,
    services: Arc<Services>,
    gate: Arc<Gate>,
    shared: &Shared,
) {
    let _place = match entrance::enter(&mut stream, &mut client, &gate, shared).await {
        Ok(place) => place,
        Err(why) => return shared.counters.refused(why),
    };
    if let (Some(Service::Http), Some(http)) = (services.find(None), &shared.http) {
        let (http, limits) = (Arc::clone(http), gate.limits.http);
        return Box::pin(plain(stream, client, &socket, http, limits, shared)).await;
    }
    if let Some(Service::Relay(target)) = services.find(None) {
        // The client is gone already if we cannot tell where it came to.
        let Ok(local) = listener_address(&stream, &socket) else { return };
        let (ends, idle) = ((client, local), gate.limits.idle_timeout);
        return Box::pin(tcp::carry(stream, ends, &socket, target, idle, shared)).await;
    }
    let limits = Arc::clone(&gate);
    let patience = gate.limits.handshake_timeout;
    // Boxed, so that its memory is given back for the long time that follows.
    let greeted = timeout(patience, Box::pin(handshake(stream, services, gate))).await;
    let counters = &shared.counters;
    let greeted = match greeted.unwrap_or(Err(Failure::Timeout)) {
        Ok(greeted) => greeted,
        Err(why) => return counters.failed(why),
    };
    if let Greeted::Terminated(stream, _) | Greeted::Https(stream, _) | Greeted::Forwarded(stream, _) =
        &greeted
    {
        counters.greeted(stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed));
    }
    if let Err(why) = carry(greeted, client, &socket, &limits.limits, shared).await {
        counters.upstream_failed(why);
    }
}

/// Brings the bytes to their destination. An error means that no backend was reached; how a connection ends is between its ends.
async fn carry(
    greeted: Greeted,
    client: SocketAddr,
    socket: &Arc<str>,
    limits: &Limits,
    shared: &Shared,
) -> Result<(), UpstreamFailure> {
    let idle = limits.idle_timeout;
    let (from_clients, to_clients) = shared.counters.traffic();
    match greeted {
        Greeted::Https(stream, server) => {
            Box::pin(https(stream, server, client, socket, limits.http, shared)).await;
        }
        Greeted::Terminated(mut stream, server) => {
            // In HTTP the client sends first: varnishd is not connected to before it has.
            let Some(first) = Box::pin(first_bytes(&mut stream, shared)).await else { return Ok(()) };
            from_clients.fetch_add(first.len() as u64, Ordering::Relaxed);
            // The client is gone already if we cannot tell where it came to.
            let Ok(mut bytes) = introduction(client, &stream, &server, socket).map(|header| header.encode())
            else {
                return Ok(());
            };
            drop(server);
            bytes.extend_from_slice(&first);
            drop(first);
            let upstream = Box::pin(reach(shared, &bytes)).await;
            let mut upstream = upstream.map_err(|_| UpstreamFailure::Varnishd)?;
            drop(bytes);
            let _ = relay(&mut *stream, &mut upstream, from_clients, to_clients).await;
        }
        // Only their bytes can show whether these connections are in use.
        Greeted::Forwarded(mut stream, backends) => {
            match Box::pin(backends.connect(&shared.trouble)).await? {
                Reached::Plain(mut backend) => {
                    let (client, backend) = (&mut *stream, &mut backend);
                    let _ = Box::pin(relay_until_idle(client, backend, from_clients, to_clients, idle)).await;
                }
                Reached::Tls(backend, service, endpoint) => {
                    let trouble = &shared.trouble;
                    let mut backend = Answering::new(backend, || trouble.well(service, endpoint));
                    let relayed =
                        relay_until_idle(&mut *stream, &mut backend, from_clients, to_clients, idle);
                    let ended = Box::pin(relayed).await;
                    if let Some(why) = backend.refused(&ended) {
                        trouble.ill(service, Some(endpoint), why);
                        return Err(UpstreamFailure::Unverified);
                    }
                }
            }
        }
        Greeted::Passed(mut stream, hello, backends) => {
            let mut backend = Box::pin(backends.connect_plain(&shared.trouble)).await?;
            backend.write_all(&hello).await.map_err(|_| UpstreamFailure::Unreachable)?;
            drop(hello);
            shared.counters.passed_on();
            let relayed = relay_until_idle(&mut stream, &mut backend, from_clients, to_clients, idle);
            let _ = Box::pin(relayed).await;
        }
    }
    Ok(())
}

async fn handshake(
    mut stream: TcpStream,
    services: Arc<Services>,
    gate: Arc<Gate>,
) -> Result<Greeted, Failure> {
    let mut place = gate.place();
    let greeting = tokio::select! {
        biased;
        greeting = hello::read(&mut stream, gate.limits.hello_bytes) => greeting?,
        Ok(()) = &mut place.lost => return Err(Failure::CrowdedOut),
    };
    drop(place);
    let Greeting { bytes, hello } = greeting;
    if let Some(hello) = hello {
        match services.find(hello.name.as_deref()) {
            Some(Service::Passthrough(backends)) => {
                return Ok(Greeted::Passed(stream, bytes, Arc::clone(backends)));
            }
            Some(Service::Terminate(_) | Service::Https(_) | Service::Forward(..)) => {}
            found => return Err(refuse(&mut stream, found, &services).await),
        }
    }
    let mut turn = gate.turn().await;
    let accepted = hello::accept(&mut stream, &bytes).await?;
    drop(bytes);
    let service = services.find(accepted.client_hello().server_name());
    let server = match service {
        Some(Service::Terminate(server) | Service::Https(server) | Service::Forward(server, _)) => server,
        found => return Err(refuse(&mut stream, found, &services).await),
    };
    let start = StartHandshake::from_parts(accepted, stream);
    let done = tokio::select! {
        biased;
        done = start.into_stream(Arc::clone(&server.config)) => done,
        Ok(()) = &mut turn.place.lost => return Err(Failure::CrowdedOut),
    };
    let stream = Box::new(done.map_err(|e| failure(&e))?);
    Ok(match service {
        Some(Service::Forward(_, backends)) => Greeted::Forwarded(stream, Arc::clone(backends)),
        Some(Service::Https(_)) => Greeted::Https(stream, Arc::clone(server)),
        _ => Greeted::Terminated(stream, Arc::clone(server)),
    })
}

async fn refuse(stream: &mut TcpStream, found: Option<&Service>, services: &Services) -> Failure {
    let why = match found {
        None | Some(Service::Refused) => Failure::UnknownName,
        Some(Service::Nothing) => Failure::NoCertificate,
        // We and rustls read the name differently: a client that plays tricks.
        Some(_) => Failure::Misbehaved,
    };
    // Where bytes are passed on, TLS is not ours to speak: for a name that no route has, the connection is closed. The conformance suite
    // wants it so.
    let routed = |s: &Service| matches!(s, Service::Passthrough(_) | Service::Forward(..) | Service::Refused);
    if why != Failure::UnknownName || !services.values().any(routed) {
        hello::refuse(stream, why).await;
    }
    why
}

fn failure(error: &io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        None => Failure::Gone,
        Some(rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol) => {
            Failure::Incompatible
        }
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Failure::ClientCertificate
        }
        Some(rustls::Error::AlertReceived(_)) => Failure::Refused,
        Some(_) => Failure::Misbehaved,
    }
}

/// A client of an HTTPS port, where HTTP is carried here.
async fn https(
    stream: Decrypted,
    server: Arc<Server>,
    client: SocketAddr,
    socket: &Arc<str>,
    limits: HttpLimits,
    shared: &Shared,
) {
    let Some(http) = &shared.http else { return };
    // The client is gone already if we cannot tell where it came to.
    let Ok(introduction) = introduction(client, &stream, &server, socket) else { return };
    drop(server);
    let alpn = introduction.alpn.clone();
    let cipher = stream.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite());
    let client = http::Client::new(Arc::clone(http), client, Arc::clone(socket), introduction, limits)
        .with_cipher(cipher);
    if let Some(why) = http::serve(stream, client, alpn.as_deref(), shared.shutdown.clone()).await {
        shared.counters.refused(why);
    }
}

/// A client of a plain port.
async fn plain(
    stream: TcpStream,
    client: SocketAddr,
    socket: &Arc<str>,
    http: Arc<Http>,
    limits: HttpLimits,
    shared: &Shared,
) {
    let Ok(local) = listener_address(&stream, socket) else { return };
    let _ = stream.set_nodelay(true);
    let introduction = proxy::Header { addresses: Some((client, local)), ..proxy::Header::default() };
    let client = http::Client::new(http, client, Arc::clone(socket), introduction, limits);
    if let Some(why) = http::serve(stream, client, None, shared.shutdown.clone()).await {
        shared.counters.refused(why);
    }
}

/// Where the client connected to, as the listener has it: a pod may have opened it on another port.
fn listener_address(stream: &TcpStream, socket: &str) -> io::Result<SocketAddr> {
    let mut local = stream.local_addr()?;
    if let Some((_, port)) = socket_parts(socket) {
        local.set_port(port);
    }
    Ok(local)
}

fn introduction(
    client: SocketAddr,
    stream: &TlsStream<TcpStream>,
    server: &Server,
    socket: &str,
) -> io::Result<proxy::Header> {
    let (stream, tls) = stream.get_ref();
    let local = listener_address(stream, socket)?;
    let version = match tls.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLS",
    };
    let client_certificate = server
        .clients
        .as_ref()
        .and_then(|clients| clients.describe(tls.peer_certificates().unwrap_or_default()));
    Ok(proxy::Header {
        addresses: Some((client, local)),
        alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
        authority: tls.server_name().map(str::to_owned),
        tls: Some(proxy::Tls { version: version.to_owned(), client_certificate }),
    })
}

/// The first bytes of a client; none if it is gone, takes too long, or the front shuts down.
async fn first_bytes(stream: &mut TlsStream<TcpStream>, shared: &Shared) -> Option<Vec<u8>> {
    let mut shutdown = shared.shutdown.clone();
    let ends = async {
        if shutdown.wait_for(|asked| *asked > Shutdown::Run).await.is_err() {
            pending::<()>().await;
        }
    };
    let first = tokio::select! {
        biased;
        first = timeout(FIRST_BYTE, read_some(stream)) => first.ok()?.ok()?,
        () = ends => Vec::new(),
    };
    if first.is_empty() {
        let _ = stream.shutdown().await;
    }
    Some(first).filter(|first| !first.is_empty())
}

async fn reach(shared: &Shared, bytes: &[u8]) -> io::Result<UnixStream> {
    let mut upstream = upstream::connect(&shared.upstream).await?;
    upstream.write_all(bytes).await?;
    Ok(upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, D, E, F, G, T>(_: fn(A, B, C, D, E, F, G) -> T) -> usize {
        size_of::<T>()
    }

    /// What waits for each client as long as it is there, beside the stream itself.
    #[test]
    fn a_connection_is_small() {
        assert!(size(serve) <= 1536, "{}", size(serve));
        assert!(size_of::<TlsStream<TcpStream>>() <= 1536, "{}", size_of::<TlsStream<TcpStream>>());
    }
}
