//! Chunks: their sizes, extensions, ends, and trailers.

use crate::corpus::{Case, breaks, forwards, hold};

fn post(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

fn arrives(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}")
}

/// The origin gets `hello`.
fn is_hello(name: &str, body: &str) -> Case {
    forwards(name, post(body), &[&arrives("5\r\nhello\r\n0\r\n\r\n")])
}

#[tokio::test(flavor = "multi_thread")]
async fn chunk_sizes_are_hexadecimal_digits() {
    let ten = "a\r\n0123456789\r\n0\r\n\r\n";
    let ten_seen = arrives("A\r\n0123456789\r\n0\r\n\r\n");
    let mut cases = vec![
        is_hello("a chunk", "5\r\nhello\r\n0\r\n\r\n"),
        is_hello("leading zeros of a size are removed", "0005\r\nhello\r\n0\r\n\r\n"),
        is_hello(
            "many leading zeros of a size are removed",
            &format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(100)),
        ),
        is_hello("a last chunk of many zeros", "5\r\nhello\r\n00000000\r\n\r\n"),
        forwards("a size in small letters", post(ten), &[&ten_seen]),
        forwards("a size in capitals", post(&ten.replace('a', "A")), &[&ten_seen]),
        is_hello("a space after a size is removed", "5 \r\nhello\r\n0\r\n\r\n"),
        is_hello("spaces and tabs after a size are removed", "5 \t \r\nhello\r\n0 \r\n\r\n"),
        is_hello("an extension is removed", "5;a=b\r\nhello\r\n0\r\n\r\n"),
        is_hello("an extension without a value is removed", "5;a\r\nhello\r\n0;b\r\n\r\n"),
        is_hello("an extension with a quoted value is removed", "5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n"),
        is_hello("an empty extension is removed", "5;\r\nhello\r\n0;\r\n\r\n"),
        is_hello("many extensions are removed", &format!("5{}\r\nhello\r\n0\r\n\r\n", ";a=b".repeat(1000))),
        is_hello("a space before an extension is removed", "5 ;a=b\r\nhello\r\n0\r\n\r\n"),
        breaks(
            "extensions without an end are refused",
            post(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(100_000))),
            400,
        ),
        breaks(
            "extensions of many chunks are refused",
            post(&format!("{}0\r\n\r\n", format!("1;{}\r\nx\r\n", "a".repeat(1000)).repeat(100))),
            400,
        ),
    ];
    for (what, body) in [
        ("without digits", "\r\nhello\r\n0\r\n\r\n"),
        ("that is negative", "-5\r\nhello\r\n0\r\n\r\n"),
        ("with a plus sign", "+5\r\nhello\r\n0\r\n\r\n"),
        ("with a prefix", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("with a prefix in capitals", "0X5\r\nhello\r\n0\r\n\r\n"),
        ("with a letter beyond F", "g\r\nhello\r\n0\r\n\r\n"),
        ("with a letter after it", "5h\r\nhello\r\n0\r\n\r\n"),
        ("with a space before it", " 5\r\nhello\r\n0\r\n\r\n"),
        ("with a tab before it", "\t5\r\nhello\r\n0\r\n\r\n"),
        ("with a space inside", "0 5\r\nhello\r\n0\r\n\r\n"),
        ("in quotes", "\"5\"\r\nhello\r\n0\r\n\r\n"),
        ("with a fraction", "5.0\r\nhello\r\n0\r\n\r\n"),
        ("with a comma", "5,5\r\nhello\r\n0\r\n\r\n"),
        ("with an underscore", "0_5\r\nhello\r\n0\r\n\r\n"),
        ("of 65 bits", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("of 128 bits", "ffffffffffffffffffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("of 64 bits that is larger than what comes", "ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("that is larger than what comes", "ffff\r\nhello\r\n0\r\n\r\n"),
        ("with NUL", "5\0\r\nhello\r\n0\r\n\r\n"),
        ("with a vertical tab", "5\u{b}\r\nhello\r\n0\r\n\r\n"),
        ("in full-width digits", "５\r\nhello\r\n0\r\n\r\n"),
        ("with LF alone", "5\nhello\r\n0\r\n\r\n"),
        ("with CR alone", "5\rhello\r\n0\r\n\r\n"),
        ("with two CR", "5\r\r\nhello\r\n0\r\n\r\n"),
        ("and an extension with LF alone", "5;a\nhello\r\n0\r\n\r\n"),
        ("and an extension with CR inside", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("and a quoted extension over two lines", "5;a=\"\r\nhello\r\n0\r\n\r\n\"\r\n"),
        ("that comes after LF", "\n5\r\nhello\r\n0\r\n\r\n"),
        ("that is smaller than its chunk", "4\r\nhello\r\n0\r\n\r\n"),
        ("that is larger than its chunk by one", "6\r\nhello\r\n0\r\n\r\n"),
        ("that is larger than its chunk by two", "7\r\nhello\r\n0\r\n\r\n"),
        ("without CRLF after its chunk", "5\r\nhello0\r\n\r\n"),
        ("with LF alone after its chunk", "5\r\nhello\n0\r\n\r\n"),
        ("with CR alone after its chunk", "5\r\nhello\r0\r\n\r\n"),
        ("with a space after its chunk", "5\r\nhello \r\n0\r\n\r\n"),
        ("with two CRLF after its chunk", "5\r\nhello\r\n\r\n0\r\n\r\n"),
        ("in a body that is a plain text", "hello world\r\n"),
        ("in a body that is JSON", "{\"a\": 1}"),
        ("of nothing: the body does not come", ""),
    ] {
        // A quoted line break makes a body that is whole, followed by what is no request.
        if what.starts_with("and a quoted") {
            cases.push(crate::corpus::forwards_then_refuses(
                &format!("a size {what} ends with its line"),
                post(body),
                &[&arrives("5\r\nhello\r\n0\r\n\r\n")],
                400,
            ));
            continue;
        }
        cases.push(breaks(&format!("a size {what} is refused"), post(body), 400));
    }
    for (what, body) in [
        ("LF alone after the last size", "5\r\nhello\r\n0\n\r\n"),
        ("LF alone at the end", "5\r\nhello\r\n0\r\n\n"),
        ("LF twice at the end", "5\r\nhello\r\n0\n\n"),
        ("CR alone at the end", "5\r\nhello\r\n0\r\n\rx"),
        ("no CRLF after the last chunk", "5\r\nhello\r\n0\r\n"),
        ("no last chunk", "5\r\nhello\r\n"),
        ("half a last chunk", "5\r\nhello\r\n0"),
        ("half a CRLF", "5\r\nhello\r\n0\r"),
    ] {
        cases.push(breaks(&format!("a body with {what} is not complete"), post(body), 400));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_never_become_headers() {
    let with = |announced: &str, trailers: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{announced}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n"
        )
    };
    let seen = |announced: &str, trailers: &str| {
        format!(
            "POST / HTTP/1.1\r\nhost: a\r\n{announced}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n"
        )
    };
    let mut cases = vec![
        forwards("a trailer that is not announced is removed", with("", "X: y\r\n"), &[&seen("", "")]),
        forwards(
            "a trailer that is announced passes as a trailer",
            with("Trailer: X\r\n", "X: y\r\n"),
            &[&seen("trailer: X\r\n", "x: y\r\n")],
        ),
        forwards(
            "an announced trailer that does not come",
            with("Trailer: X\r\n", ""),
            &[&seen("trailer: X\r\n", "")],
        ),
        forwards(
            "only announced trailers pass",
            with("Trailer: X\r\n", "Y: 1\r\nX: y\r\nHost: b\r\n"),
            &[&seen("trailer: X\r\n", "x: y\r\n")],
        ),
    ];
    for name in [
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "Authorization",
        "Content-Type",
        "Content-Encoding",
        "Content-Range",
        "Cache-Control",
        "Set-Cookie",
        "Expect",
        "Range",
        "TE",
        "Trailer",
        "Max-Forwards",
    ] {
        cases.push(forwards(
            &format!("the trailer {name} is removed"),
            with("", &format!("{name}: 1\r\n")),
            &[&seen("", "")],
        ));
        cases.push(forwards(
            &format!("the trailer {name} is removed, also if it is announced"),
            with(&format!("Trailer: {name}\r\n"), &format!("{name}: 1\r\n")),
            &[&seen(&format!("trailer: {name}\r\n"), "")],
        ));
    }
    for name in [
        "X-Forwarded-For",
        "X-Gateway-Route",
        "X-Ghost-Route",
        "X-Forwarded-Host",
        "Forwarded",
        "Connection",
        "Cookie",
    ] {
        cases.push(forwards(
            &format!("the trailer {name} is removed, also if it is announced"),
            with(&format!("Trailer: {name}\r\n"), &format!("{name}: 1\r\n")),
            &[&seen(&format!("trailer: {name}\r\n"), "")],
        ));
    }
    for (what, trailers) in [
        ("a space before the colon", "X : y\r\n"),
        ("a folded line", "X: y\r\n z\r\n"),
        ("no name", ": y\r\n"),
        ("no colon", "X\r\n"),
        ("NUL in a value", "X: \0\r\n"),
        ("a bare CR", "X: y\rz\r\n"),
        ("a request line", "GET /x HTTP/1.1\r\n"),
        ("a name that is no token", "X Y: z\r\n"),
    ] {
        cases.push(breaks(&format!("a trailer with {what} is refused"), with("", trailers), 400));
    }
    // hyper reads trailers up to CRLF CRLF: the probe is swallowed, and reaches no origin.
    cases.push(crate::corpus::forwards_and_closes(
        "what follows LF LF in trailers reaches no origin",
        format!("{}X: y\n\n", post("5\r\nhello\r\n0\r\n")),
        &[&arrives("5\r\nhello\r\n0\r\n\r\n")],
    ));
    let many: String = (0..1000).map(|number| format!("X-{number}: y\r\n")).collect();
    cases.push(breaks("1,000 trailers are refused", with("", &many), 400));
    cases.push(breaks(
        "a trailer of 1 MiB is refused",
        with("", &format!("X: {}\r\n", "y".repeat(1 << 20))),
        400,
    ));
    cases.push(breaks("a trailer that breaks off is not complete", with("", "X: y"), 400));
    hold(cases).await;
}
