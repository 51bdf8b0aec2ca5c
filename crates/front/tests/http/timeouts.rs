//! The timeouts of rules: of the whole request, and of one try.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use front::Reason;
use model::{RuleTimeouts, ghost};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::support::{Front, Origin, listen, status};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Takes connections, reads, says these parts with a pause before each, and then nothing.
async fn slow(parts: &'static [(u64, &'static str)]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                for (millis, part) in parts {
                    sleep(Duration::from_millis(*millis)).await;
                    let _ = stream.write_all(part.as_bytes()).await;
                }
                let _ = stream.read(&mut [0; 1]).await;
            });
        }
    });
    address
}

/// An address whose backlog is full: connections to it stay open and unanswered.
async fn deaf() -> (SocketAddr, Vec<tokio::net::TcpStream>, std::net::TcpListener) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener: std::net::TcpListener = socket.into();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        let connect = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connect).await {
            Ok(Ok(stream)) => held.push(stream),
            _ => break,
        }
    }
    (address, held, listener)
}

async fn front(endpoint: SocketAddr, timeouts: RuleTimeouts) -> Front {
    Front::with(&[endpoint], |config| rule(config).timeouts = Some(timeouts)).await
}

fn rule(config: &mut ghost::Config) -> &mut ghost::Route {
    &mut config.vhosts.get_mut("*").unwrap().routes[0]
}

fn request(seconds: f64) -> RuleTimeouts {
    RuleTimeouts { request_seconds: Some(seconds), ..RuleTimeouts::default() }
}

fn backend(seconds: f64) -> RuleTimeouts {
    RuleTimeouts { backend_request_seconds: Some(seconds), ..RuleTimeouts::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_says_nothing_gives_504_at_the_end_of_either_timeout() {
    let origin = slow(&[(60_000, "")]).await;
    for (timeouts, reason) in [(request(0.3), Reason::RequestTimeout), (backend(0.3), Reason::BackendTimeout)]
    {
        let front = front(origin, timeouts).await;
        let began = Instant::now();
        let answer = front.say(GET).await;
        assert_eq!(status(&answer), 504, "{answer}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
        assert_eq!(front.http.by_reason(reason), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_come_about_gives_504() {
    let (origin, _held, _listener) = deaf().await;
    for timeouts in [request(0.4), backend(0.4)] {
        let front = front(origin, timeouts).await;
        let began = Instant::now();
        let answer = front.say(GET).await;
        assert_eq!(status(&answer), 504, "{answer}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_end_in_time_breaks_off_and_never_looks_complete() {
    // Something moves all the time.
    let dripping: &[(u64, &str)] = &[
        (0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"),
        (200, "1\r\nb\r\n"),
        (200, "1\r\nc\r\n"),
        (200, "1\r\nd\r\n"),
        (200, "1\r\ne\r\n"),
        (200, "0\r\n\r\n"),
    ];
    let origin = slow(dripping).await;
    for (timeouts, reason) in [(request(0.5), Reason::RequestTimeout), (backend(0.5), Reason::BackendTimeout)]
    {
        let front = front(origin, timeouts).await;
        let answer = front.say(GET).await;
        assert_eq!(status(&answer), 200, "{answer}");
        assert!(answer.contains("1\r\na\r\n"), "{answer}");
        assert!(!answer.contains("0\r\n\r\n"), "it looks complete: {answer}");
        assert_eq!(front.http.by_reason(reason), 1);
    }
    let front = front(origin, request(10.0)).await;
    let answer = front.say(GET).await;
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_means_none_and_a_fast_answer_is_not_touched() {
    let origin = slow(&[(700, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")]).await;
    let none = RuleTimeouts { request_seconds: Some(0.0), backend_request_seconds: Some(0.0) };
    assert_eq!(status(&front(origin, none).await.say(GET).await), 200);
    let fast = Origin::start().await;
    let front = front(fast.address, request(5.0)).await;
    let mut client = front.connect().await;
    for _ in 0..3 {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let answer = listen(&mut client).await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    }
    // The connection was kept.
    assert_eq!(fast.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_takes_too_long_gets_504() {
    let origin = Origin::start().await;
    let front = front(origin.address, request(0.4)).await;
    let mut client = front.connect().await;
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n").await.unwrap();
    let (mut read, mut write) = client.split();
    let drips = async {
        for _ in 0..20 {
            sleep(Duration::from_millis(100)).await;
            if write.write_all(b"x").await.is_err() {
                break;
            }
        }
    };
    let mut got = vec![0; 1024];
    let reads = async {
        let count = tokio::time::timeout(Duration::from_secs(5), read.read(&mut got)).await.unwrap().unwrap();
        String::from_utf8_lossy(&got[..count]).into_owned()
    };
    let (answer, ()) = tokio::join!(reads, drips);
    assert_eq!(status(&answer), 504, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_varnishd_that_does_not_answer_in_time_gives_504() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("varnishd.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    let origin = Origin::start().await;
    let change = |config: &mut ghost::Config| rule(config).timeouts = Some(request(0.3));
    let front = Front::with_cache(&[origin.address], &socket, change).await;
    let began = Instant::now();
    let answer = front.say(GET).await;
    assert_eq!(status(&answer), 504, "{answer}");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(front.http.by_reason(Reason::RequestTimeout), 1);
    assert!(origin.seen().is_empty(), "the time is over: no origin is asked");
}
