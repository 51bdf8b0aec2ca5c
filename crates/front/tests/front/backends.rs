//! TLS to backends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use certificate::Pair;
use front::proxy::Header;
use front::{
    BackendCounters, BackendEvent, BackendFailure, BackendName, BackendSide, BackendTls, Profiles, Shutdown,
    Trust, run_backends,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::support::{Authority, PATIENCE};

/// What the front's own answers carry.
const PROOF: &str = "a secret of this start";

/// What a backend saw of a connection.
#[derive(Debug, PartialEq)]
struct Seen {
    name: Option<String>,
    client: bool,
}

/// Echoes.
async fn origin(pair: &Pair, clients: Option<&Authority>) -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = match clients {
        None => builder.unwrap().with_no_client_auth(),
        Some(clients) => builder.unwrap().with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(clients.roots()), provider).build().unwrap(),
        ),
    };
    let config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified_key())));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, tell) = (acceptor.clone(), tell.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let tls = stream.get_ref().1;
                let name = tls.server_name().map(str::to_owned);
                let _ = tell.send(Seen { name, client: tls.peer_certificates().is_some() });
                let (mut read, mut write) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    (address, seen)
}

struct Way {
    directory: TempDir,
    profiles: watch::Sender<Arc<Profiles>>,
    counters: Arc<BackendCounters>,
    events: mpsc::UnboundedReceiver<BackendEvent>,
    _shutdown: watch::Sender<Shutdown>,
}

impl Way {
    /// With one profile, `p`.
    async fn start(profile: BackendTls) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Left behind by one that died.
        std::fs::write(directory.path().join("backend.sock"), "").unwrap();
        let (profiles, watched) = watch::channel(Arc::new(Profiles::from([("p".to_owned(), profile)])));
        let (shutdown, shutdowns) = watch::channel(Shutdown::Run);
        let (tell, events) = mpsc::unbounded_channel();
        let counters = Arc::new(BackendCounters::default());
        let report = move |event| {
            let _ = tell.send(event);
        };
        let socket = directory.path().join("backend.sock");
        let peers = watch::Sender::default().subscribe();
        tokio::spawn(run_backends(
            watched,
            peers,
            socket.clone(),
            BackendSide::new(report, Arc::clone(&counters)),
            shutdowns,
            (PROOF.into(), None),
        ));
        let mut way = Self { directory, profiles, counters, events, _shutdown: shutdown };
        assert_eq!(way.event().await, BackendEvent::Listening { path: socket });
        way
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("backend.sock")
    }

    async fn event(&mut self) -> BackendEvent {
        timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap()
    }

    /// As varnishd does it: what comes back, or nothing where the front says that it has not reached the backend.
    async fn ask(&self, endpoint: SocketAddr, profile: &str) -> Option<Vec<u8>> {
        let mut stream = UnixStream::connect(self.path()).await.unwrap();
        let addresses = Some((SocketAddr::from(([0; 4], 0)), endpoint));
        let header = Header { addresses, authority: Some(profile.to_owned()), ..Header::default() }.encode();
        // One write, as one packet: nothing may be lost behind the header.
        stream.write_all(&[&header[..], b"hello"].concat()).await.unwrap();
        let mut got = vec![0; 5];
        timeout(PATIENCE, stream.read_exact(&mut got)).await.unwrap().ok()?;
        if got == b"HTTP/" {
            let mut rest = String::new();
            stream.shutdown().await.unwrap();
            timeout(PATIENCE, stream.read_to_string(&mut rest)).await.unwrap().unwrap();
            assert!(rest.starts_with("1.1 502 Backend TLS: "), "{rest}");
            assert!(rest.contains(&format!("\r\nX-Ghost-Front: {PROOF}\r\n")), "{rest}");
            return None;
        }
        Some(got)
    }

    async fn fails(&mut self, endpoint: SocketAddr, reason: BackendFailure) -> String {
        assert_eq!(self.ask(endpoint, "p").await, None, "{reason:?}");
        assert_eq!(self.counters.failures(reason), 1, "{:?}", self.counters);
        match self.event().await {
            BackendEvent::Failed { profile, endpoint: told, reason: why, why: words } => {
                assert_eq!((profile.as_str(), told, why), ("p", endpoint, reason));
                words
            }
            other => panic!("{other:?}"),
        }
    }
}

fn profile(authority: &Authority, hostname: &str, names: &[BackendName]) -> BackendTls {
    BackendTls {
        hostname: hostname.to_owned(),
        names: names.to_vec(),
        trust: Trust::Authorities(authority.authorities()),
        client: None,
        alpn: true,
        connect_timeout: PATIENCE,
        options: model::TlsOptions::default(),
    }
}

fn dns(name: &str) -> BackendName {
    BackendName::Dns(name.to_owned())
}

fn uri(name: &str) -> BackendName {
    BackendName::Uri(name.to_owned())
}

#[tokio::test]
async fn a_backend_with_the_right_name_is_served_and_sees_it() {
    let authority = Authority::new();
    let (endpoint, mut seen) = origin(&authority.ecdsa(&["shop.test"]), None).await;
    let way = Way::start(profile(&authority, "shop.test", &[])).await;
    for _ in 0..3 {
        assert_eq!(way.ask(endpoint, "p").await.as_deref(), Some(&b"hello"[..]));
        assert_eq!(seen.recv().await.unwrap(), Seen { name: Some("shop.test".to_owned()), client: false });
    }
    assert_eq!(way.counters.handshakes(), 3);
    assert!(way.counters.resumed() > 0);
    assert_eq!(way.counters.to_backends(), 15);
}

#[tokio::test]
async fn what_cannot_be_verified_is_not_served() {
    let authority = Authority::new();
    let (endpoint, _seen) = origin(&authority.ecdsa(&["shop.test"]), None).await;
    let words = Way::start(profile(&authority, "other.test", &[]))
        .await
        .fails(endpoint, BackendFailure::WrongName)
        .await;
    assert!(words.contains("other.test"), "{words}");
    let mut stranger = Way::start(profile(&Authority::new(), "shop.test", &[])).await;
    stranger.fails(endpoint, BackendFailure::Untrusted).await;
    let (endpoint, _seen) = origin(&authority.expired(&["shop.test"]), None).await;
    Way::start(profile(&authority, "shop.test", &[])).await.fails(endpoint, BackendFailure::Expired).await;
}

#[tokio::test]
async fn where_names_are_given_they_count_and_the_hostname_is_only_sent() {
    let authority = Authority::new();
    let pair = authority.with_uris(&["shop.test"], &["spiffe://cluster.local/ns/shop/sa/web"]);
    let (endpoint, mut seen) = origin(&pair, None).await;
    for names in [
        &[dns("shop.test")][..],
        &[dns("*.test")],
        &[dns("wrong.test"), uri("spiffe://cluster.local/ns/shop/sa/web")],
    ] {
        let way = Way::start(profile(&authority, "sent.test", names)).await;
        assert!(way.ask(endpoint, "p").await.is_some(), "{names:?}");
        assert_eq!(seen.recv().await.unwrap().name.as_deref(), Some("sent.test"));
    }
    for names in [
        &[dns("sent.test")][..],
        &[dns("*.shop.test")],
        &[uri("spiffe://cluster.local/ns/shop/sa/we")],
        &[uri("spiffe://cluster.local/ns/shop/sa/WEB")],
        &[uri("shop.test")],
        &[dns("spiffe://cluster.local/ns/shop/sa/web")],
    ] {
        Way::start(profile(&authority, "shop.test", names))
            .await
            .fails(endpoint, BackendFailure::WrongName)
            .await;
    }
}

#[tokio::test]
async fn a_self_signed_certificate_vouches_for_itself_where_it_is_named() {
    let (pair, pem) = Authority::self_signed(&["shop.test"]);
    let (endpoint, _seen) = origin(&pair, None).await;
    let trust = Trust::Authorities(Arc::new(certificate::Authorities::new(pem.as_bytes()).unwrap()));
    let named = BackendTls {
        hostname: "shop.test".to_owned(),
        names: vec![],
        trust,
        client: None,
        alpn: true,
        connect_timeout: PATIENCE,
        options: model::TlsOptions::default(),
    };
    let way = Way::start(named.clone()).await;
    assert!(way.ask(endpoint, "p").await.is_some());
    let other = BackendTls { hostname: "other.test".to_owned(), ..named };
    Way::start(other).await.fails(endpoint, BackendFailure::WrongName).await;
}

#[tokio::test]
async fn a_backend_that_asks_gets_our_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (endpoint, mut seen) = origin(&authority.ecdsa(&["shop.test"]), Some(&clients)).await;
    let mut showing = profile(&authority, "shop.test", &[]);
    showing.client = Some(clients.named("gateway"));
    let way = Way::start(showing).await;
    assert!(way.ask(endpoint, "p").await.is_some());
    assert!(seen.recv().await.unwrap().client);
    assert_eq!(way.counters.handshakes(), 1);
}

/// In TLS 1.3 this comes after the handshake, instead of an answer.
#[tokio::test]
async fn a_backend_that_refuses_our_certificate_is_told_once_and_is_not_verified() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (endpoint, _seen) = origin(&authority.ecdsa(&["shop.test"]), Some(&clients)).await;
    for (shown, word) in [(None, "CertificateRequired"), (Some(authority.named("stranger")), "fatal alert")] {
        let showing = BackendTls { client: shown, ..profile(&authority, "shop.test", &[]) };
        let mut way = Way::start(showing).await;
        let words = way.fails(endpoint, BackendFailure::Refused).await;
        assert!(words.contains(word), "{words}");
        for _ in 0..3 {
            assert_eq!(way.ask(endpoint, "p").await, None);
        }
        assert_eq!(way.counters.failures(BackendFailure::Refused), 4);
        assert!(way.events.try_recv().is_err());
        assert_eq!(way.counters.handshakes(), 0);
    }
}

#[tokio::test]
async fn nobody_there_no_tls_and_no_profile() {
    let authority = Authority::new();
    let dead = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let mut way = Way::start(profile(&authority, "shop.test", &[])).await;
    way.fails(dead, BackendFailure::Unreachable).await;

    let plain = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(first[0], 22, "never plain text");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    way.fails(address, BackendFailure::Incompatible).await;

    assert_eq!(way.ask(dead, "unknown").await, None);
    assert_eq!(way.counters.failures(BackendFailure::UnknownProfile), 1);
    let mut garbage = UnixStream::connect(way.path()).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await.unwrap();
    let mut got = Vec::new();
    let _ = timeout(PATIENCE, garbage.read_to_end(&mut got)).await.unwrap();
    assert!(got.is_empty());
    assert_eq!(way.counters.failures(BackendFailure::NotProxy), 1);
}

#[tokio::test]
async fn a_failure_is_told_once() {
    let authority = Authority::new();
    let (endpoint, _seen) = origin(&authority.ecdsa(&["shop.test"]), None).await;
    let mut way = Way::start(profile(&authority, "other.test", &[])).await;
    way.fails(endpoint, BackendFailure::WrongName).await;
    for _ in 0..3 {
        assert_eq!(way.ask(endpoint, "p").await, None);
    }
    assert_eq!(way.counters.failures(BackendFailure::WrongName), 4);
    assert!(way.events.try_recv().is_err());
}

#[tokio::test]
async fn a_changed_profile_counts_for_the_next_connection() {
    let authority = Authority::new();
    let (endpoint, _seen) = origin(&authority.ecdsa(&["shop.test"]), None).await;
    let mut way = Way::start(profile(&authority, "other.test", &[])).await;
    way.fails(endpoint, BackendFailure::WrongName).await;
    let right = profile(&authority, "shop.test", &[]);
    way.profiles.send_replace(Arc::new(Profiles::from([("p".to_owned(), right)])));
    let served = async {
        while way.ask(endpoint, "p").await.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, served).await.unwrap();
    let bad = profile(&authority, "no hostname", &[]);
    way.profiles.send_replace(Arc::new(Profiles::from([("q".to_owned(), bad)])));
    loop {
        match way.event().await {
            BackendEvent::BadProfile { profile, why } => {
                assert_eq!((profile.as_str(), why.as_str()), ("q", "no hostname is not a hostname"));
                break;
            }
            BackendEvent::Failed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(way.ask(endpoint, "p").await, None);
}
