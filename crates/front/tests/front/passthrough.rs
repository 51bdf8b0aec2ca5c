//! TLSRoutes: by name to endpoints, decrypted or not, on a port with HTTPS.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use certificate::Pair;
use front::{Action, BackendGroup, Backends, Failure, Host};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::sign::SingleCertAndKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::support::{Authority, Client, Front, PATIENCE, Upstream, config, host, hostname};

/// Answers each connection with `word` and what it got, and ends.
async fn plain(word: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move { answer(&mut stream, word).await });
        }
    });
    address
}

async fn answer(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin), word: &str) {
    let mut got = [0; 5];
    stream.read_exact(&mut got).await.unwrap();
    stream.write_all(word.as_bytes()).await.unwrap();
    stream.write_all(&got).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// The same with TLS of its own.
async fn secure(word: &'static str, pair: &Pair) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified_key())));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    answer(&mut stream, word).await;
                }
            });
        }
    });
    address
}

fn to(endpoints: &[SocketAddr]) -> Arc<Backends> {
    Arc::new(Backends {
        groups: vec![BackendGroup {
            name: String::new(),
            weight: 1,
            endpoints: endpoints.to_vec(),
            ..BackendGroup::default()
        }],
    })
}

fn passthrough(name: &str, endpoints: &[SocketAddr]) -> Host {
    Host { action: Action::Passthrough { backends: to(endpoints) }, ..Host::refuse(hostname(name)) }
}

async fn ask(client: &Client, address: SocketAddr, name: &str) -> std::io::Result<String> {
    let mut stream = client.connect(address, name).await?;
    stream.write_all(b"hello").await?;
    let mut got = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut got)).await.unwrap()?;
    Ok(got)
}

#[tokio::test]
async fn one_port_terminates_forwards_and_passes_through_by_name() {
    let mut upstream = Upstream::start();
    let authority = Authority::new();
    let own = authority.ecdsa(&["own.test"]);
    let wild = authority.ecdsa(&["*.wild.test"]);
    let ours = authority.ecdsa(&["https.test", "tcp.test"]);
    let forward =
        Action::Forward { certificates: vec![Arc::clone(&ours)], backends: to(&[plain("plain ").await]) };
    let hosts = vec![
        host("https.test", &[&ours]),
        Host { action: forward, ..Host::refuse(hostname("tcp.test")) },
        passthrough("own.test", &[secure("own ", &own).await]),
        passthrough("*.wild.test", &[secure("wild ", &wild).await]),
    ];
    let front = Front::start(config(hosts), upstream.path()).await;
    let client = Client::new(&authority);
    assert_eq!(ask(&client, front.address, "own.test").await.unwrap(), "own hello");
    assert_eq!(ask(&client, front.address, "a.wild.test").await.unwrap(), "wild hello");
    assert_eq!(ask(&client, front.address, "tcp.test").await.unwrap(), "plain hello");
    let mut stream = client.connect(front.address, "https.test").await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(upstream.header().await.authority.as_deref(), Some("https.test"));
    assert!(ask(&client, front.address, "other.test").await.is_err());
    assert_eq!(front.counters.passed(), 2);
    assert_eq!(front.counters.handshakes(), 2);
    front.until("the other is counted", |counters| counters.failures(Failure::UnknownName) == 1).await;
}

#[tokio::test]
async fn the_backend_ends_tls_and_chooses_the_protocol() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let own = authority.rsa(&["own.test"]);
    let hosts = vec![passthrough("", &[secure("own ", &own).await])];
    let front = Front::start(config(hosts), upstream.path()).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = Client::with_versions(&authority, &[version]);
        let stream = client.connect(front.address, "own.test").await.unwrap();
        assert_eq!(stream.get_ref().1.peer_certificates().unwrap()[0], own.certified_key().cert[0]);
    }
    let nameless = Client::new(&authority).without_name();
    assert_eq!(ask(&nameless, front.address, "own.test").await.unwrap(), "own hello");
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_followed_by_another() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let own = authority.ecdsa(&["own.test"]);
    let dead = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let alive = secure("own ", &own).await;
    let front = Front::start(config(vec![passthrough("own.test", &[dead, alive])]), upstream.path()).await;
    for _ in 0..10 {
        assert_eq!(ask(&Client::new(&authority), front.address, "own.test").await.unwrap(), "own hello");
    }
}

#[tokio::test]
async fn without_an_endpoint_the_connection_is_closed() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let front = Front::start(config(vec![passthrough("own.test", &[])]), upstream.path()).await;
    assert!(ask(&Client::new(&authority), front.address, "own.test").await.is_err());
    front
        .until("counted", |counters| {
            counters.upstream_failures(front::UpstreamFailure::NoEndpoint) == 1 && counters.open() == 0
        })
        .await;
}
