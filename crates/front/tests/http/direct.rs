//! Requests that go straight to an origin.

use crate::support::{Front, Origin, status};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_its_origin_with_the_gateways_own_word() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let answer = front
        .say(b"GET /shop?q=1 HTTP/1.1\r\nHost: Shop.Example\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_Host: evil\r\nX-Gateway-Route: evil\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nX-Stays: 1\r\n\r\n")
        .await;
    assert_eq!(status(&answer), 200, "{answer}");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(answer.contains("x-cache: PASS\r\n"), "{answer}");
    let seen = origin.seen().concat();
    assert!(seen.starts_with("GET /shop?q=1 HTTP/1.1\r\n"), "{seen}");
    for line in [
        "host: shop.example\r\n",
        "x-stays: 1\r\n",
        "x-forwarded-for: 127.0.0.1\r\n",
        "x-forwarded-proto: http\r\n",
        "x-forwarded-host: shop.example\r\n",
        "x-gateway-route: test/route\r\n",
        "cdn-loop: vg-test\r\n",
    ] {
        assert!(seen.contains(line), "{line} is missing in {seen}");
    }
    for gone in ["6.6.6.6", "evil", "x-hop", "connection:"] {
        assert!(!seen.contains(gone), "{gone} is in {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept_on_both_sides() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = front.connect().await;
    for _ in 0..3 {
        use tokio::io::AsyncWriteExt;
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let answer = crate::support::listen(&mut client).await;
        assert_eq!(status(&answer), 200, "{answer}");
    }
    assert_eq!(origin.seen().len(), 1, "{:?}", origin.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_origin_breaks_off_is_not_complete() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    for (broken, end) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalfCLOSE"[..], "half"),
        (&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nCLOSE"[..], "4\r\nhalf\r\n"),
    ] {
        origin.will_answer(&[broken]);
        let answer = front.say(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.ends_with(end), "{answer}");
    }
}
