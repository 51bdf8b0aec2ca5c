//! Headers: their lines, their number, and those that are about one connection only.

use crate::corpus::{Case, forwards, forwards_and_closes, hold, joined, refuses};

fn get(headers: impl AsRef<[u8]>) -> Vec<u8> {
    joined(&[b"GET / HTTP/1.1\r\nHost: a\r\n", headers.as_ref(), b"\r\n"])
}

/// The origin gets these headers beside Host.
fn passes(name: &str, headers: impl AsRef<[u8]>, seen: &str) -> Case {
    forwards(name, get(headers), &[&format!("GET / HTTP/1.1\r\nhost: a\r\n{seen}\r\n")])
}

#[tokio::test(flavor = "multi_thread")]
async fn header_lines_are_valid_or_refused() {
    let mut cases = vec![
        passes("names become lower case, values stay", "X-Name: Some Value\r\n", "x-name: Some Value\r\n"),
        passes("space around a value is removed", "X: \t y \t\r\n", "x: y\r\n"),
        passes("space inside a value stays", "X: a \t b\r\n", "x: a \t b\r\n"),
        passes("an empty value passes", "X:\r\n", "x: \r\n"),
        passes("a value of spaces becomes empty", "X:    \r\n", "x: \r\n"),
        passes("a value with colons passes", "X: a:b: c\r\n", "x: a:b: c\r\n"),
        passes("duplicates pass in their order", "X: 1\r\nX: 2\r\nX: 1\r\n", "x: 1\r\nx: 2\r\nx: 1\r\n"),
        passes(
            "duplicates apart pass in their order",
            "X: 1\r\nY: y\r\nx: 2\r\n",
            "x: 1\r\nx: 2\r\ny: y\r\n",
        ),
        passes("two cookies pass", "Cookie: a=b\r\nCookie: c=d\r\n", "cookie: a=b\r\ncookie: c=d\r\n"),
        passes("an underscore in a name passes", "X_Y: z\r\n", "x_y: z\r\n"),
        passes(
            "names that CGI reads as framing are removed",
            "Content_Length: 5\r\ntransfer_encoding: chunked\r\nCDN_Loop: vg-test\r\nX: y\r\n",
            "x: y\r\n",
        ),
        passes("all signs of a token may be in a name", "!#$%&'*+-.^_`|~1: z\r\n", "!#$%&'*+-.^_`|~1: z\r\n"),
        passes("lines may end with LF", "X: y\nZ: z\n", "x: y\r\nz: z\r\n"),
        passes(
            "a long value passes",
            format!("X: {}\r\n", "y".repeat(30_000)),
            &format!("x: {}\r\n", "y".repeat(30_000)),
        ),
        passes(
            "a long name passes",
            format!("{}: y\r\n", "x".repeat(1000)),
            &format!("{}: y\r\n", "x".repeat(1000)),
        ),
        passes("an authorization passes", "Authorization: Basic YTpi\r\n", "authorization: Basic YTpi\r\n"),
        passes("UTF-8 in a value passes", "X: \u{fc}\u{20ac}\r\n", "x: \u{fc}\u{20ac}\r\n"),
        passes("a range passes", "Range: bytes=0-1\r\n", "range: bytes=0-1\r\n"),
    ];
    for (what, line) in [
        ("a folded line", &b"X: a\r\n b\r\n"[..]),
        ("a line folded with a tab", b"X: a\r\n\tb\r\n"),
        ("a folded line with LF", b"X: a\n b\n"),
        ("a first line that is folded", b" X: a\r\n"),
        ("a folded empty value", b"X:\r\n a\r\n"),
        ("a space before the colon", b"X : y\r\n"),
        ("a tab before the colon", b"X\t: y\r\n"),
        ("a space in a name", b"X Y: z\r\n"),
        ("no name", b": y\r\n"),
        ("no colon", b"X\r\n"),
        ("no colon but a value", b"X y\r\n"),
        ("only a colon", b":\r\n"),
        ("NUL in a name", b"X\0Y: z\r\n"),
        ("NUL in a value", b"X: y\0z\r\n"),
        ("DEL in a name", b"X\x7f: z\r\n"),
        ("DEL in a value", b"X: y\x7fz\r\n"),
        ("a bare CR in a value", b"X: y\rz\r\n"),
        ("a bare CR in a name", b"X\rY: z\r\n"),
        ("two CR before LF", b"X: y\r\r\n"),
        ("a bare CR that hides a header", b"X: y\rContent-Length: 5\r\n"),
        ("ESC in a value", b"X: \x1b[0m\r\n"),
        ("a vertical tab in a value", b"X: y\x0bz\r\n"),
        ("a form feed in a value", b"X: y\x0cz\r\n"),
        ("a backspace in a value", b"X: y\x08z\r\n"),
        ("a high byte in a name", b"X\xe9: y\r\n"),
        ("UTF-8 in a name", "Ü: y\r\n".as_bytes()),
        ("a parenthesis in a name", b"X(Y): z\r\n"),
        ("a slash in a name", b"X/Y: z\r\n"),
        ("a comma in a name", b"X,Y: z\r\n"),
        ("a quote in a name", b"\"X\": z\r\n"),
        ("braces in a name", b"{X}: z\r\n"),
        ("an equals sign in a name", b"X=Y: z\r\n"),
        ("an at sign in a name", b"X@Y: z\r\n"),
        ("a semicolon in a name", b"X;Y: z\r\n"),
        ("angle brackets in a name", b"<X>: z\r\n"),
        ("brackets in a name", b"[X]: z\r\n"),
        ("a backslash in a name", b"X\\Y: z\r\n"),
        ("a question mark in a name", b"X?: z\r\n"),
        ("a no-break space before the colon", b"X\xa0: z\r\n"),
        ("a request line among the headers", b"GET / HTTP/1.1\r\n"),
        ("a hidden Host", b"X: y\r\n Host: b\r\n"),
    ] {
        cases.push(refuses(&format!("a request with {what} is refused"), get(line), 400));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_above_ascii_pass_unchanged_in_values() {
    let mut cases = Vec::new();
    for byte in [0x80_u8, 0x85, 0xa0, 0xad, 0xc0, 0xe9, 0xfe, 0xff] {
        let sent = joined(&[b"X: a", &[byte], b"b\r\n"]);
        // Compared as bytes: the table of expectations is text.
        cases.push(passes_bytes(
            &format!("the byte {byte:#x} passes in a value"),
            &sent,
            &joined(&[b"x: a", &[byte], b"b\r\n"]),
        ));
    }
    hold(cases).await;
}

fn passes_bytes(name: &str, headers: &[u8], seen: &[u8]) -> Case {
    crate::corpus::forwards_bytes(
        name,
        get(headers),
        &joined(&[b"GET / HTTP/1.1\r\nhost: a\r\n", seen, b"\r\n"]),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let lines = |count: usize| (0..count).map(|number| format!("X-{number}: y\r\n")).collect::<String>();
    let seen = |count: usize| (0..count).map(|number| format!("x-{number}: y\r\n")).collect::<String>();
    hold(vec![
        passes("100 headers pass", lines(100), &seen(100)),
        passes("128 headers pass", lines(127), &seen(127)),
        refuses("129 headers are too many", get(lines(128)), 431),
        refuses("1,000 headers are too many", get(lines(1000)), 431),
        refuses("10,000 headers are too many", get(lines(10_000)), 431),
        passes(
            "a head of 60 KiB passes",
            format!("X: {}\r\n", "y".repeat(60 << 10)),
            &format!("x: {}\r\n", "y".repeat(60 << 10)),
        ),
        refuses("a head of 64 KiB is too large", get(format!("X: {}\r\n", "y".repeat(64 << 10))), 431),
        refuses("a head of 1 MiB is too large", get(format!("X: {}\r\n", "y".repeat(1 << 20))), 431),
        refuses(
            "a head without an end is too large",
            joined(&[b"GET / HTTP/1.1\r\nHost: a\r\nX: ", &b"y".repeat(1 << 20)]),
            431,
        ),
        refuses(
            "a name without an end is too large",
            joined(&[b"GET / HTTP/1.1\r\nHost: a\r\n", &b"y".repeat(1 << 20)]),
            431,
        ),
        refuses("a method without an end is too large", b"M".repeat(1 << 20), 431),
        refuses("a head that ends in the middle is refused", b"GET / HTTP/1.1\r\nHost: a\r\nX: y", 400),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_the_connection_stay_with_it() {
    let long = "Content-Length: 5\r\n";
    let post = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}{long}\r\nhello");
    let seen = "POST / HTTP/1.1\r\ncontent-length: 5\r\nhost: a\r\n\r\nhello";
    let chunks = |headers: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{headers}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
    };
    let seen_chunks =
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut cases = vec![
        forwards("Connection cannot remove Content-Length", post("Connection: content-length\r\n"), &[seen]),
        forwards(
            "Connection cannot remove Content-Length in capitals",
            post("Connection: CONTENT-LENGTH\r\n"),
            &[seen],
        ),
        forwards(
            "Connection cannot remove Content-Length in a list",
            post("Connection: x, content-length ,y\r\n"),
            &[seen],
        ),
        forwards("Connection cannot remove Host", post("Connection: host\r\n"), &[seen]),
        forwards(
            "Connection cannot remove Transfer-Encoding",
            chunks("Connection: transfer-encoding\r\n"),
            &[seen_chunks],
        ),
        forwards(
            "Connection cannot remove Transfer-Encoding on two lines",
            chunks("Connection: keep-alive\r\nConnection: Transfer-Encoding\r\n"),
            &[seen_chunks],
        ),
        passes(
            "Connection removes what it names",
            "Connection: x-a, X-B\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\n",
            "x-c: 3\r\n",
        ),
        passes(
            "Connection removes what it names on two lines",
            "Connection: x-a\r\nConnection: x-b\r\nX-A: 1\r\nX-B: 2\r\n",
            "",
        ),
        passes("Connection removes all lines that it names", "X-A: 1\r\nConnection: x-a\r\nX-A: 2\r\n", ""),
        passes(
            "Connection removes Authorization, as RFC 9110 says",
            "Connection: authorization\r\nAuthorization: Basic YTpi\r\n",
            "",
        ),
        passes("Connection removes Cookie, as RFC 9110 says", "Connection: cookie\r\nCookie: a=b\r\n", ""),
        passes(
            "Connection cannot remove the gateway's own headers",
            "Connection: x-forwarded-for, x-forwarded-host, x-gateway-route, via, cdn-loop\r\nX-Forwarded-For: 1.2.3.4\r\n",
            "",
        ),
        passes("Connection with what is no token", "Connection: \"x\", a b, ,,;\r\nX: y\r\n", "x: y\r\n"),
        passes("an empty Connection is removed", "Connection:\r\n", ""),
        passes("Keep-Alive is removed", "Keep-Alive: timeout=5\r\nConnection: keep-alive\r\n", ""),
        passes("Keep-Alive is removed without Connection", "Keep-Alive: timeout=5, max=1\r\n", ""),
        passes("Proxy-Connection is removed", "Proxy-Connection: keep-alive\r\n", ""),
        passes("TE is removed", "TE: gzip;q=0.5\r\n", ""),
        passes("an empty TE is removed", "TE:\r\n", ""),
        passes("TE with trailers is said again", "TE: gzip, trailers\r\n", "te: trailers\r\n"),
        passes(
            "TE with trailers on two lines is said once",
            "TE: trailers\r\nTE: Trailers\r\n",
            "te: trailers\r\n",
        ),
        passes(
            "TE that Connection names is said again",
            "TE: trailers\r\nConnection: te\r\n",
            "te: trailers\r\n",
        ),
        passes("TE chunked is removed", "TE: chunked\r\n", ""),
        passes(
            "an upgrade to h2c is not asked for",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
            "",
        ),
        passes(
            "an upgrade to h2c is not asked for, without Connection",
            "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
            "",
        ),
        passes("an upgrade to TLS is not asked for", "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n", ""),
        passes(
            "an upgrade to a protocol of its own is not asked for",
            "Connection: Upgrade\r\nUpgrade: foo/2, bar\r\n",
            "",
        ),
        passes("a WebSocket without Connection is not asked for", "Upgrade: websocket\r\n", ""),
        forwards(
            "a WebSocket is not asked for with a body",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello",
            &["GET / HTTP/1.1\r\ncontent-length: 5\r\nhost: a\r\n\r\nhello"],
        ),
        forwards(
            "a WebSocket is not asked for with POST",
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            &["POST / HTTP/1.1\r\nhost: a\r\n\r\n"],
        ),
        forwards_and_closes(
            "a WebSocket is not asked for with HTTP/1.0",
            "GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            &["GET / HTTP/1.1\r\nhost: a\r\n\r\n"],
        ),
        passes(
            "Proxy-Authorization passes: an origin may ask for it",
            "Proxy-Authorization: Basic YTpi\r\n",
            "proxy-authorization: Basic YTpi\r\n",
        ),
        passes(
            "internal headers of clients are removed",
            "X-Ghost-Route: a\r\nx-ghost-: b\r\nX_Ghost_Tls: c\r\nX-Gateway-Listener: d\r\nX_Gateway_Route: e\r\n",
            "",
        ),
        passes(
            "Forwarded of clients is removed",
            "Forwarded: for=1.2.3.4\r\nX-Forwarded-Host: evil\r\nX_Forwarded_Proto: https\r\n",
            "",
        ),
    ];
    for value in ["100-continue", "100-Continue", "100-CONTINUE"] {
        cases.push(forwards(
            &format!("Expect: {value} is answered, and does not go on"),
            post(&format!("Expect: {value}\r\n")),
            &[seen],
        ));
        cases.push(forwards(
            &format!("Expect: {value} is answered before chunks"),
            chunks(&format!("Expect: {value}\r\n")),
            &[seen_chunks],
        ));
        cases.push(passes(
            &format!("Expect: {value} without a body is removed"),
            format!("Expect: {value}\r\n"),
            "",
        ));
    }
    for value in ["", "200-ok", "100-continue, x", "100-continue;q=1", "100", "x=y", "\"100-continue\""] {
        cases.push(refuses(
            &format!("Expect: {value} is not served"),
            post(&format!("Expect: {value}\r\n")),
            417,
        ));
    }
    cases.push(refuses("a second Expect is not served", post("Expect: 100-continue\r\nExpect: x\r\n"), 417));
    cases.push(refuses(
        "an Expect that Connection names is not served",
        post("Expect: x\r\nConnection: expect\r\n"),
        417,
    ));
    hold(cases).await;
}
