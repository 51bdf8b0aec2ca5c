//! Several ranges of one request.

use super::HOST;
use crate::support::{
    Ask, Origin, Response, Scene, cache_policy, class, free_port, front_carries_http, gateway, route_to,
    service,
};

/// Name and value of the headers of a part, and its content.
fn parts_of(response: &Response) -> Vec<(String, String)> {
    let kind = response.header("Content-Type").unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let text = response.text();
    assert_eq!(response.header("Content-Length"), Some(text.len().to_string().as_str()));
    let end = format!("\r\n--{boundary}--\r\n");
    let body = text.strip_suffix(&end).unwrap();
    let delimiter = format!("--{boundary}\r\n");
    let between = format!("\r\n{delimiter}");
    let parts = body.strip_prefix(&delimiter).unwrap().split(&between).map(|part| {
        let (head, content) = part.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), content.to_owned())
    });
    parts.collect()
}

#[test]
fn several_ranges_are_parts_of_what_is_stored() {
    // varnishd alone gives one range.
    if !front_carries_http() {
        return;
    }
    let whole: String = (0..3000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let origin = Origin::new(&whole);
    origin.answer_with(200, &["Content-Type: text/x-letters", "ETag: \"1\"", "Cache-Control: max-age=60"]);
    let port = free_port();
    let policy = cache_policy("shop", "shop", "  defaultTTL: 1h");
    let objects = [class(), gateway("web", &[port]), service("shop", &[origin.address()]), policy];
    let scene = Scene::new(&[objects.concat(), route_to("shop", "/", "shop")].concat());
    let _program = scene.serve();
    let ask = |url: &str, headers: &[(&str, &str)]| {
        headers.iter().fold(Ask::get(HOST, url), |ask, (name, value)| ask.header(name, value)).send(port)
    };
    let expected = |list: &[(usize, usize)]| -> Vec<(String, String)> {
        let part = |(first, last): &(usize, usize)| {
            let head = format!("Content-Type: text/x-letters\r\nContent-Range: bytes {first}-{last}/3000");
            (head, whole[*first..=*last].to_owned())
        };
        list.iter().map(part).collect()
    };
    // A miss, hits, to the end, by the end, beyond the end.
    for (range, list) in [
        ("bytes=0-9,1000-1009", &[(0, 9), (1000, 1009)][..]),
        ("bytes=5-9,1000-1009,2000-2001", &[(5, 9), (1000, 1009), (2000, 2001)]),
        ("bytes=5-9,2900-", &[(5, 9), (2900, 2999)]),
        ("bytes=5-9,-3", &[(5, 9), (2997, 2999)]),
        ("bytes=5-9,2990-4000,5000-6000", &[(5, 9), (2990, 2999)]),
    ] {
        let response = ask("/a", &[("Range", range)]);
        assert_eq!((response.status, response.header("ETag")), (206, Some("\"1\"")), "{range}");
        assert_eq!(response.header("Content-Range"), None);
        assert_eq!(parts_of(&response), expected(list), "{range}");
    }
    // One is left of them.
    let one = ask("/a", &[("Range", "bytes=5-9,5000-6000")]);
    assert_eq!((one.status, one.header("Content-Range")), (206, Some("bytes 5-9/3000")));
    assert_eq!(one.text(), &whole[5..10]);
    // The whole where the order is another one, ranges overlap, or the response is another one.
    for headers in [
        &[("Range", "bytes=1000-1009,0-9")][..],
        &[("Range", "bytes=0-1500,1000-2500")],
        &[("Range", "bytes=0-9,1000-1009"), ("If-Range", "\"2\"")],
        &[("Range", "bytes=0-9,-3"), ("If-Range", "\"1\"")],
    ] {
        let response = ask("/a", headers);
        let is_one = response.status == 206 && response.header("Content-Range") == Some("bytes 0-2500/3000");
        assert!(response.status == 200 && response.text() == whole || is_one, "{headers:?}");
    }
    assert_eq!(parts_of(&ask("/a", &[("Range", "bytes=0-9,1000-1009"), ("If-Range", "\"1\"")])).len(), 2);
    assert_eq!(ask("/a", &[("Range", "bytes=0-9,1000-1009"), ("If-None-Match", "\"1\"")]).status, 304);
    assert_eq!(ask("/a", &[("Range", "bytes=4000-4001,5000-6000")]).status, 416);
    assert_eq!(origin.seen().len(), 1);
    // What asks for many small parts gets the whole.
    let many: Vec<String> = (0..17).map(|n| format!("{}-{}", n * 150, n * 150)).collect();
    assert_eq!(ask("/a", &[("Range", &format!("bytes={}", many.join(",")))]).status, 200);
}
