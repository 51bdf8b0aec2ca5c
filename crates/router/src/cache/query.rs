//! Query parameters that count, in an order of our own.

use smallvec::SmallVec;

use crate::path::split;
use crate::query::{escape, is, name_of};

/// Which parameters tell two answers apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Parameters {
    names: Box<[Box<[u8]>]>,
    /// Only these count; else all but these.
    only_these: bool,
    /// So does the order of those that count.
    ordered: bool,
}

impl Parameters {
    pub(super) fn new(include: Option<&Vec<String>>, exclude: Option<&Vec<String>>) -> Option<Self> {
        let (names, only_these) = match (include, exclude) {
            (Some(names), _) => (names, true),
            (None, Some(names)) => (names, false),
            (None, None) => return None,
        };
        let names = names.iter().map(|name| name.as_bytes().into()).collect();
        Some(Self { names, only_these, ordered: false })
    }

    /// As No-Vary-Search has it.
    pub(super) fn of_search(names: Vec<Box<[u8]>>, only_these: bool, ordered: bool) -> Self {
        Self { names: names.into(), only_these, ordered }
    }

    /// Only what every parser reads as one pair of a name that does not count is left out. All else tells objects apart:
    /// the origin may read more in it than we do.
    fn counts(&self, pair: &[u8], query: &[u8]) -> bool {
        let name = name_of(pair);
        if !is_one_pair(pair) {
            return true;
        }
        if self.only_these {
            return !is_plain(name) || self.names.iter().any(|wanted| folded(name).eq(folded(wanted)));
        }
        !self.names.iter().any(|wanted| is(name, wanted)) || comes_again(name, query)
    }

    /// The URL as the cache knows it, written behind what is in `to`: parameters by name; those of one name in the order in
    /// which they came, which may mean something. Where parsers could disagree on the names, all stay in their order.
    pub fn write(&self, url: &[u8], to: &mut impl Extend<u8>) {
        let (path, query) = split(url);
        let mut counting: SmallVec<[&[u8]; 32]> =
            pairs(query).filter(|pair| self.counts(pair, query)).collect();
        let before = |a: &[u8], b: &[u8]| folded(name_of(a)).cmp(folded(name_of(b)));
        if self.ordered || !counting.iter().all(|pair| is_one_pair(pair) && is_plain(name_of(pair))) {
            // As they came.
        } else if counting.len() <= 64 {
            // Stable and without an allocation, which the standard library's stable sort is not; a query has few
            // parameters, and is mostly sorted.
            for at in 1..counting.len() {
                let mut to = at;
                while to > 0 && before(counting[to - 1], counting[to]).is_gt() {
                    counting.swap(to - 1, to);
                    to -= 1;
                }
            }
        } else {
            counting.sort_by(|a, b| before(a, b));
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

fn pairs(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|b| *b == b'&').filter(|pair| !pair.is_empty())
}

/// Of two with one name parsers take the first, the last, or both.
fn comes_again(name: &[u8], query: &[u8]) -> bool {
    pairs(query).filter(|pair| folded(name_of(pair)).eq(folded(name))).take(2).count() > 1
}

/// A name that is written the same for every parser.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'~'))
}

/// ASP.NET does not tell upper from lower case, PHP does not tell `.` from `_`.
fn folded(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().map(|b| if *b == b'.' { b'_' } else { b.to_ascii_lowercase() })
}

/// Does every parser read one pair here, with the same name? Some split at `;`, some decode before they split, some end at
/// `#` or at a zero byte, and some know escapes that others do not.
fn is_one_pair(pair: &[u8]) -> bool {
    let mut in_name = true;
    let mut rest = pair;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'=' => in_name = false,
            b'+' if in_name => return false,
            b';' | b'#' | b'?' | 0..=b' ' | 0x7f => return false,
            b'%' => {
                let Some(byte) = escape(tail) else { return false };
                match byte {
                    b'&' | b';' | b'#' | b'?' | 0..=0x1f | 0x7f => return false,
                    b'=' | b'+' | b'%' | b' ' if in_name => return false,
                    _ => rest = &tail[2..],
                }
            }
            _ => {}
        }
    }
    true
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
        let without = |url: &str| written(None, Some(&["utm_source"]), url);
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
    fn what_two_parsers_read_differently_stays() {
        let without = |url: &str| written(None, Some(&["utm_source"]), url);
        for pair in [
            "utm_source=x;cb=evil",
            "utm_source=x%3Bcb=evil",
            "utm_source=x%3bcb=evil",
            "utm_source;cb=evil",
            "utm_source=x%26cb=evil",
            "utm_source%3Dx",
            "utm_source%3Dx=1",
            "utm%255Fsource=1",
            "+utm_source=1",
            "utm_source%00=1",
            "utm_source=%00",
            "utm_source[]=1",
            "utm_source=x#",
            "utm_source=x%23",
            "utm_source=x?cb=1",
            "utm_source=%u0026cb=evil",
            "utm_source=%",
            "utm_source=1&utm_source=2",
            "utm_source=1&UTM_SOURCE=2",
            "utm_source=1&utm.source=2",
        ] {
            assert_eq!(without(&format!("/a?{pair}")), format!("/a?{pair}"));
        }
        // Their order may mean something then.
        assert_eq!(without("/a?b=3&a=1;b=2&utm_source=x"), "/a?b=3&a=1;b=2");
        assert_eq!(without("/a?a=2&%61=1"), "/a?a=2&%61=1");
        assert_eq!(without("/a?a=2&A=1"), "/a?a=2&A=1");
        assert_eq!(without("/a?f[]=2&f[x]=1"), "/a?f[]=2&f[x]=1");
        // These every parser reads alike.
        for value in ["a+b", "a%20b", "100%25", "a=b", "a%3Db", "%C3%A9", "[a]"] {
            assert_eq!(without(&format!("/a?utm_source={value}&b=1")), "/a?b=1");
        }
        let only = |url: &str| written(Some(&["page"]), None, url);
        for pair in [
            "x=1;page=2",
            "x=1%26page=2",
            "PAGE=2",
            "%70age=2",
            "%2570age=2",
            "page%00=2",
            "page[]=2",
            "+page=2",
            "page%20=2",
            "page%3D2=1",
            "p%61ge",
        ] {
            assert_eq!(only(&format!("/a?y=1&{pair}")), format!("/a?{pair}"));
        }
        assert_eq!(written(Some(&["a_b"]), None, "/a?a.b=1"), "/a?a.b=1");
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
