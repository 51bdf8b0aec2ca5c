//! Backends that speak HTTP/2 badly, or say farewell: servers of raw frames that no library would let one write.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame,
};
use crate::h2_origins::{all, client, front, head, post, speaks_http2};
use crate::support::{Front, PATIENCE, SILENCE, status};

/// Reads frames of one connection, after the preface.
struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    async fn accept(listener: &TcpListener, settings: &[u8]) -> Self {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut preface = vec![0; PREFACE.len()];
        stream.read_exact(&mut preface).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
        stream.write_all(&frame(SETTINGS, ACK, 0, b"")).await.unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// Kind, flags, stream and payload of the next frame of this kind; `None` where the connection ends.
    async fn next(&mut self, kind: u8) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            while self.unread.len() >= 9 {
                let length = u32::from_be_bytes([0, self.unread[0], self.unread[1], self.unread[2]]) as usize;
                if self.unread.len() < 9 + length {
                    break;
                }
                let one: Vec<u8> = self.unread.drain(..9 + length).collect();
                if one[3] == kind {
                    let stream = u32::from_be_bytes(one[5..9].try_into().unwrap());
                    return Some((one[4], stream, one[9..].to_vec()));
                }
            }
            let mut buffer = [0; 16384];
            match self.stream.read(&mut buffer).await {
                Ok(count @ 1..) => self.unread.extend_from_slice(&buffer[..count]),
                _ => return None,
            }
        }
    }

    async fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Until the other side closes.
    async fn rest(mut self) {
        while self.next(u8::MAX).await.is_some() {}
    }
}

/// `:status: 200`, by HPACK's static table.
const OK: &[u8] = b"\x88";

fn ok(stream: u32) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, OK), frame(DATA, END_STREAM, stream, b"ok")].concat()
}

async fn listens() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// What a client gets of a server that answers the first request with these frames, and nothing else.
async fn after(frames: impl FnOnce(u32) -> Vec<u8> + Send + 'static) -> String {
    let (listener, address) = listens().await;
    tokio::spawn(async move {
        let mut raw = Raw::accept(&listener, b"").await;
        if let Some((_, stream, _)) = raw.next(HEADERS).await {
            raw.say(&frames(stream)).await;
            raw.rest().await;
        }
    });
    front(address).await.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_a_goaway_or_a_refusal_leaves_unprocessed_are_sent_again() {
    for refusal in [
        // The last stream that was processed is none.
        |_: u32| frame(GOAWAY, 0, 0, &[0; 8]),
        |stream: u32| frame(RST_STREAM, 0, stream, &7_u32.to_be_bytes()),
    ] {
        let (listener, address) = listens().await;
        let served = tokio::spawn(async move {
            let mut raw = Raw::accept(&listener, b"").await;
            let (_, stream, _) = raw.next(HEADERS).await.unwrap();
            raw.say(&refusal(stream)).await;
            // On the same connection, where it goes on; else on another one.
            tokio::select! {
                again = raw.next(HEADERS) => if let Some((_, stream, _)) = again {
                    raw.say(&ok(stream)).await;
                    raw.rest().await;
                    return;
                },
                () = sleep(SILENCE) => {}
            }
            let mut raw = Raw::accept(&listener, b"").await;
            let (_, stream, _) = raw.next(HEADERS).await.unwrap();
            raw.say(&ok(stream)).await;
            raw.rest().await;
        });
        let front = front(address).await;
        // Not even POST has been processed.
        let answer = front.say(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(status(&answer), 200, "{answer}");
        drop(front);
        served.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_may_have_been_processed_is_not_sent_again() {
    let (listener, address) = listens().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let mut raw = Raw::accept(&listener, b"").await;
            count.fetch_add(1, Ordering::Relaxed);
            let _ = raw.next(HEADERS).await;
            // Closed without a word.
        }
    });
    let front = front(address).await;
    let answer = front.say(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    assert_eq!(status(&answer), 502, "{answer}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_a_farewell_gets_no_new_requests_and_ends_those_it_has() {
    let (listener, address) = listens().await;
    tokio::spawn(async move {
        let mut first = Raw::accept(&listener, b"").await;
        let (_, stream, _) = first.next(HEADERS).await.unwrap();
        first.say(&[frame(HEADERS, END_HEADERS, stream, OK), frame(DATA, 0, stream, b"be")].concat()).await;
        first.say(&frame(GOAWAY, 0, 0, &[stream.to_be_bytes(), [0; 4]].concat())).await;
        let mut second = Raw::accept(&listener, b"").await;
        let (_, other, _) = second.next(HEADERS).await.unwrap();
        second.say(&ok(other)).await;
        first.say(&frame(DATA, END_STREAM, stream, b"gun")).await;
        tokio::join!(first.rest(), second.rest());
    });
    let front = front(address).await;
    let mut client = client(&front).await;
    let (answer, _) = client.send_request(post("/one"), true).unwrap();
    let mut one = head(answer).await.into_body();
    assert_eq!(timeout(PATIENCE, one.data()).await.unwrap().unwrap().unwrap(), "be");
    sleep(SILENCE).await;
    let (answer, _) = client.ready().await.unwrap().send_request(post("/two"), true).unwrap();
    assert_eq!(all(&mut head(answer).await.into_body()).await.unwrap(), b"ok");
    assert_eq!(all(&mut one).await.unwrap(), b"gun");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_answers_are_502_or_broken_off() {
    // Longer than it says.
    let length = |text: &str| [b"\x88\x0f\x0d", &[text.len() as u8][..], text.as_bytes()].concat();
    let says = |text: &str| frame(HEADERS, END_HEADERS, 1, &length(text));
    for (name, frames) in [
        ("shorter than it says", [says("5"), frame(DATA, END_STREAM, 1, b"abc")].concat()),
        ("longer than it says", [says("2"), frame(DATA, END_STREAM, 1, b"abc")].concat()),
        (
            "broken off",
            [says("5"), frame(DATA, 0, 1, b"abc"), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])].concat(),
        ),
        (
            "ended by NO_ERROR",
            [says("5"), frame(DATA, 0, 1, b"abc"), frame(RST_STREAM, 0, 1, &[0; 4])].concat(),
        ),
        (
            "no length, NO_ERROR",
            [frame(HEADERS, END_HEADERS, 1, OK), frame(DATA, 0, 1, b"abc"), frame(RST_STREAM, 0, 1, &[0; 4])]
                .concat(),
        ),
        (
            "connection: header",
            frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88\x00\x0aconnection\x05close"),
        ),
        ("no status", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x01a\x01b")),
        ("data first", frame(DATA, END_STREAM, 1, b"abc")),
        ("101", frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x08\x03101")),
        ("informational flood", frame(HEADERS, END_HEADERS, 1, b"\x08\x03103").repeat(40)),
        ("no HTTP/2", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
    ] {
        let answer = after(move |_| frames).await;
        // Broken off before or after its head, where it is not 502.
        assert!(status(&answer) == 502 || !is_whole(&answer), "{name}: {answer}");
    }
}

fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    match head.split("\r\n").find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => length.parse() == Ok(body.len()),
        None => body.ends_with("0\r\n\r\n"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_headers_are_502() {
    let (listener, address) = listens().await;
    let served = tokio::spawn(async move {
        let mut raw = Raw::accept(&listener, b"").await;
        let (_, stream, _) = raw.next(HEADERS).await.unwrap();
        raw.say(&frame(HEADERS, 0, stream, OK)).await;
        let line = [b"\x00\x01a\x7f\xa1\x1f".to_vec(), vec![b'x'; 4128]].concat();
        for _ in 0..10_000 {
            if raw.stream.write_all(&frame(CONTINUATION, 0, stream, &line)).await.is_err() {
                return true;
            }
        }
        false
    });
    let answer = front(address).await.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(status(&answer), 502, "{answer}");
    assert!(timeout(PATIENCE, served).await.unwrap().unwrap(), "the connection was not closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_opens_no_window_holds_up_its_own_uploads_alone() {
    let (listener, address) = listens().await;
    tokio::spawn(async move {
        loop {
            // INITIAL_WINDOW_SIZE 0 for uploads; what has no body is answered.
            let mut raw = Raw::accept(&listener, b"\0\x04\0\0\0\0").await;
            tokio::spawn(async move {
                while let Some((flags, stream, _)) = raw.next(HEADERS).await {
                    if flags & END_STREAM != 0 {
                        raw.say(&ok(stream)).await;
                    }
                }
            });
        }
    });
    let front = Front::with(&[address], |config| {
        speaks_http2(config);
        config.timeouts = Some(model::Timeouts { first_byte_seconds: 1.0, ..model::Timeouts::default() });
    })
    .await;
    let mut stalls = front.connect().await;
    stalls.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n").await.unwrap();
    let mut sent = 0;
    while let Ok(Ok(count)) = timeout(SILENCE, stalls.write(&[b'x'; 65536])).await {
        sent += count;
    }
    assert!(sent < 20_000_000, "{sent} bytes were taken for an endpoint that takes none");
    // Others are answered meanwhile.
    let answer = front.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(status(&answer), 200, "{answer}");
    let answer = crate::support::listen(&mut stalls).await;
    assert_eq!(status(&answer), 504, "{answer}");
}
