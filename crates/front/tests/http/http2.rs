//! HTTP/2 clients, by prior knowledge.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::ext::Protocol;
use http::{Method, Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::{Front, Origin, PATIENCE};

async fn connect(front: &Front) -> SendRequest<Bytes> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.port)).await.unwrap();
    let (sender, connection) = Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender.ready().await.unwrap()
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://shop.example{path}")).body(()).unwrap()
}

async fn text(body: &mut h2::RecvStream) -> Result<String, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = timeout(PATIENCE, body.data()).await.unwrap() {
        let data = data?;
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    Ok(String::from_utf8(all).unwrap())
}

/// An origin that answers the first request with these bytes, and then echoes.
async fn echo(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_one_connection_reach_the_origin_as_requests() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = connect(&front).await;
    let mut request = get("/a?b=c");
    request.headers_mut().append("cookie", "a=1".parse().unwrap());
    request.headers_mut().append("cookie", "b=2".parse().unwrap());
    let (answer, _) = client.send_request(request, true).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["x-cache"], "PASS");
    assert_eq!(text(&mut answer.into_body()).await.unwrap(), "ok");
    let seen = origin.seen().concat();
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("host: shop.example\r\n") && seen.contains("cookie: a=1; b=2\r\n"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_a_length_is_chunked_and_its_end_is_its_end() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = connect(&front).await;
    let post = |path: &str| Request::post(format!("http://a{path}")).body(()).unwrap();
    let (answer, mut body) = client.send_request(post("/whole"), false).unwrap();
    body.send_data("hello".into(), true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::OK);
    let seen = origin.seen().concat();
    assert!(
        seen.contains("transfer-encoding: chunked\r\n") && seen.ends_with("5\r\nhello\r\n0\r\n\r\n"),
        "{seen}"
    );

    let mut client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(post("/broken"), false).unwrap();
    body.send_data("half".into(), false).unwrap();
    tokio::time::sleep(crate::support::SILENCE).await;
    body.send_reset(h2::Reason::CANCEL);
    assert!(timeout(PATIENCE, answer).await.unwrap().is_err());
    tokio::time::sleep(crate::support::SILENCE).await;
    let seen = origin.seen().concat();
    let broken = seen.split("POST /broken").nth(1).unwrap();
    assert!(broken.contains("half") && !broken.contains("0\r\n\r\n"), "{broken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_origin_breaks_off_is_reset() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    for broken in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalfCLOSE"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nCLOSE",
    ] {
        origin.will_answer(&[broken]);
        let (answer, _) = connect(&front).await.send_request(get("/"), true).unwrap();
        let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
        assert!(text(&mut answer.into_body()).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_and_early_hints_reach_the_client() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    origin.will_answer(&[b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n"]);
    let mut client = connect(&front).await;
    let mut request = get("/");
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let (mut answer, _) = client.send_request(request, true).unwrap();
    let hint =
        timeout(PATIENCE, poll_fn(|cx| answer.poll_informational(cx))).await.unwrap().unwrap().unwrap();
    assert_eq!(
        (hint.status(), &hint.headers()["link"]),
        (StatusCode::EARLY_HINTS, &"</a.css>".parse::<http::HeaderValue>().unwrap())
    );
    let mut body = timeout(PATIENCE, answer).await.unwrap().unwrap().into_body();
    assert_eq!(text(&mut body).await.unwrap(), "ok");
    let trailers = timeout(PATIENCE, body.trailers()).await.unwrap().unwrap().unwrap();
    assert_eq!(trailers["x-sum"], "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_by_extended_connect_is_a_tunnel_after_101_only() {
    let address =
        echo(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
            .await;
    let front = Front::to(&[address]).await;
    let mut client = connect(&front).await;
    // The front's SETTINGS must be there before the client may ask.
    while !client.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let ask = || {
        let mut request = Request::builder().method(Method::CONNECT).uri("http://a/chat").body(()).unwrap();
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        request
    };
    let (answer, mut send) = client.send_request(ask(), false).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(!answer.headers().contains_key("sec-websocket-accept"));
    let mut body = answer.into_body();
    send.send_data("ping".into(), false).unwrap();
    assert_eq!(timeout(PATIENCE, body.data()).await.unwrap().unwrap().unwrap(), "ping");
    send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(text(&mut body).await.unwrap(), "");

    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    origin.will_answer(&[b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"]);
    let mut client = connect(&front).await;
    while !client.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let (answer, _send) = client.send_request(ask(), false).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(text(&mut answer.into_body()).await.unwrap(), "no");
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_without_a_protocol_is_refused() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = connect(&front).await;
    let request = Request::builder().method(Method::CONNECT).uri("a:80").body(()).unwrap();
    let (answer, _) = client.send_request(request, true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::NOT_IMPLEMENTED);
    assert!(origin.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_wait_for_the_clients_window() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut large = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n".to_vec();
    large.extend(std::iter::repeat_n(b'x', 3_000_000));
    origin.will_answer(&[&large]);
    let (answer, _) = connect(&front).await.send_request(get("/"), true).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    tokio::time::sleep(crate::support::SILENCE).await;
    assert_eq!(text(&mut answer.into_body()).await.unwrap().len(), 3_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_websocket_leaves_nothing_on_a_shared_connection() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = connect(&front).await;
    while !client.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // It announces a body that never comes: an origin that waits for it would take the next request for it.
    let mut request = Request::builder().method(Method::CONNECT).uri("http://a/chat").body(()).unwrap();
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    request.headers_mut().insert("content-length", "200".parse().unwrap());
    let (answer, _send) = client.send_request(request, false).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::OK);
    let mut client = client.ready().await.unwrap();
    let (answer, _) = client.send_request(get("/next"), true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status(), StatusCode::OK);
    let seen = origin.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(!seen[0].contains("content-length") && seen[1].starts_with("GET /next "), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_head_has_no_body_whoever_makes_it() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = connect(&front).await;
    let mut request = Request::head("http://a/").body(()).unwrap();
    request.headers_mut().insert("cdn-loop", "vg-test".parse().unwrap());
    let (answer, _) = client.send_request(request, true).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 508);
    assert_eq!(text(&mut answer.into_body()).await.unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_and_closed_windows_are_given_up() {
    use std::time::Duration;
    let origin = Origin::start().await;
    let http = front::HttpLimits {
        idle_timeout: Duration::from_millis(300),
        stall_timeout: Duration::from_millis(600),
        ..front::HttpLimits::default()
    };
    let front = Front::limited(&[origin.address], front::Limits { http, ..front::Limits::default() }).await;
    // A preface and SETTINGS, and nothing more: not even an answer to a PING.
    let mut silent = front.connect().await;
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, silent.read_to_end(&mut rest)).await.unwrap().unwrap();

    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.port)).await.unwrap();
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let (answer, _) = client.ready().await.unwrap().send_request(get("/"), true).unwrap();
    let mut body = timeout(PATIENCE, answer).await.unwrap().unwrap().into_body();
    assert!(timeout(PATIENCE, body.data()).await.unwrap().is_none_or(|data| data.is_err()));
    while front.http.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
