//! What origins send and no client may get: stray bodies, and headers for the gateway alone.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn bodies_where_none_may_be_do_not_reach_the_next_client() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let mut cases = Vec::new();
    for (what, head) in [
        ("204", "204 No Content"),
        ("204 with a length", "204 No Content\r\nContent-Length: 4"),
        ("304", "304 Not Modified"),
        ("304 with a length", "304 Not Modified\r\nContent-Length: 4"),
        ("304 with chunks", "304 Not Modified\r\nTransfer-Encoding: chunked"),
        ("204 with chunks", "204 No Content\r\nTransfer-Encoding: chunked"),
    ] {
        let status: u16 = head[..3].parse().unwrap();
        for (body, rest) in [
            ("no body", ""),
            ("a body", "evil"),
            ("another answer", evil),
            ("chunks", "4\r\nevil\r\n0\r\n\r\n"),
        ] {
            let case = whole_answer(
                &format!("{what} and {body}"),
                says(format!("HTTP/1.1 {head}\r\n\r\n{rest}")),
                status,
                "",
            )
            .with(&["!transfer-encoding"]);
            cases.push(if status == 204 {
                case.with(&["!content-length", "!transfer-encoding"])
            } else {
                case
            });
        }
    }
    for (what, head) in [
        ("a length", "Content-Length: 4\r\n"),
        ("chunks", "Transfer-Encoding: chunked\r\n"),
        ("neither length nor chunks", ""),
    ] {
        for (body, rest) in [
            ("no body", ""),
            ("a body", "evil"),
            ("another answer", evil),
            ("chunks", "4\r\nevil\r\n0\r\n\r\n"),
        ] {
            let case = whole_answer(
                &format!("an answer to HEAD with {what} and {body}"),
                says(format!("HTTP/1.1 200 OK\r\n{head}\r\n{rest}")),
                200,
                "",
            )
            .by("HEAD");
            cases.push(case.with(if what == "a length" {
                &["content-length: 4\r\n"]
            } else {
                &["!content-length"]
            }));
        }
    }
    cases.push(
        bad_gateway(
            "an answer to HEAD with two lengths",
            says("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n"),
        )
        .by("HEAD"),
    );
    cases.push(
        bad_gateway(
            "an answer to HEAD with a length that is a word",
            says("HTTP/1.1 200 OK\r\nContent-Length: four\r\n\r\n"),
        )
        .by("HEAD"),
    );
    cases.push(bad_gateway(
        "304 with two lengths",
        says("HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n"),
    ));
    for (what, answer) in [
        (
            "a body that is longer than its length",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokevil".to_owned(),
        ),
        ("another answer", format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{evil}")),
        (
            "chunks and another answer",
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{evil}"),
        ),
        (
            "chunks and CRLF",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\r\n".to_owned(),
        ),
    ] {
        cases.push(whole_answer(what, says(&answer), 200, "ok"));
        cases.push(whole_answer(&format!("{what}, and the end"), closes(&answer), 200, "ok"));
    }
    hold(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_for_the_gateway_alone_do_not_reach_clients() {
    let with = |headers: &str| says(format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 2\r\n\r\nok"));
    let mut cases = Vec::new();
    for name in [
        "Surrogate-Key",
        "xkey",
        "X-Ghost-Route",
        "X-Ghost-Anything",
        "x-cache-host",
        "x-cache-url",
        "Keep-Alive",
        "Proxy-Connection",
        "Upgrade",
        "TE",
    ] {
        cases.push(
            whole_answer(
                &format!("{name} does not reach the client"),
                with(&format!("{name}: Secret\r\n")),
                200,
                "ok",
            )
            .with(&["!secret"]),
        );
        cases.push(
            whole_answer(
                &format!("two of {name} do not reach the client"),
                with(&format!("{name}: Secret\r\n{name}: secret2\r\n")),
                200,
                "ok",
            )
            .with(&["!secret"]),
        );
    }
    cases.push(
        whole_answer(
            "what Connection names does not reach the client",
            with("Connection: x-a, x-b\r\nX-A: secret\r\nX-B: secret\r\nX-C: c\r\n"),
            200,
            "ok",
        )
        .with(&["!secret", "x-c: c\r\n"]),
    );
    cases.push(
        whole_answer(
            "Connection cannot remove Content-Length",
            with("Connection: content-length\r\n"),
            200,
            "ok",
        )
        .with(&["content-length: 2\r\n"]),
    );
    cases.push(
        whole_answer("X-Cache is the gateway's", with("X-Cache: HIT\r\n"), 200, "ok")
            .with(&["!x-cache: hit"]),
    );
    cases.push(
        whole_answer(
            "escaped line breaks stay escaped",
            with("Location: /%0d%0aSet-Cookie:%20a\r\n"),
            200,
            "ok",
        )
        .with(&["location: /%0d%0aset-cookie:%20a\r\n"]),
    );
    cases.push(
        whole_answer("other headers pass", with("Via: 1.1 x\r\nServer: y\r\nAge: 1\r\n"), 200, "ok").with(&[
            "via: 1.1 x\r\n",
            "server: y\r\n",
            "age: 1\r\n",
        ]),
    );
    hold(cases).await;
}
