//! Where a request ends: Content-Length and Transfer-Encoding, and what is neither.

use crate::corpus::{Case, breaks, forwards, forwards_and_closes, hold, refuses};

fn post(headers: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
}

const CHUNKS: &str =
    "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
const EMPTY_CHUNKS: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
const LENGTH: &str = "POST / HTTP/1.1\r\ncontent-length: 5\r\nhost: a\r\n\r\nhello";
const NOTHING: &str = "POST / HTTP/1.1\r\ncontent-length: 0\r\nhost: a\r\n\r\n";
const HELLO: &str = "5\r\nhello\r\n0\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn lengths_are_digits_and_agree() {
    let mut cases = vec![
        forwards("a body with its length arrives", post("Content-Length: 5\r\n", "hello"), &[LENGTH]),
        forwards(
            "a length may have spaces around it",
            post("Content-Length: \t 5 \t\r\n", "hello"),
            &[LENGTH],
        ),
        forwards(
            "equal lengths become one",
            post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
            &[LENGTH],
        ),
        forwards(
            "three equal lengths become one",
            post("Content-Length: 5\r\ncontent-length: 5\r\nCONTENT-LENGTH: 5\r\n", "hello"),
            &[LENGTH],
        ),
        forwards(
            "leading zeros of a length are removed",
            post("Content-Length: 005\r\n", "hello"),
            &[LENGTH],
        ),
        forwards(
            "equal lengths in two spellings become one",
            post("Content-Length: 05\r\nContent-Length: 5\r\n", "hello"),
            &[LENGTH],
        ),
        forwards("a length of zero passes", post("Content-Length: 0\r\n", ""), &[NOTHING]),
        forwards("zeros become one", post("Content-Length: 000\r\n", ""), &[NOTHING]),
        forwards(
            "a request that begins like a body is a request",
            post("Content-Length: 0\r\n", "GET /x HTTP/1.1\r\nHost: b\r\n\r\n"),
            &[NOTHING, "GET /x HTTP/1.1\r\nhost: b\r\n\r\n"],
        ),
        forwards(
            "a body that looks like a request is a body",
            post("Content-Length: 28\r\n", "GET /x HTTP/1.1\r\nHost: b\r\n\r\n"),
            &["POST / HTTP/1.1\r\ncontent-length: 28\r\nhost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: b\r\n\r\n"],
        ),
        forwards("CRLF after a body is skipped", post("Content-Length: 5\r\n", "hello\r\n"), &[LENGTH]),
        forwards(
            "a body of NULs arrives",
            post("Content-Length: 4\r\n", "\0\0\0\0"),
            &["POST / HTTP/1.1\r\ncontent-length: 4\r\nhost: a\r\n\r\n\0\0\0\0"],
        ),
        forwards("POST without a length has no body", post("", ""), &["POST / HTTP/1.1\r\nhost: a\r\n\r\n"]),
        breaks(
            "a body that is shorter than its length is not complete",
            post("Content-Length: 5000\r\n", "hello"),
            400,
        ),
        breaks(
            "a body of many gigabytes that does not come is not complete",
            post("Content-Length: 9999999999999\r\n", "hello"),
            400,
        ),
    ];
    for (what, value) in [
        ("with a plus sign", "+5"),
        ("with a minus sign", "-5"),
        ("of -1", "-1"),
        ("of -0", "-0"),
        ("of +0", "+0"),
        ("in hexadecimal", "0x5"),
        ("in hexadecimal without a prefix", "a"),
        ("in octal", "0o5"),
        ("that is a list", "5,5"),
        ("that is a list with a space", "5, 5"),
        ("that is a list of different ones", "5, 6"),
        ("with a comma at its end", "5,"),
        ("with a comma at its beginning", ",5"),
        ("with a space inside", "5 5"),
        ("with a tab inside", "5\t5"),
        ("that is empty", ""),
        ("of spaces", "   "),
        ("with a fraction", "5.0"),
        ("with an exponent", "5e0"),
        ("in quotes", "\"5\""),
        ("with an underscore", "5_0"),
        ("with a separator", "5'000"),
        ("with a unit", "5b"),
        ("with a semicolon", "5;"),
        ("beyond 64 bits", "18446744073709551616"),
        ("far beyond 64 bits", "99999999999999999999999999999999"),
        ("in Arabic digits", "٥"),
        ("in full-width digits", "５"),
        ("with a byte order mark", "\u{feff}5"),
        ("with a no-break space", "\u{a0}5"),
        ("that is a word", "five"),
        ("that is NaN", "NaN"),
        ("that is chunked", "chunked"),
    ] {
        cases.push(refuses(
            &format!("a length {what} is refused"),
            post(&format!("Content-Length: {value}\r\n"), "hello"),
            400,
        ));
        cases.push(refuses(
            &format!("a length {what} is refused after a good one"),
            post(&format!("Content-Length: 5\r\nContent-Length: {value}\r\n"), "hello"),
            400,
        ));
    }
    // hyper's word for lengths that it cannot count.
    for value in ["18446744073709551615", "18446744073709551614"] {
        cases.push(refuses(
            &format!("a length of {value} is refused"),
            post(&format!("Content-Length: {value}\r\n"), "hello"),
            431,
        ));
    }
    for (first, second) in [("5", "6"), ("6", "5"), ("0", "5"), ("5", "0"), ("5", "50"), ("05", "6")] {
        cases.push(refuses(
            &format!("the lengths {first} and {second} are refused"),
            post(&format!("Content-Length: {first}\r\nContent-Length: {second}\r\n"), "hello"),
            400,
        ));
        cases.push(refuses(
            &format!("the lengths {first} and {second} apart are refused"),
            post(&format!("Content-Length: {first}\r\nX: y\r\ncontent-length: {second}\r\n"), "hello"),
            400,
        ));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_may_have_a_body() {
    let mut cases = Vec::new();
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "PUT", "PATCH", "TRACE", "QUERY", "PURGE"] {
        cases.push(forwards(
            &format!("{method} with a length keeps its body"),
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
            &[&format!("{method} / HTTP/1.1\r\ncontent-length: 5\r\nhost: a\r\n\r\nhello")],
        ));
        cases.push(forwards(
            &format!("{method} with chunks keeps its body"),
            format!("{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{HELLO}"),
            &[&format!("{method} / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{HELLO}")],
        ));
        cases.push(forwards(
            &format!("{method} with a request in its body is one request"),
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\nGET /x HTTP/1.1\r\nHost: b\r\n\r\n"),
            &[&format!("{method} / HTTP/1.1\r\ncontent-length: 28\r\nhost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: b\r\n\r\n")],
        ));
        cases.push(forwards(
            &format!("{method} with a length of zero has no body"),
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
            &[&format!("{method} / HTTP/1.1\r\ncontent-length: 0\r\nhost: a\r\n\r\n")],
        ));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_transfer_coding_is_chunked() {
    let mut cases: Vec<Case> = vec![
        forwards("chunks arrive as chunks", post("Transfer-Encoding: chunked\r\n", HELLO), &[CHUNKS]),
        forwards("chunked may be in capitals", post("Transfer-Encoding: CHUNKED\r\n", HELLO), &[CHUNKS]),
        forwards("chunked may be in mixed case", post("tRANSFER-eNCODING: cHuNkEd\r\n", HELLO), &[CHUNKS]),
        forwards(
            "chunked may have spaces and tabs around it",
            post("Transfer-Encoding:\t  chunked \t\r\n", HELLO),
            &[CHUNKS],
        ),
        forwards("chunked needs no space before it", post("Transfer-Encoding:chunked\r\n", HELLO), &[CHUNKS]),
        forwards(
            "no chunk but the last is an empty body",
            post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            &[EMPTY_CHUNKS],
        ),
    ];
    for (what, lines) in [
        ("xchunked", "Transfer-Encoding: xchunked\r\n"),
        ("chunkedx", "Transfer-Encoding: chunkedx\r\n"),
        ("chunked and identity", "Transfer-Encoding: chunked, identity\r\n"),
        ("chunked and gzip", "Transfer-Encoding: chunked, gzip\r\n"),
        ("identity", "Transfer-Encoding: identity\r\n"),
        ("gzip", "Transfer-Encoding: gzip\r\n"),
        ("cow", "Transfer-Encoding: cow\r\n"),
        ("nothing", "Transfer-Encoding:\r\n"),
        ("spaces", "Transfer-Encoding:   \r\n"),
        ("a comma", "Transfer-Encoding: ,\r\n"),
        ("chunked and a comma", "Transfer-Encoding: chunked,\r\n"),
        ("chunked in quotes", "Transfer-Encoding: \"chunked\"\r\n"),
        ("chunked in single quotes", "Transfer-Encoding: 'chunked'\r\n"),
        ("chunked with a parameter", "Transfer-Encoding: chunked;a=b\r\n"),
        ("chunked and a semicolon", "Transfer-Encoding: chunked;\r\n"),
        ("chunked and a space and a word", "Transfer-Encoding: chunked x\r\n"),
        ("a colon and chunked", "Transfer-Encoding: : chunked\r\n"),
        ("chunked after a vertical tab", "Transfer-Encoding: \u{b}chunked\r\n"),
        ("chunked before a vertical tab", "Transfer-Encoding: chunked\u{b}\r\n"),
        ("chunked after a form feed", "Transfer-Encoding: \u{c}chunked\r\n"),
        ("chunked with NUL", "Transfer-Encoding: chunked\0\r\n"),
        ("chunked after a bare CR", "Transfer-Encoding: \rchunked\r\n"),
        ("chunked after a no-break space", "Transfer-Encoding: \u{a0}chunked\r\n"),
        ("chunked with a long s", "Transfer-Encoding: chun\u{212a}ed\r\n"),
        ("chunked in UTF-8 of full width", "Transfer-Encoding: ｃhunked\r\n"),
        ("chunked behind a space before the colon", "Transfer-Encoding : chunked\r\n"),
        ("chunked behind a tab before the colon", "Transfer-Encoding\t: chunked\r\n"),
        ("chunked on a folded line", "Transfer-Encoding:\r\n chunked\r\n"),
        ("chunked on a line folded with a tab", "Transfer-Encoding:\r\n\tchunked\r\n"),
        (
            "chunked and identity on two lines",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        ),
        ("chunked and nothing on two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n"),
        ("chunked and cow on two lines", "Transfer-Encoding: chunked\r\nX: y\r\nTransfer-Encoding: cow\r\n"),
        ("a name with a space before it", " Transfer-Encoding: chunked\r\n"),
        ("a name with a space in it", "Transfer Encoding: chunked\r\n"),
        ("a name with NUL", "Transfer-Encoding\0: chunked\r\n"),
        ("a name after a bare CR", "X: y\rTransfer-Encoding: chunked\r\n"),
    ] {
        cases.push(refuses(&format!("a transfer coding of {what} is refused"), post(lines, HELLO), 400));
        cases.push(refuses(
            &format!("a transfer coding of {what} is refused before a length"),
            post(&format!("{lines}Content-Length: 5\r\n"), HELLO),
            400,
        ));
        cases.push(refuses(
            &format!("a transfer coding of {what} is refused after a length"),
            post(&format!("Content-Length: 5\r\n{lines}"), HELLO),
            400,
        ));
    }
    for (what, lines) in [
        ("identity and chunked", "Transfer-Encoding: identity, chunked\r\n"),
        ("gzip and chunked", "Transfer-Encoding: gzip, chunked\r\n"),
        ("chunked twice", "Transfer-Encoding: chunked, chunked\r\n"),
        ("a comma and chunked", "Transfer-Encoding: ,chunked\r\n"),
        ("chunked on two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        (
            "identity and chunked on two lines",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        ),
        ("cow and chunked on two lines", "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n"),
        ("nothing and chunked on two lines", "Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n"),
        ("a quoted list and chunked", "Transfer-Encoding: \"a, b\", chunked\r\n"),
    ] {
        cases.push(refuses(&format!("a transfer coding of {what} is not served"), post(lines, HELLO), 501));
        cases.push(refuses(
            &format!("a transfer coding of {what} is not served before a length"),
            post(&format!("{lines}Content-Length: 5\r\n"), HELLO),
            501,
        ));
        cases.push(refuses(
            &format!("a transfer coding of {what} is not served after a length"),
            post(&format!("Content-Length: 5\r\n{lines}"), HELLO),
            501,
        ));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_go_before_a_length_and_the_connection_closes() {
    let mut cases = Vec::new();
    for (what, lines) in [
        ("a length before chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ("a length after chunks", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        ("a length of zero before chunks", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
        ("a length of zero after chunks", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
        ("a long length", "Content-Length: 4000\r\nTransfer-Encoding: chunked\r\n"),
        ("a bad length after chunks", "Transfer-Encoding: chunked\r\nContent-Length: x\r\n"),
        (
            "two lengths around chunks",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        ),
    ] {
        cases.push(forwards_and_closes(&format!("{what} is removed"), post(lines, HELLO), &[CHUNKS]));
        cases.push(forwards_and_closes(
            &format!("{what} is removed, and what follows is not read"),
            post(lines, "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"),
            &[EMPTY_CHUNKS],
        ));
    }
    cases.push(refuses(
        "a bad length before chunks is refused",
        post("Content-Length: x\r\nTransfer-Encoding: chunked\r\n", HELLO),
        400,
    ));
    cases.push(refuses(
        "two lengths before chunks are refused",
        post("Content-Length: 5\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n", HELLO),
        400,
    ));
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_0_has_no_chunks() {
    let mut cases = Vec::new();
    for (what, lines) in [
        ("chunks", "Transfer-Encoding: chunked\r\n"),
        ("chunks and keep-alive", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n"),
        ("chunks and a length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        ("a length and chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ("identity", "Transfer-Encoding: identity\r\nContent-Length: 5\r\n"),
    ] {
        cases.push(refuses(
            &format!("HTTP/1.0 with {what} is refused"),
            format!("POST / HTTP/1.0\r\nHost: a\r\n{lines}\r\n{HELLO}"),
            400,
        ));
    }
    cases.push(forwards_and_closes(
        "HTTP/1.0 with a length",
        "POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        &[LENGTH],
    ));
    cases.push(forwards(
        "HTTP/1.0 with a length that stays",
        "POST / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nhello",
        &[LENGTH],
    ));
    cases.push(forwards_and_closes(
        "HTTP/1.0 without a length has no body",
        "POST / HTTP/1.0\r\nHost: a\r\n\r\nhello",
        &["POST / HTTP/1.1\r\nhost: a\r\n\r\n"],
    ));
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_separate() {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", path.trim_matches('/'));
    let seen = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", path.trim_matches('/'));
    let many: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
    let (sent, arrives): (String, Vec<String>) =
        (many.iter().map(|path| get(path)).collect(), many.iter().map(|path| seen(path)).collect());
    let arrives: Vec<&str> = arrives.iter().map(String::as_str).collect();
    let chunks = post("Transfer-Encoding: chunked\r\n", HELLO);
    let length = post("Content-Length: 5\r\n", "hello");
    hold(vec![
        forwards("twenty pipelined requests arrive in order", sent, &arrives),
        forwards(
            "a request after chunks is a request of its own",
            format!("{chunks}{}", get("/b")),
            &[CHUNKS, &seen("/b")],
        ),
        forwards(
            "a request after a body is a request of its own",
            format!("{length}{}", get("/b")),
            &[LENGTH, &seen("/b")],
        ),
        forwards(
            "bodies and chunks take turns",
            format!("{length}{chunks}{length}{chunks}"),
            &[LENGTH, CHUNKS, LENGTH, CHUNKS],
        ),
        forwards(
            "a request after an empty line after chunks",
            format!("{chunks}\r\n\r\n{}", get("/b")),
            &[CHUNKS, &seen("/b")],
        ),
        forwards_and_closes(
            "what follows Connection: close is not read",
            format!("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n{}", get("/b")),
            &[&seen("/a")],
        ),
        forwards_and_closes(
            "close goes before keep-alive",
            format!("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close, keep-alive\r\n\r\n{}", get("/b")),
            &[&seen("/a")],
        ),
        forwards_and_closes(
            "close goes before keep-alive on another line",
            format!(
                "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n{}",
                get("/b")
            ),
            &[&seen("/a")],
        ),
    ])
    .await;
}
