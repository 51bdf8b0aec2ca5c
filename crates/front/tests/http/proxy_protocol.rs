//! PROXY headers from load balancers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use front::proxy::Header;
use front::{Limits, ProxyProtocol, Refusal, TrustedSources};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Front, Origin, SILENCE, listen, status};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 80\r\n";

/// A front that believes the headers of 127.0.0.1.
async fn front(origin: &Origin, required: bool, limits: Limits) -> Front {
    let front = Front::limited(&[origin.address], limits).await;
    let sources = TrustedSources::parse(&["127.0.0.1"]).unwrap();
    front.change(|config| config.proxy_protocol = Some(ProxyProtocol { sources, required }));
    // Until the change has arrived.
    while status(&front.say(&[V1, GET].concat()).await) != 200 {}
    front
}

fn v2(client: &str) -> Vec<u8> {
    let client: SocketAddr = client.parse().unwrap();
    let here: SocketAddr = if client.is_ipv4() { "10.0.0.1:80" } else { "[fd00::1]:80" }.parse().unwrap();
    Header { addresses: Some((client, here)), authority: Some("a.test".into()), ..Header::default() }.encode()
}

/// Whom the origin sees as the client of its last request for this path.
fn seen_from(origin: &Origin, path: &str) -> Option<String> {
    let seen = origin.seen().concat();
    let request = &seen[seen.rfind(&format!("GET {path} "))?..];
    request.lines().find_map(|line| line.strip_prefix("x-forwarded-for: ")).map(str::to_owned)
}

/// The same, where the client begins with this header.
async fn forwarded_for(front: &Front, origin: &Origin, header: &[u8], path: &str) -> Option<String> {
    let get = format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.1\r\nConnection: close\r\n\r\n"
    );
    let answer = front.say(&[header, get.as_bytes()].concat()).await;
    assert_eq!(status(&answer), 200, "{answer}");
    seen_from(origin, path)
}

/// From an address that is not trusted.
async fn stranger(front: &Front) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, 9), 0).into()).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, front.port).into()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_in_the_header_is_the_clients() {
    let origin = Origin::start().await;
    let front = front(&origin, true, Limits::default()).await;
    for (n, (header, client)) in [
        (V1.to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 80\r\n".to_vec(), "2001:db8::7"),
        (v2("192.0.2.8:5000"), "192.0.2.8"),
        (v2("[2001:db8::8]:5000"), "2001:db8::8"),
        (v2("[::ffff:192.0.2.9]:5000"), "192.0.2.9"),
        // The balancer's own: the connection's address counts.
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (b"PROXY UNKNOWN ffff:f...f:ffff 65535\r\n".to_vec(), "127.0.0.1"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0".to_vec(), "127.0.0.1"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\x11\0\x03abc".to_vec(), "127.0.0.1"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x00\0\0".to_vec(), "127.0.0.1"),
        ([&b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\xd8"[..], &[0; 216]].concat(), "127.0.0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let seen = forwarded_for(&front, &origin, &header, &format!("/{n}")).await;
        assert_eq!(seen.as_deref(), Some(client), "{}", String::from_utf8_lossy(&header));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_may_come_byte_by_byte() {
    let origin = Origin::start().await;
    let front = front(&origin, true, Limits::default()).await;
    for (header, path) in [(V1.to_vec(), "/v1"), (v2("192.0.2.7:5000"), "/v2")] {
        let mut stream = front.connect().await;
        stream.set_nodelay(true).unwrap();
        for byte in &header {
            stream.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(status(&listen(&mut stream).await), 200);
        assert_eq!(seen_from(&origin, path).as_deref(), Some("192.0.2.7"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_required_connections_without_a_valid_header_are_closed() {
    let origin = Origin::start().await;
    let front = front(&origin, true, Limits::default()).await;
    let seen = origin.seen().concat().len();
    let mut broken = v2("192.0.2.7:5000");
    broken[13] = 0x41;
    let bad: [&[u8]; 9] = [
        b"",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 80\n",
        b"PROXY TCP4 192.0.2.07 198.51.100.1 5000 80\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 5000 80\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 5000 80\r\n",
        &broken,
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ];
    for (n, header) in (1..).zip(bad) {
        let answer = front.say(&[header, GET].concat()).await;
        assert_eq!(answer, "", "{}", String::from_utf8_lossy(header));
        assert_eq!(front.counters.refusals(Refusal::ProxyHeader), n);
    }
    assert_eq!(origin.seen().concat().len(), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_optional_connections_without_a_header_are_served() {
    let origin = Origin::start().await;
    let front = front(&origin, false, Limits::default()).await;
    assert_eq!(forwarded_for(&front, &origin, b"", "/none").await.as_deref(), Some("127.0.0.1"));
    assert_eq!(forwarded_for(&front, &origin, V1, "/v1").await.as_deref(), Some("192.0.2.7"));
    // Methods that begin as a header does.
    for method in ["PROPFIND", "PROXY2", "PUT", "P"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut stream = front.connect().await;
        let (first, rest) = request.as_bytes().split_at(1);
        stream.write_all(first).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(rest).await.unwrap();
        assert_eq!(status(&listen(&mut stream).await), 200, "{method}");
    }
    // A broken header is no request either.
    assert_eq!(front.say(&[b"PROXY TCP4 a b c d\r\n", GET].concat()).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_strangers_close_the_connection_and_strangers_need_none() {
    let origin = Origin::start().await;
    let front = front(&origin, true, Limits::default()).await;
    for header in [V1.to_vec(), v2("192.0.2.7:5000")] {
        let mut stream = stranger(&front).await;
        stream.write_all(&[&header[..], GET].concat()).await.unwrap();
        assert_eq!(listen(&mut stream).await, "");
    }
    let mut stream = stranger(&front).await;
    stream.write_all(b"GET /stranger HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(status(&listen(&mut stream).await), 200);
    assert_eq!(seen_from(&origin, "/stranger").as_deref(), Some("127.0.0.9"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_does_not_come_closes_the_connection() {
    let origin = Origin::start().await;
    let limits = Limits { handshake_timeout: SILENCE, ..Limits::default() };
    let front = front(&origin, true, limits).await;
    for part in [&b""[..], b"PROXY TCP4 192.0", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0cabc"] {
        assert_eq!(front.say(part).await, "");
    }
    assert_eq!(front.counters.refusals(Refusal::ProxyHeader), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_counted_by_the_address_in_the_header() {
    let origin = Origin::start().await;
    let limits = Limits { connections_per_address: Some(1), ..Limits::default() };
    let front = front(&origin, true, limits).await;
    let keep = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut held = front.connect().await;
    held.write_all(&[&v2("192.0.2.1:1")[..], keep].concat()).await.unwrap();
    assert_eq!(status(&listen(&mut held).await), 200);
    assert_eq!(front.say(&[&v2("192.0.2.1:2")[..], keep].concat()).await, "");
    assert_eq!(front.counters.refusals(Refusal::PerAddress), 1);
    assert_eq!(status(&front.say(&[&v2("192.0.2.2:1")[..], keep].concat()).await), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_is_asked_of_the_address_in_the_header() {
    let origin = Origin::start().await;
    let front =
        Front::with(&[origin.address], |config| config.trusted_proxies = vec!["192.0.2.7".into()]).await;
    let sources = TrustedSources::parse(&["127.0.0.0/8"]).unwrap();
    front.change(|config| config.proxy_protocol = Some(ProxyProtocol { sources, required: true }));
    while status(&front.say(&[V1, GET].concat()).await) != 200 {}
    let trusted = forwarded_for(&front, &origin, &v2("192.0.2.7:1"), "/trusted").await;
    assert_eq!(trusted.as_deref(), Some("203.0.113.1, 192.0.2.7"));
    let other = forwarded_for(&front, &origin, &v2("192.0.2.8:1"), "/other").await;
    assert_eq!(other.as_deref(), Some("192.0.2.8"));
}
