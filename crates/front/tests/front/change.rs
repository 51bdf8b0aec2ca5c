//! Changes while clients are there.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use front::{Config, Event, Listener, Shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::support::{Authority, Client, Front, PATIENCE, Upstream, config, host, listener, loopback};

async fn echoes(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(b"still there?").await.unwrap();
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
}

fn free_port() -> u16 {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn new_certificates_are_for_new_connections() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let old = authority.ecdsa(&["a.test"]);
    let new = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&old])]), upstream.path()).await;
    let client = Client::new(&authority);
    let mut before = client.connect(front.address, "a.test").await.unwrap();
    front.config.send_replace(Arc::new(config(vec![host("a.test", &[&new])])));
    let shows_new = async {
        loop {
            // No resumption, or the certificate would be the old one.
            let fresh = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
            if fresh.get_ref().1.peer_certificates().unwrap()[0] == new.certified_key().cert[0] {
                break;
            }
        }
    };
    timeout(PATIENCE, shows_new).await.unwrap();
    echoes(&mut before).await;
}

#[tokio::test]
async fn certificates_change_all_the_time_and_no_handshake_fails() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pairs = [authority.ecdsa(&["a.test"]), authority.ecdsa(&["a.test"])];
    let front = Front::start(config(vec![host("a.test", &[&pairs[0]])]), upstream.path()).await;
    for round in 0..50 {
        front.config.send_replace(Arc::new(config(vec![host("a.test", &[&pairs[round % 2]])])));
        let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
        echoes(&mut stream).await;
    }
}

#[tokio::test]
async fn ports_open_and_close_as_the_configuration_says() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let mut front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let first = front.address;
    let mut kept = Client::new(&authority).connect(first, "a.test").await.unwrap();

    let second = Listener {
        socket: "https-8443".to_owned(),
        port: free_port(),
        ..listener(vec![host("a.test", &[&pair])])
    };
    let both = Config {
        listeners: vec![listener(vec![host("a.test", &[&pair])]), second.clone()],
        ..Config::default()
    };
    front.config.send_replace(Arc::new(both));
    let Event::Listening { socket, address } = front.event().await else { panic!() };
    assert_eq!((socket.as_str(), address.port()), ("https-8443", second.port));
    assert!(Client::new(&authority).connect(loopback(address), "a.test").await.is_ok());
    assert!(Client::new(&authority).connect(first, "a.test").await.is_ok());

    front.config.send_replace(Arc::new(Config { listeners: vec![second], ..Config::default() }));
    assert_eq!(front.event().await, Event::Closed { socket: "https-443".to_owned() });
    assert!(Client::new(&authority).connect(first, "a.test").await.is_err());
    echoes(&mut kept).await;
}

#[tokio::test]
async fn two_listeners_of_one_port_share_it() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let a = authority.ecdsa(&["a.test"]);
    let b = authority.ecdsa(&["b.test"]);
    let listeners = vec![listener(vec![host("a.test", &[&a])]), listener(vec![host("b.test", &[&b])])];
    let front = Front::start(Config { listeners, ..Config::default() }, upstream.path()).await;
    for name in ["a.test", "b.test"] {
        assert!(Client::new(&authority).connect(front.address, name).await.is_ok());
    }
}

#[tokio::test]
async fn a_port_that_another_has_is_told_and_tried_again() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let other = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    let wanted = Listener { port, ..listener(vec![host("a.test", &[&pair])]) };
    let mut front =
        Front::start_unopened(Config { listeners: vec![wanted], ..Config::default() }, upstream.path());
    let Event::CannotListen { socket, why } = front.event().await else { panic!() };
    assert_eq!(socket, "https-443");
    assert!(why.contains(&format!("port {port}")) && why.contains("taken by another process"), "{why}");
    drop(other);
    let Event::Listening { address, .. } = front.event().await else { panic!() };
    assert!(Client::new(&authority).connect(loopback(address), "a.test").await.is_ok());
}

#[tokio::test]
async fn draining_finishes_what_has_begun() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let mut front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
    echoes(&mut stream).await;
    front.shutdown.send_replace(Shutdown::Drain);
    assert_eq!(front.event().await, Event::Closed { socket: "https-443".to_owned() });
    assert!(Client::new(&authority).connect(front.address, "a.test").await.is_err());
    echoes(&mut stream).await;
    assert!(!front.task.is_finished());
    stream.shutdown().await.unwrap();
    timeout(PATIENCE, front.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn now_means_now() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let front = Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    let mut stream = Client::new(&authority).connect(front.address, "a.test").await.unwrap();
    echoes(&mut stream).await;
    front.shutdown.send_replace(Shutdown::Drain);
    front.shutdown.send_replace(Shutdown::Now);
    timeout(PATIENCE, front.task).await.unwrap().unwrap();
    assert_eq!(front.counters.open(), 0);
    assert!(!matches!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap(), Ok(1..)));
}

#[tokio::test]
async fn a_config_that_nobody_changes_any_more_is_served_on() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["a.test"]);
    let Front { config, shutdown, address, task, .. } =
        Front::start(config(vec![host("a.test", &[&pair])]), upstream.path()).await;
    drop(config);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(Client::new(&authority).connect(address, "a.test").await.is_ok());
    shutdown.send_replace(Shutdown::Now);
    timeout(PATIENCE, task).await.unwrap().unwrap();
}
