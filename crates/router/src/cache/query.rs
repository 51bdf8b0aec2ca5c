//! Query parameters that count, in an order of our own.

use smallvec::SmallVec;

use crate::path::split;
use crate::query::{is, name_of};

/// Which parameters tell two answers apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Parameters {
    names: Box<[Box<[u8]>]>,
    /// Only these count; else all but these.
    only_these: bool,
}

impl Parameters {
    pub(super) fn new(include: Option<&Vec<String>>, exclude: Option<&Vec<String>>) -> Option<Self> {
        let (names, only_these) = match (include, exclude) {
            (Some(names), _) => (names, true),
            (None, Some(names)) => (names, false),
            (None, None) => return None,
        };
        let names = names.iter().map(|name| name.as_bytes().into()).collect();
        Some(Self { names, only_these })
    }

    fn counts(&self, name: &[u8]) -> bool {
        self.names.iter().any(|wanted| is(name, wanted)) == self.only_these
    }

    /// The URL as the cache knows it, written behind what is in `to`: parameters by name; those of one name in the order in
    /// which they came, which may mean something.
    pub fn write(&self, url: &[u8], to: &mut impl Extend<u8>) {
        let (path, query) = split(url);
        let pairs = query.split(|b| *b == b'&').filter(|pair| !pair.is_empty());
        let mut counting: SmallVec<[&[u8]; 32]> = pairs.filter(|pair| self.counts(name_of(pair))).collect();
        // Stable and without an allocation, which the standard library's stable sort is not; a query has few parameters,
        // and is mostly sorted.
        if counting.len() <= 64 {
            for at in 1..counting.len() {
                let mut to = at;
                while to > 0 && name_of(counting[to - 1]) > name_of(counting[to]) {
                    counting.swap(to - 1, to);
                    to -= 1;
                }
            }
        } else {
            counting.sort_by(|a, b| name_of(a).cmp(name_of(b)));
        }
        to.extend(path.iter().copied());
        let mut between = b'?';
        for pair in counting {
            to.extend([between]);
            to.extend(pair.iter().copied());
            between = b'&';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(include: Option<&[&str]>, exclude: Option<&[&str]>, url: &str) -> String {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (include, exclude) = (include.map(owned), exclude.map(owned));
        let mut to = Vec::new();
        Parameters::new(include.as_ref(), exclude.as_ref()).unwrap().write(url.as_bytes(), &mut to);
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn what_is_excluded_and_the_order_do_not_count() {
        let without = |url| written(None, Some(&["utm_source"]), url);
        assert_eq!(without("/a?utm_source=x"), "/a");
        assert_eq!(without("/a?b=1&utm%5Fsource=x&a=2"), "/a?a=2&b=1");
        assert_eq!(without("/a?a=2&b=1"), "/a?a=2&b=1");
        assert_eq!(without("/a?b=1&a=3&a=2"), "/a?a=3&a=2&b=1");
        assert_eq!(without("/a?"), "/a");
        assert_eq!(without("/a?&&b&b="), "/a?b&b=");
        assert_eq!(without("/a?UTM_SOURCE=x"), "/a?UTM_SOURCE=x");
        assert_eq!(written(None, Some(&[]), "/a?b=1&a=2"), "/a?a=2&b=1");
    }

    #[test]
    fn only_what_is_included_counts() {
        let only = |url| written(Some(&["page", "q"]), None, url);
        assert_eq!(only("/a?x=1&q=b&page=2"), "/a?page=2&q=b");
        assert_eq!(only("/a?x=1"), "/a");
        assert_eq!(written(Some(&[]), None, "/a?x=1&y=2"), "/a");
    }

    #[test]
    fn very_many_parameters_are_sorted_too() {
        let forth: Vec<String> = (100..400).map(|i| format!("p{i}=1")).collect();
        let back: Vec<String> = forth.iter().rev().cloned().collect();
        let url = |all: &[String]| written(None, Some(&["x"]), &format!("/a?{}", all.join("&")));
        assert_eq!(url(&forth), url(&back));
    }
}
