//! What names and other strings in the API may look like. Each check answers with what the string must be.

use std::net::{IpAddr, Ipv4Addr};

type Checked = Result<(), &'static str>;

const LABEL: &str = "must be a name of at most 63 lower-case letters, digits and `-`, with a letter or digit at both \
                     ends";
const SUBDOMAIN: &str = "must be a name of at most 253 lower-case letters, digits, `-` and `.`, each part with a letter \
                         or digit at both ends";
const HOSTNAME: &str = "must be a DNS name in lower case such as `shop.example.com` or `*.example.com`, without scheme, \
                        port or path";

const PRECISE: &str = "must be a DNS name in lower case such as `shop.example.com`, without wildcard, scheme, port or \
                       path";

fn check(fits: bool, what: &'static str) -> Checked {
    if fits { Ok(()) } else { Err(what) }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Between a letter or digit at both ends, `inner` bytes too.
fn is_framed(text: &str, end: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => end(first) && end(last) && bytes.iter().all(|&b| end(b) || inner(b)),
        _ => false,
    }
}

fn is_label(text: &str) -> bool {
    is_framed(text, is_lower, |b| b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// A name that DNS can hold. The pattern of the API's CRDs has no bound for a label; DNS has one, of 63 bytes.
pub fn is_dns_name(text: &str) -> bool {
    is_subdomain(text) && text.split('.').all(|label| label.len() <= 63)
}

/// DNS-1123 label: namespaces, Services.
pub(crate) fn label(text: &str) -> Checked {
    check(text.len() <= 63 && is_label(text), LABEL)
}

/// DNS-1123 subdomain: most names, listeners, rules.
pub(crate) fn subdomain(text: &str) -> Checked {
    check(is_subdomain(text), SUBDOMAIN)
}

/// The name of an object that is referred to: its own kind decides its form.
pub(crate) fn object_name(text: &str) -> Checked {
    check((1..=253).contains(&text.len()), "must be the name of an object, of at most 253 characters")
}

/// An API group; empty is the core group.
pub(crate) fn group(text: &str) -> Checked {
    let what = "must be an API group such as `gateway.networking.k8s.io`, or empty for the core group";
    check(text.is_empty() || is_subdomain(text), what)
}

pub(crate) fn kind(text: &str) -> Checked {
    let letters = text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && is_framed(text, |b| b.is_ascii_alphanumeric(), |b| b == b'-');
    check(letters, "must be a kind such as `Service`")
}

/// A host, or a wildcard for all hosts below one.
pub(crate) fn hostname(text: &str) -> Checked {
    let host = text.strip_prefix("*.").unwrap_or(text);
    no_address(host)?;
    check(text.len() <= 253 && is_dns_name(host), HOSTNAME)
}

/// What the CRDs' own pattern admits. For hosts that a refused object is to hold back: rather too many than too few.
pub(crate) fn may_be_hostname(text: &str) -> bool {
    let host = text.strip_prefix("*.").unwrap_or(text);
    text.len() <= 253 && is_subdomain(host) && host.parse::<Ipv4Addr>().is_err()
}

pub(crate) fn precise_hostname(text: &str) -> Checked {
    no_address(text)?;
    check(is_dns_name(text), PRECISE)
}

/// The API's pattern lets them through; its text forbids them.
fn no_address(text: &str) -> Checked {
    check(text.parse::<Ipv4Addr>().is_err(), "must be a DNS name, not an IP address")
}

pub(crate) fn header_name(text: &str) -> Checked {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    check(
        (1..=256).contains(&text.len()) && text.bytes().all(token),
        "must be a header name of at most 256 letters, digits and !#$%&'*+-.^_`|~",
    )
}

/// What may follow a header's colon. The API's own pattern is looser; a line break would forge a header.
pub(crate) fn header_value(text: &str) -> Checked {
    check(!text.contains(['\r', '\n', '\0']), "must not contain line breaks or NUL")
}

/// `gateway.networking.k8s.io` calls it GEP-2257.
pub(crate) fn duration(text: &str) -> Checked {
    check(
        millis(text).is_some(),
        "must be a duration such as `3s500ms` or `1m` (units h, m, s, ms; up to four numbers of up to five digits)",
    )
}

/// A GEP-2257 duration: up to four numbers of up to five digits, each with its unit.
pub fn millis(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0;
    for _ in 0..4 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = if digits <= 5 { rest[..digits].parse().ok()? } else { return None };
        rest = &rest[digits..];
        let unit = ["ms", "h", "m", "s"].into_iter().find(|&unit| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        total += number
            * match unit {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1_000,
                _ => 1,
            };
        if rest.is_empty() {
            return Some(total);
        }
    }
    None
}

/// `example.com/controller`.
pub(crate) fn controller_name(text: &str) -> Checked {
    let path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    let fits = text.split_once('/').is_some_and(|(domain, rest)| {
        is_subdomain(domain) && !rest.is_empty() && rest.bytes().all(path) && text.len() <= 253
    });
    check(fits, "must be a domain and a path such as `varnish-software.com/gateway`")
}

/// A listener's protocol: a bare word, or `example.com/word`.
pub(crate) fn protocol(text: &str) -> Checked {
    let word = is_framed(text, |b| b.is_ascii_alphanumeric(), |b| b == b'-');
    let prefixed = text.split_once('/').is_some_and(|(domain, word)| {
        is_subdomain(domain) && !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    check(text.len() <= 255 && (word || prefixed), "must be a protocol such as HTTP or HTTPS")
}

/// The key of a label or annotation.
pub(crate) fn qualified_name(text: &str) -> Checked {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    check(
        prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name),
        "must be a name of at most 63 letters, digits, `-`, `_` and `.`, with an optional `example.com/` before it",
    )
}

/// A label's value: may be empty.
pub(crate) fn label_value(text: &str) -> Checked {
    check(
        is_label_value(text),
        "must be at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends",
    )
}

fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || text.len() <= 63
            && is_framed(text, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

/// A key in a ConfigMap or Secret: it can become a file's name.
pub(crate) fn data_key(text: &str) -> Checked {
    let fits = (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text != "."
        && !text.starts_with("..");
    check(fits, "must be a file name of letters, digits, `-`, `_` and `.`")
}

pub(crate) fn ip_address(text: &str) -> Checked {
    check(text.parse::<IpAddr>().is_ok(), "must be an IP address")
}

/// `10.0.0.0/8`, or one address.
pub(crate) fn network(text: &str) -> Checked {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let fits = |address: IpAddr| {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        length.is_none_or(|length| {
            let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
            digits && length.parse::<u8>().is_ok_and(|length| length <= longest)
        })
    };
    check(
        address.parse::<IpAddr>().is_ok_and(fits),
        "must be a network such as 10.0.0.0/8 or fd00::/8, or one address",
    )
}

/// As storages have it: `512Ki`, `10Mi`.
pub(crate) fn size(text: &str) -> Checked {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let units = ["", "Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T"];
    let fits = !number.is_empty() && !number.starts_with('0') && units.contains(&unit);
    check(fits, "must be a size such as 512Ki, 10Mi or 1Gi")
}

/// The name of a port: IANA's service names.
pub(crate) fn port_name(text: &str) -> Checked {
    let fits = text.len() <= 15
        && is_label(text)
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase());
    check(
        fits,
        "must be a port name of at most 15 lower-case letters, digits and `-`, with a letter among them",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_framed() {
        for good in ["a", "shop", "shop-2", "0-0"] {
            assert_eq!(label(good), Ok(()), "{good}");
        }
        for bad in ["", "Shop", "-shop", "shop-", "a.b", "a_b", "é", &"a".repeat(64)] {
            assert!(label(bad).is_err(), "{bad}");
        }
        assert_eq!(subdomain("a.b-c.d"), Ok(()));
        for bad in ["", ".", "a..b", "a.-b", &"a.".repeat(127)] {
            assert!(subdomain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hostnames_are_dns_names_with_at_most_a_leading_wildcard() {
        for good in ["example.com", "*.example.com", "localhost", "1.example.com", "xn--bcher-kva.example"] {
            assert_eq!(hostname(good), Ok(()), "{good}");
            assert!(may_be_hostname(good), "{good}");
        }
        let (longest, longer) =
            (format!("{}.example", "a".repeat(63)), format!("{}.example", "a".repeat(64)));
        assert!(is_dns_name(&longest) && hostname(&longest).is_ok() && precise_hostname(&longest).is_ok());
        assert!(!is_dns_name(&longer) && hostname(&longer).is_err() && precise_hostname(&longer).is_err());
        assert!(may_be_hostname(&longer) && !may_be_hostname("192.0.2.1"));
        for bad in [
            "",
            "*",
            "*.",
            "a.*.com",
            "**.com",
            "example.com:80",
            "Example.com",
            "http://a",
            "127.0.0.1",
            "::1",
        ] {
            assert!(hostname(bad).is_err(), "{bad}");
        }
        assert!(precise_hostname("*.example.com").is_err());
    }

    #[test]
    fn durations_follow_gep_2257() {
        assert_eq!(millis("1h2m3s4ms"), Some(3_723_004));
        assert_eq!(millis("0s"), Some(0));
        assert_eq!(millis("99999ms"), Some(99_999));
        for bad in ["", "1", "s", "1.5s", "-1s", "100000s", "1s1s1s1s1s", "1d", "1 s", "1S"] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }

    #[test]
    fn controller_names_have_a_domain_and_a_path() {
        assert_eq!(controller_name("varnish-software.com/gateway"), Ok(()));
        for bad in ["", "gateway", "example.com/", "Example.com/x", "example.com/a b"] {
            assert!(controller_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn header_names_are_tokens() {
        assert_eq!(header_name("X-Forwarded-For"), Ok(()));
        for bad in ["", ":method", "a b", "a/b", "é", &"a".repeat(257)] {
            assert!(header_name(bad).is_err(), "{bad}");
        }
        assert!(header_value("a\r\nSet-Cookie: b").is_err());
    }

    #[test]
    fn keys_values_and_ports() {
        assert_eq!(qualified_name("example.com/Some_Key"), Ok(()));
        assert!(qualified_name("example.com/").is_err());
        assert!(qualified_name("Example/x").is_err());
        assert_eq!(label_value(""), Ok(()));
        assert!(label_value("-x").is_err());
        assert_eq!(data_key("user.vcl"), Ok(()));
        for bad in ["", ".", "..x", "a/b"] {
            assert!(data_key(bad).is_err(), "{bad}");
        }
        assert_eq!(port_name("http-alt"), Ok(()));
        for bad in ["", "80", "a--b", "-a", "abcdefghijklmnop"] {
            assert!(port_name(bad).is_err(), "{bad}");
        }
        assert_eq!(protocol("HTTP"), Ok(()));
        assert_eq!(protocol("example.com/bar"), Ok(()));
        assert!(protocol("example.com").is_err());
        assert_eq!(kind("HTTPRoute"), Ok(()));
        assert!(kind("a/b").is_err());
        assert_eq!(group(""), Ok(()));
        assert_eq!(ip_address("::1"), Ok(()));
    }
}
