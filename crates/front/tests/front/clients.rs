//! Certificates that clients show.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use front::proxy::ClientCertificate;
use front::{Action, BackendGroup, Backends, ClientMode, ClientValidation, Config, Failure, Host};
use rustls::{RootCertStore, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::{Authority, Client, Front, PATIENCE, Upstream, config, host};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

async fn start(upstream: &Upstream, authority: &Authority, clients: &Authority, mode: ClientMode) -> Front {
    let pair = authority.ecdsa(&["a.test"]);
    let validation = ClientValidation { authorities: clients.authorities(), mode };
    let config = Config {
        client_validation: BTreeMap::from([(0, validation)]),
        ..config(vec![host("a.test", &[&pair])])
    };
    Front::start(config, upstream.path()).await
}

/// In TLS 1.3 a client learns only later that it is not welcome.
async fn ask(client: &Client, front: &Front) -> io::Result<()> {
    let mut stream = client.connect(front.address, "a.test").await?;
    stream.write_all(b"hello").await?;
    timeout(PATIENCE, stream.read_exact(&mut [0; 5])).await.unwrap().map(|_| ())
}

#[tokio::test]
async fn only_valid_certificates_are_served() {
    let mut upstream = Upstream::start();
    let (authority, clients) = (Authority::new(), Authority::new());
    let front = start(&upstream, &authority, &clients, ClientMode::ValidOnly).await;
    for version in VERSIONS {
        let client = Client::with_versions(&authority, &[version]);
        ask(&client.clone().showing(&clients.named("Alice")), &front).await.unwrap();
        let shown = upstream.header().await.tls.unwrap().client_certificate;
        assert_eq!(shown, Some(ClientCertificate { verified: true, common_name: Some("Alice".to_owned()) }));
        assert!(ask(&client, &front).await.is_err());
        assert!(ask(&client.showing(&authority.named("Mallory")), &front).await.is_err());
    }
    front.until("four refused", |counters| counters.failures(Failure::ClientCertificate) == 4).await;
    assert_eq!(front.counters.handshakes(), 2);
}

#[tokio::test]
async fn with_insecure_fallback_varnishd_learns_who_is_valid() {
    let mut upstream = Upstream::start();
    let (authority, clients) = (Authority::new(), Authority::new());
    let front = start(&upstream, &authority, &clients, ClientMode::InsecureFallback).await;
    for version in VERSIONS {
        let client = Client::with_versions(&authority, &[version]);
        for (client, verified) in [
            (client.clone(), None),
            (client.clone().showing(&clients.named("Alice")), Some(true)),
            (client.clone().showing(&authority.named("Mallory")), Some(false)),
        ] {
            ask(&client, &front).await.unwrap();
            let shown = upstream.header().await.tls.unwrap().client_certificate;
            assert_eq!(shown.map(|certificate| certificate.verified), verified);
        }
    }
}

#[tokio::test]
async fn a_session_opens_no_port_that_asks_for_certificates() {
    let upstream = Upstream::start();
    let (authority, clients) = (Authority::new(), Authority::new());
    let front = start(&upstream, &authority, &clients, ClientMode::ValidOnly).await;
    let strict = (*front.config.borrow()).clone();
    let open = Config { client_validation: BTreeMap::new(), ..(*strict).clone() };
    for version in VERSIONS {
        let client = Client::with_versions(&authority, &[version]);
        front.config.send_replace(Arc::new(open.clone()));
        timeout(PATIENCE, async { while ask(&client, &front).await.is_err() {} }).await.unwrap();
        ask(&client, &front).await.unwrap();
        let resumed = front.counters.resumed();
        assert!(resumed > 0);
        front.config.send_replace(Arc::clone(&strict));
        timeout(PATIENCE, async { while ask(&client, &front).await.is_ok() {} }).await.unwrap();
        let resumed = front.counters.resumed();
        assert!(ask(&client, &front).await.is_err());
        assert_eq!(front.counters.resumed(), resumed);
    }
}

#[test]
fn a_list_without_a_ca_is_no_list() {
    use certificate::Authorities;
    for (pem, why) in [
        ("", "ca.crt is empty"),
        ("Hello world", "ca.crt holds no -----BEGIN CERTIFICATE-----; is it PEM?"),
        (
            "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
            "ca.crt holds something that is no certificate, at place 1 of 1",
        ),
    ] {
        assert_eq!(Authorities::new(pem.as_bytes()).unwrap_err().to_string(), why);
    }
    let two = [Authority::new().pem, Authority::new().pem].concat();
    let authorities = Authorities::new(two.as_bytes()).unwrap();
    assert_eq!(RootCertStore::len(&authorities.roots()), 2);
}

#[tokio::test]
async fn a_tls_route_asks_for_no_certificate_on_a_port_that_asks_https_clients() {
    let upstream = Upstream::start();
    let (authority, clients) = (Authority::new(), Authority::new());
    let pair = authority.ecdsa(&["a.test", "tcp.test"]);
    let backends = Arc::new(Backends { groups: vec![group(echo().await)] });
    let action = Action::Forward { certificates: vec![Arc::clone(&pair)], backends };
    let forward = Host { action, ..Host::refuse(Some("tcp.test".to_owned())) };
    let validation = ClientValidation { authorities: clients.authorities(), mode: ClientMode::ValidOnly };
    let config = Config {
        client_validation: BTreeMap::from([(0, validation)]),
        ..config(vec![host("a.test", &[&pair]), forward])
    };
    let front = Front::start(config, upstream.path()).await;
    for version in VERSIONS {
        let client = Client::with_versions(&authority, &[version]);
        let mut stream = client.connect(front.address, "tcp.test").await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        timeout(PATIENCE, stream.read_exact(&mut [0; 5])).await.unwrap().unwrap();
        assert!(ask(&client, &front).await.is_err());
    }
}

fn group(endpoint: SocketAddr) -> BackendGroup {
    BackendGroup { name: "d/tcp".to_owned(), weight: 1, endpoints: vec![endpoint], ..BackendGroup::default() }
}

async fn echo() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}
