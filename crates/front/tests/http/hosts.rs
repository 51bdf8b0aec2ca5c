//! Host and the host of an absolute URL: one of them, valid, in lower case.

use crate::corpus::{forwards, forwards_and_closes, hold, refuses};

#[tokio::test(flavor = "multi_thread")]
async fn hosts_arrive_once_and_in_lower_case() {
    let mut cases = Vec::new();
    for (host, seen) in [
        ("a", "a"),
        ("A.Example", "a.example"),
        ("a:80", "a:80"),
        ("a:", "a:"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[::1]:80", "[::1]:80"),
        ("[::FFFF]", "[::ffff]"),
        ("a_b", "a_b"),
        ("a.", "a."),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        (" a", "a"),
        ("a ", "a"),
        ("\ta\t", "a"),
        ("a:65536", "a:65536"),
    ] {
        cases.push(forwards(
            &format!("the host {host:?} passes"),
            format!("GET / HTTP/1.1\r\nHost:{host}\r\n\r\n"),
            &[&format!("GET / HTTP/1.1\r\nhost: {seen}\r\n\r\n")],
        ));
        cases.push(forwards(
            &format!("the host {host:?} passes in any spelling of Host"),
            format!("GET / HTTP/1.1\r\nhOsT:{host}\r\n\r\n"),
            &[&format!("GET / HTTP/1.1\r\nhost: {seen}\r\n\r\n")],
        ));
    }
    for host in [
        "",
        "a b",
        "a,b",
        "a@b",
        "a/b",
        "a?b",
        "a#b",
        "a\\b",
        "a:b",
        "a:80:90",
        ":80",
        "[::1",
        "::1",
        "[::1]x",
        "[a]b",
        "<a>",
        "\"a\"",
        "a;b",
        "a=b",
        "user:pw@a",
        "http://a",
        "a|b",
        "a{b}",
    ] {
        cases.push(refuses(
            &format!("the host {host:?} is refused"),
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            400,
        ));
    }
    cases.push(forwards(
        "a Host in UTF-8 passes unchanged",
        "GET / HTTP/1.1\r\nHost: b\u{fc}cher\r\n\r\n",
        &["GET / HTTP/1.1\r\nhost: b\u{fc}cher\r\n\r\n"],
    ));
    cases.push(refuses("a request without Host is refused", "GET / HTTP/1.1\r\n\r\n", 400));
    cases.push(refuses(
        "a request with other headers and without Host is refused",
        "GET / HTTP/1.1\r\nX-Host: a\r\nX: y\r\n\r\n",
        400,
    ));
    for (what, hosts) in [
        ("two hosts", "Host: a\r\nHost: b\r\n"),
        ("the same host twice", "Host: a\r\nHost: a\r\n"),
        ("a host and an empty one", "Host: a\r\nHost:\r\n"),
        ("an empty host and a host", "Host:\r\nHost: a\r\n"),
        ("two hosts apart", "Host: a\r\nX: y\r\nhost: b\r\n"),
        ("three hosts", "Host: a\r\nHOST: b\r\nhost: c\r\n"),
    ] {
        cases.push(refuses(
            &format!("a request with {what} is refused"),
            format!("GET / HTTP/1.1\r\n{hosts}\r\n"),
            400,
        ));
        cases.push(refuses(
            &format!("a request for a URL with {what} is refused"),
            format!("GET http://c/ HTTP/1.1\r\n{hosts}\r\n"),
            400,
        ));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_of_a_url_goes_before_the_header() {
    let mut cases = Vec::new();
    for (what, url, path) in [
        ("a URL", "http://url.example/x?y", "/x?y"),
        ("an https URL on a plain port", "https://url.example/x", "/x"),
        ("a URL without a path", "http://url.example", "/"),
        ("a URL with a query alone", "http://url.example?a", "/?a"),
        ("a URL in capitals", "HTTP://URL.EXAMPLE/x", "/x"),
        ("a URL with a fragment", "http://url.example/x#y", "/x"),
        ("a URL with two slashes", "http://url.example//x", "/x"),
    ] {
        let seen = format!("GET {path} HTTP/1.1\r\nhost: url.example\r\n\r\n");
        let get = |rest: &str| format!("GET {url} HTTP/1.1\r\n{rest}\r\n");
        cases.push(forwards(&format!("{what} goes before another Host"), get("Host: other\r\n"), &[&seen]));
        cases.push(forwards(
            &format!("{what} goes beside the same Host"),
            get("Host: url.example\r\n"),
            &[&seen],
        ));
        cases.push(forwards(&format!("{what} goes before an empty Host"), get("Host:\r\n"), &[&seen]));
        cases.push(refuses(&format!("{what} needs a Host"), get(""), 400));
        cases.push(refuses(&format!("{what} needs a valid Host"), get("Host: a/b\r\n"), 400));
    }
    cases.push(forwards(
        "a URL with a port",
        "GET http://a:8080/ HTTP/1.1\r\nHost: b\r\n\r\n",
        &["GET / HTTP/1.1\r\nhost: a:8080\r\n\r\n"],
    ));
    cases.push(forwards(
        "a URL with an IPv6 address",
        "GET http://[::1]:80/ HTTP/1.1\r\nHost: b\r\n\r\n",
        &["GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n"],
    ));
    for url in [
        "http://user@a/",
        "http://user:pw@a/",
        "http://@a/",
        "http://a@b@c/",
        "http://a:b@c:80/",
        "http:///x",
        "http://",
        "http://:80/",
        "http://a:b/",
        "http://a:80:90/",
        "http://a,b/",
        "http://<a>/",
        "http:/a",
        "http:a",
        "http//a",
        "://a/",
        "ftp://a/",
        "ws://a/",
        "file:///etc/passwd",
        "gopher://a/",
        "javascript://a/",
        "urn:a:b",
        "mailto:a@b",
        "unix://a/",
        "h://a/",
        "http+unix://a/",
        "http://[::1/",
        "http://a\\b/",
    ] {
        cases.push(refuses(
            &format!("the URL {url} is refused"),
            format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n"),
            400,
        ));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_0_may_have_no_host() {
    let own = "GET / HTTP/1.1\r\nhost: ORIGIN\r\n\r\n";
    hold(vec![
        forwards_and_closes(
            "HTTP/1.0 with a Host",
            "GET / HTTP/1.0\r\nHost: A\r\n\r\n",
            &["GET / HTTP/1.1\r\nhost: a\r\n\r\n"],
        ),
        forwards(
            "HTTP/1.0 that stays",
            "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
            &["GET / HTTP/1.1\r\nhost: a\r\n\r\n"],
        ),
        forwards_and_closes("HTTP/1.0 without a Host gets the endpoint's", "GET / HTTP/1.0\r\n\r\n", &[own]),
        forwards_and_closes(
            "HTTP/1.0 with an invalid Host gets the endpoint's",
            "GET / HTTP/1.0\r\nHost: a/b\r\n\r\n",
            &[own],
        ),
        forwards_and_closes(
            "HTTP/1.0 with a URL",
            "GET http://a/ HTTP/1.0\r\n\r\n",
            &["GET / HTTP/1.1\r\nhost: a\r\n\r\n"],
        ),
        refuses("HTTP/1.0 with two Hosts is refused", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        refuses("HTTP/1.0 with userinfo in its URL is refused", "GET http://u@a/ HTTP/1.0\r\n\r\n", 400),
        refuses(
            "HTTP/1.0 with userinfo in its URL is refused, also with a Host",
            "GET http://u@a/ HTTP/1.0\r\nHost: a\r\n\r\n",
            400,
        ),
    ])
    .await;
}
