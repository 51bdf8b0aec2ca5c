//! PROXY headers of load balancers before TLS.

use std::net::{Ipv4Addr, SocketAddr};

use front::proxy::Header;
use front::{Action, BackendGroup, Backends, Config, Failure, Host, ProxyProtocol, Refusal, TrustedSources};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::support::{Authority, Client, Front, PATIENCE, Upstream, config, host, hostname};

fn balanced(config: Config, from: &str) -> Config {
    let sources = TrustedSources::parse(&[from]).unwrap();
    Config { proxy_protocol: Some(ProxyProtocol { sources, required: true }), ..config }
}

fn header(client: &str) -> Vec<u8> {
    let addresses = Some((client.parse().unwrap(), "10.0.0.1:443".parse().unwrap()));
    Header { addresses, ..Header::default() }.encode()
}

#[tokio::test]
async fn varnishd_learns_the_address_in_the_header() {
    let mut upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let config = balanced(config(vec![host("a.test", &[&pair])]), "127.0.0.0/8");
    let front = Front::start(config, upstream.path()).await;
    for (header, client) in [
        (header("192.0.2.7:5000"), "192.0.2.7:5000"),
        (b"PROXY TCP4 192.0.2.8 10.0.0.1 5001 443\r\n".to_vec(), "192.0.2.8:5001"),
    ] {
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        stream.write_all(&header).await.unwrap();
        let connector = TlsConnector::from(Arc::new(Client::new(&authority).config));
        let name = ServerName::try_from("a.test").unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let (source, destination) = upstream.header().await.addresses.unwrap();
        assert_eq!(source, client.parse::<SocketAddr>().unwrap());
        // What the header says of the destination is ignored.
        assert_eq!(destination, SocketAddr::new(front.address.ip(), 443));
    }
    assert!(Client::new(&authority).connect(front.address, "a.test").await.is_err());
    front.until("counted", |counters| counters.refusals(Refusal::ProxyHeader) == 1).await;
}

#[tokio::test]
async fn a_header_of_a_stranger_is_no_tls() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let config = balanced(config(vec![host("a.test", &[&pair])]), "192.0.2.1");
    let front = Front::start(config, upstream.path()).await;
    assert!(Client::new(&authority).connect(front.address, "a.test").await.is_ok());
    for header in [header("192.0.2.7:5000"), b"PROXY TCP4 192.0.2.8 10.0.0.1 5001 443\r\n".to_vec()] {
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        stream.write_all(&header).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    }
    front.until("counted", |counters| counters.failures(Failure::NotTls) == 2).await;
}

#[tokio::test]
async fn a_backend_behind_a_tls_route_does_not_see_the_header() {
    let upstream = Upstream::start();
    let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let group = BackendGroup {
        name: String::new(),
        weight: 1,
        endpoints: vec![backend.local_addr().unwrap()],
        ..BackendGroup::default()
    };
    let action = Action::Passthrough { backends: Arc::new(Backends { groups: vec![group] }) };
    let own = Host { action, ..Host::refuse(hostname("own.test")) };
    let front = Front::start(balanced(config(vec![own]), "127.0.0.1"), upstream.path()).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&header("192.0.2.7:5000")).await.unwrap();
    let connector = TlsConnector::from(Arc::new(Client::new(&Authority::new()).config));
    let connecting = tokio::spawn(async move {
        let _ = connector.connect(ServerName::try_from("own.test").unwrap(), stream).await;
    });
    let (mut seen, _) = timeout(PATIENCE, backend.accept()).await.unwrap().unwrap();
    // The beginning of a ClientHello.
    assert_eq!(timeout(PATIENCE, seen.read_u16()).await.unwrap().unwrap(), 0x1603);
    drop(seen);
    connecting.await.unwrap();
}
