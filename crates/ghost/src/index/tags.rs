//! Tags that an origin gave to an answer.

/// The most that are kept of one object; what comes after them is not found by its tags.
pub const MOST: usize = 256;
/// A longer one is none.
pub const LONGEST: usize = 256;

/// The tags in the value of a header: separated by blanks or commas.
pub fn tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t' | b','));
    words.filter(|tag| !tag.is_empty() && tag.len() <= LONGEST)
}
