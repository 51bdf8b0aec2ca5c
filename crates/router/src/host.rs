//! Hosts: exact before the longest wildcard before none.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use model::names::ANY_HOST;

/// Values by hostname. `*.example.com` stands for names of any depth below example.com, never for example.com itself.
#[derive(Debug, Clone)]
pub(crate) struct HostTable<T> {
    exact: HashMap<Box<[u8]>, T, RandomState>,
    /// By what follows `*.`.
    wildcard: HashMap<Box<[u8]>, T, RandomState>,
    any: Option<T>,
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        Self { exact: HashMap::default(), wildcard: HashMap::default(), any: None }
    }
}

impl<T: Default> HostTable<T> {
    /// The value for a hostname as files write it.
    pub(crate) fn entry(&mut self, hostname: &str) -> &mut T {
        let lower = hostname.to_ascii_lowercase();
        if lower.is_empty() || lower == ANY_HOST {
            self.any.get_or_insert_with(T::default)
        } else if let Some(suffix) = lower.strip_prefix("*.") {
            self.wildcard.entry(suffix.as_bytes().into()).or_default()
        } else {
            self.exact.entry(lower.as_bytes().into()).or_default()
        }
    }
}

impl<T> HostTable<T> {
    /// `host` is normal: lower case, without port.
    pub(crate) fn get(&self, host: &[u8]) -> Option<&T> {
        if let Some(found) = self.exact.get(host) {
            return Some(found);
        }
        if !self.wildcard.is_empty() {
            // From the left, so that the longest suffix is asked first; the star stands for at least one label.
            for (at, _) in host.iter().enumerate().skip(1).filter(|(_, b)| **b == b'.') {
                if let Some(found) = self.wildcard.get(&host[at + 1..]) {
                    return Some(found);
                }
            }
        }
        self.any.as_ref()
    }

    /// Every hostname with its value, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (String, &T)> {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let exact = self.exact.iter().map(move |(h, v)| (text(h), v));
        let wildcard = self.wildcard.iter().map(move |(h, v)| (format!("*.{}", text(h)), v));
        exact.chain(wildcard).chain(self.any.iter().map(|v| (ANY_HOST.to_owned(), v)))
    }

    pub(crate) fn map<U>(self, mut f: impl FnMut(T) -> U) -> HostTable<U> {
        HostTable {
            exact: self.exact.into_iter().map(|(k, v)| (k, f(v))).collect(),
            wildcard: self.wildcard.into_iter().map(|(k, v)| (k, f(v))).collect(),
            any: self.any.map(f),
        }
    }
}

/// The longest name that DNS knows; a longer Host can only match routes without hostname.
const LONGEST: usize = 255;

/// A Host header in the form that tables use: lower case, without port and final dot.
#[derive(Debug)]
pub(crate) struct NormalHost {
    buffer: [u8; LONGEST],
    length: usize,
}

impl NormalHost {
    pub(crate) fn new(raw: &[u8]) -> Self {
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

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
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
        let mut table = HostTable::<&str>::default();
        *table.entry("*") = "any";
        *table.entry("*.example.com") = "wide";
        *table.entry("*.shop.example.com") = "narrow";
        *table.entry("a.shop.Example.com") = "exact";
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
}
