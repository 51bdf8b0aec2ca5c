//! Endpoints that fail are avoided, and come back.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Front, Origin, free_port, status};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const MINUTE: Duration = Duration::from_secs(60);

/// An address that refuses connections.
fn dead() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// An endpoint that takes connections and closes them with the first byte of a request; returns how many it took.
async fn broken() -> (SocketAddr, tokio::sync::watch::Receiver<usize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, counted) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.send_modify(|count| *count += 1);
            let _ = stream.read(&mut [0; 1]).await;
        }
    });
    (address, counted)
}

/// A front for which time passes only when the test says so.
async fn front_to(endpoints: &[SocketAddr]) -> Front {
    let front = Front::to(endpoints).await;
    front.http.advance_health(Duration::ZERO);
    front
}

async fn get(front: &Front) -> u16 {
    status(&front.say(GET).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_endpoint_is_avoided_and_no_client_notices() {
    let origins = [Origin::start().await, Origin::start().await];
    let front = front_to(&[origins[0].address, dead(), origins[1].address]).await;
    for _ in 0..60 {
        assert_eq!(get(&front).await, 200);
    }
    let stats = front.http.stats();
    assert_eq!((stats.endpoints_avoided, stats.ejections), (1, 1));
    // It comes back, fails its first connection, and is avoided again.
    front.http.advance_health(MINUTE / 6);
    assert_eq!(front.http.stats().endpoints_avoided, 0);
    for _ in 0..200 {
        assert_eq!(get(&front).await, 200);
    }
    let stats = front.http.stats();
    assert_eq!((stats.endpoints_avoided, stats.ejections), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_breaks_its_answers_is_avoided_after_five_of_them() {
    let origin = Origin::start().await;
    let (broken, taken) = broken().await;
    let front = front_to(&[origin.address, broken]).await;
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(get(&front).await);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 502).count(), 5, "{statuses:?}");
    assert_eq!(*taken.borrow(), 5, "it gets no more requests");
    assert_eq!(front.http.stats().endpoints_avoided, 1);
    // Its slow start ends, and it is asked again.
    front.http.advance_health(MINUTE);
    for _ in 0..60 {
        get(&front).await;
    }
    assert!(*taken.borrow() > 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_clients_break_off_harm_no_endpoint() {
    let origins = [Origin::start().await, Origin::start().await];
    let front = front_to(&[origins[0].address, origins[1].address]).await;
    for _ in 0..20 {
        let answer = front
            .say(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nx\r\n")
            .await;
        assert_eq!(status(&answer), 400, "{answer}");
    }
    assert_eq!(front.http.stats().ejections, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_half_of_the_endpoints_are_avoided() {
    let origin = Origin::start().await;
    let front = front_to(&[dead(), dead(), dead(), origin.address]).await;
    for _ in 0..100 {
        // Three endpoints are tried; of the dead ones, at most two are avoided.
        let status = get(&front).await;
        assert!(status == 200 || status == 503, "{status}");
    }
    assert_eq!(front.http.stats().endpoints_avoided, 2);
    for _ in 0..20 {
        assert_eq!(get(&front).await, 200, "what is left is one that is dead and one that answers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_endpoints_fail_all_are_used_and_the_first_that_is_back_serves() {
    let addresses: Vec<SocketAddr> = (0..3).map(|_| dead()).collect();
    let front = front_to(&addresses).await;
    for _ in 0..30 {
        assert_eq!(get(&front).await, 503);
    }
    assert_eq!(front.http.stats().ejections, 3);
    assert_eq!(front.http.stats().endpoints_avoided, 0, "all are used");
    let listener = TcpListener::bind(addresses[1]).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        }
    });
    for _ in 0..30 {
        assert_eq!(get(&front).await, 200, "without waiting for the end of the avoidance");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_endpoint_is_never_avoided() {
    let (broken, taken) = broken().await;
    let front = front_to(&[broken]).await;
    for _ in 0..20 {
        assert_eq!(get(&front).await, 502);
    }
    assert_eq!(*taken.borrow(), 20);
    assert_eq!(front.http.stats().ejections, 0);
}
