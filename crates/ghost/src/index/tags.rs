//! Tags that an origin gave to an answer.

use std::borrow::Cow;

use model::names::{CACHE_GROUPS_HEADER, TAG_HEADERS};
use router::cache::{LONGEST_TAG, groups};

/// An answer with more tags is not kept: a purge could not find it by all of them.
pub const MOST: usize = 256;
/// A longer one is none: no purge can name it.
pub const LONGEST: usize = LONGEST_TAG;

/// The tags in the value of a header: separated by blanks or commas, in quotes or not. For [`TAG_HEADERS`].
pub fn tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t' | b','));
    words.map(unquoted).filter(|tag| !tag.is_empty() && tag.len() <= LONGEST)
}

fn unquoted(word: &[u8]) -> &[u8] {
    let word = word.strip_prefix(b"\"").unwrap_or(word);
    word.strip_suffix(b"\"").unwrap_or(word)
}

/// The tags in lines of [`TAG_HEADERS`], and the groups in lines of Cache-Groups, which are tags, too.
pub fn with_groups<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    of_groups: impl Iterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let groups = groups(of_groups).map(|group| Cow::Owned(group.into_bytes()));
    lines.flat_map(tags).map(Cow::Borrowed).chain(groups)
}

/// Whether the words of a header are tags.
pub fn is_tag_header(name: &[u8]) -> bool {
    TAG_HEADERS.iter().any(|tag| name.eq_ignore_ascii_case(tag.as_bytes()))
}

/// Whether a header names groups.
pub fn is_groups_header(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(CACHE_GROUPS_HEADER.as_bytes())
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
