//! One reading of a path for all who look at it: rules, cache, purges and origins.
//!
//! Takes a URL as the client sent it; guarantees that the same URL goes through unchanged when it comes again, and that a path
//! which origins may read otherwise is either refused or returned with that other reading. Never looks at the query, and
//! allocates nothing for URLs of up to 512 bytes.

use model::{DotSegments, DuplicateSlashes, EncodedSeparators, Paths};

use crate::rewrite::Url;

/// A URL whose path has its normal form.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Normal {
    /// `None` where the URL is normal as it came.
    pub url: Option<Url>,
    /// What an origin may read in it that decodes more than we do. It must not belong to another rule.
    pub reading: Option<Url>,
    /// It has encoded separators, or dot segments: never looked up in the cache, and never stored.
    pub uncacheable: bool,
}

/// Why a path is answered with 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A control character, a space, `#`, `%00`, or a percent sign without two hexadecimal digits.
    Malformed,
    AboveRoot,
    DotSegment,
    /// A dot segment that shows when something is decoded or left out: `%2e%2e`, `..%2f`, `..;`.
    HiddenDotSegment,
    EncodedSeparator,
    /// Another reading belongs, or may belong, to another rule.
    Ambiguous,
}

impl Refusal {
    pub const ALL: [Self; 6] = [
        Self::Malformed,
        Self::AboveRoot,
        Self::DotSegment,
        Self::HiddenDotSegment,
        Self::EncodedSeparator,
        Self::Ambiguous,
    ];

    /// For the client. Free of characters that JSON would have to escape.
    pub fn message(self) -> &'static str {
        match self {
            Self::Malformed => {
                "the path has a control character, a space, #, %00, or a percent sign without two hexadecimal digits"
            }
            Self::AboveRoot => "the path leads above the root",
            Self::DotSegment => "the path has a segment . or ..",
            Self::HiddenDotSegment => "the path has an encoded segment . or ..",
            Self::EncodedSeparator => "the path has an encoded slash or a backslash",
            Self::Ambiguous => "the path may belong to another rule once it is decoded",
        }
    }
}

/// What a byte of a path is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Letters, digits, `-`, `_`, `~`: RFC 3986 calls their encoded form the same.
    Unreserved,
    Dot,
    Slash,
    /// May stand in a path as it is. Many origins read its encoded form as the same.
    Reserved,
    /// Tells a path parameter from its segment, for some.
    Semicolon,
    Percent,
    Backslash,
    Question,
    /// Must not be there as it is.
    Forbidden,
    /// No character of URLs, and harmless.
    Other,
}

const fn class(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => Class::Unreserved,
        b'.' => Class::Dot,
        b'/' => Class::Slash,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b':' | b'@' => Class::Reserved,
        b';' => Class::Semicolon,
        b'%' => Class::Percent,
        b'\\' => Class::Backslash,
        b'?' => Class::Question,
        0..=b' ' | b'#' | 0x7f => Class::Forbidden,
        _ => Class::Other,
    }
}

const CLASSES: [Class; 256] = {
    let mut all = [Class::Other; 256];
    let mut byte = 0;
    while byte < all.len() {
        all[byte] = class(byte as u8);
        byte += 1;
    }
    all
};

fn class_of(byte: u8) -> Class {
    CLASSES[usize::from(byte)]
}

/// The usual case: nothing to do.
fn is_normal(url: &[u8]) -> bool {
    let mut after_slash = false;
    for byte in url {
        match class_of(*byte) {
            Class::Unreserved | Class::Reserved => after_slash = false,
            Class::Slash if !after_slash => after_slash = true,
            Class::Dot if !after_slash => {}
            Class::Question => break,
            _ => return false,
        }
    }
    url.first() == Some(&b'/')
}

/// The path in its normal form, with the same query.
pub fn normalize(paths: Paths, url: &[u8]) -> Result<Normal, Refusal> {
    if is_normal(url) {
        return Ok(Normal::default());
    }
    let end = url.iter().position(|byte| *byte == b'?').unwrap_or(url.len());
    let (path, query) = url.split_at(end);
    if path.iter().any(|byte| class_of(*byte) == Class::Forbidden) {
        return Err(Refusal::Malformed);
    }
    let Some(segments) = path.strip_prefix(b"/") else {
        // `*`, nothing at all, or what no origin takes.
        return Ok(Normal { uncacheable: true, ..Normal::default() });
    };
    let keeps = paths.encoded_separators == EncodedSeparators::Keep;
    let mut uncacheable = false;
    let mut new = Url::new();
    new.push(b'/');
    let mut segments = segments.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let start = new.len();
        let has_encoded_dot = write_segment(segment, &mut new)?;
        if is_dots(&new[start..]) {
            if has_encoded_dot && !keeps {
                return Err(Refusal::HiddenDotSegment);
            }
            match paths.dot_segments {
                DotSegments::Resolve => {
                    let is_parent = new.len() - start == 2;
                    new.truncate(start);
                    if is_parent {
                        leave_segment(&mut new)?;
                    }
                    continue;
                }
                DotSegments::Reject => return Err(Refusal::DotSegment),
                DotSegments::Keep => uncacheable = true,
            }
        } else if segment.is_empty() && paths.duplicate_slashes == DuplicateSlashes::Merge {
            continue;
        }
        if !is_last {
            new.push(b'/');
        }
    }
    let mut reading = None;
    if !keeps {
        let mut other = Url::new();
        let has_separators = read_otherwise(paths, &new, &mut other)?;
        if has_separators && paths.encoded_separators == EncodedSeparators::Reject {
            return Err(Refusal::EncodedSeparator);
        }
        uncacheable |= has_separators;
        if other != new {
            other.extend_from_slice(query);
            reading = Some(other);
        }
    }
    let url = (new[..] != *path).then(|| {
        new.extend_from_slice(query);
        new
    });
    Ok(Normal { url, reading, uncacheable })
}

/// The same for the path that a rule asks for, so that requests in their normal form find it. Dot segments, which the API server
/// refuses in rules, are left alone: without them a prefix would become a wider one.
pub(crate) fn normalize_rule(paths: Paths, path: &str) -> Option<String> {
    let paths =
        Paths { dot_segments: DotSegments::Keep, encoded_separators: EncodedSeparators::Keep, ..paths };
    // A question mark is no character of a path: what stands behind it can never match.
    let url = normalize(paths, path.as_bytes()).ok()?.url?;
    String::from_utf8(url.to_vec()).ok()
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// `new` ends with the slash before a segment `..`.
fn leave_segment(new: &mut Url) -> Result<(), Refusal> {
    let parent = new[..new.len() - 1].iter().rposition(|byte| *byte == b'/').ok_or(Refusal::AboveRoot)?;
    new.truncate(parent + 1);
    Ok(())
}

/// Decodes what RFC 3986 calls equivalent (6.2.2.1, 6.2.2.2): unreserved characters; the others keep their codes, in upper case.
/// Was a dot encoded?
fn write_segment(segment: &[u8], new: &mut Url) -> Result<bool, Refusal> {
    let mut has_encoded_dot = false;
    let mut at = 0;
    while let Some(byte) = segment.get(at) {
        if *byte != b'%' {
            new.push(*byte);
            at += 1;
            continue;
        }
        let decoded = decode(&segment[at..]).filter(|decoded| *decoded != 0).ok_or(Refusal::Malformed)?;
        match class_of(decoded) {
            class @ (Class::Unreserved | Class::Dot) => {
                has_encoded_dot |= class == Class::Dot;
                new.push(decoded);
            }
            _ => encode(decoded, new),
        }
        at += 3;
    }
    Ok(has_encoded_dot)
}

/// The byte that `%41…` begins with.
fn decode(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| text.get(at).and_then(|digit| char::from(*digit).to_digit(16));
    let (high, low) = (digit(1)?, digit(2)?);
    (text[0] == b'%').then_some((high << 4 | low) as u8)
}

fn encode(byte: u8, to: &mut Url) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS[usize::from(value & 0xf)];
    to.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
}

/// The byte that `%41`, `%2541`, `%252541` and so on come to, and the length of the code. Some origins decode twice.
fn decode_all(text: &[u8]) -> Option<(u8, usize)> {
    let mut last = decode(text)?;
    let mut length = 3;
    while last == b'%' {
        match (text.get(length), text.get(length + 1)) {
            (Some(high), Some(low)) => match decode(&[b'%', *high, *low]) {
                Some(byte) => last = byte,
                None => break,
            },
            _ => break,
        }
        length += 2;
    }
    Some((last, length))
}

/// What an origin reads that decodes everything, takes backslashes for slashes, and leaves path parameters out. True where
/// it has more separators than the path.
fn read_otherwise(paths: Paths, path: &[u8], to: &mut Url) -> Result<bool, Refusal> {
    let mut other = Reading {
        to,
        start: 0,
        is_plain: true,
        in_parameter: false,
        has_separators: false,
        has_parameters: false,
    };
    let mut at = 0;
    while let Some(byte) = path.get(at) {
        let (byte, length) =
            if *byte == b'%' { decode_all(&path[at..]).unwrap_or((*byte, 1)) } else { (*byte, 1) };
        let is_code = length > 1;
        match class_of(byte) {
            Class::Slash | Class::Backslash => {
                other.separator(byte == b'/' && !is_code, paths.duplicate_slashes)?;
            }
            Class::Semicolon => {
                other.in_parameter = true;
                other.has_parameters = true;
                other.is_plain = false;
            }
            _ if other.in_parameter => {}
            Class::Unreserved | Class::Dot | Class::Reserved => {
                other.is_plain &= !is_code;
                other.to.push(byte);
            }
            Class::Percent | Class::Question | Class::Forbidden | Class::Other if is_code => {
                other.to.extend_from_slice(&path[at..at + length]);
            }
            _ => encode(byte, other.to),
        }
        at += length;
    }
    other.end_segment(true)?;
    // With both, there are readings with the parameters and without the separators, and the other way round.
    if other.has_separators && other.has_parameters {
        return Err(Refusal::Ambiguous);
    }
    Ok(other.has_separators)
}

struct Reading<'a> {
    to: &'a mut Url,
    /// Of the segment.
    start: usize,
    /// The segment, with what separates it from the one before, is written as it is in the path.
    is_plain: bool,
    in_parameter: bool,
    has_separators: bool,
    has_parameters: bool,
}

impl Reading<'_> {
    fn separator(&mut self, is_plain: bool, duplicates: DuplicateSlashes) -> Result<(), Refusal> {
        self.end_segment(is_plain)?;
        self.has_separators |= !is_plain;
        if duplicates == DuplicateSlashes::Keep || self.to.last() != Some(&b'/') {
            self.to.push(b'/');
        }
        self.start = self.to.len();
        self.is_plain = is_plain;
        self.in_parameter = false;
        Ok(())
    }

    /// Dot segments that are plain are what the setting for them has left.
    fn end_segment(&self, is_plain: bool) -> Result<(), Refusal> {
        if is_dots(&self.to[self.start..]) && !(self.is_plain && is_plain) {
            return Err(Refusal::HiddenDotSegment);
        }
        Ok(())
    }
}
