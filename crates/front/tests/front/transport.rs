//! What varnishd learns of connections, and how bytes travel.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use front::{Config, Listener, Shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::time::timeout;

use crate::support::{
    Authority, Client, Front, PATIENCE, Upstream, config, echo, host, listener, take_header,
};

/// The socket is `https-443`, wherever it is opened.
fn of_listener(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 443)
}

#[tokio::test]
async fn varnishd_learns_of_the_client_the_port_the_name_and_the_protocol() {
    let mut upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let client = Client::new(&authority).alpn(&["h2", "http/1.1"]);
    let mut stream = client.connect(front.address, "a.test").await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let header = upstream.header().await;
    assert_eq!(
        header.addresses,
        Some((stream.get_ref().0.local_addr().unwrap(), of_listener(front.address)))
    );
    assert_eq!(header.authority.as_deref(), Some("a.test"));
    assert_eq!(header.alpn.as_deref(), Some(&b"h2"[..]));
    assert_eq!(header.tls.unwrap().version, "TLSv1.3");

    let old = Client::with_versions(&authority, &[&rustls::version::TLS12]);
    let mut stream = old.connect(front.address, "a.test").await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let header = upstream.header().await;
    assert_eq!(header.alpn, None);
    assert_eq!(header.tls.unwrap().version, "TLSv1.2");
}

#[tokio::test]
async fn one_listener_serves_ipv4_and_ipv6() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return;
    }
    let mut upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), front.address.port());
    let mut stream = Client::new(&authority).connect(address, "a.test").await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let header = upstream.header().await;
    assert_eq!(header.addresses, Some((stream.get_ref().0.local_addr().unwrap(), of_listener(address))));
}

#[tokio::test]
async fn a_listener_with_an_address_has_no_other() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let only = Listener { address: Some(IpAddr::from([127, 0, 0, 2])), ..listener(vec![host("", &[&pair])]) };
    let front = Front::start(Config { listeners: vec![only], ..Config::default() }, upstream.path()).await;
    assert_eq!(front.address.ip(), IpAddr::from([127, 0, 0, 2]));
    assert!(Client::new(&authority).connect(front.address, "a.test").await.is_ok());
    let elsewhere = SocketAddr::from(([127, 0, 0, 1], front.address.port()));
    assert!(Client::new(&authority).connect(elsewhere, "a.test").await.is_err());
}

#[tokio::test]
async fn http2_is_offered_only_where_asked_for() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let front =
        Front::start(Config { http2: false, ..config(vec![host("a.test", &[&pair])]) }, upstream.path())
            .await;
    let client = Client::new(&authority).alpn(&["h2", "http/1.1"]);
    let stream = client.connect(front.address, "a.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn many_bytes_go_both_ways_at_once_and_arrive_whole() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
    let sent: Vec<u8> = (0..16_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut read, mut write) = tokio::io::split(stream);
    let writing = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let reading = async {
        let mut got = Vec::new();
        read.read_to_end(&mut got).await.unwrap();
        got
    };
    let (got, ()) = timeout(PATIENCE * 3, async { tokio::join!(reading, writing) }).await.unwrap();
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    assert_eq!(front.counters.from_clients(), sent.len() as u64);
    assert_eq!(front.counters.to_clients(), sent.len() as u64);
    front.until("closed", |counters| counters.open() == 0).await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_everything() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let path = upstream.directory.path().join("long.sock");
    let server = UnixListener::bind(&path).unwrap();
    let front = Front::start(config(vec![host("a.test", &[&pair])]), path).await;
    let serving = async {
        let (mut stream, _) = server.accept().await.unwrap();
        take_header(&mut stream).await;
        stream.write_all(&vec![7; 4 << 20]).await.unwrap();
    };
    let reading = async {
        let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let (mut total, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            let count = stream.read(&mut buffer).await.unwrap();
            if count == 0 {
                return total;
            }
            total += count;
            if total < 1 << 20 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    let (total, ()) = timeout(PATIENCE * 3, async { tokio::join!(reading, serving) }).await.unwrap();
    assert_eq!(total, 4 << 20);
}

#[tokio::test]
async fn the_end_of_varnishd_is_a_close_notify() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let path = upstream.directory.path().join("short.sock");
    let server = UnixListener::bind(&path).unwrap();
    let front = Front::start(config(vec![host("a.test", &[&pair])]), path).await;
    let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let (mut served, _) = server.accept().await.unwrap();
    take_header(&mut served).await;
    served.write_all(b"bye").await.unwrap();
    drop(served);
    let mut got = Vec::new();
    // rustls gives an error for an end without close_notify.
    stream.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"bye");
    // What is written now has no reader, and does no harm.
    let _ = stream.write_all(b"too late").await;
    drop(stream);
    front.until("closed", |counters| counters.open() == 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_without_a_word_ends_its_connection() {
    let mut upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    upstream.header().await;
    let (tcp, _) = stream.into_inner();
    drop(tcp);
    front.until("closed", |counters| counters.open() == 0).await;
}

#[tokio::test]
async fn varnishd_hears_nothing_of_a_client_that_says_nothing() {
    let mut upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let client = Client::new(&authority);
    let stream = client.connect(front.address, "a.test").await.unwrap();
    let mut waiting = client.connect(front.address, "a.test").await.unwrap();
    front.until("both are there", |counters| counters.handshakes() == 2).await;
    drop(stream);
    front.until("one is gone", |counters| counters.open() == 1).await;
    assert!(upstream.headers.try_recv().is_err());
    // Who waits for nothing does not hold up the end.
    front.shutdown.send_replace(Shutdown::Drain);
    assert_eq!(timeout(PATIENCE, waiting.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
    timeout(PATIENCE, front.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_varnishd_that_comes_back_soon_is_waited_for() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let path = upstream.directory.path().join("later.sock");
    let front = Front::start(config(vec![host("a.test", &[&pair])]), path.clone()).await;
    let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
    stream.write_all(b"patience").await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    let _headers = echo(&path);
    let mut answer = [0; 8];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"patience");
}

#[tokio::test]
async fn a_varnishd_that_stays_away_ends_the_connection() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let path = upstream.directory.path().join("never.sock");
    let front = Front::start(config(vec![host("a.test", &[&pair])]), path).await;
    let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let ended = timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap();
    assert!(!matches!(ended, Ok(1..)));
    front
        .until("counted", |counters| {
            counters.upstream_failures(front::UpstreamFailure::Varnishd) == 1 && counters.open() == 0
        })
        .await;
}
