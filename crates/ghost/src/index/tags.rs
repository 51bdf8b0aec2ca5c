//! Tags that an origin gave to an answer.

use model::names::{CACHE_GROUPS_HEADER, TAG_HEADERS};

/// An answer with more tags is not kept: a purge could not find it by all of them.
pub const MOST: usize = 256;
/// A longer one is none: no purge can name it.
pub const LONGEST: usize = 256;

/// The tags in the value of a header: separated by blanks or commas. Of Cache-Groups, which has strings in quotes, each word of a string
/// is one: an invalidation of the group is read in the same way, and takes at least what it should.
pub fn tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t' | b','));
    words.map(unquoted).filter(|tag| !tag.is_empty() && tag.len() <= LONGEST)
}

fn unquoted(word: &[u8]) -> &[u8] {
    let word = word.strip_prefix(b"\"").unwrap_or(word);
    word.strip_suffix(b"\"").unwrap_or(word)
}

/// Whether a header tags a response.
pub fn is_tag_header(name: &[u8]) -> bool {
    let known = TAG_HEADERS.iter().chain([&CACHE_GROUPS_HEADER]);
    known.into_iter().any(|tag| name.eq_ignore_ascii_case(tag.as_bytes()))
}

/// How many tags an object may have when the index takes `bytes` of a budget; `None`: no object is kept. The fuller the index,
/// the fewer: an origin with many tags must not take the room of those with few.
pub fn most(bytes: usize, budget: usize) -> Option<usize> {
    match bytes {
        bytes if bytes >= budget => None,
        bytes if bytes >= budget / 4 * 3 => Some(16),
        bytes if bytes >= budget / 2 => Some(64),
        _ => Some(MOST),
    }
}
