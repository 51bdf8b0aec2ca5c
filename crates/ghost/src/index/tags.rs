//! Tags that an origin gave to an answer.

/// An answer with more tags is not kept: a purge could not find it by all of them.
pub const MOST: usize = 256;
/// A longer one is none: no purge can name it.
pub const LONGEST: usize = 256;

/// The tags in the value of a header: separated by blanks or commas.
pub fn tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t' | b','));
    words.filter(|tag| !tag.is_empty() && tag.len() <= LONGEST)
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
