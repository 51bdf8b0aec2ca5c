//! Connections to origins that are kept, lost and replaced.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_closes_within_a_head_is_not_replaced() {
    for part in ["H", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 100 Continue\r\n\r\n", "\r\n"] {
        for (what, act) in
            [("closes", closes(part)), ("resets", Act::SaysAndResets(part.as_bytes().to_vec()))]
        {
            let origin = Actor::start().await;
            let front = Front::to(&[origin.address]).await;
            origin.will([says(OK), act, says(OK)]);
            assert_eq!(
                one_after_the_other(&front, &["GET", "GET"]).await,
                [200, 502],
                "{what} after {part:?}"
            );
            assert_eq!(origin.take_seen().len(), 2, "the request is not sent again: {what} after {part:?}");
        }
    }
}

/// An address that refuses connections.
fn refusing() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, crate::support::free_port()).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_refuse_are_passed_over() {
    let origin = Actor::start().await;
    let front = Front::to(&[refusing(), origin.address]).await;
    for _ in 0..20 {
        let answer = ask(&front, "POST", "1.1").await;
        assert_eq!((answer.status, &answer.body[..]), (200, &b"fresh"[..]));
    }
    let front = Front::to(&[refusing(), refusing()]).await;
    let answer = ask(&front, "GET", "1.1").await;
    assert_eq!((answer.status, answer.is_whole), (503, true));
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

/// Requests of one client connection, so that all are carried by one thread and its pool.
async fn one_after_the_other(front: &Front, methods: &[&str]) -> Vec<u16> {
    let mut stream = front.connect().await;
    let mut statuses = Vec::new();
    for (number, method) in methods.iter().enumerate() {
        let body = if *method == "POST" { "Content-Length: 2\r\n\r\nhi" } else { "\r\n" };
        stream
            .write_all(format!("{method} /{number} HTTP/1.1\r\nHost: a\r\n{body}").as_bytes())
            .await
            .unwrap();
        let mut got = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let head = find(&got, b"\r\n\r\n");
            if let Some(head) = head {
                let text = String::from_utf8_lossy(&got[..head + 4]).to_ascii_lowercase();
                let length = text
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|rest| rest.split('\r').next()?.parse::<usize>().ok())
                    .unwrap_or(0);
                if *method == "HEAD" || got.len() >= head + 4 + length {
                    statuses.push(text[9..12].parse().unwrap());
                    break;
                }
            }
            match timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap() {
                Ok(count @ 1..) => got.extend_from_slice(&buffer[..count]),
                _ => panic!("the front closed: {}", shown(&got)),
            }
        }
        // The origin's farewell arrives, or does not, before the next request.
        sleep(Duration::from_millis(20)).await;
    }
    statuses
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_died_is_replaced_for_idempotent_methods_only() {
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"] {
        let origin = Actor::start().await;
        let front = Front::to(&[origin.address]).await;
        // The second request is read, and the connection closed without a word.
        origin.will([says(OK), closes(""), says(if method == "HEAD" { &OK[..OK.len() - 5] } else { OK })]);
        assert_eq!(one_after_the_other(&front, &["GET", method]).await, [200, 200], "{method}");
        let seen = origin.take_seen();
        assert_eq!(seen.len(), 3, "{method} is sent once more: {seen:?}");
        assert_eq!(seen[0].0, seen[1].0, "the connection was kept: {seen:?}");
        assert_ne!(seen[1].0, seen[2].0, "the connection is new: {seen:?}");
    }
    for method in ["POST", "PATCH", "LOCK", "FOO"] {
        let origin = Actor::start().await;
        let front = Front::to(&[origin.address]).await;
        origin.will([says(OK), closes(""), says(OK)]);
        assert_eq!(one_after_the_other(&front, &["GET", method]).await, [200, 502], "{method}");
        assert_eq!(origin.take_seen().len(), 2, "{method} is not sent again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_that_dies_is_not_replaced() {
    let origin = Actor::start().await;
    let front = Front::to(&[origin.address]).await;
    origin.will([closes(""), says(OK)]);
    assert_eq!(one_after_the_other(&front, &["GET"]).await, [502]);
    assert_eq!(origin.take_seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alive_that_lies_is_not_noticed_by_clients() {
    let origin = Actor::start().await;
    let front = Front::to(&[origin.address]).await;
    let lie = closes(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=100\r\nContent-Length: 5\r\n\r\nfresh",
    );
    origin.will(vec![lie; 6]);
    assert_eq!(
        one_after_the_other(&front, &["GET", "POST", "GET", "PATCH", "HEAD", "DELETE"]).await,
        [200; 6]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_whose_framing_is_in_doubt_are_not_used_again() {
    let doubtful =
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfresh\r\n0\r\n\r\n";
    let clear = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfresh\r\n0\r\n\r\n";
    for (answer, is_kept) in [
        (clear, true),
        (doubtful, false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nfresh", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfresh", false),
    ] {
        let origin = Actor::start().await;
        let front = Front::to(&[origin.address]).await;
        origin.will([says(answer)]);
        let mut client = front.connect().await;
        // HTTP/1.1 of one client: one thread, one pool.
        client.write_all(b"GET /0 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        sleep(Duration::from_millis(100)).await;
        client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let (bytes, end) = read_all(&mut client).await;
        let got = answers(&bytes, end, |_| false);
        assert!(
            got.len() == 2 && got.iter().all(|answer| answer.is_whole && answer.body == b"fresh"),
            "{}",
            shown(&bytes)
        );
        let seen = origin.take_seen();
        assert_eq!(seen[0].0 == seen[1].0, is_kept, "{answer:?} {seen:?}");
    }
}
