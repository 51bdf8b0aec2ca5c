//! What origins answer: what of it reaches clients, and in which form.

#[path = "origins/kept.rs"]
mod kept;
#[path = "origins/strays.rs"]
mod strays;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::Timeouts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::corpus::{Answer, answers, find, read_all, settles, shown, whole};
use crate::support::{Front, PATIENCE};

/// What an origin does with one request.
#[derive(Debug, Clone)]
enum Act {
    /// Says this, and goes on with the connection.
    Says(Vec<u8>),
    /// Says this, and closes.
    SaysAndCloses(Vec<u8>),
    /// Says this, and resets the connection.
    SaysAndResets(Vec<u8>),
    /// Says this, and then nothing, with the connection open.
    SaysAndHangs(Vec<u8>),
    /// Says this byte by byte, and closes.
    Dribbles(Vec<u8>),
    /// Says the first, and then another byte of the second each 50 ms, for ever.
    Trickles(Vec<u8>, Vec<u8>),
    /// Says this again and again.
    Floods(Vec<u8>, Vec<u8>),
}

#[derive(Debug, Clone)]
struct Actor {
    address: SocketAddr,
    next: Arc<Mutex<Vec<Act>>>,
    /// Requests, each with the number of its connection.
    seen: Arc<Mutex<Vec<(usize, String)>>>,
    connections: Arc<Mutex<usize>>,
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfresh";

impl Actor {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let actor = Self {
            address: listener.local_addr().unwrap(),
            next: Arc::default(),
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let serving = actor.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = {
                    let mut connections = serving.connections.lock().unwrap();
                    *connections += 1;
                    *connections
                };
                tokio::spawn(serving.clone().serve(stream, number));
            }
        });
        actor
    }

    /// The next requests are treated so; then all get [`OK`].
    fn will(&self, acts: impl IntoIterator<Item = Act>) {
        let mut acts: Vec<Act> = acts.into_iter().collect();
        acts.reverse();
        *self.next.lock().unwrap() = acts;
    }

    fn take_seen(&self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    async fn serve(self, mut stream: TcpStream, number: usize) {
        let _ = stream.set_nodelay(true);
        let mut unread = Vec::new();
        let mut buffer = vec![0; 65536];
        loop {
            let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
            unread.extend_from_slice(&buffer[..count]);
            while let Some(length) = whole(&unread) {
                let request: Vec<u8> = unread.drain(..length).collect();
                let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
                self.seen.lock().unwrap().push((number, shown(line)));
                let act = self.next.lock().unwrap().pop().unwrap_or_else(|| Act::Says(OK.to_vec()));
                match act {
                    Act::Says(bytes) => drop(stream.write_all(&bytes).await),
                    Act::SaysAndCloses(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.shutdown().await;
                        return;
                    }
                    Act::SaysAndResets(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        // What was said is on its way before the reset.
                        sleep(Duration::from_millis(50)).await;
                        let stream = stream.into_std().unwrap();
                        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                        return;
                    }
                    Act::SaysAndHangs(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        while let Ok(1..) = stream.read(&mut buffer).await {}
                        return;
                    }
                    Act::Dribbles(bytes) => {
                        for byte in bytes {
                            let _ = stream.write_all(&[byte]).await;
                            tokio::task::yield_now().await;
                        }
                        let _ = stream.shutdown().await;
                        return;
                    }
                    Act::Trickles(first, again) => {
                        let _ = stream.write_all(&first).await;
                        for byte in again.iter().cycle() {
                            if stream.write_all(&[*byte]).await.is_err() {
                                return;
                            }
                            sleep(Duration::from_millis(50)).await;
                        }
                    }
                    Act::Floods(first, again) => {
                        let _ = stream.write_all(&first).await;
                        while stream.write_all(&again).await.is_ok() {}
                        return;
                    }
                }
            }
        }
    }
}

fn says(bytes: impl AsRef<[u8]>) -> Act {
    Act::Says(bytes.as_ref().to_vec())
}

fn closes(bytes: impl AsRef<[u8]>) -> Act {
    Act::SaysAndCloses(bytes.as_ref().to_vec())
}

/// What a client gets.
#[derive(Debug, Clone)]
enum Gets {
    /// A whole answer: status and body.
    Whole(u16, String),
    /// An answer that can be seen to be broken off.
    Broken,
    /// The gateway's own answer with this status.
    Own(u16),
}

#[derive(Debug, Clone)]
struct Case {
    name: String,
    act: Act,
    method: &'static str,
    gets: Gets,
    /// Headers that the client must get, or with a `!` must not get.
    headers: Vec<String>,
}

fn whole_answer(name: &str, act: Act, status: u16, body: &str) -> Case {
    Case {
        name: name.into(),
        act,
        method: "GET",
        gets: Gets::Whole(status, body.into()),
        headers: Vec::new(),
    }
}

/// By POST, which is not sent again where a kept connection dies.
fn bad_gateway(name: &str, act: Act) -> Case {
    Case { name: name.into(), act, method: "POST", gets: Gets::Own(502), headers: Vec::new() }
}

fn broken(name: &str, act: Act) -> Case {
    Case { name: name.into(), act, method: "GET", gets: Gets::Broken, headers: Vec::new() }
}

impl Case {
    fn by(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    fn with(self, headers: &[&str]) -> Self {
        Self { headers: headers.iter().map(|one| (*one).to_owned()).collect(), ..self }
    }
}

async fn ask(front: &Front, method: &str, version: &str) -> Answer {
    let mut stream = front.connect().await;
    let request = format!("{method} / HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (bytes, end) = read_all(&mut stream).await;
    let mut all = answers(&bytes, end, |_| method == "HEAD");
    assert!(all.len() < 2, "{}", shown(&bytes));
    // Where the answer breaks off at once, not even its head may arrive.
    all.pop().unwrap_or(Answer { status: 0, head: String::new(), body: Vec::new(), is_whole: false })
}

/// Runs all cases, for HTTP/1.1 and for HTTP/1.0. After each one, another client gets an answer that is its own.
async fn hold(cases: Vec<Case>) {
    let origin = Actor::start().await;
    let front = Front::with(&[origin.address], |config| {
        config.timeouts = Some(Timeouts { connect_seconds: 5.0, first_byte_seconds: 2.0, idle_seconds: 1.0 });
    })
    .await;
    let count = cases.len();
    let mut failures = Vec::new();
    for case in cases {
        for version in ["1.1", "1.0"] {
            origin.will([case.act.clone()]);
            let answer = ask(&front, case.method, version).await;
            let mut why = Vec::new();
            match &case.gets {
                Gets::Whole(status, body) => {
                    if answer.status != *status || answer.body != body.as_bytes() || !answer.is_whole {
                        why.push(format!("  not {status} {body:?}"));
                    }
                }
                // To HEAD there is no body, and no type of one.
                Gets::Own(status) => {
                    let expected = (case.method != "HEAD").then_some("application/json");
                    if answer.status != *status
                        || !answer.is_whole
                        || answer.header("content-type") != expected
                    {
                        why.push(format!("  not the gateway's own {status}"));
                    }
                }
                Gets::Broken if !answer.is_whole => {}
                Gets::Broken => why.push("  not broken off".to_owned()),
            }
            if answer.status != 0 && !answer.head.starts_with(&format!("http/{version} ")) {
                why.push("  another version than the client's".to_owned());
            }
            for line in &case.headers {
                let (is_there, line) = match line.strip_prefix('!') {
                    Some(line) => (false, line),
                    None => (true, line.as_str()),
                };
                if answer.head.contains(line) != is_there {
                    why.push(format!("  {line:?} must{} be there", if is_there { "" } else { " not" }));
                }
            }
            for _ in 0..2 {
                let next = ask(&front, "GET", "1.1").await;
                if (next.status, &next.body[..]) != (200, b"fresh") {
                    why.push(format!("  the next client got {next:?}"));
                }
            }
            if !why.is_empty() {
                failures.push(format!("{} (HTTP/{version})\n  {answer:?}\n{}", case.name, why.join("\n")));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases fail:\n\n{}", failures.len(), failures.join("\n\n"));
    settles(&front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_answers_arrive_whole() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    hold(vec![
        whole_answer("an answer with a length", says(ok), 200, "ok"),
        whole_answer("an answer with a length, and the connection closes", closes(ok), 200, "ok"),
        whole_answer("an answer that says close and does not close", says("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"), 200, "ok").with(&["!keep-alive: "]),
        whole_answer("an answer that dribbles", Act::Dribbles(ok.into()), 200, "ok"),
        whole_answer("chunks that dribble", Act::Dribbles(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n".to_vec()), 200, "ok"),
        whole_answer("an answer up to the end of the connection", closes("HTTP/1.1 200 OK\r\n\r\nok"), 200, "ok"),
        whole_answer("an empty answer up to the end of the connection", closes("HTTP/1.1 200 OK\r\n\r\n"), 200, ""),
        whole_answer("chunks", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), 200, "ok").with(&["!content-length"]),
        whole_answer("chunks with extensions", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0;c\r\n\r\n"), 200, "ok").with(&["!a=b"]),
        whole_answer("chunks in capitals", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n"), 200, "0123456789"),
        whole_answer("chunks with a trailer", says("HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"), 200, "ok").with(&["!trailer x: y"]),
        whole_answer("chunks with a trailer that must not be one", says("HTTP/1.1 200 OK\r\nTrailer: Set-Cookie\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: y\r\n\r\n"), 200, "ok").with(&["!set-cookie: y"]),
        whole_answer("chunks beside a length", says("HTTP/1.1 200 OK\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), 200, "ok").with(&["!content-length"]),
        whole_answer("chunks before a length", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n"), 200, "ok").with(&["!content-length"]),
        whole_answer("equal lengths become one", says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"), 200, "ok").with(&["content-length: 2\r\n"]),
        whole_answer("a list of equal lengths becomes one", says("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok"), 200, "ok").with(&["content-length: 2\r\n"]),
        whole_answer("zeros before a length are removed", says("HTTP/1.1 200 OK\r\nContent-Length: 002\r\n\r\nok"), 200, "ok").with(&["content-length: 2\r\n"]),
        whole_answer("lines that end with LF", says("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), 200, "ok"),
        whole_answer("a status without a reason", says("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"), 200, "ok"),
        whole_answer("a status with an empty reason", says("HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok"), 200, "ok"),
        whole_answer("a reason of its own", says("HTTP/1.1 200 Fine By Me\r\nContent-Length: 2\r\n\r\nok"), 200, "ok").with(&[" 200 fine by me\r\n"]),
        whole_answer("a status that has no name", says("HTTP/1.1 299 x\r\nContent-Length: 2\r\n\r\nok"), 299, "ok"),
        whole_answer("a status of 599", says("HTTP/1.1 599 x\r\nContent-Length: 2\r\n\r\nok"), 599, "ok"),
        whole_answer("a status of 999", says("HTTP/1.1 999 x\r\nContent-Length: 2\r\n\r\nok"), 999, "ok"),
        whole_answer("HTTP/1.0 that closes", closes("HTTP/1.0 200 OK\r\n\r\nok"), 200, "ok"),
        whole_answer("HTTP/1.0 with a length", says("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"), 200, "ok"),
        whole_answer("HTTP/1.0 with keep-alive", says("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"), 200, "ok"),
        whole_answer("HTTP/1.0 with keep-alive that closes", closes("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"), 200, "ok"),
        whole_answer("an error of the origin", says("HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nok"), 500, "ok"),
        whole_answer("an answer of 400 is not the gateway's", says("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nok"), 400, "ok"),
        whole_answer("an empty line before the answer", says("\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), 200, "ok"),
        whole_answer("duplicate headers", says("HTTP/1.1 200 OK\r\nX: 1\r\nX: 2\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok"), 200, "ok").with(&["x: 1\r\n", "x: 2\r\n", "set-cookie: a\r\n", "set-cookie: b\r\n"]),
        whole_answer("200 headers", says(format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nok", (0..200).map(|number| format!("X-{number}: y\r\n")).collect::<String>())), 200, "ok").with(&["x-199: y\r\n"]),
        whole_answer("a head of 100 KiB", says(format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok", "y".repeat(100 << 10))), 200, "ok"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn informational_answers_come_before_the_final_one() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut cases = Vec::new();
    for first in [
        "100 Continue",
        "102 Processing",
        "103 Early Hints\r\nLink: </a>; rel=preload",
        "199 x",
        "110 x\r\nContent-Length: 5",
    ] {
        cases.push(
            whole_answer(
                &format!("{first} before the answer"),
                says(format!("HTTP/1.1 {first}\r\n\r\n{ok}")),
                200,
                "ok",
            )
            .with(&["!link: "]),
        );
        cases.push(bad_gateway(
            &format!("{first} and nothing more"),
            closes(format!("HTTP/1.1 {first}\r\n\r\n")),
        ));
    }
    cases.push(
        whole_answer(
            "several before the answer",
            says(format!("HTTP/1.1 100 a\r\n\r\nHTTP/1.1 102 b\r\n\r\nHTTP/1.1 103 c\r\nX: y\r\n\r\n{ok}")),
            200,
            "ok",
        )
        .with(&["!x: y"]),
    );
    cases.push(whole_answer(
        "16 before the answer",
        says(format!("{}{ok}", "HTTP/1.1 100 a\r\n\r\n".repeat(16))),
        200,
        "ok",
    ));
    for many in [17, 1_000] {
        cases.push(bad_gateway(
            &format!("{many} before the answer"),
            says(format!("{}{ok}", "HTTP/1.1 100 a\r\n\r\n".repeat(many))),
        ));
    }
    cases.push(bad_gateway(
        "an upgrade that was not asked for",
        says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
    ));
    cases.push(bad_gateway(
        "an upgrade to h2c that was not asked for",
        says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nsmuggled"),
    ));
    cases.push(bad_gateway(
        "an upgrade followed by an answer",
        says(format!("HTTP/1.1 101 Switching Protocols\r\n\r\n{ok}")),
    ));
    cases.push(bad_gateway(
        "a flood of 103",
        Act::Floods(Vec::new(), b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100)),
    ));
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_answers_become_502() {
    let mut cases = Vec::new();
    for (what, head) in [
        ("two lengths", "200 OK\r\nContent-Length: 2\r\nContent-Length: 3"),
        ("a list of two lengths", "200 OK\r\nContent-Length: 2, 3"),
        ("a negative length", "200 OK\r\nContent-Length: -1"),
        ("a length with a plus sign", "200 OK\r\nContent-Length: +2"),
        ("a length that is a word", "200 OK\r\nContent-Length: two"),
        ("an empty length", "200 OK\r\nContent-Length:"),
        ("a length beyond 64 bits", "200 OK\r\nContent-Length: 99999999999999999999999"),
        ("a length in hexadecimal", "200 OK\r\nContent-Length: 0x2"),
        ("a transfer coding that is not known", "200 OK\r\nTransfer-Encoding: cow"),
        ("gzip as a transfer coding", "200 OK\r\nTransfer-Encoding: gzip"),
        ("gzip and chunked", "200 OK\r\nTransfer-Encoding: gzip, chunked"),
        ("chunked and identity", "200 OK\r\nTransfer-Encoding: chunked, identity"),
        ("identity", "200 OK\r\nTransfer-Encoding: identity"),
        ("chunked twice", "200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ("an empty transfer coding", "200 OK\r\nTransfer-Encoding:"),
        (
            "a coding that is not known beside a length",
            "200 OK\r\nTransfer-Encoding: cow\r\nContent-Length: 2",
        ),
        ("a folded header", "200 OK\r\nX: y\r\n z"),
        ("a space before a colon", "200 OK\r\nX : y"),
        ("a header without a name", "200 OK\r\n: y"),
        ("a header without a colon", "200 OK\r\nX"),
        ("NUL in a header", "200 OK\r\nX: \0"),
        ("a bare CR in a header", "200 OK\r\nX: y\rSet-Cookie: z"),
        ("a name that is no token", "200 OK\r\nX Y: z"),
        ("DEL in a header", "200 OK\r\nX: \u{7f}"),
        ("a status of two digits", "20 OK"),
        ("a status of four digits", "2000 OK"),
        ("a status of letters", "abc OK"),
        ("a status of 000", "000 OK"),
        ("a status of 099", "099 OK"),
        ("a negative status", "-200 OK"),
        ("no status", ""),
        ("NUL in a reason", "200 \0"),
        ("a bare CR in a reason", "200 a\rb"),
    ] {
        cases.push(bad_gateway(
            &format!("an answer with {what}"),
            closes(format!("HTTP/1.1 {head}\r\n\r\nok")),
        ));
        cases.push(bad_gateway(
            &format!("an answer with {what}, and the connection stays"),
            says(format!("HTTP/1.1 {head}\r\n\r\nok")),
        ));
    }
    for (what, bytes) in [
        ("garbage", &b"\x01\x02\x03\x04\r\n\r\n"[..]),
        ("HTTP/0.9", b"hello\r\n\r\n"),
        ("HTTP/2", b"HTTP/2 200 OK\r\n\r\n"),
        ("HTTP/1.2", b"HTTP/1.2 200 OK\r\n\r\n"),
        ("HTTP in small letters", b"http/1.1 200 OK\r\n\r\n"),
        ("an answer after a space", b" HTTP/1.1 200 OK\r\n\r\n"),
        ("two spaces before the status", b"HTTP/1.1  200 OK\r\n\r\n"),
        ("frames of HTTP/2", b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80"),
        ("a request", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (
            "HTTP/1.0 with chunks",
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        ("nothing", b""),
        ("half a status line", b"HTTP/1.1 200"),
        ("half a head", b"HTTP/1.1 200 OK\r\nContent-Le"),
        ("a TLS alert", b"\x15\x03\x01\0\x02\x02\x0a"),
    ] {
        cases.push(bad_gateway(&format!("{what} and the end"), closes(bytes)));
    }
    let many: String = (0..300).map(|number| format!("X-{number}: y\r\n")).collect();
    cases.push(bad_gateway(
        "300 headers",
        says(format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\nok")),
    ));
    cases.push(bad_gateway(
        "a head of 200 KiB",
        says(format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok", "y".repeat(200 << 10))),
    ));
    cases.push(bad_gateway(
        "a head without an end",
        Act::Floods(b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".repeat(1000)),
    ));
    cases.push(bad_gateway(
        "a header without an end",
        Act::Floods(b"HTTP/1.1 200 OK\r\nX: ".to_vec(), b"y".repeat(10_000)),
    ));
    cases.push(bad_gateway(
        "a status line without an end",
        Act::Floods(b"HTTP/1.1 200 ".to_vec(), b"y".repeat(10_000)),
    ));
    cases.push(bad_gateway("a connection that is reset", Act::SaysAndResets(Vec::new())));
    cases.push(bad_gateway(
        "a connection that is reset in the head",
        Act::SaysAndResets(b"HTTP/1.1 200 OK\r\n".to_vec()),
    ));
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_break_off_do_not_look_complete() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut cases = Vec::new();
    for (what, bytes) in [
        ("a length that is not reached", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_owned()),
        ("a length of which nothing comes", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n".to_owned()),
        ("a length that is missed by one", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhalf".to_owned()),
        (
            "HTTP/1.0 and a length that is not reached",
            "HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_owned(),
        ),
        ("chunks without the last", format!("{chunks}4\r\nhalf\r\n")),
        ("half a chunk", format!("{chunks}8\r\nhalf")),
        ("chunks of which none comes", chunks.to_owned()),
        ("half a chunk size", format!("{chunks}4\r\nhalf\r\n4")),
        ("a last chunk without its end", format!("{chunks}4\r\nhalf\r\n0\r\n")),
        ("half a last chunk", format!("{chunks}4\r\nhalf\r\n0")),
        ("a trailer without its end", format!("{chunks}4\r\nhalf\r\n0\r\nX: y\r\n")),
        ("an invalid chunk size", format!("{chunks}4\r\nhalf\r\nx\r\n")),
        ("a chunk size with a sign", format!("{chunks}4\r\nhalf\r\n-1\r\n")),
        ("a chunk without CRLF", format!("{chunks}4\r\nhalf0\r\n\r\n")),
        ("a chunk that is longer than its size", format!("{chunks}3\r\nhalf\r\n0\r\n\r\n")),
        ("a chunk size with LF alone", format!("{chunks}4\nhalf\r\n0\r\n\r\n")),
        ("a chunk size of 65 bits", format!("{chunks}4\r\nhalf\r\n10000000000000000\r\n")),
    ] {
        cases.push(broken(&format!("{what}, and the end"), closes(&bytes)));
        cases.push(broken(&format!("{what}, and a reset"), Act::SaysAndResets(bytes.clone().into_bytes())));
    }
    cases.push(broken(
        "a body up to the end of the connection, and a reset",
        Act::SaysAndResets(b"HTTP/1.1 200 OK\r\n\r\nhalf".to_vec()),
    ));
    cases.push(broken(
        "HTTP/1.0 without a length, and a reset",
        Act::SaysAndResets(b"HTTP/1.0 200 OK\r\n\r\nhalf".to_vec()),
    ));
    cases.push(broken(
        "a length, and silence",
        Act::SaysAndHangs(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec()),
    ));
    cases.push(broken(
        "chunks, and silence",
        Act::SaysAndHangs(format!("{chunks}4\r\nhalf\r\n").into_bytes()),
    ));
    cases.push(broken("no length, and silence", Act::SaysAndHangs(b"HTTP/1.1 200 OK\r\n\r\nhalf".to_vec())));
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_origins_become_504() {
    let origin = Actor::start().await;
    let front = Front::with(&[origin.address], |config| {
        config.timeouts = Some(Timeouts { connect_seconds: 5.0, first_byte_seconds: 0.5, idle_seconds: 0.5 });
    })
    .await;
    for first in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        origin.will([Act::SaysAndHangs(first.into())]);
        let answer = ask(&front, "GET", "1.1").await;
        assert_eq!((answer.status, answer.is_whole), (504, true), "{first:?} {answer:?}");
    }
    assert_eq!(origin.take_seen().len(), 3, "a request that was sent is not sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_trickle_end_by_the_deadline() {
    let origin = Actor::start().await;
    let front = Front::with(&[origin.address], |config| {
        config.timeouts = Some(Timeouts { connect_seconds: 5.0, first_byte_seconds: 0.5, idle_seconds: 5.0 });
    })
    .await;
    for (first, again) in [
        ("", "X"),
        ("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
        ("HTTP/1.1 200 OK\r\nX: ", "y"),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 20", "0"),
    ] {
        for method in ["GET", "POST"] {
            origin.will([Act::Trickles(first.into(), again.into())]);
            let answer = ask(&front, method, "1.1").await;
            assert!(answer.is_whole && [502, 504].contains(&answer.status), "{first:?} {answer:?}");
        }
    }
    assert_eq!(origin.take_seen().len(), 8, "a request that was answered in part is not sent again");
    settles(&front).await;
}
