//! This reader accepts what hyper accepts, or less: hyper is the reference.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::http::pool::Key;

#[derive(Debug, PartialEq, Eq)]
struct Read {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
}

/// By name: only the order of lines with the same name means something.
fn lines(of: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut lines: Vec<_> =
        of.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    lines
}

fn read((mut parts, is_framed): (Parts, bool), body: Vec<u8>, trailers: Option<HeaderMap>) -> Option<Read> {
    if is_framed {
        response::unframe(&mut parts.headers).ok()?;
    }
    let trailers = trailers.map(|trailers| lines(&trailers)).unwrap_or_default();
    Some(Read { status: parts.status.as_u16(), headers: lines(&parts.headers), body, trailers })
}

/// A connection by which these parts come, one after the other, and then its end.
async fn saying(parts: Vec<Vec<u8>>) -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.set_nodelay(true).unwrap();
    tokio::spawn(async move {
        let mut request = [0; 1024];
        let _ = server.read(&mut request).await;
        for part in parts {
            if server.write_all(&part).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = server.shutdown().await;
        while let Ok(1..) = server.read(&mut request).await {}
    });
    client
}

/// None where it is no answer, or breaks off.
async fn by_us(parts: Vec<Vec<u8>>, method: Method) -> Option<Read> {
    let mut stream = saying(parts).await;
    let key = Key::new(stream.peer_addr().unwrap(), None);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let is_head = method == Method::HEAD;
    let (head, mut reply) = Reply::read(stream, key, is_head, |_| {}).await.ok()?;
    let (mut body, mut trailers) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|cx| reply.poll_frame(cx)).await {
        match frame.ok()?.into_data() {
            Ok(data) => body.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    read((head, reply.has_hop_by_hop), body, trailers)
}

async fn by_hyper(parts: Vec<Vec<u8>>, method: Method) -> Option<Read> {
    let stream = saying(parts).await;
    let mut builder = Builder::new();
    builder.max_headers(HEADERS).max_header_size(HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
    drop(tokio::spawn(connection));
    let request = Request::builder().method(method).uri("/").header("host", "a");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.ok()?;
    let (head, body) = answer.into_parts();
    if head.status.is_informational() {
        return None;
    }
    let whole = body.collect().await.ok()?;
    let trailers = whole.trailers().cloned();
    read((head, true), whole.to_bytes().to_vec(), trailers)
}

async fn both(bytes: &[u8], cuts: &[usize], method: Method) -> (Option<Read>, Option<Read>) {
    let mut parts = Vec::new();
    let mut rest = bytes;
    for cut in cuts {
        let (part, after) = rest.split_at((*cut).min(rest.len()));
        parts.push(part.to_vec());
        rest = after;
    }
    parts.push(rest.to_vec());
    let patience = Duration::from_secs(20);
    let ours = timeout(patience, by_us(parts.clone(), method.clone())).await.unwrap();
    (ours, timeout(patience, by_hyper(parts, method)).await.unwrap())
}

/// Pieces of answers, right and wrong.
const STATUS: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200\r\n",
    "HTTP/1.0 200 OK\r\n",
    "\r\nHTTP/1.1 404 No\r\n",
    "HTTP/1.1 204 None\r\n",
    "HTTP/1.1 304 Same\r\n",
    "HTTP/1.1 103 Early\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 101 Switch\r\n",
    "HTTP/2 200 OK\r\n",
    "HTTP/1.1 99 Odd\r\n",
    "HTTP/1.1 600 Odd\n",
];
const FIELDS: &[&str] = &[
    "content-length: 5\r\n",
    "content-length: 5, 5\r\n",
    "content-length: 05\r\n",
    "content-length: +5\r\n",
    "content-length: 0\r\n",
    "content-length: 18446744073709551616\r\n",
    "content-length:\r\n",
    "transfer-encoding: chunked\r\n",
    "transfer-encoding: Chunked \r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: identity\r\n",
    "connection: close\r\n",
    "Connection: Keep-Alive\r\n",
    "connection: close, x-b\r\n",
    "keep-alive: timeout=5\r\n",
    "connection: x-a, keep-alive\r\n",
    "x-a: 1\r\n",
    "x-a: \u{e9}\r\n",
    "x-b:\r\n",
    "x b: 1\r\n",
    " folded: 1\r\n",
    "x-c: a\n",
    "x-d: a\rb\r\n",
];
const BODIES: &[&str] = &[
    "",
    "hello",
    "hellomore",
    "hel",
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\nmore",
    "5\r\nhello\r\n",
    "5;a=b\r\nhello\r\n0;c\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhelloX\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nhello",
    "2\r\nhe\r\n3\r\nllo\r\n0\r\nx-sum: 7\r\n\r\n",
    "5\r\nhello\r\n0\r\n\n",
    "5\r\nhello\r\n0\r\nx sum\r\n\r\n",
    "-1\r\nhello\r\n0\r\n\r\n",
    "5;a=\"\r\nhello\r\n0\r\n\r\n",
    "5;\rx\r\nhello\r\n0\r\n\r\n",
    "000000000000000005\r\nhello\r\n0\r\n\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_read_that_hyper_does_not_read(
        status in prop::sample::select(STATUS),
        fields in prop::collection::vec(prop::sample::select(FIELDS), 0..4),
        body in prop::sample::select(BODIES),
        cuts in prop::collection::vec(1_usize..40, 0..5),
        is_head in prop::bool::weighted(0.1),
    ) {
        let bytes = [status, &fields.concat(), "\r\n", body].concat();
        let method = if is_head { Method::HEAD } else { Method::GET };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ours, hypers) = runtime.block_on(both(bytes.as_bytes(), &cuts, method));
        if ours.is_some() {
            prop_assert_eq!(&ours, &hypers, "{:?}", bytes);
        }
    }
}

#[tokio::test]
async fn plain_answers_are_read_as_hyper_reads_them() {
    let plain = [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n",
        "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 103 Early\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    ];
    for text in plain {
        for cuts in [&[][..], &[1; 200], &[17, 3, 20, 9, 30]] {
            let (ours, hypers) = both(text.as_bytes(), cuts, Method::GET).await;
            assert!(ours.as_ref().is_some_and(|read| read.body == b"hello"), "{text:?} {cuts:?}: {ours:?}");
            assert_eq!(ours, hypers, "{text:?} {cuts:?}");
        }
    }
}

/// An origin that sends a body after 204. The reactor does not know of it yet when the connection is taken again.
#[tokio::test]
async fn what_follows_an_answer_without_a_body_is_not_the_next_answer() {
    use std::io::{Read as _, Write as _};
    for (is_head, answer) in [(false, "204 No Content"), (false, "304 Not Modified"), (true, "200 OK")] {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let key = Key::new(listener.local_addr().unwrap(), None);
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut origin = listener.accept().unwrap().0;
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(origin.read(&mut [0; 64]).unwrap() > 0);
        write!(origin, "HTTP/1.1 {answer}\r\nContent-Length: 4\r\n\r\n").unwrap();
        let (parts, reply) = Reply::read(stream, key, is_head, |_| {}).await.unwrap();
        assert!(reply.is_over() && answer.starts_with(parts.status.as_str()));
        origin.write_all(b"body").unwrap();
        // Not a sleep of tokio's: the reactor must not turn.
        std::thread::sleep(Duration::from_millis(20));
        assert!(crate::http::pool::take_plain(&key).is_none(), "{answer}");
    }
}
