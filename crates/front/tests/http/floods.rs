//! HTTP/2 clients that want to cost more than they pay. Each flood either ends with the connection, or is served without growth;
//! other clients are answered all the time, and nothing stays behind.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{Instant, sleep, timeout};

use crate::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PADDED, PING, POST, PRIORITY,
    RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, frame,
};
use crate::support::{Front, Origin, PATIENCE, SILENCE, status};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
/// Streams of one connection, by default.
const STREAMS: u64 = 128;
/// Connections to the origin that threads may keep for the next request: no more than the other client has used.
const KEPT: usize = 16;
/// `:status: 200` is one byte of HPACK.
const OK: u8 = 0x88;
/// More than all socket buffers of one connection hold.
const BUFFERS: usize = 128 << 20;

/// Asks again and again on connections of its own while a flood goes on, and looks at how many requests are under way.
struct Bystander {
    over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(u64, u64)>,
}

impl Bystander {
    fn start(front: &Front) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (port, http, ended) = (front.port, Arc::clone(&front.http), Arc::clone(&over));
        let task = tokio::spawn(async move {
            let (mut answered, mut most) = (0, 0);
            // Once more after the flood: what it left behind must not matter.
            let mut is_last = false;
            while !is_last {
                is_last = ended.load(Ordering::Relaxed);
                let ask = async {
                    let mut stream =
                        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                    let head = b"GET /bystander HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                    stream.write_all(head).await.unwrap();
                    let mut got = String::new();
                    stream.read_to_string(&mut got).await.unwrap();
                    got
                };
                let got = timeout(PATIENCE, ask).await.expect("other clients are answered");
                assert_eq!(status(&got), 200, "{got}");
                answered += 1;
                most = most.max(http.in_flight());
                sleep(Duration::from_millis(5)).await;
            }
            (answered, most)
        });
        Self { over, task }
    }

    /// Other clients were answered, and no more requests were under way at once than one connection may have (and this one).
    async fn ends(self, front: &Front) {
        self.over.store(true, Ordering::Relaxed);
        let (answered, most) = self.task.await.unwrap();
        assert!(answered > 0);
        assert!(most <= STREAMS + 1, "{most} requests were under way");
        settles(front).await;
    }
}

/// No request and no connection stays behind.
async fn settles(front: &Front) {
    let deadline = Instant::now() + PATIENCE;
    while front.http.in_flight() > 0 || front.counters.open() > 0 {
        let (requests, connections) = (front.http.in_flight(), front.counters.open());
        assert!(Instant::now() < deadline, "{requests} requests and {connections} connections stay");
        sleep(Duration::from_millis(5)).await;
    }
}

/// An origin that reads heads and answers only requests for `/bystander`. Counts the connections that are open.
async fn silent_origin() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let open = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&open);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let open = Arc::clone(&counted);
            open.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut buffer = vec![0; 16384];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    if buffer[..count].starts_with(b"GET /bystander ") {
                        let _ = stream.write_all(crate::support::OK).await;
                    }
                }
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    (address, open)
}

fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| number * 2 + 1)
}

/// Runs a flood on a connection of its own, beside another client.
async fn flood(front: &Front, bytes: Vec<u8>) -> crate::frames::Ended {
    let bystander = Bystander::start(front);
    let ended = Raw::open(front, &[]).await.flood(bytes).await;
    bystander.ends(front).await;
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn rapid_reset_leaves_no_request_and_no_connection_to_the_origin() {
    let (address, open) = silent_origin().await;
    let front = Front::to(&[address]).await;
    let cancel = 8u32.to_be_bytes();
    let pair = |stream| {
        let head = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
        [head, frame(RST_STREAM, 0, stream, &cancel)].concat()
    };
    let ended = flood(&front, streams(20_000).flat_map(pair).collect()).await;
    // Resets within one read are never accepted, and h2 gives such a client up.
    assert_eq!((ended.is_closed, ended.goaway()), (true, Some(ENHANCE_YOUR_CALM)));
    let deadline = Instant::now() + PATIENCE;
    while open.load(Ordering::Relaxed) > KEPT {
        assert!(Instant::now() < deadline, "connections to the origin stay");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_opened_and_reset_one_by_one_leave_nothing() {
    let (address, open) = silent_origin().await;
    let front = Front::to(&[address]).await;
    let bystander = Bystander::start(&front);
    let mut client = Raw::open(&front, &[]).await;
    let mut reset = 0;
    for stream in streams(500) {
        let head = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
        // The PING shows that the front has read it.
        let sent = [head, frame(PING, 0, 0, b"12345678")].concat();
        if client.stream.write_all(&sent).await.is_err() || client.wait_for(PING).await.is_none() {
            break;
        }
        let cancel = frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
        reset += usize::from(client.stream.write_all(&cancel).await.is_ok());
    }
    // A front with a limit on resets ends the connection before.
    assert!(reset >= 50, "{reset}");
    drop(client);
    bystander.ends(&front).await;
    let deadline = Instant::now() + PATIENCE;
    while open.load(Ordering::Relaxed) > KEPT {
        assert!(Instant::now() < deadline, "connections to the origin stay");
        sleep(Duration::from_millis(5)).await;
    }
}

/// CVE-2025-8671: the client makes the server reset streams, and opens others.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_the_gateway_has_to_reset_end_the_connection() {
    let (address, _) = silent_origin().await;
    let front = Front::to(&[address]).await;
    let get = |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
    let most = 0x7fff_ffff_u32.to_be_bytes();
    let floods: [(&str, Vec<u8>, u32); 5] = [
        (
            "windows that overflow",
            streams(5000).flat_map(|s| [get(s), frame(WINDOW_UPDATE, 0, s, &most)].concat()).collect(),
            ENHANCE_YOUR_CALM,
        ),
        ("streams beyond the most", streams(5000).flat_map(get).collect(), ENHANCE_YOUR_CALM),
        (
            "a header of HTTP/1",
            streams(5000)
                .flat_map(|s| {
                    let block = [GET, b"\0\x0aconnection\x01x"].concat();
                    frame(HEADERS, END_STREAM | END_HEADERS, s, &block)
                })
                .collect(),
            ENHANCE_YOUR_CALM,
        ),
        (
            "a body longer than its length",
            streams(5000)
                .flat_map(|s| {
                    let head = frame(HEADERS, END_HEADERS, s, &[POST, b"\x0f\x0d\x011"].concat());
                    [head, frame(DATA, END_STREAM, s, b"xx")].concat()
                })
                .collect(),
            ENHANCE_YOUR_CALM,
        ),
        (
            "increments of zero",
            streams(5000).flat_map(|s| [get(s), frame(WINDOW_UPDATE, 0, s, &[0; 4])].concat()).collect(),
            PROTOCOL_ERROR,
        ),
    ];
    for (what, bytes, code) in floods {
        let ended = flood(&front, bytes).await;
        assert_eq!((ended.is_closed, ended.goaway()), (true, Some(code)), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_most_are_refused_and_the_others_stay() {
    let (address, _) = silent_origin().await;
    let front = Front::to(&[address]).await;
    let heads = streams(500).flat_map(|stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, GET));
    let ended = flood(&front, heads.collect()).await;
    let refused = ended.frames.iter().filter(|frame| frame.code() == Some(REFUSED_STREAM)).count();
    assert_eq!((ended.is_closed, refused), (false, 500 - 128));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_of_endless_continuations_ends_the_connection() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    for payload in [&b""[..], b"\x82", &[b'\0'; 16384]] {
        let mut bytes = frame(HEADERS, END_STREAM, 1, GET);
        for _ in 0..20_000_000 / (payload.len() + 9).max(1000) {
            bytes.extend(frame(CONTINUATION, 0, 1, payload));
        }
        let ended = flood(&front, bytes).await;
        assert!(
            ended.is_closed && ended.goaway().is_some(),
            "{} bytes each: {:?}",
            payload.len(),
            ended.goaway()
        );
    }
    assert!(!origin.seen().concat().contains("GET / "));
}

/// A literal that goes to HPACK's table, and its index from then on.
fn bomb(value: usize, count: usize) -> Vec<u8> {
    let mut block = GET.to_vec();
    // `x: yyy…`, with incremental indexing.
    block.extend_from_slice(b"\x40\x01x");
    // A length in HPACK's form: seven bits, then seven at a time.
    block.push(0x7f);
    let mut rest = value - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128 + 128).unwrap());
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
    block.extend(std::iter::repeat_n(b'y', value));
    block.extend(std::iter::repeat_n(0xbe, count));
    block
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_bomb_is_431_or_ends_the_connection_and_never_reaches_the_origin() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    // Two of 4000 bytes pass.
    let mut client = Raw::open(&front, &[]).await;
    client.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb(4000, 1))).await;
    assert_eq!(client.wait_for(HEADERS).await.unwrap().payload.first(), Some(&OK));
    drop(client);
    // 20 are 80 KB: 431, as HPACK writes it.
    let ended = flood(&front, frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb(4000, 20))).await;
    let head = ended.frames.iter().find(|frame| frame.kind == HEADERS).expect("an answer");
    assert!(!ended.is_closed && head.payload.starts_with(b"\x48\x83\x69\x90\xff"), "{head:?}");
    // 10,000 are 40 MB, out of 14 KB on the wire.
    for count in [200, 10_000] {
        let ended = flood(&front, frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb(4000, count))).await;
        assert_eq!((ended.is_closed, ended.goaway()), (true, Some(ENHANCE_YOUR_CALM)), "{count}");
    }
    assert_eq!(origin.seen().concat().matches("GET / ").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_and_settings_are_answered_one_by_one_and_never_collected() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    for (kind, payload) in [(PING, &b"12345678"[..]), (SETTINGS, b""), (SETTINGS, b"\0\x03\0\0\0\x64")] {
        let one = frame(kind, 0, 0, payload);
        let ended = flood(&front, one.repeat(10_000)).await;
        let answers =
            ended.frames.iter().filter(|frame| frame.kind == kind && frame.flags & ACK != 0).count();
        assert!(!ended.is_closed && answers >= 10_000, "{answers} answers");

        // One that does not read: the front stops reading as well.
        let bystander = Bystander::start(&front);
        let mut deaf = Raw::open(&front, &[]).await;
        let sent = deaf.push(&one, BUFFERS).await;
        assert!(sent < BUFFERS, "the front has taken {sent} bytes of frames whose answers nobody reads");
        drop(deaf);
        bystander.ends(&front).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_carry_nothing_end_the_connection_or_cost_nothing() {
    let (address, _) = silent_origin().await;
    let front = Front::to(&[address]).await;
    let post = frame(HEADERS, END_HEADERS, 1, POST);
    let get = frame(HEADERS, END_HEADERS | END_STREAM, 1, GET);
    let small = 1u32.to_be_bytes();
    for (what, begin, one, must_end) in [
        ("empty DATA", &post, frame(DATA, 0, 1, b""), true),
        ("DATA of padding alone", &post, frame(DATA, PADDED, 1, b"\x03\0\0\0"), true),
        ("PRIORITY", &get, frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"), false),
        ("PRIORITY of idle streams", &get, frame(PRIORITY, 0, 77, b"\0\0\0\0\x10"), false),
        ("WINDOW_UPDATE of the connection", &get, frame(WINDOW_UPDATE, 0, 0, &small), false),
        ("WINDOW_UPDATE of a stream", &get, frame(WINDOW_UPDATE, 0, 1, &small), false),
        ("frames of an unknown kind", &get, frame(0x77, 0, 0, b"x"), false),
        ("ACKs of settings that were not sent", &get, frame(SETTINGS, ACK, 0, b""), true),
        ("pongs that nobody asked for", &get, frame(PING, ACK, 0, b"12345678"), false),
    ] {
        let ended = flood(&front, [&begin[..], &one.repeat(100_000)].concat()).await;
        assert_eq!((ended.is_closed, ended.count(GOAWAY) > 0), (must_end, must_end), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_beyond_the_most_is_an_error() {
    let (address, _) = silent_origin().await;
    let front = Front::to(&[address]).await;
    let most = 0x7fff_ffff_u32.to_be_bytes();
    let ended = flood(&front, frame(WINDOW_UPDATE, 0, 0, &most).repeat(2)).await;
    assert_eq!((ended.is_closed, ended.goaway()), (true, Some(FLOW_CONTROL_ERROR)));
}

/// An origin that answers every request without an end, as fast as it is read. Counts what it could send.
async fn endless_origin() -> (SocketAddr, Arc<AtomicU64>) {
    let socket = TcpSocket::new_v4().unwrap();
    // So that what is counted is in the front, not in the kernel.
    socket.set_send_buffer_size(16 << 10).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = socket.listen(1024).unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sent = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut head = [0; 16384];
                let Ok(count @ 1..) = stream.read(&mut head).await else { return };
                if head[..count].starts_with(b"GET /bystander ") {
                    let _ = stream.write_all(crate::support::OK).await;
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
                let block = [b'x'; 4096];
                while let Ok(count @ 1..) = stream.write(&block).await {
                    sent.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
    });
    (address, sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_windows_hold_back_the_origins_and_the_memory_is_bounded() {
    let (address, sent) = endless_origin().await;
    let front = Front::to(&[address]).await;
    let bystander = Bystander::start(&front);
    // No stream has a window.
    let mut client = Raw::open(&front, &[(4, 0)]).await;
    for stream in streams(100) {
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)).await;
    }
    // Until nothing moves: the origins wait for the front, which waits for the client.
    let mut last = u64::MAX;
    let deadline = Instant::now() + PATIENCE;
    while last == 0 || last != sent.load(Ordering::Relaxed) {
        assert!(Instant::now() < deadline, "the front reads on without an end");
        last = sent.load(Ordering::Relaxed);
        sleep(SILENCE).await;
    }
    assert!(front.http.in_flight() >= 100);
    // Socket buffers of loopback, hyper's and h2's, for each stream.
    assert!(last < 100 << 20, "{last} bytes are held for one client");
    drop(client);
    bystander.ends(&front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_hold_no_more_than_their_streams() {
    let (address, open) = silent_origin().await;
    let front = Front::to(&[address]).await;
    let bystander = Bystander::start(&front);
    let mut client = Raw::open(&front, &[]).await;
    for stream in streams(200) {
        client.send(&frame(HEADERS, END_HEADERS, stream, POST)).await;
    }
    for _ in 0..20 {
        for stream in streams(128) {
            client.send(&frame(DATA, 0, stream, b"x")).await;
        }
    }
    // Those beyond the most are refused, the others wait for their bodies.
    let refused = client.wait_for(RST_STREAM).await.expect("a stream is refused");
    assert_eq!(refused.code(), Some(REFUSED_STREAM));
    assert!(refused.stream > 2 * 128, "stream {}", refused.stream);
    assert!(open.load(Ordering::Relaxed) as u64 <= STREAMS + 2);
    drop(client);
    bystander.ends(&front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_nobody_reads_stops_at_its_window() {
    // An origin that takes connections and reads nothing.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let front = Front::to(&[listener.local_addr().unwrap()]).await;
    let mut client = Raw::open(&front, &[]).await;
    client.send(&frame(HEADERS, END_HEADERS, 1, POST)).await;
    // By its own window a client may not send so much: the front ends the connection of one that does.
    let mut sent = 0;
    let block = frame(DATA, 0, 1, &[b'x'; 16384]).repeat(16);
    while sent < BUFFERS {
        match timeout(Duration::from_secs(2), client.stream.write_all(&block)).await {
            Ok(Ok(())) => sent += block.len(),
            _ => break,
        }
    }
    assert!(sent < BUFFERS, "{sent} bytes beyond the window were taken");
    drop((client, listener));
    settles(&front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_acknowledges_settings_is_served() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = Raw::open(&front, &[]).await;
    for stream in streams(50) {
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)).await;
        let head = client.wait_for(HEADERS).await.expect("an answer");
        assert_eq!((head.stream, head.payload.first()), (stream, Some(&OK)));
    }
    drop(client);
    settles(&front).await;
}
