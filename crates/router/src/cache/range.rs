//! The request header Range.

/// Whether it asks for one range of bytes: the only kind that Varnish gives. All others, lists and what makes no sense, may go
/// unheard by HTTP: then the answer is the whole.
pub fn is_one_range(value: &[u8]) -> bool {
    const UNIT: &[u8] = b"bytes=";
    let Some((unit, range)) = value.split_at_checked(UNIT.len()) else { return false };
    let range = range.trim_ascii();
    let Some(dash) = range.iter().position(|b| *b == b'-') else { return false };
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    let digits = |text: &[u8]| text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    let number = |text: &[u8]| text.iter().fold(0_u64, |sum, b| sum * 10 + u64::from(b - b'0'));
    unit.eq_ignore_ascii_case(UNIT)
        && digits(first)
        && digits(last)
        && match (first.is_empty(), last.is_empty()) {
            (true, true) => false,
            (false, false) => number(first) <= number(last),
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_told_from_anything_else() {
        for one in ["bytes=0-1", "Bytes=0-", "bytes=-5", "bytes=5-5", "bytes= 0-1 ", "bytes=-0"] {
            assert!(is_one_range(one.as_bytes()), "{one}");
        }
        for other in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=0-1,3-4",
            "bytes=0-1, 3-4",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=1",
            "items=0-1",
            "bytes=0-1-2",
            "bytes=--1",
            "bytes=0-99999999999999999999999",
        ] {
            assert!(!is_one_range(other.as_bytes()), "{other}");
        }
    }
}
