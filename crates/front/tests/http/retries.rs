//! Requests that are sent again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use model::{Retry, RuleTimeouts, ghost};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::support::{Front, OK, Origin, free_port, status};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";

fn retry(attempts: u32, codes: &[u16]) -> Retry {
    Retry { codes: codes.to_vec(), attempts, backoff_seconds: Some(0.02) }
}

fn rule(config: &mut ghost::Config) -> &mut ghost::Route {
    &mut config.vhosts.get_mut("*").unwrap().routes[0]
}

async fn front(endpoints: &[SocketAddr], retry: Retry) -> Front {
    Front::with(endpoints, |config| rule(config).retry = Some(Box::new(retry))).await
}

/// How many requests came, all connections together.
fn requests(origin: &Origin) -> usize {
    origin.seen().concat().matches(" HTTP/1.1\r\n").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_the_route_names_is_tried_again_on_the_kept_connection() {
    let origin = Origin::start().await;
    let front = front(&[origin.address], retry(3, &[500, 503])).await;
    origin.will_answer(&[BUSY, BUSY]);
    let answer = front.say(GET).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    assert_eq!((requests(&origin), origin.seen().len()), (3, 1));
    assert_eq!(front.http.retries(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_last_attempt_the_client_gets_what_the_origin_said() {
    let origin = Origin::start().await;
    let front = front(&[origin.address], retry(2, &[503])).await;
    origin.will_answer(&[BUSY, BUSY, BUSY]);
    let answer = front.say(GET).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("busy"), "{answer}");
    assert_eq!(requests(&origin), 3);
    // A status that the route does not name is final.
    origin.will_answer(&[b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"]);
    assert_eq!(status(&front.say(GET).await), 500);
    assert_eq!(requests(&origin), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_endpoint_is_preferred() {
    let origins = [Origin::start().await, Origin::start().await];
    let front = front(&[origins[0].address, origins[1].address], retry(1, &[503])).await;
    for _ in 0..20 {
        for origin in &origins {
            origin.will_answer(&[BUSY]);
        }
        // Each has one bad answer: both are asked, and the client gets the second one.
        assert_eq!(status(&front.say(GET).await), 503);
        assert_eq!(status(&front.say(GET).await), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_fail_are_tried_again_for_every_method() {
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, free_port()).into();
    let policy = Retry { backoff_seconds: Some(0.3), ..retry(5, &[]) };
    let front = front(&[address], policy).await;
    let starts = async {
        sleep(Duration::from_millis(200)).await;
        let listener = TcpListener::bind(address).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = vec![0; 1024];
        let count = stream.read(&mut got).await.unwrap();
        stream.write_all(OK).await.unwrap();
        sleep(Duration::from_millis(500)).await;
        String::from_utf8_lossy(&got[..count]).into_owned()
    };
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody";
    let (answer, got) = tokio::join!(front.say(post), starts);
    assert_eq!(status(&answer), 200, "{answer}");
    assert!(got.starts_with("POST /"), "{got}");
}

/// Takes connections, and closes the first ones when a request has come; returns how many it took.
async fn closing(first: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, taken) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]).await;
            if number >= first {
                let _ = stream.write_all(OK).await;
            }
        }
    });
    (address, taken)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_may_have_been_carried_out_is_sent_again_if_it_is_idempotent() {
    let (address, taken) = closing(2).await;
    let front_one = front(&[address], retry(3, &[])).await;
    assert_eq!(status(&front_one.say(GET).await), 200);
    assert_eq!(taken.load(Ordering::SeqCst), 3);
    let (address, taken) = closing(2).await;
    let front_two = front(&[address], retry(3, &[])).await;
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    assert_eq!(status(&front_two.say(post).await), 502);
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_takes_too_long_is_given_up_and_the_next_one_answers() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        for number in 0.. {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let _ = stream.read(&mut [0; 4096]).await;
            if number > 0 {
                let _ = stream.write_all(OK).await;
            }
            held.push(stream);
        }
    });
    let front = Front::with(&[address], |config| {
        rule(config).retry = Some(Box::new(retry(2, &[])));
        rule(config).timeouts =
            Some(RuleTimeouts { backend_request_seconds: Some(0.3), request_seconds: Some(10.0) });
    })
    .await;
    let began = Instant::now();
    assert_eq!(status(&front.say(GET).await), 200);
    assert!(began.elapsed() >= Duration::from_millis(320));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeout_of_the_request_covers_all_tries_and_pauses() {
    let origin = Origin::start().await;
    let answers = vec![BUSY; 50];
    origin.will_answer(&answers);
    let front = Front::with(&[origin.address], |config| {
        rule(config).retry = Some(Box::new(Retry { backoff_seconds: Some(0.2), ..retry(20, &[503]) }));
        rule(config).timeouts = Some(RuleTimeouts { request_seconds: Some(0.7), ..RuleTimeouts::default() });
    })
    .await;
    let began = Instant::now();
    let answer = front.say(GET).await;
    // The next try could not begin in time: the client gets what there is, and before the end.
    assert_eq!(status(&answer), 503, "{answer}");
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert!((2..5).contains(&requests(&origin)), "{}", requests(&origin));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_up_to_64_kib_are_sent_again_whole() {
    let origin = Origin::start().await;
    let front = front(&[origin.address], retry(2, &[503])).await;
    let body = "0123456789abcdef".repeat(4096);
    for head in [
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n10000\r\n"
            .into(),
    ] {
        let end = if head.contains("chunked") { "\r\n0\r\n\r\n" } else { "" };
        let before = origin.seen().concat().matches(&body[..]).count();
        origin.will_answer(&[BUSY, BUSY]);
        let answer = front.say(format!("{head}{body}{end}").as_bytes()).await;
        assert_eq!(status(&answer), 200, "{answer}");
        let seen: String = origin.seen().concat().chars().filter(|c| c.is_ascii_hexdigit()).collect();
        assert!(seen.matches("0123456789abcdef").count() >= (before + 3) * 4000);
    }
    assert_eq!(front.http.retries(), 4);
    assert_eq!(front.http.kept_upload_bytes(), 0, "nothing is kept afterwards");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_larger_is_sent_once_and_not_kept() {
    let origin = Origin::start().await;
    let front = front(&[origin.address], retry(2, &[503])).await;
    for chunked in [false, true] {
        let body = vec![b'x'; 65 << 10];
        origin.will_answer(&[BUSY]);
        let head = if chunked {
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len())
        } else {
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len())
        };
        let end: &[u8] = if chunked { b"\r\n0\r\n\r\n" } else { b"" };
        let answer = front.say(&[head.as_bytes(), &body, end].concat()).await;
        assert_eq!(status(&answer), 503, "{answer}");
    }
    assert_eq!((front.http.retries(), front.http.retries_without_body()), (0, 2));
}

/// Takes uploads, counts their bytes, and is busy.
async fn sink() -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (requests, bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (of_requests, of_bytes) = (Arc::clone(&requests), Arc::clone(&bytes));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            of_requests.fetch_add(1, Ordering::Relaxed);
            let of_bytes = Arc::clone(&of_bytes);
            tokio::spawn(async move {
                let (mut buffer, mut tail) = (vec![0; 1 << 20], Vec::new());
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    of_bytes.fetch_add(count, Ordering::Relaxed);
                    tail.extend_from_slice(&buffer[count.saturating_sub(5)..count]);
                    tail.drain(..tail.len().saturating_sub(5));
                    if tail == b"0\r\n\r\n" {
                        let _ = stream.write_all(BUSY).await;
                    }
                }
            });
        }
    });
    (address, requests, bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_one_gib_is_sent_once_and_takes_no_memory() {
    const PART: usize = 1 << 20;
    const PARTS: usize = 1 << 10;
    let (endpoint, requests, bytes) = sink().await;
    let front = front(&[endpoint], retry(5, &[503])).await;
    let mut client = front.connect().await;
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    let part = [format!("{PART:x}\r\n").as_bytes(), &vec![b'x'; PART], b"\r\n"].concat();
    let mut most_kept = 0;
    for _ in 0..PARTS {
        client.write_all(&part).await.unwrap();
        most_kept = most_kept.max(front.http.kept_upload_bytes());
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    let count = client.read(&mut answer).await.unwrap();
    assert_eq!(status(&String::from_utf8_lossy(&answer[..count])), 503);
    assert_eq!((requests.load(Ordering::Relaxed), front.http.retries()), (1, 0), "it is sent once");
    assert!(bytes.load(Ordering::Relaxed) >= PART * PARTS, "all of it has come");
    assert_eq!(front.http.retries_without_body(), 1);
    assert!(most_kept <= 64 << 10, "{most_kept} bytes were kept");
    assert_eq!(front.http.kept_upload_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_storm_stays_within_its_budget() {
    let origin = Origin::start().await;
    let answers = vec![BUSY; 4_000];
    origin.will_answer(&answers);
    let front = front(&[origin.address], Retry { backoff_seconds: Some(0.0), ..retry(3, &[503]) }).await;
    // So that no time passes for the floor.
    front.http.advance_health(Duration::ZERO);
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = front.connect().await;
        clients.push(tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            for _ in 0..60 {
                client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
                let mut got = Vec::new();
                while !got.ends_with(b"busy") {
                    let count = client.read(&mut buffer).await.unwrap();
                    assert!(count > 0);
                    got.extend_from_slice(&buffer[..count]);
                }
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    // 600 requests: what was saved up, and a fifth.
    let retries = front.http.retries();
    assert!((100..=220).contains(&retries), "{retries}");
    assert_eq!(requests(&origin) as u64, 600 + retries);
    assert!(front.http.retries_over_budget() > 0);
}
