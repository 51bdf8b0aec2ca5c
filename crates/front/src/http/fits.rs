//! What varnishd can take of a request. The front's own limits may be larger, and must not depend on the route.

use http::HeaderMap;
use http::request::Parts;

/// Bytes of a head, bytes of a header and number of headers that varnishd surely takes, with what is added on the way: its own
/// limits are 32 KiB (`http_req_size`), 8 KiB (`http_req_hdr_len`) and 128 (`http_max_hdr`).
const HEAD_BYTES: usize = 24 << 10;
const HEADER_BYTES: usize = 8000;
const MOST_HEADERS: usize = 100;
/// The same for a response. ghost adds more to it.
const MOST_OF_RESPONSE: usize = 90;

/// Would varnishd take the request? It answers others with 400.
pub(crate) fn fits_varnishd(parts: &Parts) -> bool {
    let url = parts.uri.path_and_query().map_or(0, |url| url.as_str().len());
    url <= HEADER_BYTES && fit(&parts.headers, MOST_HEADERS, url)
}

/// Would varnishd take a response with these headers?
pub(crate) fn fits_response(headers: &HeaderMap) -> bool {
    fit(headers, MOST_OF_RESPONSE, 0)
}

/// `first`: the bytes of the first line.
fn fit(headers: &HeaderMap, most: usize, first: usize) -> bool {
    let mut all = first;
    headers.len() <= most
        && headers.iter().all(|(name, value)| {
            let bytes = name.as_str().len() + value.len() + 4;
            all += bytes;
            bytes <= HEADER_BYTES
        })
        && all <= HEAD_BYTES
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Request};

    use super::*;

    fn fits(url: usize, headers: &[usize]) -> bool {
        let mut request = Request::get(format!("/{}", "u".repeat(url)));
        for (n, bytes) in headers.iter().enumerate() {
            let name = HeaderName::from_bytes(format!("x-{n}").as_bytes()).unwrap();
            request = request.header(name, "v".repeat(*bytes));
        }
        fits_varnishd(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn heads_that_varnishd_would_refuse_do_not_fit() {
        assert!(fits(1, &[]));
        assert!(fits(7000, &[7000, 7000]));
        assert!(!fits(7000, &[7000, 7000, 7000]));
        assert!(!fits(8001, &[]));
        assert!(!fits(1, &[8001]));
        assert!(fits(1, &[1; 100]));
        assert!(!fits(1, &[1; 101]));
    }
}
