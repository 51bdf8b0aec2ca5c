//! Requests of varnishd for groups that only the front reaches.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use front::proxy::Header;
use front::{BackendSide, Shutdown, run_backends};
use model::MissFor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::h2_origins::{Server, speaks_http2};
use crate::support::{Front, OK, Origin, PATIENCE, SILENCE, status};

const PROOF: &str = "a secret of this start";

/// The socket of a front, with one rule that needs it.
struct Misses {
    front: Front,
    socket: PathBuf,
    _directory: tempfile::TempDir,
    _shutdown: watch::Sender<Shutdown>,
}

impl Misses {
    /// By HTTP/2, or by HTTP/1.1 and with a timeout.
    async fn to(endpoint: SocketAddr, http2: bool) -> Self {
        let front = Front::with(&[endpoint], |config| {
            if http2 {
                return speaks_http2(config);
            }
            for route in config.vhosts.values_mut().flat_map(|vhost| &mut vhost.routes) {
                let timeouts = model::RuleTimeouts { request_seconds: Some(0.5), ..Default::default() };
                route.timeouts = Some(timeouts);
            }
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("backends.sock");
        let (shutdown, shutdowns) = watch::channel(Shutdown::Run);
        tokio::spawn(run_backends(
            watch::Sender::default().subscribe(),
            watch::Sender::default().subscribe(),
            socket.clone(),
            BackendSide::new(|_| (), Arc::default()),
            shutdowns,
            (PROOF.into(), Some(Arc::clone(&front.http))),
        ));
        // It is there before it takes connections.
        while UnixStream::connect(&socket).await.is_err() {
            sleep(std::time::Duration::from_millis(5)).await;
        }
        Self { front, socket, _directory: directory, _shutdown: shutdown }
    }

    async fn connect(&self, group: &str) -> UnixStream {
        let routes = crate::support::to(&[], self.front.port);
        let compiled = router::Router::compile(&routes).unwrap().router;
        let rule = &compiled.rules()[0];
        let miss = MissFor { rule: rule.identity(), host: rule.hostname(), position: 0, group };
        let header = Header { authority: Some(miss.to_string()), ..Header::default() };
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        stream.write_all(&header.encode()).await.unwrap();
        stream
    }

    async fn say(&self, bytes: &str) -> String {
        let mut stream = self.connect("test/origin:80").await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        listen(&mut stream).await
    }
}

async fn listen(stream: &mut UnixStream) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        let patience = if all.is_empty() { PATIENCE } else { SILENCE };
        match timeout(patience, stream.read(&mut buffer)).await {
            Ok(Ok(count @ 1..)) => all.extend_from_slice(&buffer[..count]),
            _ => return String::from_utf8_lossy(&all).into_owned(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn misses_reach_backends_that_speak_http2() {
    let server = Server::start().await;
    let misses = Misses::to(server.address, true).await;
    let mut stream = misses.connect("test/origin:80").await;
    for _ in 0..2 {
        stream.write_all(b"GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n").await.unwrap();
        let answer = listen(&mut stream).await;
        assert_eq!(status(&answer), 200, "{answer}");
        // Neither trailers nor what only the gateway may say.
        assert!(answer.ends_with("2\r\nok\r\n0\r\n\r\n"), "{answer}");
        assert!(answer.contains(&format!("x-ghost-endpoint: {}\r\n", server.address)), "{answer}");
    }
    let answer = misses
        .say("POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        .await;
    assert_eq!(status(&answer), 200, "{answer}");
    let answer = misses.say("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(status(&answer) == 200 && answer.ends_with("\r\n\r\n"), "{answer}");
    // What breaks off stays broken off.
    let answer = misses.say("GET /rst HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(!answer.contains("0\r\n\r\n"), "{answer}");
    assert_eq!(server.seen.bodies.lock().unwrap()[2], Ok((5, None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_endpoint_got_has_the_proof_and_nothing_else_has_it() {
    let origin = Origin::start().await;
    let misses = Misses::to(origin.address, false).await;
    // An origin cannot say it.
    let forged =
        b"HTTP/1.1 502 Bad Gateway\r\nX-Ghost-Front: a secret of this start\r\nContent-Length: 2\r\n\r\nno";
    origin.will_answer(&[forged, b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", OK]);
    let answer = misses.say("GET / HTTP/1.1\r\nHost: a\r\nX-Ghost-Other: 1\r\n\r\n").await;
    assert!(status(&answer) == 502 && !answer.contains("x-ghost-front"), "{answer}");
    assert!(!origin.seen().concat().contains("x-ghost"), "{:?}", origin.seen());
    let answer = misses.say("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: x\r\n\r\n").await;
    assert!(status(&answer) == 304 && answer.ends_with("\r\n\r\n"), "{answer}");

    // Unknown here: the tables may be one reload apart.
    let mut stream = misses.connect("test/other:80").await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let answer = listen(&mut stream).await;
    assert!(status(&answer) == 502 && answer.contains(PROOF), "{answer}");

    let misses = Misses::to(([127, 0, 0, 1], 1).into(), false).await;
    let answer = misses.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(status(&answer) == 502 && answer.contains(PROOF), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_of_rules_hold_for_misses() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let misses = Misses::to(server.local_addr().unwrap(), false).await;
    let answer = misses.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(status(&answer) == 504 && !answer.contains(PROOF), "{answer}");
    assert_eq!(misses.front.http.in_flight(), 0);
}
