//! Requests whose content counts: QUERY (RFC 10008), which is safe, and whose answer depends on what it sends.

use crate::Request;

/// Requests with a larger content bypass the cache.
pub const MOST_CONTENT: u64 = 64 << 10;

/// What is in the key of a QUERY beside its content: headers that say what the content means.
pub(super) const ABOUT_CONTENT: [&str; 3] = ["content-type", "content-encoding", "content-language"];

/// The bytes that a QUERY sends, where the cache may look at them: it says once how many these are, there are some, and not too many.
pub fn of_query(request: &impl Request) -> Option<u64> {
    if request.method() != b"QUERY" || request.any_header("transfer-encoding", &mut |_| true) {
        return None;
    }
    let (mut length, mut lines) = (None, 0);
    request.any_header("content-length", &mut |value| {
        lines += 1;
        let digits = value.len() <= 6 && value.iter().all(u8::is_ascii_digit) && !value.is_empty();
        let number = || value.iter().fold(0_u64, |sum, b| sum * 10 + u64::from(b - b'0'));
        length = digits.then(number);
        false
    });
    length.filter(|length| lines == 1 && (1..=MOST_CONTENT).contains(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Query<'a>(&'a str, &'a [(&'a str, &'a str)]);

    impl Request for Query<'_> {
        fn socket(&self) -> &[u8] {
            b"http-80"
        }
        fn server_name(&self) -> Option<&[u8]> {
            None
        }
        fn host(&self) -> &[u8] {
            b"a"
        }
        fn method(&self) -> &[u8] {
            self.0.as_bytes()
        }
        fn url(&self) -> &[u8] {
            b"/"
        }
        fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
            let mut all = self.1.iter().filter(|(this, _)| this.eq_ignore_ascii_case(name));
            all.any(|(_, value)| seen(value.as_bytes()))
        }
    }

    #[test]
    fn a_query_says_once_how_long_its_content_is() {
        let of = |method, headers| of_query(&Query(method, headers));
        assert_eq!(of("QUERY", &[("Content-Length", "5")]), Some(5));
        assert_eq!(of("QUERY", &[("Content-Length", "65536")]), Some(65536));
        for headers in [
            &[][..],
            &[("Content-Length", "0")],
            &[("Content-Length", "65537")],
            &[("Content-Length", "+5")],
            &[("Content-Length", "5, 5")],
            &[("Content-Length", "")],
            &[("Content-Length", "99999999999999999999")],
            &[("Content-Length", "5"), ("Content-Length", "5")],
            &[("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
        ] {
            assert_eq!(of("QUERY", headers), None, "{headers:?}");
        }
        for method in ["POST", "GET", "query"] {
            assert_eq!(of(method, &[("Content-Length", "5")]), None, "{method}");
        }
    }
}
