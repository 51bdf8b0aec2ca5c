//! A process without file descriptors. The test has a process of its own: it lowers the limit for all of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "http/support.rs"]
#[allow(dead_code)]
mod support;

use std::net::Ipv4Addr;
use std::sync::Arc;

use router::Router;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Front, Origin, PATIENCE, listen, status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

const MANY: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_are_closed_first_when_file_descriptors_run_out() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let front = Front::to(&[listener.local_addr().unwrap()]).await;
    // Many requests at once, answered once all are there: as many connections are idle afterwards.
    let mut clients = Vec::new();
    for _ in 0..MANY {
        let mut client = front.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        clients.push(client);
    }
    let mut idle = Vec::new();
    for _ in 0..MANY {
        let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        idle.push(stream);
    }
    for stream in &mut idle {
        stream.write_all(support::OK).await.unwrap();
    }
    for client in &mut clients {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            assert!(timeout(PATIENCE, client.read_buf(&mut answer)).await.unwrap().unwrap() > 0);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"));
    }
    let other = Origin::start().await;
    front
        .http
        .route_by(Arc::new(Router::compile(&support::to(&[other.address], front.port)).unwrap().router));
    // From here on no file can be opened.
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let highest: u64 =
        names.filter_map(|name| name.unwrap().file_name().to_str()?.parse().ok()).max().unwrap();
    let before = getrlimit(Resource::Nofile);
    let mut blocks = Vec::new();
    setrlimit(Resource::Nofile, Rlimit { current: Some(highest + 1), maximum: before.maximum }).unwrap();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        blocks.push(file);
    }
    // A connection that is there is served by a new one to an origin.
    clients[0].write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let answer = listen(&mut clients[0]).await;
    assert_eq!(status(&answer), 200, "{answer}");
    for stream in &mut idle {
        let end = timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap();
        assert!(matches!(end, Ok(0) | Err(_)), "the idle connection is closed");
    }
    assert_eq!(front.http.stats().ejections, 0);
    setrlimit(Resource::Nofile, before).unwrap();
}
