//! Conditions on query parameters: the first of a name counts, as written or with its escapes decoded.

use smallvec::SmallVec;

use crate::budget::LONGEST_VALUE;
use crate::decision::TooLong;
use crate::header::{Expected, ValueMatcher};

/// Values with escapes up to this length are decoded without allocating.
type Decoded = SmallVec<[u8; 256]>;

impl ValueMatcher {
    pub(crate) fn matches_query(&self, query: &[u8]) -> Result<bool, TooLong> {
        let wanted = self.name.as_bytes();
        for pair in query.split(|b| *b == b'&') {
            let name = name_of(pair);
            if is(name, wanted) {
                let value = pair.get(name.len() + 1..).unwrap_or_default();
                let accepts: &dyn Fn(&[u8]) -> bool = match &self.expected {
                    Expected::Exact(expected) => &|value| **expected == *value,
                    Expected::Pattern(_) if value.len() > LONGEST_VALUE => return Err(TooLong::Url),
                    Expected::Pattern(pattern) => &|value| pattern.is_match(value),
                };
                return Ok(accepts(value) || (escaped(value) && accepts(&decode(value))));
            }
        }
        Ok(false)
    }
}

/// What stands before the `=` of a parameter.
pub(crate) fn name_of(pair: &[u8]) -> &[u8] {
    pair.iter().position(|b| *b == b'=').map_or(pair, |at| &pair[..at])
}

pub(crate) fn is(name: &[u8], wanted: &[u8]) -> bool {
    name == wanted || (escaped(name) && *decode(name) == *wanted)
}

fn escaped(text: &[u8]) -> bool {
    text.iter().any(|b| matches!(b, b'%' | b'+'))
}

fn decode(text: &[u8]) -> Decoded {
    let mut decoded = Decoded::new();
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        decoded.push(match first {
            b'+' => b' ',
            b'%' => match escape(tail) {
                Some(byte) => {
                    rest = &tail[2..];
                    byte
                }
                None => b'%',
            },
            other => other,
        });
    }
    decoded
}

/// The byte that two digits behind a `%` stand for.
pub(crate) fn escape(tail: &[u8]) -> Option<u8> {
    Some(hex(tail.first()?)? << 4 | hex(tail.get(1)?)?)
}

fn hex(digit: &u8) -> Option<u8> {
    char::from(*digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use model::matches::{ValueMatch, ValueMatchType};

    use super::*;

    fn matcher(name: &str, value: &str, kind: ValueMatchType) -> ValueMatcher {
        ValueMatcher::compile(&ValueMatch { name: name.into(), value: value.into(), kind }).unwrap()
    }

    #[test]
    fn the_first_of_a_name_counts() {
        let m = matcher("a", "1", ValueMatchType::Exact);
        assert!(m.matches_query(b"a=1&a=2").unwrap());
        assert!(!m.matches_query(b"a=2&a=1").unwrap());
        assert!(m.matches_query(b"b=2&a=1").unwrap());
        assert!(!m.matches_query(b"A=1").unwrap());
        assert!(!m.matches_query(b"").unwrap());
        assert!(!m.matches_query(b"aa=1").unwrap());
    }

    #[test]
    fn escapes_are_decoded_or_taken_as_written() {
        for query in ["q=a%20b", "q=a+b", "%71=a%20b"] {
            assert!(
                matcher("q", "a b", ValueMatchType::Exact).matches_query(query.as_bytes()).unwrap(),
                "{query}"
            );
        }
        assert!(matcher("q", "a%20b", ValueMatchType::Exact).matches_query(b"q=a%20b").unwrap());
        assert!(matcher("q", "100%", ValueMatchType::Exact).matches_query(b"q=100%").unwrap());
        assert!(
            matcher("q", "a [a-c]", ValueMatchType::RegularExpression).matches_query(b"q=a%20b").unwrap()
        );
    }

    #[test]
    fn a_parameter_without_value_has_the_empty_one() {
        assert!(matcher("debug", "", ValueMatchType::Exact).matches_query(b"debug").unwrap());
    }
}
