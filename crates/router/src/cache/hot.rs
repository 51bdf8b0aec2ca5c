//! What may be answered without asking varnishd: which rules, and what of a request tells one stored response from another. The key is ghost's
//! own ([`super::Key`]); what ghost or varnishd would change before it is compared makes a request one for varnishd.

use super::{Cache, may_be_normalized};
use crate::sent::kind;

impl Cache {
    /// Whether the key of this policy follows from what the client sent alone. No-Vary-Search is learned by ghost, and headers that the
    /// gateway or varnishd write are not the client's.
    pub fn may_be_hot(&self) -> bool {
        self.is_plain
    }

    pub(super) fn has_plain_key(obeys_search: bool, key_headers: &[Box<str>]) -> bool {
        !obeys_search && key_headers.iter().all(|name| may_vary_by(name.as_bytes()))
    }
}

/// Whether a header reaches varnishd's comparison as the client sent it, or as the policy normalizes it: so it may be named by Vary. Accept-Encoding may
/// not; varnishd leaves it out of Vary, and what counts of it is [`accepts_gzip`].
pub fn may_vary_by(name: &[u8]) -> bool {
    const WRITTEN: [&[u8]; 3] = [b"cdn-loop", b"traceparent", b"tracestate"];
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    kind(name).is_none()
        && !WRITTEN.iter().any(|known| is(known))
        && (may_be_normalized(name) || is(b"origin") || is(b"cookie"))
}

/// Whether varnishd takes a client for one that accepts gzip, by the one line of its Accept-Encoding. `None` where that is not plain to see: varnishd
/// is asked then.
pub fn accepts_gzip(line: &[u8]) -> Option<bool> {
    let mut accepts = false;
    for item in line.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
        if item.eq_ignore_ascii_case(b"gzip") {
            accepts = true;
        } else if item.len() >= 4 && item.windows(4).any(|part| part.eq_ignore_ascii_case(b"gzip")) {
            // `gzip;q=0`, `x-gzip`
            return None;
        }
    }
    Some(accepts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_where_it_stands_by_itself() {
        for (line, accepts) in [
            ("gzip", Some(true)),
            ("gzip, deflate, br", Some(true)),
            ("br;q=1.0, GZIP , *;q=0.1", Some(true)),
            ("", Some(false)),
            ("br, identity", Some(false)),
            ("gzip;q=0", None),
            ("gzip;q=1.0", None),
            ("x-gzip", None),
            ("gzip, gzip;q=0", None),
            ("zip", Some(false)),
        ] {
            assert_eq!(accepts_gzip(line.as_bytes()), accepts, "{line}");
        }
    }

    #[test]
    fn headers_that_others_write_tell_no_variants() {
        for name in ["accept-language", "Cookie", "Origin", "X-Device", "User-Agent"] {
            assert!(may_vary_by(name.as_bytes()), "{name}");
        }
        for name in [
            "Accept-Encoding",
            "Authorization",
            "X-Forwarded-Proto",
            "x-real-ip",
            "X-Original-URL",
            "Via",
            "Host",
            "traceparent",
            "X-Gateway-Route",
            "Range",
            "If-None-Match",
            "Cache-Control",
        ] {
            assert!(!may_vary_by(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn policies_are_plain_unless_ghost_or_varnishd_write_a_part_of_the_key() {
        let policy = |headers: &[&str], no_vary_search| {
            let headers = headers.iter().map(|name| (*name).to_owned()).collect();
            let cache_key = Some(model::CacheKey { headers, ..Default::default() });
            let from = model::CachePolicy { cache_key, no_vary_search, ..Default::default() };
            Cache::compile(&from).unwrap().may_be_hot()
        };
        assert!(policy(&[], false) && policy(&["X-A", "accept-language"], false));
        assert!(!policy(&[], true) && !policy(&["Accept-Encoding"], false));
        assert!(!policy(&["X-A", "X-Forwarded-For"], false));
    }
}
