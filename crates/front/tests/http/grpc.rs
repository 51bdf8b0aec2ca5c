//! gRPC: calls of all four kinds, with messages and statuses written by hand on the h2 crate, and what the gateway answers itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use model::{RouteKind, ghost};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::{Front, Origin, PATIENCE};

fn message(text: &str) -> Bytes {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0][..], &length, text.as_bytes()].concat().into()
}

/// The messages of a stream, however they were cut into frames.
struct Messages {
    body: RecvStream,
    unread: Vec<u8>,
}

impl Messages {
    fn of(body: RecvStream) -> Self {
        Self { body, unread: Vec::new() }
    }

    async fn next(&mut self) -> Option<Result<String, h2::Error>> {
        loop {
            if let Some(length) = self.unread.get(1..5) {
                let end = 5 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
                if self.unread.len() >= end {
                    let one: Vec<u8> = self.unread.drain(..end).collect();
                    return Some(Ok(String::from_utf8(one[5..].to_vec()).unwrap()));
                }
            }
            match timeout(PATIENCE, self.body.data()).await.unwrap()? {
                Ok(data) => {
                    self.body.flow_control().release_capacity(data.len()).unwrap();
                    self.unread.extend_from_slice(&data);
                }
                Err(e) => return Some(Err(e)),
            }
        }
    }

    async fn status(&mut self) -> String {
        let trailers = timeout(PATIENCE, self.body.trailers()).await.unwrap().unwrap().unwrap();
        trailers["grpc-status"].to_str().unwrap().to_owned()
    }
}

/// `Sum` adds up what comes; `Count` says three messages; `Chat` answers each message; `Unary` answers once; `Fails` with a status.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond));
                }
            });
        }
    });
    address
}

fn status(code: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.parse().unwrap());
    trailers
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    assert_eq!(request.headers()["te"], "trailers");
    let head = || Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
    let mut messages = Messages::of(request.into_body());
    if method == "Fails" {
        let mut only = head();
        only.headers_mut().extend(status("9"));
        respond.send_response(only, true).unwrap();
        return;
    }
    if method == "Hangs" {
        sleep(PATIENCE).await;
        return;
    }
    let mut send = respond.send_response(head(), false).unwrap();
    match method.as_str() {
        "Unary" => {
            let text = messages.next().await.unwrap().unwrap();
            send.send_data(message(&format!("hello {text}")), false).unwrap();
        }
        "Sum" => {
            let mut sum = 0;
            while let Some(Ok(number)) = messages.next().await {
                sum += number.parse::<u32>().unwrap();
            }
            send.send_data(message(&sum.to_string()), false).unwrap();
        }
        "Count" => {
            for number in ["one", "two", "three"] {
                send.send_data(message(number), false).unwrap();
                sleep(Duration::from_millis(20)).await;
            }
        }
        _ => {
            while let Some(Ok(text)) = messages.next().await {
                send.send_data(message(&text.to_uppercase()), false).unwrap();
            }
        }
    }
    send.send_trailers(status("0")).unwrap();
}

fn is_grpc_route(config: &mut ghost::Config) {
    for route in config.vhosts.values_mut().flat_map(|vhost| &mut vhost.routes) {
        route.kind = RouteKind::GrpcRoute;
        for group in &mut route.backends {
            group.protocol = model::Protocol::Http2;
        }
    }
}

async fn client(front: &Front) -> SendRequest<Bytes> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.port)).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender.ready().await.unwrap()
}

fn call(method: &str) -> Request<()> {
    Request::post(format!("http://shop.example/shop.Cart/{method}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_all_four_kinds_work() {
    let front = Front::with(&[serve().await], is_grpc_route).await;
    let mut client = client(&front).await;
    for (method, says, hears) in [
        ("Unary", &["you"][..], &["hello you"][..]),
        ("Sum", &["1", "2", "39"], &["42"]),
        ("Count", &[], &["one", "two", "three"]),
    ] {
        client = client.ready().await.unwrap();
        let (answer, mut send) = client.send_request(call(method), false).unwrap();
        for one in says {
            send.send_data(message(one), false).unwrap();
        }
        send.send_data(Bytes::new(), true).unwrap();
        let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        let mut messages = Messages::of(answer.into_body());
        for one in hears {
            assert_eq!(messages.next().await.unwrap().unwrap(), *one, "{method}");
        }
        assert!(messages.next().await.is_none());
        assert_eq!(messages.status().await, "0");
    }
    // Both sides speak in turn.
    let mut client = client.ready().await.unwrap();
    let (answer, mut send) = client.send_request(call("Chat"), false).unwrap();
    let mut messages = Messages::of(timeout(PATIENCE, answer).await.unwrap().unwrap().into_body());
    for (says, hears) in [("ping", "PING"), ("pong", "PONG")] {
        send.send_data(message(says), false).unwrap();
        assert_eq!(messages.next().await.unwrap().unwrap(), hears);
    }
    send.send_data(Bytes::new(), true).unwrap();
    assert!(messages.next().await.is_none());
    assert_eq!(messages.status().await, "0");
}

/// Status of HTTP, status and message of gRPC.
async fn own(front: &Front, request: Request<()>) -> (u16, String, String) {
    let (answer, _) = client(front).await.send_request(request, true).unwrap();
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    let get = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    assert_eq!(get("content-type"), "application/grpc");
    assert_eq!(get("content-length"), "");
    // No DATA, no trailers of their own: "Trailers-Only".
    assert!(answer.body().is_end_stream());
    (answer.status().as_u16(), get("grpc-status"), get("grpc-message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateways_own_answers_are_statuses_of_grpc() {
    let nowhere: SocketAddr = ([127, 0, 0, 1], 1).into();
    let front = Front::with(&[nowhere], is_grpc_route).await;
    let (http, grpc, message) = own(&front, call("Unary")).await;
    assert_eq!((http, grpc.as_str()), (200, "14"), "{message}");
    assert!(message.contains("no backend"), "{message}");

    let front = Front::with(&[], is_grpc_route).await;
    assert_eq!(own(&front, call("Unary")).await.1, "14");

    let front = Front::with(&[nowhere], |config| {
        is_grpc_route(config);
        config.vhosts.clear();
    })
    .await;
    assert_eq!(own(&front, call("Unary")).await.1, "12");

    let front = Front::with(&[serve().await], |config| {
        is_grpc_route(config);
        config.timeouts = Some(model::Timeouts { first_byte_seconds: 0.3, ..model::Timeouts::default() });
    })
    .await;
    assert_eq!(own(&front, call("Hangs")).await.1, "4");
    // The origin's own status.
    assert_eq!(own(&front, call("Fails")).await.1, "9");

    // A backend that does not speak HTTP/2.
    let origin = Origin::start().await;
    let front = Front::with(&[origin.address], is_grpc_route).await;
    assert_eq!(own(&front, call("Unary")).await.1, "14");

    // Others get what they understand.
    let front = Front::with(&[nowhere], is_grpc_route).await;
    let mut request = call("Unary");
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    let (answer, _) = client(&front).await.send_request(request, true).unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap().status().as_u16(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_of_clients_hold() {
    let front = Front::with(&[serve().await], is_grpc_route).await;
    for (time, method) in [("200m", "Hangs"), ("0n", "Unary"), ("0S", "Hangs")] {
        let mut request = call(method);
        request.headers_mut().insert("grpc-timeout", time.parse().unwrap());
        let (http, grpc, message) = own(&front, request).await;
        assert_eq!((http, grpc.as_str()), (200, "4"), "{time}: {message}");
    }
}
