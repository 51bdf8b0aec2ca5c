//! Responses to unsafe methods: what they invalidate (RFC 9111, 4.4).

/// Whether a response to this method says that something may have changed. Methods that are not known are unsafe; so is none of RFC 9110
/// and RFC 10008 that is safe.
pub fn invalidates(method: &[u8], status: u16) -> bool {
    !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"QUERY") && (200..400).contains(&status)
}

/// Path and query of what Location or Content-Location names, where it is of the request's own origin; `None` for other origins, and
/// for what cannot be read. `scheme` and `host` (with its port) and `url` are the request's.
pub fn same_origin_url(value: &[u8], scheme: &[u8], host: &[u8], url: &[u8]) -> Option<Vec<u8>> {
    let value = value.trim_ascii();
    let value = &value[..value.iter().position(|b| *b == b'#').unwrap_or(value.len())];
    if value.iter().any(|b| *b <= b' ' || *b == 0x7f) {
        return None;
    }
    let path_end = |text: &[u8]| text.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(text.len());
    let colon = value[..path_end(value)].iter().position(|b| *b == b':');
    let rest = match colon {
        Some(at) if value[..at].eq_ignore_ascii_case(scheme) => &value[at + 1..],
        Some(_) => return None,
        None => value,
    };
    if let Some(rest) = rest.strip_prefix(b"//") {
        let (authority, url) = rest.split_at(path_end(rest));
        let is_same =
            without_default_port(authority, scheme).eq_ignore_ascii_case(without_default_port(host, scheme));
        return is_same.then(|| if url.starts_with(b"/") { url.to_vec() } else { [b"/", url].concat() });
    }
    if colon.is_some() {
        return None;
    }
    let path = url.split(|b| *b == b'?').next().unwrap_or_default();
    Some(match rest.first() {
        None => url.to_vec(),
        Some(b'/') => rest.to_vec(),
        Some(b'?') => [path, rest].concat(),
        // Relative to the directory of the request. Dot segments go when the path is normalised.
        Some(_) => {
            let directory = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
            [&path[..directory], rest].concat()
        }
    })
}

fn without_default_port<'a>(host: &'a [u8], scheme: &[u8]) -> &'a [u8] {
    let port: &[u8] = if scheme.eq_ignore_ascii_case(b"https") { b":443" } else { b":80" };
    host.strip_suffix(port).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_without_error_to_methods_that_are_not_safe_invalidate() {
        for method in ["POST", "PUT", "PATCH", "DELETE", "M-SEARCH", "post"] {
            assert!(invalidates(method.as_bytes(), 200) && invalidates(method.as_bytes(), 303), "{method}");
            assert!(!invalidates(method.as_bytes(), 404) && !invalidates(method.as_bytes(), 500), "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"] {
            assert!(!invalidates(method.as_bytes(), 200), "{method}");
        }
    }

    #[test]
    fn locations_of_the_same_origin_have_a_url() {
        let of = |value: &str| {
            same_origin_url(value.as_bytes(), b"http", b"shop.example.com", b"/a/b?q=1")
                .map(|url| String::from_utf8(url).unwrap())
        };
        for (value, url) in [
            ("/x?y=1#part", "/x?y=1"),
            ("x", "/a/x"),
            ("../x", "/a/../x"),
            ("?z", "/a/b?z"),
            ("", "/a/b?q=1"),
            ("http://shop.example.com/x", "/x"),
            ("HTTP://Shop.example.com:80?x", "/?x"),
            ("http://shop.example.com", "/"),
            ("//shop.example.com/x:y", "/x:y"),
            ("/x:y", "/x:y"),
        ] {
            assert_eq!(of(value).as_deref(), Some(url), "{value}");
        }
        for other in [
            "https://shop.example.com/x",
            "http://other.example.com/x",
            "http://shop.example.com:8080/x",
            "//other.example.com/x",
            "http://user@shop.example.com/x",
            "mailto:x",
            "http:x",
            "/a b",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_reading(value in proptest::collection::vec(any::<u8>(), 0..60), url in proptest::collection::vec(any::<u8>(), 0..30)) {
            if let Some(found) = same_origin_url(&value, b"http", b"a", &url) {
                prop_assert!(found.len() <= value.len() + url.len() + 1);
            }
        }
    }
}
