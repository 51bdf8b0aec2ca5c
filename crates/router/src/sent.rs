//! Request headers that say what only the gateway or a proxy in front of it can know: by name, and in any spelling.
//!
//! CGI and its heirs (WSGI, Rack, PHP) do not tell `X_Forwarded_Host` from `X-Forwarded-Host`, so neither do we.

use smallvec::SmallVec;

/// What a header is to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `X-Gateway-*` and `X-Ghost-*`: only the gateway may set them. Also `Content_Length` and the like: CGI reads them as the
    /// headers that say where the body ends, or which gateways the request has passed.
    Own,
    /// `Forwarded` and `X-Forwarded-*`: the gateway's own word, or a trusted proxy's.
    Forwarded,
    /// Some frameworks take URL, host, scheme or method from these instead of from the request.
    Override,
    /// The client's address, as proxies and CDNs tell it.
    Address,
}

/// Whole names, in lower case, with `-`.
const OVERRIDES: [&str; 25] = [
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-scheme",
    "x-url-scheme",
    "x-proto",
    "x-protocol",
    "x-port",
    "x-url",
    "x-uri",
    "x-path",
    "x-proxy-host",
    "x-proxy-url",
    "x-backend-host",
    "x-envoy-original-path",
    "x-envoy-original-host",
    "x-now-route-matches",
    "x-amz-website-redirect-location",
    "front-end-https",
    "base-url",
    "proxy-host",
    "proxy-url",
    "request-uri",
];
/// Names that begin so.
const OVERRIDE_PREFIXES: [&str; 5] =
    ["x-original-", "x-rewrite-", "x-override-", "x-middleware-", "x-invoke-"];

const ADDRESSES: [&str; 14] = [
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-remote-ip",
    "x-remote-addr",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-azure-clientip",
    "x-appengine-user-ip",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "fastly-client-ip",
];

/// Headers whose spelling with `-` is read and checked elsewhere. The spelling with `_` must not reach an origin beside it.
const CHECKED: [&str; 3] = ["content-length", "transfer-encoding", "cdn-loop"];

/// `None` for most headers.
pub fn kind(name: &[u8]) -> Option<Kind> {
    // Most headers end here.
    if !matches!(name.first()? | 0x20, b'x' | b'f' | b'c' | b't' | b'b' | b'p' | b'r') {
        return None;
    }
    if is(name, "forwarded") || begins(name, "x-forward") {
        Some(Kind::Forwarded)
    } else if begins(name, "x-gateway-")
        || begins(name, "x-ghost-")
        || (name.contains(&b'_') && CHECKED.iter().any(|known| is(name, known)))
    {
        Some(Kind::Own)
    } else if OVERRIDES.iter().any(|known| is(name, known))
        || OVERRIDE_PREFIXES.iter().any(|prefix| begins(name, prefix))
    {
        Some(Kind::Override)
    } else {
        ADDRESSES.iter().any(|known| is(name, known)).then_some(Kind::Address)
    }
}

fn folded(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }
}

fn is(name: &[u8], known: &str) -> bool {
    name.len() == known.len() && begins(name, known)
}

fn begins(name: &[u8], prefix: &str) -> bool {
    name.len() >= prefix.len() && name.iter().zip(prefix.bytes()).all(|(byte, known)| folded(*byte) == known)
}

/// What the gateway itself says of a request.
#[derive(Debug, Clone, Copy)]
pub struct OwnWord<'a> {
    pub host: &'a [u8],
    pub scheme: &'a [u8],
    pub port: Option<u16>,
}

/// What a header of [`Kind::Forwarded`] from a trusted proxy adds to the cache key: origins may build links of it. Nothing where
/// it says what the gateway would have said, or only who the client is.
pub fn keyed(name: &[u8], value: &[u8], own: &OwnWord<'_>) -> Option<SmallVec<[u8; 128]>> {
    let port = || std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let adds = if is(name, "x-forwarded-for") {
        false
    } else if is(name, "x-forwarded-host") {
        value != own.host
    } else if is(name, "x-forwarded-proto") {
        value != own.scheme
    } else if is(name, "x-forwarded-port") {
        own.port.is_none() || port() != own.port
    } else if is(name, "forwarded") {
        return Some(without_addresses(value)).filter(|rest| !rest.is_empty());
    } else {
        true
    };
    adds.then(|| SmallVec::from_slice(value))
}

/// `Forwarded` without `for` and `by`, which differ from client to client. What is not plainly one of these stays.
fn without_addresses(value: &[u8]) -> SmallVec<[u8; 128]> {
    let mut kept: SmallVec<[u8; 128]> = SmallVec::new();
    let mut quoted = false;
    let ends = |byte: &u8| {
        quoted ^= *byte == b'"';
        !quoted && matches!(byte, b';' | b',')
    };
    for part in value.split(ends) {
        let part = part.trim_ascii();
        if !part.is_empty() && !is_address(part) {
            kept.extend_from_slice(part);
            kept.push(b';');
        }
    }
    kept
}

fn is_address(pair: &[u8]) -> bool {
    let Some((name, value)) = pair.iter().position(|b| *b == b'=').map(|at| pair.split_at(at)) else {
        return false;
    };
    let value = &value[1..];
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b':' | b'[' | b']' | b'_' | b'-');
    (is(name, "for") || is(name, "by")) && value.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_every_spelling() {
        for (name, expected) in [
            ("Forwarded", Some(Kind::Forwarded)),
            ("FORWARDED", Some(Kind::Forwarded)),
            ("X-Forwarded-Host", Some(Kind::Forwarded)),
            ("X_Forwarded_Host", Some(Kind::Forwarded)),
            ("x-forwarded_scheme", Some(Kind::Forwarded)),
            ("X-Forwarded", Some(Kind::Forwarded)),
            ("X-Forwarder-For", Some(Kind::Forwarded)),
            ("X_Gateway_Route", Some(Kind::Own)),
            ("x-gateway_listener", Some(Kind::Own)),
            ("X_GHOST-Pass", Some(Kind::Own)),
            ("Content_Length", Some(Kind::Own)),
            ("transfer_encoding", Some(Kind::Own)),
            ("CDN_Loop", Some(Kind::Own)),
            ("Content-Length", None),
            ("Transfer-Encoding", None),
            ("CDN-Loop", None),
            ("Content_Lengths", None),
            ("X-Original-URL", Some(Kind::Override)),
            ("x_rewrite_url", Some(Kind::Override)),
            ("X-HTTP-Method-Override", Some(Kind::Override)),
            ("X-HTTP-Method", Some(Kind::Override)),
            ("Front-End-Https", Some(Kind::Override)),
            ("True-Client-IP", Some(Kind::Address)),
            ("x_real_ip", Some(Kind::Address)),
            ("", None),
            ("X-Gateways", None),
            ("X-Ghostly", None),
            ("X-Requested-With", None),
            ("X-Hosts", None),
            ("Cookie", None),
            ("Referer", None),
            ("traceparent", None),
        ] {
            assert_eq!(kind(name.as_bytes()), expected, "{name}");
        }
        for known in OVERRIDES.iter().chain(&ADDRESSES).chain(&OVERRIDE_PREFIXES) {
            assert!(kind(known.as_bytes()).is_some(), "{known}: its first letter must be let through");
        }
    }

    #[test]
    fn what_a_proxy_says_counts_where_it_differs() {
        let own = OwnWord { host: b"a.com", scheme: b"http", port: Some(80) };
        let keyed = |name: &str, value: &str| {
            keyed(name.as_bytes(), value.as_bytes(), &own)
                .map(|kept| String::from_utf8(kept.to_vec()).unwrap())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(keyed("X-Forwarded-Host", "a.com"), None);
        assert_eq!(keyed("X-Forwarded-Host", "evil.com"), some("evil.com"));
        assert_eq!(keyed("X-Forwarded-Port", "80"), None);
        assert_eq!(keyed("X-Forwarded-Port", "443"), some("443"));
        assert_eq!(keyed("X-Forwarded-Proto", "http"), None);
        assert_eq!(keyed("X-Forwarded-Proto", "https"), some("https"));
        assert_eq!(keyed("X-Forwarded-For", "192.0.2.1"), None);
        assert_eq!(keyed("X-Forwarded-Prefix", "/shop"), some("/shop"));
        assert_eq!(keyed("Forwarded", "for=192.0.2.1, for=\"[2001:db8::1]:80\";by=_x"), None);
        assert_eq!(
            keyed("Forwarded", "for=192.0.2.1;host=b.com; proto=https"),
            some("host=b.com;proto=https;")
        );
        assert_eq!(keyed("Forwarded", "For=\"x;host=evil\""), some("For=\"x;host=evil\";"));
        assert_eq!(keyed("Forwarded", "host=\"a;for=evil;b\""), some("host=\"a;for=evil;b\";"));
        assert_eq!(keyed("Forwarded", "for=\"a, host=evil"), some("for=\"a, host=evil;"));
        assert_eq!(keyed("Forwarded", "for=<script>"), some("for=<script>;"));
    }
}
