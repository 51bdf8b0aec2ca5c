//! Clients that are many, half closed, or take their time.

use std::time::Duration;

use front::{HttpLimits, Limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::corpus::{End, read_all, settles, shown};
use crate::support::{Front, Origin, PATIENCE, listen, status};

fn hasty() -> Limits {
    let http = HttpLimits {
        head_timeout: Duration::from_millis(600),
        idle_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(2),
        ..HttpLimits::default()
    };
    Limits { http, ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_no_more_still_gets_its_answer() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    for (sent, expected) in [
        // Nothing was asked, or not all of it: nothing is answered, or 400.
        (&b""[..], &[0][..]),
        (b"G", &[0, 400]),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", &[0, 400]),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[200]),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody", &[200]),
        // Half a body is no request.
        (b"POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo", &[400]),
        (b"POST /half HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbo", &[400]),
    ] {
        let mut client = front.connect().await;
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let (got, end) = read_all(&mut client).await;
        assert_eq!(end, End::Closed, "{}", shown(sent));
        let got = status(&String::from_utf8_lossy(&got));
        assert!(expected.contains(&got), "{} to {}", got, shown(sent));
    }
    settles(&front).await;
    // The origin may have got the beginning, but no end.
    for half in origin.seen().iter().filter_map(|seen| seen.split("/half").nth(1)) {
        assert!(!half.contains("body") && !half.contains("\r\n0\r\n\r\n"), "{half}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_before_its_answer_leaves_nothing() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    for _ in 0..50 {
        let mut client = front.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        // A reset, in the place of an orderly end.
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    }
    settles(&front).await;
    assert_eq!(status(&front.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_comes_byte_by_byte_is_late_all_the_same() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], hasty()).await;
    let mut client = front.connect().await;
    let (mut reader, mut writer) = client.split();
    let drips = async {
        // Endless: each byte comes well before any timeout.
        let bytes = b"GET / HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'y'));
        for byte in bytes {
            if writer.write_all(&[*byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let reads = async {
        let mut got = vec![0; 4096];
        let count = timeout(PATIENCE, reader.read(&mut got)).await.unwrap().unwrap();
        String::from_utf8_lossy(&got[..count]).into_owned()
    };
    let got = tokio::select! {
        got = reads => got,
        () = drips => panic!("the connection broke without an answer"),
    };
    assert_eq!(status(&got), 408, "{got}");
    assert!(origin.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_byte_by_byte_arrives_whole() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], hasty()).await;
    let mut client = front.connect().await;
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n").await.unwrap();
    // Longer in all than a head or a silence may last.
    for _ in 0..60 {
        client.write_all(b"x").await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status(&listen(&mut client).await), 200);
    let seen = origin.seen().concat();
    assert!(seen.ends_with(&"x".repeat(60)), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_idle_connections_are_parked_and_each_serves_again() {
    const CROWD: usize = 2000;
    // Both ends are in this process.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], hasty()).await;
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut crowd = Vec::with_capacity(CROWD);
    for _ in 0..CROWD {
        let mut client = front.connect().await;
        client.write_all(ask).await.unwrap();
        crowd.push(client);
    }
    let mut buffer = vec![0; 4096];
    for client in &mut crowd {
        let count = timeout(PATIENCE, client.read(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(status(&String::from_utf8_lossy(&buffer[..count])), 200);
    }
    assert_eq!(front.counters.open(), CROWD as u64);
    settles(&front).await;
    // Longer than it takes to be parked.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(status(&front.say(ask).await), 200);
    for client in crowd.iter_mut().step_by(7) {
        client.write_all(ask).await.unwrap();
        let count = timeout(PATIENCE, client.read(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(status(&String::from_utf8_lossy(&buffer[..count])), 200);
    }
    drop(crowd);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while front.counters.open() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "{} connections stay", front.counters.open());
        sleep(Duration::from_millis(10)).await;
    }
}
