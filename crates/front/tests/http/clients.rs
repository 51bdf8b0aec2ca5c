//! Clients that are slow, half-closed, or of another time.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::corpus::{Recorder, answers, read_all, shown};
use crate::support::{Front, PATIENCE};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_half_closed_is_answered() {
    let origin = Recorder::start().await;
    let front = Front::to(&[origin.address]).await;
    for sent in [
        GET,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut client = front.connect().await;
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let (bytes, end) = read_all(&mut client).await;
        let got = answers(&bytes, end, |_| false);
        assert_eq!(got.len(), 1, "{} {}", shown(sent), shown(&bytes));
        assert_eq!((got[0].status, &got[0].body[..], got[0].is_whole), (200, &b"ok"[..], true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_send_byte_by_byte() {
    let origin = Recorder::start().await;
    let front = Front::to(&[origin.address]).await;
    for sent in [GET, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", b"PRI / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut client = front.connect().await;
        client.set_nodelay(true).unwrap();
        for byte in sent {
            client.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        client.shutdown().await.unwrap();
        let (bytes, end) = read_all(&mut client).await;
        let got = answers(&bytes, end, |_| false);
        assert_eq!(got.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200], "{} {}", shown(sent), shown(&bytes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_1_0_gets_what_it_can_read() {
    let origin = crate::support::Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    let chunks: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let length = crate::support::OK;
    for (keeps, answer, stays) in [
        ("", length, false),
        ("Connection: keep-alive\r\n", length, true),
        ("", chunks, false),
        ("Connection: keep-alive\r\n", chunks, false),
    ] {
        origin.will_answer(&[answer]);
        let mut client = front.connect().await;
        client.write_all(format!("GET / HTTP/1.0\r\nHost: a\r\n{keeps}\r\n").as_bytes()).await.unwrap();
        if stays {
            let mut buffer = [0; 4096];
            let count = timeout(PATIENCE, client.read(&mut buffer)).await.unwrap().unwrap();
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            assert!(
                text.starts_with("HTTP/1.0 200 OK\r\n") && text.contains("connection: keep-alive\r\n"),
                "{text}"
            );
            client.write_all(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n").await.unwrap();
        }
        let (bytes, end) = read_all(&mut client).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("\r\n\r\nok"), "{text}");
        assert!(!text.contains("transfer-encoding") && end == crate::corpus::End::Closed, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_expects_100_gets_it_before_it_sends() {
    let origin = Recorder::start().await;
    let front = Front::to(&[origin.address]).await;
    let mut client = front.connect().await;
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n").await.unwrap();
    let mut buffer = [0; 4096];
    let count = timeout(PATIENCE, client.read(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer[..count]), "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hi").await.unwrap();
    let (bytes, end) = read_all(&mut client).await;
    assert_eq!(answers(&bytes, end, |_| false)[0].status, 200);
}
