//! Uploads: what breaks off does not arrive as complete, and answers may come first.

use std::time::Duration;

use model::Timeouts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::corpus::{End, answers, find, read_all, shown, whole};
use crate::support::{Front, PATIENCE};

/// How a client breaks off.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leaves {
    Closes,
    HalfCloses,
    Resets,
    /// The front is stopped.
    IsStopped,
}

async fn break_off(sent: &[u8], leaves: Leaves, early_answer: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = Front::to(&[listener.local_addr().unwrap()]).await;
    let mut client = front.connect().await;
    client.write_all(sent).await.unwrap();
    let (mut origin, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut got = Vec::new();
    // The body is on its way.
    while find(&got, b"part").is_none() {
        let mut buffer = [0; 4096];
        let count = timeout(PATIENCE, origin.read(&mut buffer)).await.unwrap().unwrap();
        assert_ne!(count, 0, "{}", shown(&got));
        got.extend_from_slice(&buffer[..count]);
    }
    if early_answer {
        origin.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n").await.unwrap();
        let mut buffer = [0; 4096];
        timeout(PATIENCE, client.read(&mut buffer)).await.unwrap().unwrap();
    }
    let client = match leaves {
        Leaves::Closes => {
            drop(client);
            None
        }
        Leaves::HalfCloses => {
            client.shutdown().await.unwrap();
            Some(client)
        }
        Leaves::Resets => {
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            None
        }
        Leaves::IsStopped => {
            front.shutdown.send(front::Shutdown::Now).unwrap();
            Some(client)
        }
    };
    let rest = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = origin.read(&mut buffer).await {
            got.extend_from_slice(&buffer[..count]);
        }
    };
    timeout(PATIENCE, rest)
        .await
        .unwrap_or_else(|_| panic!("{leaves:?}: the origin's connection stays open"));
    assert_eq!(whole(&got), None, "{leaves:?}: the origin got a whole request: {}", shown(&got));
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_break_off_do_not_arrive_as_complete() {
    for head in ["POST", "PUT", "PATCH", "DELETE", "GET"] {
        for (framing, body) in [
            ("Content-Length: 100", "part"),
            ("Transfer-Encoding: chunked", "4\r\npart\r\n"),
            ("Transfer-Encoding: chunked", "8\r\npart"),
            ("Transfer-Encoding: chunked", "4\r\npart\r\n0\r\n"),
        ] {
            let sent = format!("{head} / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{body}");
            for leaves in [Leaves::Closes, Leaves::HalfCloses, Leaves::Resets, Leaves::IsStopped] {
                for early_answer in [false, true] {
                    break_off(sent.as_bytes(), leaves, early_answer).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_stalls_is_answered_with_408() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = Front::with(&[listener.local_addr().unwrap()], |config| {
        config.timeouts = Some(Timeouts { connect_seconds: 5.0, first_byte_seconds: 0.5, idle_seconds: 5.0 });
    })
    .await;
    for sent in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\npart",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
    ] {
        let mut client = front.connect().await;
        client.write_all(sent.as_bytes()).await.unwrap();
        let (mut origin, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        let (bytes, end) = read_all(&mut client).await;
        let got = answers(&bytes, end, |_| false);
        assert_eq!(got.iter().map(|answer| answer.status).collect::<Vec<_>>(), [408], "{}", shown(&bytes));
        let mut got = Vec::new();
        let _ = timeout(PATIENCE, origin.read_to_end(&mut got)).await.unwrap();
        assert_eq!(whole(&got), None, "{}", shown(&got));
    }
}

/// The origin answers when it has read the head. `stays`: it goes on reading.
async fn early(answer: &str, stays: bool, upload: usize) -> (Vec<u8>, End) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = Front::to(&[listener.local_addr().unwrap()]).await;
    let mut client = front.connect().await;
    let answer = answer.to_owned();
    let serving = tokio::spawn(async move {
        let (mut origin, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        let mut buffer = vec![0; 65536];
        while find(&got, b"\r\n\r\n").is_none() {
            let count = origin.read(&mut buffer).await.unwrap();
            got.extend_from_slice(&buffer[..count]);
        }
        origin.write_all(answer.as_bytes()).await.unwrap();
        while stays && matches!(origin.read(&mut buffer).await, Ok(1..)) {}
        let _ = origin.shutdown().await;
        sleep(Duration::from_millis(100)).await;
    });
    let (mut reader, mut writer) = client.split();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {upload}\r\n\r\n");
    let writes = async {
        let _ = writer.write_all(head.as_bytes()).await;
        let block = vec![b'x'; 16384];
        let mut left = upload;
        while left > 0 {
            let count = left.min(block.len());
            if writer.write_all(&block[..count]).await.is_err() {
                return;
            }
            left -= count;
        }
    };
    let reads = async {
        let mut all = Vec::new();
        let mut buffer = vec![0; 65536];
        loop {
            match timeout(PATIENCE, reader.read(&mut buffer)).await.expect("the front is silent") {
                Ok(0) => return (all, End::Closed),
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(_) => return (all, End::Reset),
            }
        }
    };
    let ((), got) = tokio::join!(writes, reads);
    serving.abort();
    got
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_may_come_before_the_upload_has_ended() {
    let too_large = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\ntoo large";
    for upload in [10, 100_000, 10_000_000] {
        for stays in [true, false] {
            let (bytes, end) = early(too_large, stays, upload).await;
            let got = answers(&bytes, end, |_| false);
            assert_eq!(got.len(), 1, "{upload} {stays} {}", shown(&bytes));
            assert_eq!(
                (got[0].status, &got[0].body[..], got[0].is_whole),
                (413, &b"too large"[..], true),
                "{upload} {stays}"
            );
        }
    }
}
