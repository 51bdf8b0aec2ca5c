//! Cases of the corpus: the bytes that a client sends, what it is to get, and what is to reach the origin, byte by byte.
//!
//! Every case is followed by a request of the test's own, the probe. If the probe is answered, the connection stayed open and
//! both sides agree where the case ends. If it is not, the front closed the connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::{Front, PATIENCE};

pub(crate) const PROBE: &[u8] = b"GET /probe HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";
const PROBED: &str = "GET /probe HTTP/1.1\r\nhost: probe\r\n\r\n";

/// Headers that the gateway adds to every request.
const OWN: [&str; 8] = [
    "x-forwarded-for: 127.0.0.1",
    "x-forwarded-proto: http",
    "x-forwarded-port: ",
    "x-forwarded-host: ",
    "x-gateway-listener: http-",
    "x-gateway-route: test/route",
    "via: 1.1 varnish-gateway",
    "cdn-loop: vg-test",
];

/// What one connection brought to the origin.
#[derive(Debug, Default, Clone)]
struct Connection {
    bytes: Vec<u8>,
    is_over: bool,
}

/// An origin that records every byte and answers whole requests with `ok`.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<Connection>>>,
}

impl Recorder {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let recorder = Self { address: listener.local_addr().unwrap(), connections: Arc::default() };
        let serving = recorder.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        recorder
    }

    async fn serve(self, mut stream: TcpStream) {
        let number = {
            let mut connections = self.connections.lock().unwrap();
            connections.push(Connection::default());
            connections.len() - 1
        };
        let (mut read, mut answered) = (Vec::new(), 0);
        let mut buffer = vec![0; 65536];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            self.connections.lock().unwrap()[number].bytes.extend_from_slice(&buffer[..count]);
            read.extend_from_slice(&buffer[..count]);
            while let Some(length) = whole(&read[answered..]) {
                answered += length;
                // One connection for one request: no case sees what another one left.
                let answer: &[u8] = if read.starts_with(b"HEAD ") {
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
                } else {
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
                };
                let _ = stream.write_all(answer).await;
            }
        }
        self.connections.lock().unwrap()[number].is_over = true;
    }

    /// What came since the last call: whole requests, and what remained of cut ones. Waits until every connection is closed.
    async fn take(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let connections = self.connections.lock().unwrap().clone();
            if connections.iter().all(|one| one.is_over) {
                break;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "the origin's connection stays open: {connections:?}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let connections: Vec<Connection> = self.connections.lock().unwrap().drain(..).collect();
        let (mut all, mut cut) = (Vec::new(), Vec::new());
        for connection in connections {
            let mut rest = &connection.bytes[..];
            while let Some(length) = whole(rest) {
                all.push(rest[..length].to_vec());
                rest = &rest[length..];
            }
            if !rest.is_empty() {
                cut.push(rest.to_vec());
            }
        }
        (all, cut)
    }
}

/// The length of the first whole request, read as strictly as can be.
pub(crate) fn whole(bytes: &[u8]) -> Option<usize> {
    let end = find(bytes, b"\r\n\r\n")? + 4;
    let head = &bytes[..end];
    for line in head.split(|b| *b == b'\n') {
        assert!(line.is_empty() || line.ends_with(b"\r"), "bare LF in {}", shown(head));
        assert!(!line[..line.len().saturating_sub(1)].contains(&b'\r'), "bare CR in {}", shown(head));
        assert!(!line.contains(&0), "NUL in {}", shown(head));
    }
    let value = |name: &[u8]| {
        let values: Vec<Vec<u8>> = head
            .split(|b| *b == b'\n')
            .filter(|line| line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name))
            .filter_map(|line| Some(line[name.len()..].strip_prefix(b":")?.trim_ascii().to_vec()))
            .collect();
        assert!(values.len() < 2, "{} twice in {}", shown(name), shown(head));
        values.into_iter().next()
    };
    let (length, coding) = (value(b"content-length"), value(b"transfer-encoding"));
    if let Some(coding) = coding {
        assert_eq!(coding, b"chunked", "{}", shown(head));
        assert_eq!(length, None, "both framings in {}", shown(head));
        let mut at = end;
        loop {
            let line = find(&bytes[at..], b"\r\n")?;
            let text = std::str::from_utf8(&bytes[at..at + line]).unwrap();
            let size = usize::from_str_radix(text, 16).unwrap_or_else(|_| panic!("chunk size {text:?}"));
            at += line + 2;
            if size == 0 {
                // Trailers, and an empty line.
                loop {
                    let line = find(&bytes[at..], b"\r\n")?;
                    at += line + 2;
                    if line == 0 {
                        return Some(at);
                    }
                }
            }
            at += size + 2;
            if bytes.len() < at {
                return None;
            }
            assert_eq!(&bytes[at - 2..at], b"\r\n", "{}", shown(bytes));
        }
    }
    let length: usize = match length {
        Some(text) => {
            assert!(text == b"0" || !text.starts_with(b"0"), "leading zeros in {}", shown(head));
            std::str::from_utf8(&text).unwrap().parse().unwrap()
        }
        None => 0,
    };
    (bytes.len() >= end + length).then_some(end + length)
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

pub(crate) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// A head with its headers in one order, and without those that the gateway adds. They must be there once.
fn normal(message: &[u8], at_origin: Option<SocketAddr>) -> String {
    let end = find(message, b"\r\n\r\n").map_or(message.len(), |end| end + 4);
    let head = shown(&message[..end]);
    let mut lines: Vec<&str> = head.split("\\r\\n").filter(|line| !line.is_empty()).collect();
    let first = if lines.is_empty() { "" } else { lines.remove(0) };
    if let Some(origin) = at_origin {
        // Clients of HTTP/1.0 may have no Host: the endpoint's address takes its place.
        let of_endpoint = format!("host: {origin}");
        let has_host = !lines.contains(&of_endpoint.as_str());
        for own in OWN {
            let count = lines.iter().filter(|line| line.starts_with(own)).count();
            assert_eq!(count, usize::from(has_host || own != "x-forwarded-host: "), "{own} in {head}");
        }
        lines.retain(|line| !OWN.iter().any(|own| line.starts_with(own)));
        if let Some(host) = lines.iter_mut().find(|line| **line == of_endpoint) {
            *host = "host: ORIGIN";
        }
    }
    lines.sort_by_key(|line| line.split(':').next().unwrap_or_default().to_owned());
    format!("{first}\n{}\n\n{}", lines.join("\n"), shown(&message[end..]))
}

/// An answer as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let first = values.next();
        assert_eq!(values.next(), None, "{name} twice in {}", self.head);
        first
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
}

/// Reads until the connection ends.
pub(crate) async fn read_all(stream: &mut TcpStream) -> (Vec<u8>, End) {
    let mut all = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        match timeout(PATIENCE, stream.read(&mut buffer)).await {
            Ok(Ok(0)) => return (all, End::Closed),
            Ok(Ok(count)) => all.extend_from_slice(&buffer[..count]),
            Ok(Err(_)) => return (all, End::Reset),
            Err(_) => panic!("the front neither closes nor says more after {}", shown(&all)),
        }
    }
}

/// Splits what a client got into answers. `heads` says which of them are answers to HEAD.
pub(crate) fn answers(mut bytes: &[u8], end: End, is_head: impl Fn(usize) -> bool) -> Vec<Answer> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let Some(length) = find(bytes, b"\r\n\r\n").map(|end| end + 4) else {
            panic!("no head of an answer: {}", shown(bytes))
        };
        let head = String::from_utf8_lossy(&bytes[..length]).to_ascii_lowercase();
        bytes = &bytes[length..];
        let status: u16 = head[9..12].parse().unwrap();
        if status == 100 {
            continue;
        }
        let mut answer = Answer { status, head, body: Vec::new(), is_whole: true };
        let size = answer.header("content-length").map(|text| text.parse::<usize>().unwrap());
        let coding = answer.header("transfer-encoding").map(str::to_owned);
        if is_head(found.len()) || matches!(status, 101 | 204 | 304) {
        } else if let Some(coding) = coding {
            assert_eq!((coding.as_str(), size), ("chunked", None));
            assert!(answer.head.starts_with("http/1.1"), "chunks to HTTP/1.0");
            answer.is_whole = false;
            while let Some(line) = find(bytes, b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
                let rest = &bytes[line + 2..];
                if rest.len() < size + 2 {
                    answer.body.extend_from_slice(&rest[..rest.len().min(size)]);
                    bytes = &[];
                    break;
                }
                answer.body.extend_from_slice(&rest[..size]);
                bytes = &rest[size + 2..];
                if size == 0 {
                    // Trailers come before an empty line.
                    bytes = rest;
                    while let Some(line) = find(bytes, b"\r\n") {
                        let trailer = String::from_utf8_lossy(&bytes[..line]).to_ascii_lowercase();
                        bytes = &bytes[line + 2..];
                        if line == 0 {
                            answer.is_whole = true;
                            break;
                        }
                        answer.head.push_str(&format!("trailer {trailer}\r\n"));
                    }
                    break;
                }
            }
        } else if let Some(size) = size {
            let size_here = size.min(bytes.len());
            answer.is_whole = size_here == size;
            answer.body = bytes[..size_here].to_vec();
            bytes = &bytes[size_here..];
        } else {
            answer.body = bytes.to_vec();
            answer.is_whole = end == End::Closed;
            bytes = &[];
        }
        found.push(answer);
    }
    found
}

/// What is to become of a case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    name: String,
    sent: Vec<u8>,
    statuses: Vec<u16>,
    stays_open: bool,
    /// Whole requests at the origin.
    arrives: Vec<Vec<u8>>,
    /// A request may begin to arrive, but must not end.
    may_be_cut: bool,
}

fn case(name: &str, sent: impl AsRef<[u8]>, statuses: &[u16]) -> Case {
    Case {
        name: name.to_owned(),
        sent: sent.as_ref().to_vec(),
        statuses: statuses.to_vec(),
        stays_open: false,
        arrives: Vec::new(),
        may_be_cut: false,
    }
}

/// The origin gets this, and the connection stays open.
pub(crate) fn forwards(name: &str, sent: impl AsRef<[u8]>, arrives: &[&str]) -> Case {
    let arrives: Vec<Vec<u8>> = arrives.iter().map(|one| one.as_bytes().to_vec()).collect();
    let statuses = vec![200; arrives.len()];
    Case { stays_open: true, arrives, ..case(name, sent, &statuses) }
}

/// The same for one request that is no text.
pub(crate) fn forwards_bytes(name: &str, sent: impl AsRef<[u8]>, arrives: &[u8]) -> Case {
    Case { stays_open: true, arrives: vec![arrives.to_vec()], ..case(name, sent, &[200]) }
}

/// The origin gets this, and the connection closes.
pub(crate) fn forwards_and_closes(name: &str, sent: impl AsRef<[u8]>, arrives: &[&str]) -> Case {
    Case { stays_open: false, ..forwards(name, sent, arrives) }
}

/// Nothing reaches the origin, and the connection closes.
pub(crate) fn refuses(name: &str, sent: impl AsRef<[u8]>, status: u16) -> Case {
    case(name, sent, &[status])
}

/// Nothing reaches the origin, and the connection closes without a word.
pub(crate) fn closes(name: &str, sent: impl AsRef<[u8]>) -> Case {
    case(name, sent, &[])
}

/// Nothing reaches the origin; what comes next on the connection is served.
pub(crate) fn refuses_and_goes_on(name: &str, sent: impl AsRef<[u8]>, status: u16) -> Case {
    Case { stays_open: true, ..case(name, sent, &[status]) }
}

/// The head may be on its way when the body turns out to be bad: the origin gets no whole request.
pub(crate) fn breaks(name: &str, sent: impl AsRef<[u8]>, status: u16) -> Case {
    Case { may_be_cut: true, ..case(name, sent, &[status]) }
}

/// The first requests are served, then one is refused.
pub(crate) fn forwards_then_refuses(
    name: &str,
    sent: impl AsRef<[u8]>,
    arrives: &[&str],
    status: u16,
) -> Case {
    let mut case = forwards_and_closes(name, sent, arrives);
    case.statuses.push(status);
    case
}

/// Runs all cases, and reports all that fail.
pub(crate) async fn hold(cases: Vec<Case>) {
    let origin = Recorder::start().await;
    let front = Front::to(&[origin.address]).await;
    let count = cases.len();
    let mut failures = Vec::new();
    for case in cases {
        let name = case.name.clone();
        if let Err(why) = run(case, &front, &origin).await {
            failures.push(format!("{name}\n{why}"));
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases fail:\n\n{}", failures.len(), failures.join("\n\n"));
    settles(&front).await;
}

async fn run(case: Case, front: &Front, origin: &Recorder) -> Result<(), String> {
    let mut stream = front.connect().await;
    let is_head = case.sent.starts_with(b"HEAD ");
    let (got, end) = {
        let (mut reader, mut writer) = stream.split();
        let sent = [&case.sent[..], PROBE].concat();
        let writes = async {
            let _ = writer.write_all(&sent).await;
            let _ = writer.shutdown().await;
        };
        let reads = async {
            let mut all = Vec::new();
            let mut buffer = vec![0; 65536];
            loop {
                match timeout(PATIENCE, reader.read(&mut buffer)).await {
                    Ok(Ok(0)) => return Ok((all, End::Closed)),
                    Ok(Ok(count)) => all.extend_from_slice(&buffer[..count]),
                    Ok(Err(_)) => return Ok((all, End::Reset)),
                    Err(_) => return Err(format!("silence after {}", shown(&all))),
                }
            }
        };
        let ((), got) = tokio::join!(writes, reads);
        got?
    };
    drop(stream);
    if case.may_be_cut {
        // The origin may accept the connection after the client has its answer: that must not count for the next case.
        settles(front).await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let (arrived, cut) = origin.take().await;
    let got = answers(&got, end, |number| is_head && number == 0);
    let mut statuses = case.statuses.clone();
    let mut arrives: Vec<String> = case.arrives.iter().map(|one| normal(one, None)).collect();
    if case.stays_open {
        statuses.push(200);
        arrives.push(normal(PROBED.as_bytes(), None));
    }
    let got_statuses: Vec<u16> = got.iter().map(|answer| answer.status).collect();
    let arrived: Vec<String> = arrived.iter().map(|one| normal(one, Some(origin.address))).collect();
    let cut: Vec<String> = cut.iter().map(|one| shown(one)).collect();
    let mut why = Vec::new();
    if got_statuses != statuses {
        why.push(format!("  the client got {got_statuses:?}, not {statuses:?}"));
    }
    if arrived != arrives {
        why.push(format!("  the origin got {arrived:#?}, not {arrives:#?}"));
    }
    if !cut.is_empty() && !case.may_be_cut {
        why.push(format!("  the origin got a part of a request: {cut:?}"));
    }
    if got.iter().any(|answer| !answer.is_whole) {
        why.push(format!("  an answer is not whole: {got:?}"));
    }
    if why.is_empty() { Ok(()) } else { Err(why.join("\n")) }
}

/// No request is forgotten: the front counts none as under way once all clients are gone.
pub(crate) async fn settles(front: &Front) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while front.http.in_flight() > 0 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{} requests are still counted",
            front.http.in_flight()
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Several requests in one.
pub(crate) fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}
