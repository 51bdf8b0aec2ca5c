//! Lines of the access log: one for each request, whatever clients and origins do.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use front::{AccessLog, HttpLimits, Limits, Observer, Reason, Way};
use model::{Timeouts, ghost};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::{Front, Origin, PATIENCE, listen, status};

/// A front whose lines are read.
struct Logged {
    front: Front,
    log: Arc<AccessLog>,
    lines: Arc<Mutex<String>>,
}

impl Logged {
    async fn to(endpoints: &[SocketAddr]) -> Self {
        Self::with(endpoints, |_| (), HttpLimits::default(), false).await
    }

    async fn with(
        endpoints: &[SocketAddr],
        change: impl FnOnce(&mut ghost::Config),
        limits: HttpLimits,
        query_strings: bool,
    ) -> Self {
        let log = Arc::new(AccessLog::new(None, query_strings));
        let limits = Limits { http: limits, ..Limits::default() };
        let observer = Observer::new(Some(Arc::clone(&log)), None);
        let front = Front::observed(endpoints, change, limits, observer).await;
        let lines: Arc<Mutex<String>> = Arc::default();
        let (reader, to) = (Arc::clone(&log), Arc::clone(&lines));
        std::thread::spawn(move || {
            let mut spare = Vec::new();
            while reader.wait(&mut spare, |bytes, count| {
                to.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
                reader.wrote(count);
            }) {}
        });
        Self { front, log, lines }
    }

    fn read(&self) -> Vec<Value> {
        let text = self.lines.lock().unwrap().clone();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    /// So many lines, once they are there; and no more.
    async fn lines(&self, count: usize) -> Vec<Value> {
        let all = async {
            while self.read().len() < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            panic!("{count} lines are missing in {:?}", self.read());
        }
        sleep(Duration::from_millis(50)).await;
        let all = self.read();
        assert_eq!(all.len(), count, "{all:?}");
        all
    }

    async fn line(&self) -> Value {
        self.lines(1).await.remove(0)
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.log.close();
    }
}

/// An endpoint that takes no connection.
fn nobody() -> SocketAddr {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_tells_the_whole_way_of_a_request_and_no_secret() {
    let origin = Origin::start().await;
    let logged = Logged::to(&[origin.address]).await;
    let answer = logged
        .front
        .say(b"POST /cart?token=hidden HTTP/1.1\r\nHost: Shop.Example\r\nAuthorization: Bearer hidden\r\nCookie: a=hidden\r\nReferer: http://b/?hidden\r\nUser-Agent: test\r\nX-Request-Id: r-1\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        .await;
    assert_eq!(status(&answer), 200, "{answer}");
    let line = logged.line().await;
    let port = logged.front.port;
    for (name, value) in [
        ("client", Value::from("127.0.0.1")),
        ("method", "POST".into()),
        ("host", "shop.example".into()),
        ("path", "/cart".into()),
        ("protocol", "HTTP/1.1".into()),
        ("status", 200.into()),
        ("way", "direct".into()),
        ("cache", "pass".into()),
        ("kind", "HTTPRoute".into()),
        ("route", "test/route".into()),
        ("rule", 0.into()),
        ("listener", "http".into()),
        ("socket", format!("http-{port}").into()),
        ("service", "test/origin:80".into()),
        ("backend", origin.address.to_string().into()),
        ("tries", 1.into()),
        ("request_id", "r-1".into()),
        ("user_agent", "test".into()),
        ("referer", "http://b/".into()),
    ] {
        assert_eq!(line[name], value, "{name} of {line}");
    }
    for absent in ["query", "reason", "tls", "sni", "gateway", "trace_id"] {
        assert_eq!(line.get(absent), None, "{absent} of {line}");
    }
    let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} of {line}"));
    assert!(number("bytes") > 2.0 && number("bytes_in") > 5.0, "{line}");
    assert!(number("duration_ms") >= number("first_byte_ms"), "{line}");
    assert!(number("first_byte_ms") >= number("backend_ms"), "{line}");
    assert!(number("backend_ms") >= number("connect_ms"), "{line}");
    assert!(!line.to_string().contains("hidden"), "{line}");
    assert_eq!(logged.front.http.by_way(Way::Direct), 1);
    assert_eq!(logged.log.written(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_clients_send_is_one_line_of_json() {
    let origin = Origin::start().await;
    let logged = Logged::with(&[origin.address], |_| (), HttpLimits::default(), true).await;
    let long = "x".repeat(7_900);
    let odd: [Vec<u8>; 6] = [
        b"GET /quotes\"},{\"a\":\"?\"\\\" HTTP/1.1\r\nUser-Agent: \"},{\\\r\n".to_vec(),
        b"GET /utf8 HTTP/1.1\r\nUser-Agent: \xf0\x9f\x98\x80\xc2\x85\xe2\x80\xa8\r\n".to_vec(),
        b"GET /invalid HTTP/1.1\r\nUser-Agent: \xff\xc3(\r\nReferer: \xe2\x82\r\n".to_vec(),
        b"GET /tab HTTP/1.1\r\nUser-Agent: a\tb\r\nX-Request-Id: \"}\r\n".to_vec(),
        b"GET /percent%0a%22 HTTP/1.1\r\nUser-Agent: %h \\n\\u000a\r\n".to_vec(),
        format!("GET /long{long}?{long} HTTP/1.1\r\nUser-Agent: {long}\r\nReferer: {long}\r\n").into_bytes(),
    ];
    for head in &odd {
        let mut all = head.clone();
        all.extend_from_slice(b"Host: a\r\nConnection: close\r\n\r\n");
        logged.front.say(&all).await;
    }
    let lines = logged.lines(odd.len()).await;
    let of = |path: &str| {
        let found = lines.iter().find(|line| line["path"].as_str().is_some_and(|own| own.starts_with(path)));
        found.unwrap_or_else(|| panic!("{path}: {lines:?}"))
    };
    assert_eq!(of("/utf8")["user_agent"], "\u{1f600}\u{85}\u{2028}");
    assert_eq!(of("/invalid")["user_agent"], "\u{fffd}\u{fffd}(");
    assert_eq!(of("/tab")["request_id"], "\"}");
    assert_eq!(of("/percent")["user_agent"], "%h \\n\\u000a");
    let lengths =
        ["path", "query", "user_agent", "referer"].map(|name| of("/long")[name].as_str().unwrap().len());
    assert_eq!(lengths, [4096, 4096, 1024, 1024]);
    // Whether hyper takes quotes in a path is its own affair: it is one line in any case.
    let text = logged.lines.lock().unwrap().clone();
    assert!(!text.contains(['\u{85}', '\u{2028}', '\t']), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_its_status_and_reason() {
    let origin = Origin::start().await;
    let limits = HttpLimits {
        head_timeout: Duration::from_millis(200),
        head_bytes: 200 << 10,
        ..HttpLimits::default()
    };
    let logged = Logged::with(&[origin.address], |_| (), limits, false).await;
    let long = "x".repeat(17 << 10);
    let huge = "x".repeat(70 << 10);
    let cases: [(Vec<u8>, u16, Reason); 9] = [
        // hyper's own answers, which no request of ours stands for.
        (b"GET / HTTP/1.1\r\nHost a\r\n\r\n".to_vec(), 400, Reason::BadRequest),
        (b"\x16\x03\x01 HTTP/1.1\r\n\r\n".to_vec(), 400, Reason::BadRequest),
        (format!("GET /{huge} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(), 414, Reason::UrlTooLong),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(300 << 10)).into_bytes(),
            431,
            Reason::HeadTooLarge,
        ),
        // A head that does not end.
        (b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec(), 408, Reason::HeadTimeout),
        // Ours.
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 400, Reason::BadRequest),
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(), 414, Reason::UrlTooLong),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_vec(), 501, Reason::NotSupported),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n".to_vec(), 417, Reason::NotSupported),
    ];
    for (number, (sent, wanted, reason)) in cases.iter().enumerate() {
        let before = logged.front.http.by_reason(*reason);
        let answer = logged.front.say(sent).await;
        let line = logged.lines(number + 1).await.remove(number);
        let shown = String::from_utf8_lossy(&sent[..sent.len().min(60)]).into_owned();
        assert_eq!(line["reason"], reason.name(), "{shown}: {line}");
        assert_eq!(line["status"], status(&answer), "{shown}: {line}");
        assert_eq!(line["status"], *wanted, "{shown}: {line}");
        assert_eq!((&line["way"], &line["cache"]), (&"own".into(), &"other".into()), "{shown}");
        assert_eq!(logged.front.http.by_reason(*reason), before + 1, "{shown}");
    }
    assert_eq!(logged.front.http.by_way(Way::Own), cases.len() as u64);
    assert_eq!(logged.front.http.in_flight(), 0);
    assert!(origin.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_gateway_itself_are_logged_as_its_own() {
    let change = |config: &mut ghost::Config| {
        let routes = config.vhosts.remove("*").unwrap();
        config.vhosts.insert("shop.example".into(), routes);
    };
    let logged = Logged::with(&[nobody()], change, HttpLimits::default(), false).await;
    logged.front.say(b"GET / HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n").await;
    logged.front.say(b"HEAD / HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n").await;
    for line in logged.lines(2).await {
        assert_eq!(
            (&line["status"], &line["reason"], &line["way"]),
            (&404.into(), &"no_route".into(), &"own".into())
        );
        assert_eq!((line.get("route"), &line["listener"]), (None, &"http".into()), "{line}");
    }
    logged.front.say(b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n").await;
    let line = logged.lines(3).await.remove(2);
    assert_eq!((&line["status"], &line["reason"]), (&503.into(), &"backend_unreachable".into()), "{line}");
    assert_eq!((&line["way"], &line["service"]), (&"direct".into(), &"test/origin:80".into()), "{line}");
    assert!(line.get("backend_ms").is_none() && line.get("backend").is_some(), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_origins_are_told_apart() {
    let origin = Origin::start().await;
    let change = |config: &mut ghost::Config| {
        config.timeouts = Some(Timeouts { first_byte_seconds: 0.2, ..Timeouts::default() });
    };
    let logged = Logged::with(&[origin.address], change, HttpLimits::default(), false).await;
    let cases: [(&[u8], u16, &str); 5] = [
        (b"nonsense\r\n\r\nCLOSE", 502, "backend_invalid"),
        (b"", 504, "backend_timeout"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalfCLOSE", 200, "answer_broken"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nCLOSE", 200, "answer_broken"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502, "backend_invalid"),
    ];
    for (number, (answer, status, reason)) in cases.into_iter().enumerate() {
        origin.will_answer(&[answer]);
        logged.front.say(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let line = logged.lines(number + 1).await.remove(number);
        assert_eq!((&line["status"], &line["reason"]), (&status.into(), &reason.into()), "{line}");
        assert_eq!(line["way"], "direct", "{line}");
    }
    // A whole answer after all these.
    logged.front.say(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert_eq!(logged.lines(6).await[5].get("reason"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_and_downloads_that_clients_break_off_are_logged() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let logged = Logged::to(&[listener.local_addr().unwrap()]).await;
    // The upload ends too early.
    let mut client = logged.front.connect().await;
    client.write_all(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\npart").await.unwrap();
    let (mut origin, _) = listener.accept().await.unwrap();
    let mut buffer = vec![0; 4096];
    let _ = origin.read(&mut buffer).await.unwrap();
    drop(client);
    let line = logged.line().await;
    assert_eq!((&line["path"], &line["reason"]), (&"/up".into(), &"upload_broken".into()), "{line}");
    // The client leaves within an answer.
    let mut client = logged.front.connect().await;
    client.write_all(b"GET /down HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let (mut origin, _) = listener.accept().await.unwrap();
    let _ = origin.read(&mut buffer).await.unwrap();
    origin.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nhalf").await.unwrap();
    let _ = client.read(&mut buffer).await.unwrap();
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let block = vec![0; 1 << 16];
    while origin.write_all(&block).await.is_ok() {}
    let line = logged.lines(2).await.remove(1);
    assert_eq!((&line["path"], &line["status"]), (&"/down".into(), &200.into()), "{line}");
    assert_eq!(line["reason"], "client_gone", "{line}");
    assert_eq!(logged.front.http.by_reason(Reason::ClientGone), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_one_line_once_it_is_over() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let logged = Logged::to(&[listener.local_addr().unwrap()]).await;
    let mut client = logged.front.connect().await;
    client
        .write_all(b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await
        .unwrap();
    let (mut origin, _) = listener.accept().await.unwrap();
    let mut buffer = vec![0; 4096];
    let _ = origin.read(&mut buffer).await.unwrap();
    origin
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(status(&listen(&mut client).await), 101);
    client.write_all(&[b'u'; 5000]).await.unwrap();
    let mut got = 0;
    while got < 5000 {
        got += origin.read(&mut buffer).await.unwrap();
    }
    origin.write_all(&[b'd'; 9000]).await.unwrap();
    let mut got = 0;
    while got < 9000 {
        got += client.read(&mut buffer).await.unwrap();
    }
    assert!(logged.read().is_empty(), "it is not over");
    drop((client, origin));
    let line = logged.line().await;
    assert_eq!((&line["status"], &line["way"]), (&101.into(), &"direct".into()), "{line}");
    assert_eq!(line.get("reason"), None, "{line}");
    let number = |name: &str| line[name].as_u64().unwrap();
    assert!((9000..9500).contains(&number("bytes")) && (5000..5500).contains(&number("bytes_in")), "{line}");
    assert_eq!(logged.front.http.by_way(Way::Direct), 1);
}

async fn connect_h2(front: &Front) -> h2::client::SendRequest<Bytes> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.port)).await.unwrap();
    let (sender, connection) = h2::client::Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender.ready().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_http_2_are_lines_of_their_own() {
    let origin = Origin::start().await;
    let logged = Logged::to(&[origin.address]).await;
    let mut client = connect_h2(&logged.front).await;
    for path in ["/a", "/b"] {
        let request = http::Request::get(format!("http://shop.example{path}?x=1")).body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        let mut body = timeout(PATIENCE, answer).await.unwrap().unwrap().into_body();
        while body.data().await.is_some() {}
    }
    let lines = logged.lines(2).await;
    for (line, path) in lines.iter().zip(["/a", "/b"]) {
        assert_eq!((&line["path"], &line["protocol"]), (&path.into(), &"HTTP/2.0".into()), "{line}");
        assert_eq!((&line["host"], line.get("reason")), (&"shop.example".into(), None), "{line}");
    }
    // A stream that is reset before its answer.
    origin.will_answer(&[b""]);
    let request = http::Request::get("http://shop.example/gone").body(()).unwrap();
    let (answer, mut stream) = client.send_request(request, true).unwrap();
    while !origin.seen().concat().contains("/gone") {
        sleep(Duration::from_millis(5)).await;
    }
    stream.send_reset(h2::Reason::CANCEL);
    drop(answer);
    let line = logged.lines(3).await.remove(2);
    assert_eq!((line.get("status"), &line["reason"]), (None, &"client_gone".into()), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_up_no_request() {
    let origin = Origin::start().await;
    let log = Arc::new(AccessLog::new(None, false));
    let observer = Observer::new(Some(Arc::clone(&log)), None);
    let front = Front::observed(&[origin.address], |_| (), Limits::default(), observer).await;
    // 512 KiB wait at most: about 100 lines of this length.
    let agent = "\"".repeat(8 << 10);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n", "y".repeat(4 << 10));
    let mut client = front.connect().await;
    let mut answered = 0;
    for _ in 0..400 {
        client.write_all(request.as_bytes()).await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\nok") {
            let mut buffer = [0; 4096];
            let count = timeout(PATIENCE, client.read(&mut buffer)).await.unwrap().unwrap();
            assert_ne!(count, 0);
            got.extend_from_slice(&buffer[..count]);
        }
        answered += 1;
    }
    drop(client);
    while front.http.by_way(Way::Direct) < answered {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(log.dropped() > 0 && log.dropped() < answered, "{}", log.dropped());
    let mut written = 0;
    log.close();
    while log.wait(&mut Vec::new(), |bytes, count| {
        assert!(bytes.len() <= (512 << 10) + (64 << 10), "{}", bytes.len());
        written += count;
    }) {}
    assert_eq!(written + log.dropped(), answered);
}
