//! Copies of requests.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use front::Mirrored;
use model::filters::{Filters, Header, HeaderModifier};
use model::matches::{PathMatch, PathMatchType};
use model::{Fraction, ghost};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::support::{Front, OK, Origin, PATIENCE, SILENCE, free_port, listen, status};

const GET: &[u8] = b"GET /shop?q=1 HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";

fn rule(config: &mut ghost::Config) -> &mut ghost::Route {
    &mut config.vhosts.get_mut("*").unwrap().routes[0]
}

fn mirror(to: SocketAddr, fraction: Option<(u32, u32)>) -> ghost::Mirror {
    let group = ghost::Group {
        weight: 1,
        endpoints: vec![ghost::Endpoint { address: to.ip(), port: to.port() }],
        name: Some(format!("test/mirror-{}:80", to.port())),
        ..ghost::Group::default()
    };
    let fraction = fraction.map(|(numerator, denominator)| Fraction { numerator, denominator });
    ghost::Mirror { group, fraction }
}

async fn front(origin: &Origin, mirrors: &[SocketAddr]) -> Front {
    let mirrors = mirrors.iter().map(|to| mirror(*to, None)).collect();
    Front::with(&[origin.address], |config| rule(config).mirrors = mirrors).await
}

/// A backend that takes connections, and neither reads nor answers.
async fn deaf() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    address
}

/// How many requests came, all connections together.
fn requests(origin: &Origin) -> usize {
    origin.seen().concat().matches(" HTTP/1.1\r\n").count()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waits = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waits).await.unwrap_or_else(|_| panic!("{what} did not happen"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mirror_gets_what_the_origin_gets() {
    let (origin, one, other) = (Origin::start().await, Origin::start().await, Origin::start().await);
    let mirrors = vec![mirror(one.address, None), mirror(other.address, None)];
    let front = Front::with(&[origin.address], |config| {
        rule(config).mirrors = mirrors;
        let set = vec![Header { name: "X-Set".into(), value: "by the rule".into() }];
        let modifier = HeaderModifier { set, ..HeaderModifier::default() };
        rule(config).filters =
            Some(Box::new(Filters { request_header_modifier: Some(modifier), ..Filters::default() }));
        let set = vec![Header { name: "X-Backend".into(), value: "origin alone".into() }];
        let modifier = HeaderModifier { set, ..HeaderModifier::default() };
        rule(config).backends[0].filters =
            Some(Box::new(Filters { request_header_modifier: Some(modifier), ..Filters::default() }));
    })
    .await;
    let post =
        b"POST /shop HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    for request in [GET, post] {
        assert_eq!(status(&front.say(request).await), 200);
    }
    until("two answers of each mirror", || front.http.mirrored(Mirrored::Answered) == 4).await;
    let at_origin = origin.seen().concat();
    assert!(at_origin.contains("x-backend: origin alone\r\n"), "{at_origin}");
    for mirror in [&one, &other] {
        let seen = mirror.seen().concat();
        for part in [
            "GET /shop?q=1 HTTP/1.1\r\n",
            "POST /shop HTTP/1.1\r\n",
            "host: shop.example\r\n",
            "x-set: by the rule\r\n",
            "\r\n\r\nhello",
        ] {
            assert!(seen.contains(part), "{part:?} is missing in {seen}");
        }
        assert!(!seen.contains("x-backend"), "filters of a backendRef are for it alone: {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_of_one_backend_gets_what_that_backend_gets() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let (of_rule, of_backend) = (Origin::start().await, Origin::start().await);
    let front = Front::with(&[origin.address], |config| {
        let set = vec![Header { name: "X-Backend".into(), value: "one".into() }];
        let modifier = HeaderModifier { set, ..HeaderModifier::default() };
        let rule = rule(config);
        let mut first = rule.backends[0].clone();
        let mut second = first.clone();
        second.endpoints = vec![ghost::Endpoint { address: other.address.ip(), port: other.address.port() }];
        second.name = Some("test/other:80".into());
        first.filters =
            Some(Box::new(Filters { request_header_modifier: Some(modifier), ..Filters::default() }));
        first.mirrors = vec![mirror(of_backend.address, None)];
        rule.backends = [first, second].into();
        rule.mirrors = vec![mirror(of_rule.address, None)];
    })
    .await;
    let post =
        b"POST /shop HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    for request in [GET, post].repeat(30) {
        assert_eq!(status(&front.say(request).await), 200);
    }
    let at_origin = requests(&origin);
    assert!(at_origin > 0 && requests(&other) > 0, "both get requests");
    until("a copy for the rule's mirror, and one for the backend's", || {
        front.http.mirrored(Mirrored::Answered) as usize == 60 + at_origin
    })
    .await;
    assert_eq!((requests(&of_rule), requests(&of_backend)), (60, at_origin));
    let seen = of_backend.seen().concat();
    assert_eq!(
        seen.matches("x-backend: one\r\n").count(),
        at_origin,
        "with the filters of the backendRef: {seen}"
    );
    assert_eq!(
        seen.matches("\r\n\r\nhello").count(),
        origin.seen().concat().matches("\r\n\r\nhello").count()
    );
    assert!(!of_rule.seen().concat().contains("x-backend"), "filters of a backendRef are for it alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_rule_copies_bodies_to_the_mirror_of_its_backend() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let front = Front::with(&[origin.address], |config| {
        rule(config).backends[0].mirrors = vec![mirror(other.address, None)];
    })
    .await;
    let body = "x".repeat(100_000);
    let post = format!(
        "POST /shop HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(status(&front.say(post.as_bytes()).await), 200);
    until("a copy", || front.http.mirrored(Mirrored::Answered) == 1).await;
    assert!(other.seen().concat().ends_with(&body) && origin.seen().concat().ends_with(&body));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_mirror_answers_reaches_nobody() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let front = front(&origin, &[other.address]).await;
    other.will_answer(&[b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nevil", b"no HTTP at allCLOSE"]);
    for _ in 0..3 {
        let answer = front.say(GET).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    }
    until("three copies", || {
        front.http.mirrored(Mirrored::Answered) + front.http.mirrored(Mirrored::Failed) == 3
    })
    .await;
    assert_eq!(front.http.mirrored(Mirrored::Failed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_the_requests_is_mirrored() {
    let (origin, some, none) = (Origin::start().await, Origin::start().await, Origin::start().await);
    let mirrors = vec![mirror(some.address, Some((30, 100))), mirror(none.address, Some((0, 100)))];
    let front = Front::with(&[origin.address], |config| rule(config).mirrors = mirrors).await;
    let mut client = front.connect().await;
    for _ in 0..400 {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut got = Vec::new();
        let mut buffer = [0; 1024];
        while !got.ends_with(b"ok") {
            let count = client.read(&mut buffer).await.unwrap();
            got.extend_from_slice(&buffer[..count]);
        }
    }
    sleep(SILENCE).await;
    let copies = requests(&some);
    assert!((70..180).contains(&copies), "{copies} of 400");
    assert_eq!(requests(&none), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_never_answers_or_is_dead_slows_nobody_and_is_bounded() {
    let silent = deaf().await;
    let dead: SocketAddr = (Ipv4Addr::LOCALHOST, free_port()).into();
    let origin = Origin::start().await;
    let front = front(&origin, &[silent, dead]).await;
    let mut client = front.connect().await;
    let began = Instant::now();
    for _ in 0..300 {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut got = Vec::new();
        let mut buffer = [0; 1024];
        while !got.ends_with(b"ok") {
            let count = client.read(&mut buffer).await.unwrap();
            assert!(count > 0);
            got.extend_from_slice(&buffer[..count]);
        }
        assert!(got.starts_with(b"HTTP/1.1 200"));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(requests(&origin), 300);
    // 128 places to one Service. Copies for the dead mirror may wait for the processor, so that some are dropped, too.
    let dropped = front.http.mirrored(Mirrored::TooMany);
    assert!(dropped >= 300 - 128, "{dropped}");
    until("failures of the dead mirror", || {
        front.http.mirrored(Mirrored::Failed) == 300 + (300 - 128) - dropped
    })
    .await;
    assert_eq!(front.http.in_flight(), 0, "a mirror keeps no request open");
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_of_one_namespace_that_hang_leave_places_to_others() {
    let silent = deaf().await;
    let (origin, eager) = (Origin::start().await, Origin::start().await);
    let front = Front::with(&[origin.address], |config| {
        // Three Services of one namespace, and one of another.
        let hanging = |number: usize| {
            let mut mirror = mirror(silent, None);
            mirror.group.name = Some(format!("a/hanging-{number}:80"));
            mirror
        };
        let routes = &mut config.vhosts.get_mut("*").unwrap().routes;
        let mut other = routes[0].clone();
        routes[0].route_name = "a/route".into();
        routes[0].mirrors = (0..3).map(hanging).collect();
        other.route_name = "b/route".into();
        other.path_match = Some(PathMatch { kind: PathMatchType::PathPrefix, value: "/b".into() });
        other.mirrors = vec![mirror(eager.address, None)];
        routes.push(other);
    })
    .await;
    for _ in 0..100 {
        assert_eq!(status(&front.say(GET).await), 200);
    }
    assert_eq!(front.http.mirrored(Mirrored::TooMany), 300 - 256);
    assert_eq!(status(&front.say(b"GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await), 200);
    until("an answer of the other namespace's mirror", || front.http.mirrored(Mirrored::Answered) == 1).await;
    assert_eq!(requests(&eager), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_goes_to_a_mirror_that_takes_it_and_is_cut_off_for_one_that_does_not() {
    let deaf = deaf().await;
    let (origin, eager) = (Origin::start().await, Origin::start().await);
    let front = front(&origin, &[deaf, eager.address]).await;
    let mut client = front.connect().await;
    let size = 8 << 20;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let part = vec![b'x'; 64 << 10];
    for _ in 0..size / part.len() {
        client.write_all(&part).await.unwrap();
    }
    let answer = listen(&mut client).await;
    assert_eq!(status(&answer), 200, "{answer}");
    // The one that reads nothing ends when its time is over.
    let over = |what: &[Mirrored]| what.iter().map(|what| front.http.mirrored(*what)).sum::<u64>();
    until("the end of both copies", || {
        over(&[Mirrored::BodyCutOff, Mirrored::Failed, Mirrored::Answered]) == 2
    })
    .await;
    assert!(over(&[Mirrored::BodyCutOff, Mirrored::Failed]) >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_the_client_breaks_off_does_not_look_complete_to_a_mirror() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let front = front(&origin, &[other.address]).await;
    let answer =
        front.say(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nx\r\n").await;
    assert_eq!(status(&answer), 400, "{answer}");
    until("the end of the copy", || front.http.mirrored(Mirrored::BodyCutOff) == 1).await;
    let seen = other.seen().concat();
    assert!(!seen.contains("\r\n0\r\n\r\n"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_without_endpoints_is_counted_and_retries_are_not_mirrored() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let mut empty = mirror(other.address, None);
    empty.group.endpoints.clear();
    let mirrors = vec![empty, mirror(other.address, None)];
    let front = Front::with(&[origin.address], |config| {
        rule(config).mirrors = mirrors;
        let codes = vec![503];
        rule(config).retry = Some(Box::new(model::Retry { codes, attempts: 3, backoff_seconds: Some(0.01) }));
    })
    .await;
    let busy = &b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"[..];
    origin.will_answer(&[busy, busy, OK]);
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    assert_eq!(status(&front.say(post).await), 200);
    until("the copy", || front.http.mirrored(Mirrored::Answered) == 1).await;
    assert_eq!((requests(&origin), requests(&other)), (3, 1));
    assert_eq!(origin.seen().concat().matches("hello").count(), 3);
    assert!(other.seen().concat().ends_with("\r\n\r\nhello"));
    assert_eq!(front.http.mirrored(Mirrored::NoEndpoint), 1);
}
