//! Backends that speak HTTP/2: a server on the h2 crate.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use model::ghost;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::{Front, PATIENCE, SILENCE, status};

/// How a body ended: with how many bytes and which trailers, or the error.
pub(crate) type Ended = Result<(usize, Option<HeaderMap>), String>;

/// What a server on the h2 crate has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    /// Streams of one connection at once.
    pub(crate) most_at_once: AtomicUsize,
    pub(crate) heads: Mutex<Vec<Request<()>>>,
    pub(crate) bodies: Mutex<Vec<Ended>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(configure: fn(&mut h2::server::Builder)) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = Arc::clone(&server.seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, configure, Arc::clone(&seen)));
            }
        });
        server
    }
}

pub(crate) async fn serve<S>(stream: S, configure: fn(&mut h2::server::Builder), seen: Arc<Seen>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = h2::server::Builder::new();
    configure(&mut builder);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
    let open = Arc::new(AtomicUsize::new(0));
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (seen, open) = (Arc::clone(&seen), Arc::clone(&open));
        seen.most_at_once.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        tokio::spawn(async move {
            answer(request, respond, &seen).await;
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// By path: `/echo` sends back what comes, as it comes; `/slow` waits; `/rst` breaks off; all others take the body and say `ok`.
async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, seen: &Seen) {
    let (parts, mut body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let is_tunnel = parts.extensions.get::<Protocol>().is_some();
    seen.heads.lock().unwrap().push(Request::from_parts(parts, ()));
    match path.as_str() {
        "/hints" => {
            let mut early = Response::builder().status(103).body(()).unwrap();
            early.headers_mut().insert("link", "</a.css>; rel=preload".parse().unwrap());
            respond.send_informational(early).unwrap();
            sleep(Duration::from_millis(50)).await;
        }
        "/slow" => sleep(Duration::from_millis(200)).await,
        "/hangs" => poll_fn(|cx| respond.poll_reset(cx)).await.map(drop).unwrap_or_default(),
        "/early" => {
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data("enough".into(), true).unwrap();
            sleep(Duration::from_millis(50)).await;
            send.send_reset(Reason::NO_ERROR);
            return;
        }
        _ => {}
    }
    let echoes = path == "/echo" || is_tunnel;
    let mut answer = Response::new(());
    answer.headers_mut().insert("x-protocol", "h2".parse().unwrap());
    if path == "/204" {
        *answer.status_mut() = StatusCode::NO_CONTENT;
        respond.send_response(answer, true).unwrap();
        return;
    }
    if !echoes {
        let end = drain(&mut body, None).await;
        seen.bodies.lock().unwrap().push(end);
    }
    let Ok(mut send) = respond.send_response(answer, false) else { return };
    if echoes {
        let end = drain(&mut body, Some(&mut send)).await;
        let trailers = end.as_ref().ok().and_then(|(_, trailers)| trailers.clone());
        match (&end, trailers) {
            (Ok(_), Some(trailers)) => send.send_trailers(trailers).unwrap(),
            (Ok(_), None) => drop(send.send_data(Bytes::new(), true)),
            (Err(_), _) => send.send_reset(Reason::INTERNAL_ERROR),
        }
        seen.bodies.lock().unwrap().push(end);
        return;
    }
    match path.as_str() {
        "/rst" => {
            send.send_data("half".into(), false).unwrap();
            sleep(Duration::from_millis(50)).await;
            send.send_reset(Reason::INTERNAL_ERROR);
        }
        "/trailers" => {
            send.send_data("ok".into(), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            trailers.insert("x-ghost-secret", "1".parse().unwrap());
            send.send_trailers(trailers).unwrap();
        }
        _ => send.send_data("ok".into(), true).unwrap(),
    }
}

async fn drain(
    body: &mut RecvStream,
    mut echo: Option<&mut h2::SendStream<Bytes>>,
) -> Result<(usize, Option<HeaderMap>), String> {
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data.map_err(|e| e.to_string())?;
        bytes += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
        if let Some(echo) = &mut echo {
            echo.send_data(data, false).map_err(|e| e.to_string())?;
        }
    }
    Ok((bytes, body.trailers().await.map_err(|e| e.to_string())?))
}

pub(crate) fn speaks_http2(config: &mut ghost::Config) {
    for route in config.vhosts.values_mut().flat_map(|vhost| &mut vhost.routes) {
        for group in &mut route.backends {
            group.protocol = model::Protocol::Http2;
        }
    }
}

pub(crate) async fn front(server: SocketAddr) -> Front {
    Front::with(&[server], speaks_http2).await
}

pub(crate) async fn client(front: &Front) -> SendRequest<Bytes> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.port)).await.unwrap();
    let (sender, connection) = h2::client::Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender.ready().await.unwrap()
}

pub(crate) fn post(path: &str) -> Request<()> {
    Request::post(format!("http://shop.example{path}")).body(()).unwrap()
}

pub(crate) async fn head(answer: h2::client::ResponseFuture) -> Response<RecvStream> {
    timeout(PATIENCE, answer).await.unwrap().unwrap()
}

pub(crate) async fn all(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = timeout(PATIENCE, body.data()).await.unwrap() {
        let data = data?;
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_http1_clients_share_a_connection_and_have_a_scheme_and_an_authority() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let mut stream = front.connect().await;
    for _ in 0..3 {
        stream
            .write_all(b"POST /a?b=c HTTP/1.1\r\nHost: Shop.Example\r\nTransfer-Encoding: chunked\r\nX-Stays: 1\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
            .await
            .unwrap();
        let answer = crate::support::listen(&mut stream).await;
        assert_eq!(status(&answer), 200, "{answer}");
        assert!(answer.contains("x-protocol: h2\r\n") && answer.contains("x-cache: PASS\r\n"), "{answer}");
        assert!(answer.contains("ok"), "{answer}");
    }
    assert_eq!(server.seen.connections.load(Ordering::Relaxed), 1);
    let heads = server.seen.heads.lock().unwrap();
    assert_eq!(heads[0].uri(), "http://shop.example/a?b=c");
    assert_eq!(heads[0].headers()["x-stays"], "1");
    assert_eq!(heads[0].headers()["x-forwarded-host"], "shop.example");
    for gone in ["host", "transfer-encoding", "connection"] {
        assert!(!heads[0].headers().contains_key(gone), "{gone}");
    }
    assert_eq!(server.seen.bodies.lock().unwrap()[0], Ok((5, None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_carries_as_many_requests_as_the_endpoint_allows_and_others_get_another_one() {
    let server = Server::with(|builder| {
        builder.max_concurrent_streams(7);
    })
    .await;
    let front = front(server.address).await;
    let mut client = client(&front).await;
    let mut answers = Vec::new();
    for _ in 0..60 {
        client = client.ready().await.unwrap();
        answers.push(client.send_request(post("/slow"), true).unwrap().0);
    }
    for answer in answers {
        assert_eq!(head(answer).await.status(), StatusCode::OK);
    }
    let most = server.seen.most_at_once.load(Ordering::Relaxed);
    assert!((1..=7).contains(&most), "{most}");
    let connections = server.seen.connections.load(Ordering::Relaxed);
    assert!((2..=20).contains(&connections), "{connections}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_and_answers_move_at_once_and_trailers_go_both_ways() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let mut client = client(&front).await;
    let mut request = post("/echo");
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let (answer, mut send) = client.send_request(request, false).unwrap();
    let mut body = head(answer).await.into_body();
    for part in ["one", "two", "three"] {
        send.send_data(part.into(), false).unwrap();
        let data = timeout(PATIENCE, body.data()).await.unwrap().unwrap().unwrap();
        assert_eq!(data, part);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "11".parse().unwrap());
    trailers.insert("x-gateway-route", "forged".parse().unwrap());
    send.send_trailers(trailers).unwrap();
    assert!(timeout(PATIENCE, body.data()).await.unwrap().is_none());
    let trailers = timeout(PATIENCE, body.trailers()).await.unwrap().unwrap().unwrap();
    assert_eq!(trailers.len(), 1);
    assert_eq!(trailers["x-sum"], "11");
    assert_eq!(server.seen.heads.lock().unwrap()[0].headers()["te"], "trailers");

    let (answer, _) = client.send_request(post("/trailers"), true).unwrap();
    let mut body = head(answer).await.into_body();
    assert_eq!(all(&mut body).await.unwrap(), b"ok");
    let trailers = timeout(PATIENCE, body.trailers()).await.unwrap().unwrap().unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &"0".parse().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_wait_for_windows_on_both_sides() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let mut client = client(&front).await;
    let (answer, mut send) = client.send_request(post("/echo"), false).unwrap();
    let sent = tokio::spawn(async move {
        let mut left = 5_000_000_usize;
        while left > 0 {
            send.reserve_capacity(left);
            let room = poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap().min(left);
            send.send_data(vec![b'x'; room].into(), left == room).unwrap();
            left -= room;
        }
    });
    let mut body = head(answer).await.into_body();
    sleep(SILENCE).await;
    assert_eq!(all(&mut body).await.unwrap().len(), 5_000_000);
    sent.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_endpoint_resets_is_not_complete() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let answer = front.say(b"GET /rst HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.contains("half") && !answer.contains("0\r\n\r\n"), "{answer}");
    let (answer, _) = client(&front).await.send_request(post("/rst"), true).unwrap();
    assert!(all(&mut head(answer).await.into_body()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_client_breaks_off_is_reset_at_the_endpoint() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let mut client = client(&front).await;
    let (_answer, mut send) = client.send_request(post("/upload"), false).unwrap();
    send.send_data("half".into(), false).unwrap();
    sleep(SILENCE).await;
    send.send_reset(Reason::CANCEL);
    let mut stream = front.connect().await;
    stream
        .write_all(b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        .await
        .unwrap();
    sleep(SILENCE).await;
    drop(stream);
    // A client that leaves while it waits.
    let (answer, _) = client.ready().await.unwrap().send_request(post("/hangs"), true).unwrap();
    sleep(SILENCE).await;
    drop(answer);
    while front.http.in_flight() > 0 || server.seen.bodies.lock().unwrap().len() < 3 {
        sleep(Duration::from_millis(10)).await;
    }
    let bodies = server.seen.bodies.lock().unwrap();
    assert!(bodies[0].is_err() && bodies[1].is_err(), "{bodies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_end_of_the_upload_is_whole() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let mut client = client(&front).await;
    let (answer, mut send) = client.send_request(post("/early"), false).unwrap();
    send.send_data("some".into(), false).unwrap();
    let mut answer = head(answer).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(all(answer.body_mut()).await.unwrap(), b"enough");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_body_have_none() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let answer = front.say(b"GET /204 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(status(&answer) == 204 && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = front.say(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(status(&answer) == 200 && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn early_hints_of_an_http2_backend_reach_http2_clients() {
    let server = Server::start().await;
    let front = front(server.address).await;
    let request = Request::get("http://a/hints").body(()).unwrap();
    let (mut answer, _) = client(&front).await.send_request(request, true).unwrap();
    let hint = timeout(PATIENCE, poll_fn(|cx| answer.poll_informational(cx))).await.unwrap();
    assert_eq!(hint.unwrap().unwrap().headers()["link"], "</a.css>; rel=preload");
    assert_eq!(head(answer).await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn websockets_reach_a_backend_that_takes_them_and_others_answer_502() {
    let ask = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let server = Server::with(|builder| {
        builder.enable_connect_protocol();
    })
    .await;
    let of_server = front(server.address).await;
    let mut stream = of_server.connect().await;
    stream.write_all(ask).await.unwrap();
    let answer = crate::support::listen(&mut stream).await;
    assert_eq!(status(&answer), 101, "{answer}");
    assert!(answer.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
    stream.write_all(b"ping").await.unwrap();
    assert_eq!(crate::support::listen(&mut stream).await, "ping");
    {
        let heads = server.seen.heads.lock().unwrap();
        assert_eq!(heads[0].method(), Method::CONNECT);
        assert_eq!(heads[0].uri(), "http://a/chat");
    }
    // By RFC 8441 on both sides.
    let mut client = client(&of_server).await;
    while !client.is_extended_connect_protocol_enabled() {
        sleep(Duration::from_millis(5)).await;
    }
    let mut request = Request::builder().method(Method::CONNECT).uri("http://a/chat").body(()).unwrap();
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    let (answer, mut send) = client.send_request(request, false).unwrap();
    let mut answer = head(answer).await;
    assert_eq!(answer.status(), StatusCode::OK);
    send.send_data("ping".into(), false).unwrap();
    assert_eq!(timeout(PATIENCE, answer.body_mut().data()).await.unwrap().unwrap().unwrap(), "ping");

    let server = Server::start().await;
    let front = front(server.address).await;
    let answer = front.say(ask).await;
    assert_eq!(status(&answer), 502, "{answer}");
    assert!(answer.contains("RFC 8441"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_speaks_http1_alone_is_503() {
    let origin = crate::support::Origin::start().await;
    let front = front(origin.address).await;
    let answer = front.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!([502, 503].contains(&status(&answer)), "{answer}");
}
