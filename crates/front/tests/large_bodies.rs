//! A body that is too large to be kept, on a route with retries. In a process of its own: it keeps the threads of the front busy, and
//! measures memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "shared with the other tests")]
#[path = "http/support.rs"]
mod support;

use std::net::{Ipv4Addr, SocketAddr};

use model::Retry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Front, listen, status};

const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";

/// Reads all that comes, and answers 503 after so many bytes of a body.
async fn swallowing(bytes: u64) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut buffer, mut read) = (vec![0; 256 << 10], 0);
                while read < bytes {
                    match stream.read(&mut buffer).await {
                        Ok(count @ 1..) => read += count as u64,
                        _ => return,
                    }
                }
                let _ = stream.write_all(BUSY).await;
                // To the end: a connection that is closed with unread bytes is reset, and its response may be lost.
                while let Ok(1..) = stream.read(&mut buffer).await {}
            });
        }
    });
    address
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_one_gib_on_a_route_with_retries_takes_no_memory() {
    const SIZE: u64 = 1 << 30;
    let retry = Retry { codes: vec![503], attempts: 3, backoff_seconds: Some(0.02) };
    let change = |config: &mut model::ghost::Config| {
        config.vhosts.get_mut("*").unwrap().routes[0].retry = Some(Box::new(retry));
    };
    let front = Front::with(&[swallowing(SIZE).await], change).await;
    let mut client = front.connect().await;
    client
        .write_all(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let before = resident();
    let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
    chunk.resize(chunk.len() + (1 << 20), b'x');
    chunk.extend_from_slice(b"\r\n");
    let mut most = 0;
    for number in 0..SIZE >> 20 {
        client.write_all(&chunk).await.unwrap();
        if number % 64 == 0 {
            most = most.max(resident());
            assert!(front.http.kept_upload_bytes() <= 64 << 10);
        }
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = listen(&mut client).await;
    assert_eq!(status(&answer), 503, "{answer}");
    assert!(most.saturating_sub(before) < 64 << 20, "{} MiB more", (most - before) >> 20);
    assert_eq!((front.http.retries(), front.http.retries_without_body()), (0, 1));
}
