//! The way to varnishd: whose requests go there, by which connections, and what comes back.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

use crate::support::{Front, Origin, PATIENCE, listen, status};

const HIT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Varnish: 1\r\nX-Ghost-Result: hit\r\nConnection: keep-alive\r\n\r\nhit";

/// In the place of varnishd: records what each connection says, and answers by a script, or with [`HIT`].
#[derive(Clone)]
struct Varnishd {
    path: PathBuf,
    seen: Arc<Mutex<Vec<String>>>,
    script: Arc<Mutex<VecDeque<Vec<u8>>>>,
    _directory: Arc<tempfile::TempDir>,
}

impl Varnishd {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("front.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let varnishd =
            Self { path, seen: Arc::default(), script: Arc::default(), _directory: Arc::new(directory) };
        let serving = varnishd.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let at = {
                    let mut seen = serving.seen.lock().unwrap();
                    seen.push(String::new());
                    seen.len() - 1
                };
                tokio::spawn(serving.clone().serve(stream, at));
            }
        });
        varnishd
    }

    /// Answers to the next requests. One that ends with `CLOSE` closes the connection after it.
    fn will_answer(&self, answers: &[&[u8]]) {
        self.script.lock().unwrap().extend(answers.iter().map(|answer| answer.to_vec()));
    }

    /// By connection.
    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    async fn serve(self, mut stream: UnixStream, at: usize) {
        let (mut unread, mut buffer) = (String::new(), [0; 16384]);
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            self.seen.lock().unwrap()[at].push_str(&text);
            unread.push_str(&text);
            while let Some(end) = unread.find("\r\n\r\n") {
                unread.drain(..end + 4);
                let answer = self.script.lock().unwrap().pop_front().unwrap_or_else(|| HIT.to_vec());
                let (answer, closes) = match answer.strip_suffix(b"CLOSE") {
                    Some(answer) => (answer.to_vec(), true),
                    None => (answer, false),
                };
                // In two parts, so that more than one read is needed.
                let (first, second) = answer.split_at(answer.len() / 2);
                for part in [first, second] {
                    if stream.write_all(part).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                if closes {
                    return;
                }
            }
        }
    }
}

async fn site() -> (Front, Varnishd, Origin) {
    let (varnishd, origin) = (Varnishd::start(), Origin::start().await);
    let front = Front::with_cache(&[origin.address], &varnishd.path, |_| ()).await;
    (front, varnishd, origin)
}

/// A client with this address, which must be of this machine.
async fn connect_from(address: Ipv4Addr, port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((address, 0))).unwrap();
    socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.unwrap()
}

const GET: &[u8] = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n";

async fn get(stream: &mut TcpStream) -> String {
    stream.write_all(GET).await.unwrap();
    listen(stream).await
}

/// The client header of each request, by connection.
fn clients(seen: &[String]) -> Vec<Vec<String>> {
    let of_one = |text: &String| {
        let lines = text.lines().filter(|line| line.to_ascii_lowercase().replace('_', "-").contains("ghost"));
        lines.map(str::to_owned).collect()
    };
    seen.iter().map(of_one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_connection_and_are_told_apart() {
    let (front, varnishd, origin) = site().await;
    let mut said = Vec::new();
    for address in [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 2)] {
        let mut client = connect_from(address, front.port).await;
        let port = client.local_addr().unwrap().port();
        for _ in 0..2 {
            let got = get(&mut client).await;
            assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nhit"), "{got}");
            assert!(!got.to_ascii_lowercase().contains("ghost"), "{got}");
            said.push(format!("X-Ghost-Client: {address} {port} http-{} - -", front.port));
        }
    }
    let seen = clients(&varnishd.seen());
    // Each thread has its own connection, and a client may be on any.
    assert!(seen.len() <= 3, "{seen:?}");
    let mut all: Vec<String> = seen.concat();
    all.sort();
    said.sort();
    assert_eq!(all, said);
    assert!(origin.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_say_who_they_are() {
    let (front, varnishd, _origin) = site().await;
    let forged = "198.51.100.7 1 https-443 TLSv1.3 a";
    for lines in [
        format!("X-Ghost-Client: {forged}\r\n"),
        format!("x-ghost-client: {forged}\r\nX-GHOST-CLIENT: {forged}\r\n"),
        format!("X_Ghost_Client: {forged}\r\nx-ghost_client: {forged}\r\n"),
        format!("Connection: X-Ghost-Client\r\nX-Ghost-Client: {forged}\r\n"),
        "Connection: X-Ghost-Client\r\n".to_owned(),
        "X-Ghost-Result: hit\r\nX-Ghost-Pass: 1\r\n".to_owned(),
    ] {
        let mut client = front.connect().await;
        let port = client.local_addr().unwrap().port();
        client.write_all(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes()).await.unwrap();
        assert_eq!(status(&listen(&mut client).await), 200, "{lines}");
        let seen = clients(&varnishd.seen()).concat();
        let own = format!("X-Ghost-Client: 127.0.0.1 {port} http-{} - -", front.port);
        assert!(seen.contains(&own), "{lines}: {seen:?}");
        assert!(seen.iter().all(|line| line.starts_with("X-Ghost-Client: 127.0.0.1 ")), "{seen:?}");
    }
    assert_eq!(clients(&varnishd.seen()).concat().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cache_did_is_counted_by_the_front() {
    let (front, varnishd, _origin) = site().await;
    let answer = |result: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{result}\r\n").into_bytes();
    let script: Vec<Vec<u8>> = ["miss", "hit", "hit", "stale", "pass", "other", "forged", ""]
        .iter()
        .map(|result| match *result {
            "" => answer(""),
            result => answer(&format!("x-ghost-result: {result}\r\n")),
        })
        .collect();
    varnishd.will_answer(&script.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut client = front.connect().await;
    for _ in &script {
        assert!(!get(&mut client).await.to_ascii_lowercase().contains("ghost"));
    }
    let stats = front.http.stats();
    assert_eq!(stats.routes.len(), 1, "{stats:?}");
    // hit, miss, pass, stale, other
    assert_eq!(stats.routes[0].counts.cache, [2, 1, 1, 1, 3]);
    assert_eq!(stats.routes[0].counts.codes[1], 8);
    assert!(stats.routes[0].counts.bytes > 0);
    // varnishd is another one now: what was counted stays.
    front.http.cache_runs(false);
    front.http.cache_runs(true);
    get(&mut client).await;
    assert_eq!(front.http.stats().routes[0].counts.cache, [3, 1, 1, 1, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_varnishd_closed_is_not_the_clients_problem() {
    let (front, varnishd, origin) = site().await;
    let mut client = front.connect().await;
    // After an answer; and in the place of one.
    varnishd.will_answer(&[&[HIT, b"CLOSE"].concat(), HIT, b"CLOSE", HIT]);
    for _ in 0..3 {
        assert!(get(&mut client).await.ends_with("hit"));
    }
    assert!(origin.seen().is_empty());
    assert_eq!(varnishd.seen().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_varnishd_leaves_its_connections_behind() {
    let (front, varnishd, origin) = site().await;
    let mut client = front.connect().await;
    assert!(get(&mut client).await.ends_with("hit"));
    front.http.cache_runs(false);
    assert!(get(&mut client).await.ends_with("ok"), "the origin answers while varnishd is not there");
    front.http.cache_runs(true);
    assert!(get(&mut client).await.ends_with("hit"));
    assert_eq!((varnishd.seen().len(), origin.seen().len()), (2, 1));
    let to_origin = origin.seen().concat();
    assert!(
        to_origin.contains("x-forwarded-for: 127.0.0.1\r\n") && !to_origin.contains("ghost"),
        "{to_origin}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_every_framing_arrive_whole() {
    let (front, varnishd, _origin) = site().await;
    let large = "x".repeat(300_000);
    let head = "HTTP/1.1 200 OK\r\nX-Ghost-Result: miss\r\n";
    let chunked =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n493E0\r\n{large}\r\n0\r\n\r\n");
    let sized = format!("{head}Content-Length: 300000\r\n\r\n{large}");
    varnishd.will_answer(&[chunked.as_bytes(), sized.as_bytes()]);
    for length in [300_003, 300_000] {
        let mut client = front.connect().await;
        client.write_all(b"GET /page HTTP/1.0\r\nHost: a\r\n\r\n").await.unwrap();
        let mut got = Vec::new();
        timeout(PATIENCE, client.read_to_end(&mut got)).await.unwrap().unwrap();
        let body = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(got.len() - body, length);
    }
    // Nothing follows these, whatever their length says.
    for (method, answer) in [
        ("HEAD", format!("{head}Content-Length: 5\r\n\r\n")),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n".to_owned()),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
    ] {
        varnishd.will_answer(&[answer.as_bytes(), HIT]);
        let mut client = front.connect().await;
        client.write_all(format!("{method} /page HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        assert!(listen(&mut client).await.ends_with("\r\n\r\n"), "{answer}");
        assert!(get(&mut client).await.ends_with("hit"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_breaks_off_at_the_client() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalfCLOSE",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nCLOSE",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nCLOSE",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalfxx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nX: trailer\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n11111111111111111\r\n",
    ] {
        let (front, varnishd, _origin) = site().await;
        varnishd.will_answer(&[answer.as_bytes()]);
        let mut client = front.connect().await;
        client.write_all(GET).await.unwrap();
        let mut got = Vec::new();
        let _ = timeout(PATIENCE, client.read_to_end(&mut got)).await.expect("the connection is closed");
        let got = String::from_utf8_lossy(&got).into_owned();
        assert!(!got.contains("0\r\n\r\n") || got.contains("ontent-length: 10"), "{answer:?}: {got:?}");
        // The next client has nothing of it.
        assert!(get(&mut front.connect().await).await.ends_with("hit"), "{answer:?}");
        assert_eq!(varnishd.seen().len(), 2, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_answer_of_varnishd_is_not_believed() {
    for answer in [
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: CLOSE",
    ] {
        let (front, varnishd, origin) = site().await;
        varnishd.will_answer(&[answer.as_bytes()]);
        let mut client = front.connect().await;
        // It goes to the origin.
        assert!(get(&mut client).await.ends_with("ok"), "{answer:?}");
        assert!(get(&mut client).await.ends_with("hit"), "{answer:?}");
        assert_eq!((varnishd.seen().len(), origin.seen().len()), (2, 1), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_after_an_answer_are_nobodys() {
    let (front, varnishd, _origin) = site().await;
    let smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    varnishd.will_answer(&[&[HIT, smuggled].concat()]);
    let mut client = front.connect().await;
    for _ in 0..3 {
        assert!(get(&mut client).await.ends_with("\r\n\r\nhit"));
    }
    assert_eq!(varnishd.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_takes_its_connection_along() {
    let (front, varnishd, _origin) = site().await;
    // More than all buffers on the way hold.
    let endless = format!("HTTP/1.1 200 OK\r\nContent-Length: 64000000\r\n\r\n{}", "x".repeat(64_000_000));
    varnishd.will_answer(&[endless.as_bytes()]);
    let mut client = front.connect().await;
    client.write_all(GET).await.unwrap();
    let mut some = [0; 1000];
    client.read_exact(&mut some).await.unwrap();
    // Others are served in the meantime.
    assert!(get(&mut front.connect().await).await.ends_with("hit"));
    drop(client);
    for _ in 0..4 {
        assert!(get(&mut front.connect().await).await.ends_with("\r\n\r\nhit"));
    }
    let seen = varnishd.seen();
    assert_eq!(seen[0].matches("GET ").count(), 1, "{seen:?}");
}

const DONE: &[u8] = b"HTTP/1.1 204 No Content\r\nX-Varnish: 1\r\nConnection: keep-alive\r\n\r\n";
const REFUSED: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nX-Varnish: 1\r\nConnection: keep-alive\r\n\r\n";

async fn post(front: &Front) {
    let mut client = front.connect().await;
    client.write_all(b"POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").await.unwrap();
    assert_eq!(status(&listen(&mut client).await), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalidation_that_ghost_did_not_carry_out_is_counted() {
    let (front, varnishd, _origin) = site().await;
    varnishd.will_answer(&[DONE]);
    post(&front).await;
    assert_eq!(front.http.not_invalidated(), 0);
    // On a new connection, and then on two: a kept one may have been closed.
    varnishd.will_answer(&[REFUSED, REFUSED]);
    post(&front).await;
    assert_eq!(front.http.not_invalidated(), 1, "{:?}", varnishd.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_to_invalidate_is_left_out_and_counted() {
    let (front, varnishd, origin) = site().await;
    let named = |location: &str, group: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nLocation: {location}\r\nCache-Group-Invalidation: \"{group}\"\r\n\r\nok"
        )
    };
    let long = "x".repeat(5000);
    for (answer, is_lost) in
        [(named("/b", "g1"), false), (named(&format!("/{long}"), "g2"), true), (named("/c", &long), true)]
    {
        let before = front.http.not_invalidated();
        origin.will_answer(&[answer.as_bytes()]);
        varnishd.will_answer(&[DONE]);
        post(&front).await;
        assert_eq!(front.http.not_invalidated() - before, u64::from(is_lost), "{answer}");
    }
    let seen = varnishd.seen().concat();
    assert_eq!(seen.matches("INVALIDATE /page").count(), 3, "{seen}");
    for kept in ["X-Ghost-Also: /b", "X-Ghost-Also: /c", "X-Ghost-Groups: \"g1\"", "X-Ghost-Groups: \"g2\""] {
        assert!(seen.contains(kept), "{kept}: {seen}");
    }
    assert!(!seen.contains("xxxx"));
}
