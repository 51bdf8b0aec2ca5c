//! What clients may take, limit by limit.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use front::{HttpLimits, Limits, Refusal};
use h2::Reason;
use h2::client::{Builder, SendRequest};
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Front, Origin, PATIENCE, listen, status};

fn limits(change: impl FnOnce(&mut HttpLimits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits.http);
    limits
}

type Ended = JoinHandle<Result<(), h2::Error>>;

async fn h2(front: &Front) -> (SendRequest<Bytes>, Ended) {
    let (sender, connection) = Builder::new().handshake(front.connect().await).await.unwrap();
    let ended = tokio::spawn(connection);
    (sender.ready().await.unwrap(), ended)
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://shop.example{path}")).body(()).unwrap()
}

/// An origin that takes connections and never answers.
async fn silent() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept: Vec<TcpStream> = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    address
}

/// Opens streams and resets each at once, until the connection is closed or `most` were reset.
async fn reset_streams(client: &mut SendRequest<Bytes>, most: u32) -> u32 {
    for count in 0..most {
        let Ok(mut ready) = client.clone().ready().await else { return count };
        let Ok((answer, _)) = ready.send_request(get("/"), true) else { return count };
        // Until the front has accepted it.
        drop(timeout(Duration::from_millis(20), answer).await);
    }
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_too_many_streams_in_a_second_is_sent_away() {
    let origin = Origin::start().await;
    let front = Front::limited(&[silent().await], limits(|http| http.resets = 5)).await;
    let (mut client, ended) = h2(&front).await;
    assert!(reset_streams(&mut client, 200).await < 200);
    let why = timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap_err();
    assert!(why.is_remote() && why.is_go_away(), "{why:?}");
    assert_eq!(why.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    while front.counters.refusals(Refusal::Http2Flood) != 1 {
        tokio::task::yield_now().await;
    }
    // Others are served.
    front.http.route_by(std::sync::Arc::new(
        router::Router::compile(&crate::support::to(&[origin.address], front.port)).unwrap().router,
    ));
    let (mut client, _ended) = h2(&front).await;
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_within_the_limit_are_served_on() {
    let front = Front::limited(&[silent().await], limits(|http| http.resets = 1_000_000)).await;
    let (mut client, _ended) = h2(&front).await;
    assert_eq!(reset_streams(&mut client, 30).await, 30);
    assert_eq!(front.counters.refusals(Refusal::Http2Flood), 0);
    assert!(client.ready().await.is_ok());
}

async fn ask(front: &Front, request: &str) -> (u16, String) {
    let answer = front.say(request.as_bytes()).await;
    (status(&answer), answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_beyond_its_limit_gets_414() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], limits(|http| http.url_bytes = 100)).await;
    let get = |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "u".repeat(bytes - 1));
    assert_eq!(ask(&front, &get(100)).await.0, 200);
    let (status, answer) = ask(&front, &get(101)).await;
    assert_eq!(status, 414);
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_beyond_its_limits_gets_431() {
    let origin = Origin::start().await;
    let change = |http: &mut HttpLimits| (http.headers, http.head_bytes) = (10, 1024);
    let front = Front::limited(&[origin.address], limits(change)).await;
    let get = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let lines = |count: usize| (0..count).map(|n| format!("X-{n}: y\r\n")).collect::<String>();
    assert_eq!(ask(&front, &get(&lines(9))).await.0, 200);
    assert_eq!(ask(&front, &get(&lines(10))).await.0, 431);
    assert_eq!(ask(&front, &get(&format!("X: {}\r\n", "y".repeat(900)))).await.0, 200);
    assert_eq!(ask(&front, &get(&format!("X: {}\r\n", "y".repeat(1100)))).await.0, 431);
    assert_eq!(origin.seen().concat().matches("GET /").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_requests_have_the_same_limits() {
    let origin = Origin::start().await;
    let change = |http: &mut HttpLimits| {
        (http.headers, http.head_bytes, http.url_bytes) = (10, 2048, 100);
    };
    let front = Front::limited(&[origin.address], limits(change)).await;
    let (mut client, _ended) = h2(&front).await;
    let mut with = |path: &str, headers: usize, bytes: usize| {
        let mut request = get(path);
        for n in 0..headers {
            let name = http::HeaderName::from_bytes(format!("x-{n}").as_bytes()).unwrap();
            request.headers_mut().insert(name, "y".repeat(bytes).parse().unwrap());
        }
        let (answer, _) = client.send_request(request, true).unwrap();
        async { timeout(PATIENCE, answer).await.unwrap().unwrap().status().as_u16() }
    };
    assert_eq!(with("/", 10, 1).await, 200);
    assert_eq!(with("/", 11, 1).await, 431);
    assert_eq!(with("/", 1, 3000).await, 431);
    assert_eq!(with(&format!("/{}", "u".repeat(100)), 1, 1).await, 414);
    assert_eq!(origin.seen().concat().matches("GET /").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_too_large_by_its_length_gets_413_and_the_origin_is_not_contacted() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], limits(|http| http.body_bytes = Some(1000))).await;
    let post = |length: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    for length in ["1001", "1000000000000000000"] {
        let (status, answer) = ask(&front, &post(length)).await;
        assert_eq!(status, 413, "{length}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    // The client that asks first is not told to go on.
    let asking = format!("{}Expect: 100-continue\r\n\r\n", post("1001").strip_suffix("\r\n").unwrap());
    assert_eq!(ask(&front, &asking).await.0, 413);
    let (mut client, _ended) = h2(&front).await;
    let request = Request::post("http://a/").header("content-length", "1001").body(()).unwrap();
    let (answer, _body) = client.send_request(request, false).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(origin.seen(), [""; 0]);
    assert_eq!(ask(&front, &format!("{}{}", post("1000"), "b".repeat(1000))).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_breaks_off_where_the_limit_is_passed() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], limits(|http| http.body_bytes = Some(1000))).await;
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = |bytes: usize| format!("{bytes:x}\r\n{}\r\n", "b".repeat(bytes));
    let whole = format!("{}{}{}0\r\n\r\n", post("/whole"), chunk(500), chunk(500));
    assert_eq!(ask(&front, &whole).await.0, 200);
    for large in [
        format!("{}{}{}0\r\n\r\n", post("/large"), chunk(500), chunk(501)),
        format!("{}{}0\r\n\r\n", post("/large"), chunk(100_000)),
    ] {
        let (status, answer) = ask(&front, &large).await;
        assert_eq!(status, 413);
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    let seen = origin.seen();
    assert!(seen[0].contains("POST /whole") && seen[0].contains("\r\n0\r\n\r\n"), "{seen:?}");
    for bytes in seen.iter().filter_map(|bytes| Some(&bytes[bytes.find("POST /large")?..])) {
        assert!(!bytes.contains("0\r\n\r\n") && bytes.len() < 2000, "{bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_http2_without_a_length_breaks_off_too() {
    let origin = Origin::start().await;
    let front = Front::limited(&[origin.address], limits(|http| http.body_bytes = Some(1000))).await;
    let (mut client, _ended) = h2(&front).await;
    let request = Request::post("http://a/large").body(()).unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(vec![b'b'; 800].into(), false).unwrap();
    body.send_data(vec![b'b'; 800].into(), true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(origin.seen().iter().all(|bytes| !bytes.contains("0\r\n\r\n")), "{:?}", origin.seen());
    // The connection goes on.
    let (answer, _) = client.send_request(get("/"), true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_as_many_connections_as_its_address_may_have() {
    let origin = Origin::start().await;
    let limits = Limits { connections_per_address: Some(2), ..Limits::default() };
    let front = Front::limited(&[origin.address], limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = front.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert_eq!(status(&listen(&mut stream).await), 200);
        held.push(stream);
    }
    assert_eq!(front.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await, "");
    assert_eq!(front.counters.refusals(Refusal::PerAddress), 1);
    // Others are served: loopback has many addresses.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, 9), 0).into()).unwrap();
    let mut other = socket.connect((Ipv4Addr::LOCALHOST, front.port).into()).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(status(&listen(&mut other).await), 200);
    drop((held, other));
    while front.counters.open() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&front, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_keeps_the_place_of_its_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let limits = Limits { connections_per_address: Some(1), ..Limits::default() };
    let front = Front::limited(&[listener.local_addr().unwrap()], limits).await;
    let mut client = front.connect().await;
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        .await
        .unwrap();
    let (mut origin, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    assert!(timeout(PATIENCE, origin.read(&mut [0; 4096])).await.unwrap().unwrap() > 0);
    let switches =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
    origin.write_all(switches).await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"hello") {
        assert!(timeout(PATIENCE, client.read_buf(&mut got)).await.unwrap().unwrap() > 0);
    }
    assert_eq!(front.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await, "");
    assert_eq!(front.counters.refusals(Refusal::PerAddress), 1);
    // The refused one counts until its task is over.
    while front.counters.open() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(front.counters.open(), 1);
    drop((client, origin));
    while front.counters.open() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_limit_counts_for_connections_that_come_after_it() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "u".repeat(200));
    let mut old = front.connect().await;
    old.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(status(&listen(&mut old).await), 200);
    front.change(|config| config.limits.http.url_bytes = 100);
    while ask(&front, &request).await.0 != 414 {}
    old.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(status(&listen(&mut old).await), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_do_not_come_get_408_and_silent_clients_are_closed() {
    let origin = Origin::start().await;
    let short = Duration::from_millis(200);
    let change = |http: &mut HttpLimits| (http.head_timeout, http.idle_timeout) = (short, short);
    let front = Front::limited(&[origin.address], limits(change)).await;
    assert_eq!(ask(&front, "GET / HTTP/1.1\r\nHo").await.0, 408);
    assert_eq!(front.say(b"").await, "");
    // Between two requests.
    let mut stream = front.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(status(&listen(&mut stream).await), 200);
    assert_eq!(listen(&mut stream).await, "");
}
