//! Conditions on header values.

use model::matches::{ValueMatch, ValueMatchType};

use crate::Request;
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

    pub(crate) fn accepts(&self, value: &[u8]) -> bool {
        match &self.expected {
            Expected::Exact(expected) => **expected == *value,
            Expected::Pattern(pattern) => pattern.is_match(value),
        }
    }

    /// A header that comes several times matches where any of its values does.
    pub(crate) fn matches_header(&self, request: &impl Request) -> bool {
        request.any_header(&self.name, &mut |value| self.accepts(value))
    }
}
