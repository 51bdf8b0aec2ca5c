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
mod tests;
