//! Request lines: methods, targets, versions, and what stands around them.

use crate::corpus::{
    Case, closes, forwards, forwards_then_refuses, hold, joined, refuses, refuses_and_goes_on,
};

/// This request line, with a Host.
fn line(line: impl AsRef<[u8]>) -> Vec<u8> {
    joined(&[line.as_ref(), b"\r\nHost: a\r\n\r\n"])
}

fn arrives(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: a\r\n\r\n")
}

fn passes(name: &str, sent: &str, as_line: &str) -> Case {
    forwards(name, line(sent), &[&arrives(as_line)])
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_are_tokens() {
    let mut cases = Vec::new();
    for method in [
        "GET",
        "HEAD",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "PATCH",
        "PUT",
        "POST",
        "PROPFIND",
        "MKCOL",
        "PURGE",
        "BAN",
        "QUERY",
        "get",
        "Get",
        "gET",
        "connect",
        "A",
        "M-SEARCH",
        "X_Y",
        "!#$%&'*+-.^_`|~",
        "123",
        "PRI",
    ] {
        cases.push(passes(
            &format!("the method {method} is a token and passes"),
            &format!("{method} / HTTP/1.1"),
            &format!("{method} /"),
        ));
    }
    let long = "M".repeat(1000);
    cases.push(passes(
        "a method of 1,000 letters passes",
        &format!("{long} / HTTP/1.1"),
        &format!("{long} /"),
    ));
    for (what, method) in [
        ("a brace", "G{T"),
        ("a parenthesis", "G(T"),
        ("a slash", "G/T"),
        ("a colon", "GET:"),
        ("a comma", "GET,"),
        ("a quote", "\"GET\""),
        ("an at sign", "GET@"),
        ("a bracket", "[GET]"),
        ("a question mark", "GET?"),
        ("an equals sign", "GET="),
        ("a backslash", "G\\T"),
        ("a letter that is not ASCII", "GÉT"),
        ("angle brackets", "<GET>"),
        ("a semicolon", "GET;"),
    ] {
        cases.push(refuses(
            &format!("a method with {what} is refused"),
            line(format!("{method} / HTTP/1.1")),
            400,
        ));
    }
    for (what, bytes) in [
        ("NUL", &b"G\0T / HTTP/1.1"[..]),
        ("DEL", b"G\x7fT / HTTP/1.1"),
        ("a high byte", b"G\xffT / HTTP/1.1"),
        ("ESC", b"\x1bGET / HTTP/1.1"),
        ("a vertical tab", b"GET\x0b / HTTP/1.1"),
        ("a bare CR", b"GE\rT / HTTP/1.1"),
    ] {
        cases.push(refuses(&format!("a method with {what} is refused"), line(bytes), 400));
    }
    for (what, bytes) in [
        ("an empty method", &b" / HTTP/1.1"[..]),
        ("a tab for a method", b"\t/ HTTP/1.1"),
        ("a request line that begins with a space", b" GET / HTTP/1.1"),
        ("a request line that begins with a tab", b"\tGET / HTTP/1.1"),
        ("no target", b"GET HTTP/1.1"),
        ("a method alone", b"GET"),
        ("a status line", b"HTTP/1.1 200 OK"),
    ] {
        cases.push(refuses(&format!("{what} is refused"), line(bytes), 400));
    }
    for (what, bytes) in [
        ("a TLS handshake", &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..]),
        ("garbage", b"\x01\x02\x03\x04"),
        ("a header line first", b"Host: b"),
        ("a line of JSON", b"{\"a\": 1}"),
        ("a line of SSH", b"SSH-2.0-OpenSSH_9.2"),
        ("a broken preface of HTTP/2", b"INVALID CONNECTION PREFACE"),
    ] {
        cases.push(closes(
            &format!("{what} is no HTTP: the connection closes without an answer"),
            line(bytes),
        ));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_is_not_served() {
    hold(vec![
        refuses("CONNECT with a path is not served", line("CONNECT /x HTTP/1.1"), 501),
        refuses("CONNECT with host and port is not served", line("CONNECT a:443 HTTP/1.1"), 501),
        refuses("CONNECT with a host is not served", line("CONNECT a HTTP/1.1"), 501),
        refuses("CONNECT with an IPv6 address is not served", line("CONNECT [::1]:80 HTTP/1.1"), 501),
        refuses("CONNECT with a URL is not served", line("CONNECT http://a/ HTTP/1.1"), 501),
        refuses("CONNECT with an asterisk is not served", line("CONNECT * HTTP/1.1"), 501),
        refuses("CONNECT of HTTP/1.0 is not served", b"CONNECT a:80 HTTP/1.0\r\n\r\n", 501),
        refuses(
            "CONNECT with a body is not served, nor is its body",
            b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
            501,
        ),
        refuses("CONNECT without Host is not served", b"CONNECT a:80 HTTP/1.1\r\n\r\n", 501),
        refuses(
            "what follows CONNECT is not a request",
            b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
            501,
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_reach_the_origin_in_origin_form() {
    let mut cases = Vec::new();
    for (name, sent, seen) in [
        ("a path passes", "/a/b", "/a/b"),
        ("a query passes", "/a?b=c&d", "/a?b=c&d"),
        ("an empty query passes", "/a?", "/a?"),
        ("question marks in a query pass", "/a?b?c", "/a?b?c"),
        ("escapes pass in capitals", "/a%20b%c3%a9%0d%0a", "/a%20b%C3%A9%0D%0A"),
        ("dot segments are resolved before routing", "/a/../b/./c", "/b/c"),
        ("two slashes are a path, not a host, and become one", "//evil/a", "/evil/a"),
        ("three slashes become one", "///", "/"),
        ("a URL inside a path is a path", "/http://b/", "/http:/b/"),
        ("a URL inside a query passes", "/?u=http://b/../", "/?u=http://b/../"),
        ("a colon in a path passes", "/a:80/", "/a:80/"),
        ("an at sign in a path passes", "/a@b", "/a@b"),
        ("a semicolon passes", "/a;b=c", "/a;b=c"),
        ("braces pass", "/{a}", "/{a}"),
        ("brackets pass", "/a[0]?b[]=1", "/a[0]?b[]=1"),
        ("a pipe, a caret and a backslash pass", "/a|b^c\\d", "/a|b^c\\d"),
        ("a quote passes", "/\"a\"'", "/\"a\"'"),
        ("a fragment is removed", "/a#b", "/a"),
        ("a fragment after a query is removed", "/a?b#c?d", "/a?b"),
        ("a fragment is removed up to its last sign", "/a#b#c", "/a"),
        ("UTF-8 in a path passes", "/é", "/\u{e9}"),
    ] {
        cases.push(passes(name, &format!("GET {sent} HTTP/1.1"), &format!("GET {seen}")));
    }
    let long = format!("/{}", "a".repeat(16_000));
    cases.push(passes(
        "a target of 16,000 bytes passes",
        &format!("GET {long} HTTP/1.1"),
        &format!("GET {long}"),
    ));
    for (length, status) in [(17_000, 414), (40_000, 414), (60_000, 414), (70_000, 431), (200_000, 431)] {
        let long = "a".repeat(length);
        cases.push(refuses(
            &format!("a target of {length} bytes is refused"),
            line(format!("GET /{long} HTTP/1.1")),
            status,
        ));
        cases.push(refuses(
            &format!("a query of {length} bytes is refused"),
            line(format!("GET /?{long} HTTP/1.1")),
            status,
        ));
    }
    for (name, bytes) in [
        ("NUL in a target is refused", &b"GET /a\0b HTTP/1.1"[..]),
        ("DEL in a target is refused", b"GET /a\x7fb HTTP/1.1"),
        ("ESC in a target is refused", b"GET /a\x1bb HTTP/1.1"),
        ("a tab in a target is refused", b"GET /a\tb HTTP/1.1"),
        ("a space in a target is refused", b"GET /a b HTTP/1.1"),
        ("a bare CR in a target is refused", b"GET /a\rb HTTP/1.1"),
        ("a bare LF in a target is refused", b"GET /a\nb HTTP/1.1"),
        ("bytes that are no UTF-8 are refused in a target", b"GET /\xff\xfe HTTP/1.1"),
        ("bytes that are no UTF-8 are refused in a query", b"GET /?a=\xe9 HTTP/1.1"),
        ("a target without a slash is refused", b"GET a HTTP/1.1"),
        ("a target of a host and a path is refused", b"GET a/b HTTP/1.1"),
        ("a target of dots is refused", b"GET ../a HTTP/1.1"),
        ("a target that is a query is refused", b"GET ?a=b HTTP/1.1"),
        ("a target that is a fragment is refused", b"GET #a HTTP/1.1"),
        ("a host and a port are no target of GET", b"GET a:80 HTTP/1.1"),
        ("a host and a port are no target of POST", b"POST internal:8080 HTTP/1.1"),
        ("an IPv6 address is no target", b"GET [::1]:80 HTTP/1.1"),
        ("a target that begins with a backslash is refused", b"GET \\a HTTP/1.1"),
        ("a target that begins with an at sign is refused", b"GET @evil/ HTTP/1.1"),
        ("a target that begins with a colon is refused", b"GET :80/ HTTP/1.1"),
        ("a target that begins with a percent sign is refused", b"GET %2fa HTTP/1.1"),
        ("an asterisk is no target of GET", b"GET * HTTP/1.1"),
        ("an asterisk is no target of POST", b"POST * HTTP/1.1"),
        ("two asterisks are no target", b"OPTIONS ** HTTP/1.1"),
        ("an asterisk with a query is no target", b"OPTIONS *?a HTTP/1.1"),
    ] {
        cases.push(refuses(name, line(bytes), 400));
    }
    cases.push(refuses_and_goes_on(
        "OPTIONS for the server matches no path",
        line("OPTIONS * HTTP/1.1"),
        404,
    ));
    for path in ["/%00", "/%zz", "/%", "/%2", "/a/%g0"] {
        cases.push(refuses_and_goes_on(
            &format!("the path {path} has an escape that no path has"),
            line(format!("GET {path} HTTP/1.1")),
            400,
        ));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_1_0_and_1_1() {
    let mut cases = Vec::new();
    for version in [
        "HTTP/0.9",
        "HTTP/1.2",
        "HTTP/1.9",
        "HTTP/2",
        "HTTP/2.0",
        "HTTP/3",
        "HTTP/3.0",
        "HTTP/1",
        "HTTP/1.",
        "HTTP/.1",
        "HTTP/11",
        "HTTP/1.10",
        "HTTP/1.11",
        "HTTP/01.1",
        "HTTP/1,1",
        "HTTP/-1.1",
        "HTTP/+1.1",
        "HTTP/1.1x",
        "http/1.1",
        "Http/1.1",
        "HTTP 1.1",
        "HTTP/ 1.1",
        "HTTPS/1.1",
        "HTP/1.1",
        "ICY/1.1",
        "RTSP/1.0",
        "/1.1",
        "1.1",
        "HTTP/",
        "HTTP/1.1 HTTP/1.1",
        "HTTP/1.1 x",
    ] {
        cases.push(refuses(
            &format!("the version {version} is refused"),
            line(format!("GET / {version}")),
            400,
        ));
    }
    cases.push(refuses("a request line without a version is refused", line("GET /"), 400));
    cases.push(refuses("a request line with a space for a version is refused", line("GET / "), 400));
    cases.push(refuses("HTTP/0.9 is refused", b"GET /\r\n", 400));
    for (what, bytes) in [
        ("a tab before the version", &b"GET /\tHTTP/1.1"[..]),
        ("a tab after the method", b"GET\t/ HTTP/1.1"),
        ("a tab after the version", b"GET / HTTP/1.1\t"),
        ("two spaces after the method", b"GET  / HTTP/1.1"),
        ("two spaces before the version", b"GET /  HTTP/1.1"),
        ("a space after the version", b"GET / HTTP/1.1 "),
        ("a form feed between the parts", b"GET\x0c/\x0cHTTP/1.1"),
        ("a no-break space before the version", b"GET /\xc2\xa0HTTP/1.1"),
        ("NUL after the version", b"GET / HTTP/1.1\0"),
        ("a bare CR after the version", b"GET / HTTP/1.1\rX: y"),
    ] {
        cases.push(refuses(&format!("a request line with {what} is refused"), line(bytes), 400));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_lines_before_a_request_are_skipped() {
    let seen = arrives("GET /");
    let seen = &[&*seen];
    hold(vec![
        forwards("one empty line is skipped", b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", seen),
        forwards(
            "ten empty lines are skipped",
            joined(&[&b"\r\n".repeat(10), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]),
            seen,
        ),
        forwards("an empty line with LF alone is skipped", b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", seen),
        forwards(
            "empty lines after a request are skipped",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\n",
            seen,
        ),
        forwards("lines that end with LF are written again with CRLF", b"GET / HTTP/1.1\nHost: a\n\n", seen),
        forwards("lines may end with LF and with CRLF", b"GET / HTTP/1.1\nHost: a\r\n\n", seen),
        refuses("a bare CR before a request is refused", b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        refuses("an empty line with a space is refused", b" \r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        forwards_then_refuses(
            "garbage after a request is refused on its own",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\0\0\0\0",
            seen,
            400,
        ),
        forwards_then_refuses(
            "a body that no header announces is read as a request, and refused",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n{\"a\": 1}\r\n",
            seen,
            400,
        ),
    ])
    .await;
}
