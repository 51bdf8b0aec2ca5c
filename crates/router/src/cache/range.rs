//! The request header Range.

use super::ranges::MOST_RANGES;

/// Whether it asks for one range of bytes: the only kind that Varnish gives. All others, lists and invalid ones, may go
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

/// One range for a list of ranges that overlap or touch each other, as RFC 9110 (15.3.7.2) lets servers make of them; `None` where more than one
/// is left, and for invalid ones: then the answer is the whole.
pub fn coalesced(value: &[u8]) -> Option<String> {
    const UNIT: &[u8] = b"bytes=";
    let (unit, list) = value.split_at_checked(UNIT.len())?;
    let mut ranges: [(u64, u64); MOST_RANGES] = [(0, 0); MOST_RANGES];
    let mut count = 0;
    for part in list.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|part| !part.is_empty()) {
        let dash = part.iter().position(|b| *b == b'-')?;
        let (first, last) = (number(&part[..dash])?, &part[dash + 1..]);
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        if last < first {
            return None;
        }
        *ranges.get_mut(count)? = (first, last);
        count += 1;
    }
    let ranges = &mut ranges[..count];
    ranges.sort_unstable();
    let (first, mut end) = *ranges.first()?;
    for (next, last) in &ranges[1..] {
        if *next > end.saturating_add(1) {
            return None;
        }
        end = end.max(*last);
    }
    let last = if end == u64::MAX { String::new() } else { end.to_string() };
    unit.eq_ignore_ascii_case(UNIT).then(|| format!("bytes={first}-{last}"))
}

fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, |sum, b| sum * 10 + u64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_each_other_become_one() {
        for (list, one) in [
            ("bytes=0-4,5-9", "bytes=0-9"),
            ("bytes=5-9, 0-6", "bytes=0-9"),
            ("Bytes=0-99, 10-20, ,", "bytes=0-99"),
            ("bytes=0-4,5-", "bytes=0-"),
            ("bytes=3-3,3-3", "bytes=3-3"),
        ] {
            assert_eq!(coalesced(list.as_bytes()).as_deref(), Some(one), "{list}");
        }
        let many: Vec<String> = (0..17).map(|n| format!("{n}-{n}")).collect();
        for list in [
            "bytes=0-4,6-9",
            "bytes=0-4,-5",
            "bytes=5-2,2-5",
            "lines=0-4,5-9",
            "bytes=",
            "bytes=a-b,c-d",
            "bytes",
            &format!("bytes={}", many.join(",")),
        ] {
            assert_eq!(coalesced(list.as_bytes()), None, "{list}");
        }
    }

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
