//! Requests to the control socket. Compiled in from its source: the VMOD itself lives in varnishd only.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "a test, and a part of another crate")]

#[path = "../src/door/request.rs"]
mod request;

use proptest::prelude::*;
use request::{Invalid, Request};

#[test]
fn a_request_is_read_once_it_is_whole() {
    let whole = b"POST /.varnish-ghost/invalidate HTTP/1.1\r\nhost: ghost\r\nX-Ghost-Token: abc \r\nContent-Length: 3\r\n\r\nabc";
    for cut in 0..whole.len() {
        assert_eq!(Request::read(&whole[..cut]), Ok(None), "{cut}");
    }
    let request = Request::read(whole).unwrap().unwrap();
    assert_eq!((&request.method[..], &request.url[..]), (&b"POST"[..], &b"/.varnish-ghost/invalidate"[..]));
    assert_eq!(request.header("Host"), Some(&b"ghost"[..]));
    assert_eq!(request.header("x-ghost-token"), Some(&b"abc"[..]));
    assert_eq!(request.body, b"abc");
}

#[test]
fn doubtful_requests_are_none() {
    for bad in [
        "GET / HTTP/1.0\r\nHost: ghost\r\n\r\n",
        "GET /\r\n\r\n",
        "GET /  HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ghost\r\nHost: ghost\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nab",
        "POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nno header\r\n\r\n",
    ] {
        assert_eq!(Request::read(bad.as_bytes()), Err(Invalid), "{bad:?}");
    }
    assert_eq!(Request::read(&[b'x'; 20_000]), Err(Invalid));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Request::read(&bytes);
        let _ = Request::read(&[b"GET / HTTP/1.1\r\n", &bytes[..], b"\r\n\r\n"].concat());
    }
}
