//! Connections of TCPRoutes.

use std::sync::Arc;
use std::time::Duration;

use front::proxy::Header;
use front::{BackendGroup, Config, Host, Limits, Listener, Loss, Shutdown, Stream, UpstreamFailure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::*;

#[tokio::test]
async fn bytes_go_both_ways_and_each_half_ends_by_itself() {
    let front = Front::start(tcp_config(stream(vec![group(1, &[tcp_echo("a ").await])]))).await;
    // The endpoint speaks first, and last: after the client has ended its half.
    assert_eq!(ask_tcp(front.address, b"hello").await.unwrap(), "a hello bye");
    until("counted", || front.tcp().bytes() == [5, 11] && front.tcp().open() == 0).await;
    assert_eq!(front.tcp().begun(), 1);
}

#[tokio::test]
async fn weights_split_connections_and_zero_gets_none() {
    let groups = vec![
        group(3, &[tcp_echo("a").await]),
        group(1, &[tcp_echo("b").await]),
        group(0, &[tcp_echo("c").await]),
    ];
    let front = Front::start(tcp_config(stream(groups))).await;
    let mut counts = [0; 3];
    for _ in 0..400 {
        let answer = ask_tcp(front.address, b"").await.unwrap();
        counts[usize::from(answer.as_bytes()[0] - b'a')] += 1;
    }
    assert!((240..360).contains(&counts[0]), "{counts:?}");
    assert!((40..160).contains(&counts[1]), "{counts:?}");
    assert_eq!(counts[2], 0);
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_followed_by_another_and_tried_last_from_then_on() {
    let endpoints = [dead_tcp(), dead_tcp(), tcp_echo("a").await];
    let front = Front::start(tcp_config(stream(vec![group(1, &endpoints)]))).await;
    for _ in 0..20 {
        assert_eq!(ask_tcp(front.address, b"").await.unwrap(), "a bye");
    }
    assert_eq!(front.tcp().losses(Loss::Unreachable), 0);
}

#[tokio::test]
async fn without_an_endpoint_or_a_route_connections_are_closed_and_counted() {
    let dead = Front::start(tcp_config(stream(vec![group(1, &[dead_tcp()])]))).await;
    assert_eq!(ask_tcp(dead.address, b"").await.unwrap_or_default(), "");
    until_lost(|| dead.tcp(), Loss::Unreachable, 1).await;
    assert_eq!(dead.counters.upstream_failures(UpstreamFailure::Unreachable), 1);

    let empty = Front::start(tcp_config(stream(vec![group(1, &[])]))).await;
    assert_eq!(ask_tcp(empty.address, b"").await.unwrap_or_default(), "");
    until_lost(|| empty.tcp(), Loss::NoEndpoint, 1).await;

    let none = Front::start(tcp_config(Stream::default())).await;
    assert_eq!(ask_tcp(none.address, b"").await.unwrap_or_default(), "");
    until_lost(|| none.route(front::Transport::Tcp, ""), Loss::NoRoute, 1).await;
}

#[tokio::test]
async fn a_slow_reader_holds_its_sender_back() {
    let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let front = Front::start(tcp_config(stream(vec![group(1, &[endpoint])]))).await;
    let mut client = TcpStream::connect(front.address).await.unwrap();
    let (backend, _) = listener.accept().await.unwrap();
    let block = vec![7; 1 << 20];
    let mut sent = 0;
    while let Ok(result) = timeout(Duration::from_millis(500), client.write_all(&block)).await {
        result.unwrap();
        sent += block.len();
        assert!(sent < 256 << 20, "the front takes all");
    }
    // Only what kernels and one buffer hold.
    assert!(sent < 64 << 20, "{sent}");
    drop(backend);
}

#[tokio::test]
async fn a_connection_on_which_nothing_moves_is_closed() {
    let config = Config {
        limits: Limits { idle_timeout: Duration::from_millis(400), ..Limits::default() },
        ..tcp_config(stream(vec![group(1, &[tcp_echo("").await])]))
    };
    let front = Front::start(config).await;
    let mut client = TcpStream::connect(front.address).await.unwrap();
    // As long as something moves it stays.
    for _ in 0..6 {
        client.write_all(b"x").await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 1);
        sleep(Duration::from_millis(200)).await;
    }
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), client.read_to_end(&mut rest)).await.expect("closed").unwrap();
}

#[tokio::test]
async fn limits_of_connections_hold_for_tcp_listeners_too() {
    let config = Config {
        limits: Limits { connections: 2, connections_per_address: Some(2), ..Limits::default() },
        ..tcp_config(stream(vec![group(1, &[tcp_echo("a").await])]))
    };
    let front = Front::start(config).await;
    let open = async || {
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        let said = timeout(Duration::from_millis(500), stream.read_u8()).await;
        (stream, said.is_ok())
    };
    let (first, second, third) = (open().await, open().await, open().await);
    assert!(first.1 && second.1 && !third.1, "the third waits");
    drop(first);
    let mut third = third.0;
    assert_eq!(timeout(PATIENCE, third.read_u8()).await.unwrap().unwrap(), b'a');
}

#[tokio::test]
async fn proxy_v2_names_the_client_to_a_backend_that_wants_it() {
    let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let endpoints = [listener.local_addr().unwrap()];
    let group = BackendGroup { proxy_protocol: true, ..group(1, &endpoints) };
    let front = Front::start(tcp_config(stream(vec![group]))).await;
    let mut client = TcpStream::connect(front.address).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let (mut backend, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    let header = loop {
        backend.read_buf(&mut bytes).await.unwrap();
        if let Some((header, length)) = Header::decode(&bytes).unwrap() {
            bytes.drain(..length);
            break header;
        }
    };
    // The port is the listener's, wherever its socket is open.
    let local = (front.address.ip(), 5432).into();
    assert_eq!(header.addresses, Some((client.local_addr().unwrap(), local)));
    while bytes.len() < 5 {
        backend.read_buf(&mut bytes).await.unwrap();
    }
    assert_eq!(bytes, b"hello");
}

#[tokio::test]
async fn listeners_come_and_go_and_connections_stay() {
    let (a, b) = (tcp_echo("a").await, tcp_echo("b").await);
    let mut front = Front::start(tcp_config(stream(vec![group(1, &[a])]))).await;
    let mut kept = TcpStream::connect(front.address).await.unwrap();
    assert_eq!(kept.read_u8().await.unwrap(), b'a');

    // Another endpoint is for new connections.
    front.config.send_replace(Arc::new(tcp_config(stream(vec![group(1, &[b])]))));
    let moved = async { while ask_tcp(front.address, b"").await.unwrap() != "b bye" {} };
    timeout(PATIENCE, moved).await.unwrap();

    // A UDP listener with the same number, then neither.
    let both = Config {
        datagrams: vec![front::UdpListener { port: front.address.port(), ..udp_listener(stream(vec![])) }],
        ..tcp_config(stream(vec![group(1, &[b])]))
    };
    front.config.send_replace(Arc::new(both));
    let (socket, address) = front.listening().await;
    assert_eq!((socket.as_str(), address), ("udp-53", front.address));
    assert_eq!(ask_tcp(front.address, b"").await.unwrap(), "b bye");
    front.config.send_replace(Arc::default());
    let mut closed = [front.closed().await, front.closed().await];
    closed.sort();
    assert_eq!(closed, ["tcp-5432", "udp-53"]);
    assert!(TcpStream::connect(front.address).await.is_err());
    kept.write_all(b"x").await.unwrap();
    assert_eq!(kept.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn a_port_that_gets_another_protocol_is_opened_again_under_its_new_name() {
    let mut front = Front::start(tcp_config(stream(vec![]))).await;
    let other =
        Listener { socket: "http-5432".to_owned(), address: Some(LOCAL), port: 0, hosts: vec![Host::http()] };
    front.config.send_replace(Arc::new(Config { listeners: vec![other], ..Config::default() }));
    assert_eq!(front.closed().await, "tcp-5432");
    assert_eq!(front.listening().await.0, "http-5432");
}

#[tokio::test]
async fn draining_lets_connections_finish_and_now_ends_them() {
    let front = Front::start(tcp_config(stream(vec![group(1, &[tcp_echo("a").await])]))).await;
    let mut client = TcpStream::connect(front.address).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'a');
    front.shutdown.send_replace(Shutdown::Drain);
    until("the port is closed", || std::net::TcpStream::connect(front.address).is_err()).await;
    client.write_all(b"x").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'x');
    assert_eq!(front.counters.open_streams(), 1);
    front.shutdown.send_replace(Shutdown::Now);
    timeout(PATIENCE, front.task).await.unwrap().unwrap();
    assert_eq!(front.counters.open_streams(), 0);
}
