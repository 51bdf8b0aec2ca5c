//! Hosts: exact before the longest wildcard before none.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use model::host::{HostPattern, parents};

use crate::dictionary::Dictionary;

/// Values by [`HostPattern`].
#[derive(Debug, Clone)]
pub struct HostTable<T> {
    exact: Dictionary<T>,
    /// Wildcards for one label, by parent.
    one_label: Dictionary<T>,
    /// Wildcards for any number of labels, by parent.
    wildcard: Dictionary<T>,
    any: Option<T>,
}

/// A hostname in lower case; [`ANY_HOST`](model::names::ANY_HOST) for an empty one.
pub(crate) fn normal_hostname(hostname: &str) -> String {
    if hostname.is_empty() { model::names::ANY_HOST.to_owned() } else { model::host::normal(hostname) }
}

/// The same for a listener's hostname, which may be absent.
pub(crate) fn listener_pattern(listener: &model::Listener) -> HostPattern {
    HostPattern::new(&normal_hostname(listener.hostname.as_deref().unwrap_or_default())).owned()
}

/// Hostnames of which the upper of two tables knows all: by them, nothing of the one below counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Covered {
    exact: HashSet<Box<[u8]>, RandomState>,
    /// By parent.
    wildcard: HashSet<Box<[u8]>, RandomState>,
    any: bool,
}

impl Covered {
    /// By [`normal_hostname`].
    pub(crate) fn new<'h>(hostnames: impl Iterator<Item = &'h str>) -> Self {
        let mut covered = Self::default();
        for hostname in hostnames {
            match HostPattern::new(hostname) {
                HostPattern::Any => covered.any = true,
                HostPattern::Wildcard { parent, .. } => {
                    covered.wildcard.insert(parent.as_bytes().into());
                }
                HostPattern::Exact(name) => {
                    covered.exact.insert(name.as_bytes().into());
                }
            }
        }
        covered
    }

    fn is_exact(&self) -> bool {
        self.wildcard.is_empty() && !self.any
    }
}

impl<T> HostTable<T> {
    /// Each pattern once.
    pub fn new<'h>(hosts: impl IntoIterator<Item = (HostPattern<&'h str>, T)>) -> Self {
        let (mut exact, mut one_label, mut wildcard, mut any) = (Vec::new(), Vec::new(), Vec::new(), None);
        for (pattern, value) in hosts {
            match pattern {
                HostPattern::Any => any = Some(value),
                HostPattern::Wildcard { parent, one_label: true } => {
                    one_label.push((parent.as_bytes(), value));
                }
                HostPattern::Wildcard { parent, .. } => wildcard.push((parent.as_bytes(), value)),
                HostPattern::Exact(name) => exact.push((name.as_bytes(), value)),
            }
        }
        Self {
            exact: Dictionary::new(exact),
            one_label: Dictionary::new(one_label),
            wildcard: Dictionary::new(wildcard),
            any,
        }
    }

    /// `host` is normal: lower case, without port.
    pub fn get(&self, host: &[u8]) -> Option<&T> {
        self.get_exact(host).or_else(|| self.get_wide(host))
    }

    /// By its own name.
    pub(crate) fn get_exact(&self, host: &[u8]) -> Option<&T> {
        self.exact.get(host)
    }

    /// By a wildcard, or as any host.
    pub(crate) fn get_wide(&self, host: &[u8]) -> Option<&T> {
        if let Some(found) = self.get_one_label(host) {
            return Some(found);
        }
        if !self.wildcard.is_empty()
            && let Some(found) = parents(host).find_map(|parent| self.wildcard.get(parent))
        {
            return Some(found);
        }
        self.any.as_ref()
    }

    /// By a hostname of this table, or, where `covered` has none of that name, of the one below; and whether it is that one's.
    pub(crate) fn get_over<'t>(
        &'t self,
        below: &'t Self,
        covered: &Covered,
        host: &[u8],
    ) -> Option<(&'t T, bool)> {
        let exact = match covered.exact.contains(host) {
            true => self.exact.get(host).map(|found| (found, false)),
            false => below.exact.get(host).map(|found| (found, true)),
        };
        if exact.is_some() {
            return exact;
        }
        if covered.is_exact() {
            return below.get_wide(host).map(|found| (found, true));
        }
        if let Some(found) = below.get_one_label(host) {
            return Some((found, true));
        }
        for parent in parents(host) {
            let found = match covered.wildcard.contains(parent) {
                true => self.wildcard.get(parent).map(|found| (found, false)),
                false => below.wildcard.get(parent).map(|found| (found, true)),
            };
            if found.is_some() {
                return found;
            }
        }
        match covered.any {
            true => self.any.as_ref().map(|found| (found, false)),
            false => below.any.as_ref().map(|found| (found, true)),
        }
    }

    fn get_one_label(&self, host: &[u8]) -> Option<&T> {
        if self.one_label.is_empty() {
            return None;
        }
        if host.first() == Some(&b'.') {
            return None;
        }
        self.one_label.get(parents(host).next()?)
    }

    /// Is there a wildcard for one label with this parent?
    pub(crate) fn has_one_label(&self, parent: &str) -> bool {
        self.one_label.get(parent.as_bytes()).is_some()
    }

    /// The value for requests without a host.
    pub fn any(&self) -> Option<&T> {
        self.any.as_ref()
    }

    /// In no particular order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let named = self.exact.iter().chain(self.one_label.iter()).chain(self.wildcard.iter());
        named.map(|(_, value)| value).chain(&self.any)
    }

    /// Every hostname with its value, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, &T)> {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let exact = self.exact.iter().map(move |(name, value)| (text(name), value));
        let wildcards = self.one_label.iter().chain(self.wildcard.iter());
        let wildcards = wildcards.map(move |(parent, value)| {
            (HostPattern::Wildcard { parent: text(parent), one_label: false }.to_string(), value)
        });
        exact
            .chain(wildcards)
            .chain(self.any.iter().map(|value| (HostPattern::<&str>::Any.to_string(), value)))
    }
}

/// The longest name that DNS knows; a longer Host can only match routes without hostname.
const LONGEST: usize = 255;

/// A Host header in the form that tables use: lower case, without port and final dot.
#[derive(Debug)]
pub struct NormalHost {
    buffer: [u8; LONGEST],
    length: usize,
}

impl NormalHost {
    pub fn new(raw: &[u8]) -> Self {
        let host = without_port(raw);
        let host = host.strip_suffix(b".").unwrap_or(host);
        let mut normal = Self { buffer: [0; LONGEST], length: 0 };
        if host.len() <= LONGEST {
            for (to, from) in normal.buffer.iter_mut().zip(host) {
                *to = from.to_ascii_lowercase();
            }
            normal.length = host.len();
        }
        normal
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// Letters, digits, a few signs, and whatever is not ASCII. Every request asks.
const IN_HOSTS: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < table.len() {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%')
            || !byte.is_ascii();
        at += 1;
    }
    table
};

/// Is this a Host that a request may have? What stands in it ends up in redirects and logs.
pub fn is_host(raw: &[u8]) -> bool {
    let host = without_port(raw);
    let port = &raw[host.len()..];
    let good_port = match port.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    };
    let good_host = match host.strip_prefix(b"[") {
        Some(address) => address
            .strip_suffix(b"]")
            .is_some_and(|address| address.iter().all(|b| b.is_ascii_hexdigit() || b":.".contains(b))),
        None => host.iter().all(|b| IN_HOSTS[usize::from(*b)]),
    };
    !host.is_empty() && good_host && good_port
}

/// `example.com:8080` and `[::1]:8080` without their port.
pub(crate) fn without_port(raw: &[u8]) -> &[u8] {
    if raw.first() == Some(&b'[') {
        return raw.iter().position(|b| *b == b']').map_or(raw, |end| &raw[..=end]);
    }
    raw.iter().position(|b| *b == b':').map_or(raw, |colon| &raw[..colon])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_then_longest_wildcard_then_none() {
        let table = HostTable::new(
            [
                ("*", "any"),
                ("*.example.com", "wide"),
                ("*.shop.example.com", "narrow"),
                ("a.shop.example.com", "exact"),
            ]
            .map(|(hostname, value)| (HostPattern::new(hostname), value)),
        );
        for (host, expected) in [
            ("a.shop.example.com", "exact"),
            ("b.shop.example.com", "narrow"),
            ("b.c.shop.example.com", "narrow"),
            ("shop.example.com", "wide"),
            ("example.com", "any"),
            (".example.com", "any"),
            ("", "any"),
        ] {
            assert_eq!(table.get(host.as_bytes()), Some(&expected), "{host}");
        }
    }

    #[test]
    fn a_wildcard_of_one_label_goes_before_the_wide_one_and_takes_no_more() {
        let wide = HostPattern::new("*.example.com");
        let narrow = wide.of_one_label();
        let table = HostTable::new([(wide, "wide"), (narrow, "narrow"), (HostPattern::new("a.b"), "exact")]);
        for (host, expected) in [
            ("a.example.com", Some("narrow")),
            ("a.b.example.com", Some("wide")),
            ("example.com", None),
            (".example.com", None),
            ("a.b", Some("exact")),
        ] {
            assert_eq!(table.get(host.as_bytes()).copied(), expected, "{host}");
        }
        let alone = HostTable::new([(narrow, ())]);
        assert!(alone.get(b"a.b.example.com").is_none() && alone.get(b"a.example.com").is_some());
    }

    #[test]
    fn hosts_lose_case_port_and_final_dot() {
        for (raw, normal) in [
            ("Shop.Example.COM:8080", "shop.example.com"),
            ("shop.example.com.", "shop.example.com"),
            ("[::1]:80", "[::1]"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("", ""),
        ] {
            assert_eq!(NormalHost::new(raw.as_bytes()).as_bytes(), normal.as_bytes());
        }
        assert_eq!(NormalHost::new(&[b'a'; 300]).as_bytes(), b"");
    }

    #[test]
    fn a_host_is_told_from_what_is_none() {
        for good in ["a", "a.b:", "A_b-c.d:80", "[::1]", "[::1]:8080", "1.2.3.4", "ex\u{e4}mple.com"] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a b",
            "<script>",
            "x.test/..",
            "x\"y",
            "a:b",
            "a:80:90",
            "[::1",
            "[::1]x",
            "a@b",
            "a,b",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
