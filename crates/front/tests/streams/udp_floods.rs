//! Floods of datagrams with many source addresses.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};
use std::time::{Duration, Instant};

use front::{Config, Limits, Loss, UdpLimits};
use tokio::net::UdpSocket;
use tokio::time::sleep;

use crate::support::*;

const ROOM: usize = 200;

fn small(config: Config) -> Config {
    let udp = UdpLimits { sessions: ROOM, ..UdpLimits::default() };
    Config { limits: Limits { udp, ..Limits::default() }, ..config }
}

/// One datagram from each of `count` addresses in 127.1.0.0/16.
fn flood(to: SocketAddr, count: u32, bytes: &[u8]) {
    for number in 0..count {
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number);
        let socket = StdSocket::bind((address, 0)).unwrap();
        socket.send_to(bytes, to).unwrap();
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_without_answers_is_bounded_and_harms_no_established_session() {
    let echo = UdpEcho::start("").await;
    let front = Front::start(small(udp_config(stream(vec![group(1, &[echo.address])])))).await;
    let client = udp_client(front.address).await;
    ask_udp(&client, b"one").await;
    ask_udp(&client, b"two").await;
    let before = (front.udp().begun(), descriptors());
    let began = Instant::now();
    for _ in 0..5 {
        tokio::task::spawn_blocking(move || flood(front.address, 2_000, b"silent")).await.unwrap();
        assert!(front.udp().open() <= ROOM as u64);
        assert_eq!(ask_udp(&client, b"still there").await, "still there");
    }
    let took = began.elapsed().as_secs() + 1;
    until_lost(|| front.udp(), Loss::TableFull, 1_000).await;
    // Sessions without an answer can be replaced after a second, not earlier.
    let begun = front.udp().begun() - before.0;
    assert!(begun <= (took + 1) * ROOM as u64, "{begun} in {took} seconds");
    assert!(descriptors() < before.1 + ROOM + 50, "{} descriptors", descriptors());

    // After it, a new client finds a place within a second or so.
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(ask_udp(&udp_client(front.address).await, b"new").await, "new");
    assert_eq!(ask_udp(&client, b"still there").await, "still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_is_answered_does_not_push_out_sessions_either() {
    let mut echo = UdpEcho::start("").await;
    let front = Front::start(small(udp_config(stream(vec![group(1, &[echo.address])])))).await;
    // Established ones, silent for longer than answered ones are kept.
    let mut kept: Vec<(UdpSocket, SocketAddr)> = Vec::new();
    for _ in 0..20 {
        let client = udp_client(front.address).await;
        ask_udp(&client, b"?").await;
        let session = echo.source().await;
        ask_udp(&client, b"?").await;
        echo.source().await;
        kept.push((client, session));
    }
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        let to = front.address;
        tokio::task::spawn_blocking(move || flood(to, 1_000, b"spoofed")).await.unwrap();
        assert!(front.udp().open() <= ROOM as u64);
        sleep(Duration::from_millis(200)).await;
    }
    assert!(front.udp().losses(Loss::TableFull) > 0);
    while echo.sources.try_recv().is_ok() {}
    for (client, session) in &kept {
        assert_eq!(ask_udp(client, b"mine").await, "mine");
        let mut seen = echo.source().await;
        while seen != *session {
            seen = echo.source().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_to_an_endpoint_where_nothing_listens_is_paced() {
    let mut config = small(udp_config(stream(vec![group(1, &[dead_udp()])])));
    // The kernel limits how often it says that nothing listens.
    config.limits.udp.idle_timeout = Duration::from_secs(1);
    let front = Front::start(config).await;
    let to = front.address;
    let began = Instant::now();
    tokio::task::spawn_blocking(move || flood(to, 20_000, b"?")).await.unwrap();
    let seconds = began.elapsed().as_secs() + 2;
    let lanes = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(front.udp().begun() <= seconds * 1024 * lanes, "{} in {seconds}", front.udp().begun());
    until("all sessions are over", || front.udp().open() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_with_many_ports_is_bounded_as_well() {
    let echo = UdpEcho::start("").await;
    let front = Front::start(small(udp_config(stream(vec![group(1, &[echo.address])])))).await;
    let to = front.address;
    let sockets: Vec<StdSocket> = (0..600).map(|_| StdSocket::bind((LOCAL, 0)).unwrap()).collect();
    let sockets = tokio::task::spawn_blocking(move || {
        sockets.iter().for_each(|socket| drop(socket.send_to(b"?", to)));
        sockets
    });
    let sockets = sockets.await.unwrap();
    until_lost(|| front.udp(), Loss::TableFull, 100).await;
    assert!(front.udp().open() <= ROOM as u64);
    drop(sockets);
}
