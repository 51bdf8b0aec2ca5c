//! Sessions of UDPRoutes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use front::{Config, Event, Limits, Loss, Shutdown, Stream, UdpLimits, UdpListener};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use crate::support::*;

fn limited(config: Config, udp: UdpLimits) -> Config {
    Config { limits: Limits { udp, ..Limits::default() }, ..config }
}

#[tokio::test]
async fn datagrams_go_both_ways_and_a_client_keeps_its_endpoint() {
    let mut echo = UdpEcho::start("a ").await;
    let front = Front::start(udp_config(stream(vec![group(1, &[echo.address])]))).await;
    let client = udp_client(front.address).await;
    assert_eq!(ask_udp(&client, b"hello").await, "a hello");
    assert_eq!(ask_udp(&client, b"").await, "a ", "an empty datagram is one, too");
    let large = vec![b'x'; 60_000];
    assert_eq!(ask_udp(&client, &large).await.len(), 60_002);
    let sources: BTreeSet<_> = [echo.source().await, echo.source().await, echo.source().await].into();
    assert_eq!(sources.len(), 1, "one session has one socket");
    until("counted", || front.udp().datagrams() == [3, 3]).await;
    assert_eq!((front.udp().begun(), front.udp().open()), (1, 1));
    assert_eq!(front.udp().bytes(), [60_005, 60_011]);
}

#[tokio::test]
async fn several_datagrams_of_a_new_client_all_arrive() {
    let echo = UdpEcho::start("").await;
    let front = Front::start(udp_config(stream(vec![group(1, &[echo.address])]))).await;
    let client = udp_client(front.address).await;
    for number in 0..20u8 {
        client.send(&[number]).await.unwrap();
    }
    let mut got = BTreeSet::new();
    let mut buffer = [0; 16];
    while got.len() < 20 {
        timeout(PATIENCE, client.recv(&mut buffer)).await.expect("all answers").unwrap();
        got.insert(buffer[0]);
    }
    assert_eq!(front.udp().begun(), 1);
}

#[tokio::test]
async fn weights_split_sessions() {
    let (a, b) = (UdpEcho::start("a").await, UdpEcho::start("b").await);
    let groups = vec![group(3, &[a.address]), group(1, &[b.address])];
    let front = Front::start(udp_config(stream(groups))).await;
    let mut counts = [0; 2];
    for _ in 0..200 {
        let answer = ask_udp(&udp_client(front.address).await, b"?").await;
        counts[usize::from(answer.as_bytes()[0] - b'a')] += 1;
    }
    assert!((110..190).contains(&counts[0]), "{counts:?}");
}

#[tokio::test]
async fn only_the_endpoint_of_a_session_can_answer() {
    let mut echo = UdpEcho::start("").await;
    let front = Front::start(udp_config(stream(vec![group(1, &[echo.address])]))).await;
    let client = udp_client(front.address).await;
    assert_eq!(ask_udp(&client, b"mine").await, "mine");
    let session = echo.source().await;
    // Another process on the endpoint's own address knows the session's port.
    let other = UdpSocket::bind((LOCAL, 0)).await.unwrap();
    for _ in 0..10 {
        other.send_to(b"forged", (LOCAL, session.port())).await.unwrap();
    }
    assert_eq!(ask_udp(&client, b"still mine").await, "still mine");
    assert!(timeout(Duration::from_millis(200), client.recv(&mut [0; 16])).await.is_err());
}

#[tokio::test]
async fn an_endpoint_where_nothing_listens_is_left_for_another() {
    let echo = UdpEcho::start("a").await;
    let endpoints = [dead_udp(), echo.address];
    let front = Front::start(udp_config(stream(vec![group(1, &endpoints)]))).await;
    for _ in 0..10 {
        assert_eq!(ask_udp(&udp_client(front.address).await, b"?").await, "a?");
    }
}

#[tokio::test]
async fn sessions_move_when_their_endpoint_is_gone_and_stay_when_it_is_not() {
    let (mut a, b) = (UdpEcho::start("a").await, UdpEcho::start("b").await);
    let front = Front::start(udp_config(stream(vec![group(1, &[a.address])]))).await;
    let client = udp_client(front.address).await;
    assert_eq!(ask_udp(&client, b"?").await, "a?");
    let session = a.source().await;
    front.config.send_replace(Arc::new(udp_config(stream(vec![group(1, &[a.address, b.address])]))));
    sleep(Duration::from_millis(100)).await;
    assert_eq!(ask_udp(&client, b"?").await, "a?");
    assert_eq!(a.source().await, session, "the same session");
    front.config.send_replace(Arc::new(udp_config(stream(vec![group(1, &[b.address])]))));
    until("the session is gone", || front.udp().open() == 0).await;
    assert_eq!(ask_udp(&client, b"?").await, "b?");
}

#[tokio::test]
async fn silent_sessions_end_and_established_ones_later() {
    let echo = UdpEcho::start("").await;
    let limits = UdpLimits {
        idle_timeout: Duration::from_millis(600),
        established_timeout: Duration::from_secs(4),
        ..UdpLimits::default()
    };
    let front = Front::start(limited(udp_config(stream(vec![group(1, &[echo.address])])), limits)).await;
    let (once, twice) = (udp_client(front.address).await, udp_client(front.address).await);
    ask_udp(&once, b"?").await;
    ask_udp(&twice, b"?").await;
    ask_udp(&twice, b"?").await;
    assert_eq!(front.udp().open(), 2);
    until("the silent one is gone", || front.udp().open() == 1).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(front.udp().open(), 1);
    until("the other too", || front.udp().open() == 0).await;
}

#[tokio::test]
async fn without_an_endpoint_or_a_route_datagrams_are_dropped_and_counted() {
    let mut empty = Front::start(udp_config(stream(vec![group(1, &[])]))).await;
    let client = udp_client(empty.address).await;
    for _ in 0..5 {
        client.send(b"?").await.unwrap();
    }
    until_lost(|| empty.udp(), Loss::NoEndpoint, 5).await;
    let told = empty.event().await;
    assert!(matches!(told, Event::Unreached { endpoint: None, .. }), "{told:?}");
    assert!(empty.events.try_recv().is_err(), "told once");

    let none = Front::start(udp_config(Stream::default())).await;
    udp_client(none.address).await.send(b"?").await.unwrap();
    until_lost(|| none.route(front::Transport::Udp, ""), Loss::NoRoute, 1).await;
}

#[tokio::test]
async fn one_address_has_no_more_sessions_than_it_may_have() {
    let echo = UdpEcho::start("").await;
    let config = Config {
        limits: Limits { connections_per_address: Some(2), ..Limits::default() },
        ..udp_config(stream(vec![group(1, &[echo.address])]))
    };
    let front = Front::start(config).await;
    let (a, b, c) =
        (udp_client(front.address).await, udp_client(front.address).await, udp_client(front.address).await);
    ask_udp(&a, b"?").await;
    ask_udp(&b, b"?").await;
    c.send(b"?").await.unwrap();
    until_lost(|| front.udp(), Loss::PerAddress, 1).await;
    ask_udp(&a, b"?").await;
    // Another address is another client.
    let other = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    other.connect(front.address).await.unwrap();
    ask_udp(&other, b"?").await;
}

#[tokio::test]
async fn listeners_of_all_addresses_serve_both_families() {
    let echo = UdpEcho::start("").await;
    let listener = UdpListener { address: None, ..udp_listener(stream(vec![group(1, &[echo.address])])) };
    let front = Front::start(Config { datagrams: vec![listener], ..Config::default() }).await;
    let client = udp_client((LOCAL, front.address.port()).into()).await;
    assert_eq!(ask_udp(&client, b"four").await, "four");
    if front.address.is_ipv6() {
        let client = UdpSocket::bind("[::1]:0").await.unwrap();
        client.connect(("::1", front.address.port())).await.unwrap();
        assert_eq!(ask_udp(&client, b"six").await, "six");
    }
}

#[tokio::test]
async fn a_port_that_another_has_is_told_and_tried_again() {
    // One that shares its port would be heard, too, were it not for the probe.
    for shares in [false, true] {
        let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        other.set_reuse_port(shares).unwrap();
        other.bind(&std::net::SocketAddr::new(LOCAL, 0).into()).unwrap();
        let port = other.local_addr().unwrap().as_socket().unwrap().port();
        let wanted = UdpListener { port, ..udp_listener(stream(vec![])) };
        let mut front = Front::start_unopened(Config { datagrams: vec![wanted], ..Config::default() });
        let Event::CannotListen { socket, why } = front.event().await else { panic!() };
        assert_eq!(socket, "udp-53");
        assert!(why.contains(&format!("UDP port {port} is taken")) && why.contains("ss -lunp"), "{why}");
        drop(other);
        assert_eq!(front.listening().await.1.port(), port);
    }
}

#[tokio::test]
async fn a_listener_that_is_gone_frees_its_port_and_comes_back() {
    let echo = UdpEcho::start("").await;
    let port = dead_udp().port();
    let wanted = UdpListener { port, ..udp_listener(stream(vec![group(1, &[echo.address])])) };
    let config = Arc::new(Config { datagrams: vec![wanted], ..Config::default() });
    let mut front = Front::start(Config::clone(&config)).await;
    for _ in 0..3 {
        let client = udp_client(front.address).await;
        assert_eq!(ask_udp(&client, b"?").await, "?");
        front.config.send_replace(Arc::default());
        assert_eq!(front.closed().await, "udp-53");
        assert!(UdpSocket::bind((LOCAL, port)).await.is_ok());
        assert_eq!(front.counters.open_streams(), 0);
        front.config.send_replace(Arc::clone(&config));
        front.listening().await;
    }
}

#[tokio::test]
async fn draining_serves_sessions_and_takes_no_new_ones() {
    let echo = UdpEcho::start("").await;
    let limits = UdpLimits { idle_timeout: Duration::from_secs(1), ..UdpLimits::default() };
    let config = limited(udp_config(stream(vec![group(1, &[echo.address])])), limits);
    let front = Front::start(config.clone()).await;
    let client = udp_client(front.address).await;
    ask_udp(&client, b"?").await;
    ask_udp(&client, b"?").await;

    // First by the configuration, as a chaperone that waits for requests to end does it.
    let mut drains = config;
    drains.datagrams[0].drains = true;
    front.config.send_replace(Arc::new(drains));
    let stranger = udp_client(front.address).await;
    let refused = async {
        while front.udp().losses(Loss::Draining) == 0 {
            udp_client(front.address).await.send(b"silent").await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, refused).await.unwrap();
    assert_eq!(ask_udp(&client, b"still").await, "still");

    front.shutdown.send_replace(Shutdown::Drain);
    sleep(Duration::from_millis(100)).await;
    stranger.send(b"?").await.unwrap();
    assert_eq!(ask_udp(&client, b"and on").await, "and on");
    assert!(!front.task.is_finished());
    // Its silence is the end.
    timeout(PATIENCE, front.task).await.unwrap().unwrap();
    assert!(timeout(Duration::from_millis(50), stranger.recv(&mut [0; 8])).await.is_err());
}

#[tokio::test]
async fn now_means_now() {
    let echo = UdpEcho::start("").await;
    let front = Front::start(udp_config(stream(vec![group(1, &[echo.address])]))).await;
    ask_udp(&udp_client(front.address).await, b"?").await;
    front.shutdown.send_replace(Shutdown::Now);
    timeout(PATIENCE, front.task).await.unwrap().unwrap();
    assert_eq!(front.counters.open_streams(), 0);
    assert!(UdpSocket::bind(front.address).await.is_ok());
}
