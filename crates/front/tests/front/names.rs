//! Which certificate a client gets.

use std::sync::Arc;

use certificate::Pair;
use front::Failure;
use rustls::{AlertDescription, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::{Authority, Client, Front, Upstream, config, host};

fn shown(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn der(pair: &Pair) -> Vec<u8> {
    pair.certified_key().cert[0].to_vec()
}

fn alert(error: &std::io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

#[tokio::test]
async fn exact_goes_before_wildcard_before_any_name() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let exact = authority.ecdsa(&["shop.example.com"]);
    let wild = authority.ecdsa(&["*.example.com", "deep.down.example.com"]);
    let any = authority.ecdsa(&["example.org", "localhost"]);
    let hosts = vec![host("", &[&any]), host("*.example.com", &[&wild]), host("shop.example.com", &[&exact])];
    let front = Front::start(config(hosts), upstream.path()).await;
    let client = Client::new(&authority);
    for (name, pair) in [
        ("shop.example.com", &exact),
        ("other.example.com", &wild),
        ("deep.down.example.com", &wild),
        ("example.org", &any),
    ] {
        let stream = client.connect(front.address, name).await.unwrap();
        assert_eq!(shown(&stream), der(pair), "{name}");
    }
    let nameless = client.clone().without_name().connect(front.address, "localhost").await.unwrap();
    assert_eq!(shown(&nameless), der(&any));
}

#[tokio::test]
async fn unknown_names_and_no_name_are_refused_in_the_handshake() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["*.example.com", "example.org"]);
    let front = Front::start(config(vec![host("*.example.com", &[&pair])]), upstream.path()).await;
    let client = Client::new(&authority);
    let refused = client.connect(front.address, "example.org").await.unwrap_err();
    assert_eq!(alert(&refused), Some(AlertDescription::UnrecognisedName));
    let refused = client.clone().without_name().connect(front.address, "example.org").await.unwrap_err();
    assert_eq!(alert(&refused), Some(AlertDescription::UnrecognisedName));
    assert!(client.connect(front.address, "a.example.com").await.is_ok());
    front.until("two failures", |counters| counters.failures(Failure::UnknownName) == 2).await;
}

#[tokio::test]
async fn a_host_without_certificates_is_refused() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let front = Front::start(config(vec![host("a.test", &[])]), upstream.path()).await;
    let refused = Client::new(&authority).connect(front.address, "a.test").await.unwrap_err();
    assert_eq!(alert(&refused), Some(AlertDescription::UnrecognisedName));
    front.until("one failure", |counters| counters.failures(Failure::NoCertificate) == 1).await;
}

#[tokio::test]
async fn of_several_certificates_the_one_that_covers_the_name_is_shown() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let other = authority.ecdsa(&["other.test"]);
    let wild = authority.ecdsa(&["*.example.com"]);
    let exact = authority.rsa(&["shop.example.com"]);
    let front = Front::start(config(vec![host("", &[&other, &wild, &exact])]), upstream.path()).await;
    let client =
        Client::with_schemes(&[SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]);
    for (name, pair) in
        [("shop.example.com", &exact), ("b.example.com", &wild), ("other.test", &other), ("c.test", &other)]
    {
        let stream = client.connect(front.address, name).await.unwrap();
        assert_eq!(shown(&stream), der(pair), "{name}");
    }
}

#[tokio::test]
async fn one_that_has_expired_goes_behind_those_that_have_not() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let (expired, wild) = (authority.expired(&["a.test"]), authority.rsa(&["*.test"]));
    let other = authority.ecdsa(&["other.example"]);
    let front = Front::start(config(vec![host("a.test", &[&expired, &other, &wild])]), upstream.path()).await;
    let client =
        Client::with_schemes(&[SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]);
    let stream = client.connect(front.address, "a.test").await.unwrap();
    assert_eq!(shown(&stream), der(&wild));
}

#[tokio::test]
async fn ecdsa_is_preferred_and_rsa_is_for_those_who_cannot() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let rsa = authority.rsa(&["a.test"]);
    let ecdsa = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&rsa, &ecdsa])]), upstream.path()).await;
    let both = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::ECDSA_NISTP256_SHA256];
    for (schemes, pair) in [(&both[..], &ecdsa), (&both[..1], &rsa), (&both[1..], &ecdsa)] {
        let stream = Client::with_schemes(schemes).connect(front.address, "a.test").await.unwrap();
        assert_eq!(shown(&stream), der(pair), "{schemes:?}");
    }
    let neither = Client::with_schemes(&[SignatureScheme::ED25519]).connect(front.address, "a.test").await;
    assert_eq!(alert(&neither.unwrap_err()), Some(AlertDescription::HandshakeFailure));
    front.until("incompatible", |counters| counters.failures(Failure::Incompatible) == 1).await;
}

#[tokio::test]
async fn a_client_that_distrusts_the_certificate_is_counted() {
    let upstream = Upstream::start();
    let pair = Authority::new().ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let stranger = Client::with_versions(&Authority::new(), &[&rustls::version::TLS12]);
    assert!(stranger.connect(front.address, "a.test").await.is_err());
    front.until("refused", |counters| counters.failures(Failure::Refused) == 1).await;
}

#[tokio::test]
async fn a_session_is_resumed_for_its_own_name_only() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let one = authority.ecdsa(&["one.test"]);
    let two = authority.ecdsa(&["two.test"]);
    let front =
        Front::start(config(vec![host("one.test", &[&one]), host("two.test", &[&two])]), upstream.path())
            .await;
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let client = Client::with_versions(&authority, versions);
        let before = front.counters.resumed();
        for _ in 0..3 {
            exchange(&client, &front, "one.test").await;
        }
        assert_eq!(front.counters.resumed() - before, 2, "{versions:?}");
        // New certificates do not end sessions.
        front.config.send_replace(Arc::new(config(vec![
            host("one.test", &[&authority.ecdsa(&["one.test"])]),
            host("two.test", &[&two]),
        ])));
        exchange(&client, &front, "one.test").await;
        exchange(&client, &front, "two.test").await;
        assert_eq!(front.counters.resumed() - before, 3, "{versions:?}");
    }
}

#[tokio::test]
async fn a_session_of_one_name_does_not_open_another() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let both = authority.ecdsa(&["one.test", "two.test"]);
    let front =
        Front::start(config(vec![host("one.test", &[&both]), host("two.test", &[&both])]), upstream.path())
            .await;
    let tickets = Arc::new(AnyName::default());
    let mut client = Client::new(&authority);
    client.config.resumption = rustls::client::Resumption::store(tickets);
    exchange(&client, &front, "one.test").await;
    exchange(&client, &front, "two.test").await;
    assert_eq!(front.counters.resumed(), 0);
    exchange(&client, &front, "two.test").await;
    assert_eq!(front.counters.resumed(), 1);
}

async fn exchange(client: &Client, front: &Front, name: &str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = client.connect(front.address, name).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"hello");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut answer).await.unwrap(), 0);
}

/// A client's store that offers the latest ticket whatever the name.
#[derive(Debug, Default)]
struct AnyName(std::sync::Mutex<Vec<rustls::client::Tls13ClientSessionValue>>);

impl rustls::client::ClientSessionStore for AnyName {
    fn set_kx_hint(&self, _: rustls::pki_types::ServerName<'static>, _: rustls::NamedGroup) {}
    fn kx_hint(&self, _: &rustls::pki_types::ServerName<'_>) -> Option<rustls::NamedGroup> {
        None
    }
    fn set_tls12_session(
        &self,
        _: rustls::pki_types::ServerName<'static>,
        _: rustls::client::Tls12ClientSessionValue,
    ) {
    }
    fn tls12_session(
        &self,
        _: &rustls::pki_types::ServerName<'_>,
    ) -> Option<rustls::client::Tls12ClientSessionValue> {
        None
    }
    fn remove_tls12_session(&self, _: &rustls::pki_types::ServerName<'static>) {}
    fn insert_tls13_ticket(
        &self,
        _: rustls::pki_types::ServerName<'static>,
        value: rustls::client::Tls13ClientSessionValue,
    ) {
        self.0.lock().unwrap().push(value);
    }
    fn take_tls13_ticket(
        &self,
        _: &rustls::pki_types::ServerName<'static>,
    ) -> Option<rustls::client::Tls13ClientSessionValue> {
        self.0.lock().unwrap().pop()
    }
}
