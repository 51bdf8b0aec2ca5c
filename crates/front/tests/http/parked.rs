//! Clients that are slow or silent.

use std::time::Duration;

use front::{HttpLimits, Limits};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::support::{Front, Origin, listen, status};

fn hasty() -> Limits {
    let http = HttpLimits {
        head_timeout: Duration::from_millis(800),
        idle_timeout: Duration::from_secs(2),
        ..HttpLimits::default()
    };
    Limits { http, ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_idle_serves_again() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], hasty()).await;
    let mut client = front.connect().await;
    for round in 0..3 {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert_eq!(status(&listen(&mut client).await), 200, "round {round}");
        // Longer than it takes to be parked.
        sleep(Duration::from_millis(1000)).await;
    }
    // Two at once, after a pause.
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(listen(&mut client).await.matches("200 OK").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_end_is_408_and_silence_is_closed() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], hasty()).await;
    let mut slow = front.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
    assert_eq!(status(&listen(&mut slow).await), 408);
    let mut silent = front.connect().await;
    silent.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(status(&listen(&mut silent).await), 200);
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(
        crate::support::PATIENCE,
        tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut rest),
    );
    assert_eq!(closed.await.unwrap().unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_that_is_taken_slowly_is_whole() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], hasty()).await;
    let mut large = b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n".to_vec();
    large.extend(std::iter::repeat_n(b'x', 8_000_000));
    origin.will_answer(&[&large]);
    let mut client = front.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    // The front has finished with the origin long before, or waits for the client.
    sleep(Duration::from_secs(3)).await;
    let answer = listen(&mut client).await;
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 8_000_000);
}

/// An origin that answers as soon as it has read a head, and records everything.
async fn early() -> (std::net::SocketAddr, std::sync::Arc<std::sync::Mutex<Vec<u8>>>) {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorded = std::sync::Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let recorded = std::sync::Arc::clone(&recorded);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    recorded.lock().unwrap().extend_from_slice(&buffer[..count]);
                    if buffer[..count].windows(4).any(|four| four == b"\r\n\r\n") {
                        let _ = stream.write_all(crate::support::OK).await;
                    }
                }
            });
        }
    });
    (address, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_after_its_answer_is_not_another_request() {
    let (address, seen) = early().await;
    let front = Front::limited(&[address], hasty()).await;
    let mut client = front.connect().await;
    let body = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    let first = listen(&mut client).await;
    assert_eq!(status(&first), 200, "{first}");
    // Longer than it takes to be parked, if it were idle.
    sleep(Duration::from_millis(1500)).await;
    let _ = client.write_all(body).await;
    let second = listen(&mut client).await;
    assert_eq!(second, "", "the body was answered");
    let seen = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
    assert_eq!(seen.matches("x-gateway-listener").count(), 1, "{seen}");
}
