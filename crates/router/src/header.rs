//! Conditions on header values.

use model::matches::{ValueMatch, ValueMatchType};

use crate::Request;
use crate::budget::LONGEST_VALUE;
use crate::decision::TooLong;
use crate::pattern::{self, Pattern};

/// What a value must be.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    Exact(Box<[u8]>),
    Pattern(Pattern),
}

/// A named value and what it must be.
#[derive(Debug, Clone)]
pub(crate) struct ValueMatcher {
    pub(crate) name: Box<str>,
    pub(crate) expected: Expected,
}

impl ValueMatcher {
    pub(crate) fn compile(from: &ValueMatch) -> Result<Self, pattern::Error> {
        let expected = match from.kind {
            ValueMatchType::Exact => Expected::Exact(from.value.as_bytes().into()),
            ValueMatchType::RegularExpression => Expected::Pattern(Pattern::compile(&from.value)?),
        };
        Ok(Self { name: from.name.as_str().into(), expected })
    }

    /// A header that comes several times matches where any of its values does.
    pub(crate) fn matches_header(&self, request: &impl Request) -> Result<bool, TooLong> {
        match &self.expected {
            Expected::Exact(expected) => {
                Ok(request.any_header(&self.name, &mut |value| **expected == *value))
            }
            Expected::Pattern(pattern) => pattern_matches_header(pattern, &self.name, request),
        }
    }
}

/// The limit is for all values of the header together.
pub(crate) fn pattern_matches_header(
    pattern: &Pattern,
    name: &str,
    request: &impl Request,
) -> Result<bool, TooLong> {
    let mut left = Some(LONGEST_VALUE);
    let found = request.any_header(name, &mut |value| {
        left = left.and_then(|left| left.checked_sub(value.len()));
        left.is_none() || pattern.is_match(value)
    });
    if left.is_none() { Err(TooLong::Header) } else { Ok(found) }
}
