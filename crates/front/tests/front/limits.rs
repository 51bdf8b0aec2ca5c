//! Clients that take too much.

use std::sync::Arc;
use std::time::Duration;

use front::{Config, Failure, Limits};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::support::{Authority, Client, Front, PATIENCE, Upstream, config, host};

async fn start(upstream: &Upstream, authority: &Authority, limits: Limits) -> Front {
    let pair = authority.ecdsa(&["a.test"]);
    Front::start(Config { limits, ..config(vec![host("a.test", &[&pair])]) }, upstream.path()).await
}

/// How the front leaves: what it said last.
async fn last_words(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut got)).await.unwrap();
    got
}

#[tokio::test]
async fn a_silent_client_is_sent_away() {
    let upstream = Upstream::start();
    let limits = Limits { handshake_timeout: Duration::from_millis(200), ..Limits::default() };
    let front = start(&upstream, &Authority::new(), limits).await;
    let mut silent = TcpStream::connect(front.address).await.unwrap();
    let began = Instant::now();
    assert_eq!(last_words(&mut silent).await, b"");
    assert!(began.elapsed() < Duration::from_secs(5));
    // One who sends a byte now and then gets no more time.
    let mut slow = TcpStream::connect(front.address).await.unwrap();
    for byte in [22, 3, 1, 2, 0, 1] {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let _ = slow.write_all(&[byte]).await;
    }
    front.until("two timeouts", |counters| counters.failures(Failure::Timeout) == 2).await;
}

#[tokio::test]
async fn what_is_no_tls_is_told_so() {
    let upstream = Upstream::start();
    let front = start(&upstream, &Authority::new(), Limits::default()).await;
    let mut plain = TcpStream::connect(front.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    let words = last_words(&mut plain).await;
    assert_eq!(words.first(), Some(&21), "an alert, not {words:?}");
    let gone = TcpStream::connect(front.address).await.unwrap();
    drop(gone);
    front
        .until("both", |counters| {
            counters.failures(Failure::NotTls) == 1
                && counters.failures(Failure::Gone) == 1
                && counters.open() == 0
        })
        .await;
}

#[tokio::test]
async fn a_hello_without_end_is_cut() {
    let upstream = Upstream::start();
    let front = start(&upstream, &Authority::new(), Limits::default()).await;
    let mut endless = TcpStream::connect(front.address).await.unwrap();
    // Records of a handshake message that says it has 16 MiB.
    let mut bytes = vec![22, 3, 1, 0x3f, 0xff, 1, 0xff, 0xff, 0xff];
    bytes.resize(5 + 0x3fff, 0);
    for _ in 0..8 {
        if endless.write_all(&bytes).await.is_err() {
            break;
        }
        bytes.splice(5..9, [0; 4]);
    }
    front
        .until("cut", |counters| {
            counters.failures(Failure::TooLarge) + counters.failures(Failure::NotTls) == 1
                && counters.open() == 0
        })
        .await;
    let small = Limits { hello_bytes: 100, ..Limits::default() };
    let authority = Authority::new();
    let front = start(&upstream, &authority, small).await;
    assert!(Client::new(&authority).connect(front.address, "a.test").await.is_err());
    front.until("too large", |counters| counters.failures(Failure::TooLarge) == 1).await;
}

#[tokio::test]
async fn silent_clients_take_nobodys_turn() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let limits = Limits { concurrent_handshakes: 2, ..Limits::default() };
    let front = start(&upstream, &authority, limits).await;
    let mut silent = Vec::new();
    // More than may wait: the oldest have to go.
    for _ in 0..50 {
        silent.push(TcpStream::connect(front.address).await.unwrap());
    }
    // All have taken their places: none of them comes after the one who speaks.
    front.until("the oldest are gone", |counters| counters.failures(Failure::CrowdedOut) >= 42).await;
    let began = Instant::now();
    timeout(PATIENCE, Client::new(&authority).connect(front.address, "a.test")).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(last_words(&mut silent[0]).await, b"");
}

/// A hello, and not a word after it.
async fn stalled(front: &Front, authority: &Authority) -> TcpStream {
    let config = Arc::new(Client::new(authority).config);
    let mut tls = ClientConnection::new(config, ServerName::try_from("a.test").unwrap()).unwrap();
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).unwrap();
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    stream
}

#[tokio::test]
async fn clients_that_stall_in_the_handshake_do_not_hold_up_others() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let limits = Limits { concurrent_handshakes: 2, ..Limits::default() };
    let front = start(&upstream, &authority, limits).await;
    let mut all = Vec::new();
    for _ in 0..2 {
        let mut one = stalled(&front, &authority).await;
        // The front's part is done: it waits for ours.
        one.read_u8().await.unwrap();
        all.push(one);
    }
    let began = Instant::now();
    timeout(PATIENCE, Client::new(&authority).connect(front.address, "a.test")).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    front.until("one had to go", |counters| counters.failures(Failure::CrowdedOut) >= 1).await;
}

#[tokio::test]
async fn many_at_once_wait_for_their_turn_and_nobody_is_sent_away() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let limits = Limits { concurrent_handshakes: 6, ..Limits::default() };
    let front = start(&upstream, &authority, limits).await;
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (client, address) = (Client::new(&authority), front.address);
        all.spawn(async move { client.connect(address, "a.test").await.map(drop) });
    }
    while let Some(done) = timeout(PATIENCE, all.join_next()).await.unwrap() {
        done.unwrap().unwrap();
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let front = start(&upstream, &authority, Limits { connections: 1, ..Limits::default() }).await;
    let client = Client::new(&authority);
    let first = client.connect(front.address, "a.test").await.unwrap();
    let second = tokio::spawn(async move { client.connect(front.address, "a.test").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!second.is_finished());
    drop(first);
    timeout(PATIENCE, second).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_thousand_strangers_with_garbage_harm_nobody() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let front = start(&upstream, &authority, Limits::default()).await;
    for seed in 0..1000_u32 {
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        let mut bytes: Vec<u8> =
            (0..64).map(|i| (seed.wrapping_mul(2_654_435_761).rotate_left(i) >> 3) as u8).collect();
        if seed % 2 == 0 {
            bytes[..6].copy_from_slice(&[22, 3, 1, 0, 59, 1]);
        }
        let _ = stream.write_all(&bytes).await;
    }
    assert!(Client::new(&authority).connect(front.address, "a.test").await.is_ok());
    front
        .until("all counted", |counters| {
            Failure::ALL.iter().map(|why| counters.failures(*why)).sum::<u64>() == 1000
        })
        .await;
}
