//! Several ranges of one request, for an answer as multipart/byteranges (RFC 9110, 14.2 and 15.3.7.2).
//!
//! Takes a Range header and, once it is known, the length of what is stored. Guarantees that parts come in ascending order, do not overlap,
//! and are not more than [`MOST_RANGES`]; and that what lies between them, which has to be read and is not sent, stays in proportion to
//! what is sent.

use smallvec::SmallVec;

const UNIT: &[u8] = b"bytes=";
/// Ranges of one request that are looked at.
pub(super) const MOST_RANGES: usize = 16;
/// Ranges with a smaller gap between them become one: the head of another part would be larger.
const SMALLEST_GAP: u64 = 128;
/// What may be read and not sent between two parts: this, and so many times what is sent before it.
const LARGEST_GAP: u64 = 1 << 20;
const GAP_SHARE: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spec {
    /// First and last byte.
    Bytes(u64, u64),
    From(u64),
    Last(u64),
}

/// At least two ranges that do not touch each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(SmallVec<[Spec; MOST_RANGES]>);

/// Parts of what is stored: first and last byte of each.
pub type Satisfied = SmallVec<[(u64, u64); MOST_RANGES]>;

impl Ranges {
    /// `None` for one range, for invalid ones, and for ranges that are answered with the whole: too many, in another order than
    /// the bytes have, or too far from each other.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (unit, list) = value.split_at_checked(UNIT.len())?;
        if !unit.eq_ignore_ascii_case(UNIT) {
            return None;
        }
        let mut specs = SmallVec::new();
        for part in list.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|part| !part.is_empty()) {
            let dash = part.iter().position(|b| *b == b'-')?;
            let (first, last) = (&part[..dash], &part[dash + 1..]);
            let spec = match (first.is_empty(), last.is_empty()) {
                (true, true) => return None,
                (true, false) => Spec::Last(number(last)?),
                (false, true) => Spec::From(number(first)?),
                (false, false) => Spec::Bytes(number(first)?, number(last)?),
            };
            if specs.len() == MOST_RANGES || matches!(spec, Spec::Bytes(first, last) if last < first) {
                return None;
            }
            specs.push(spec);
        }
        let ranges = Self(specs);
        // As far as it can be said without the length.
        let has_suffix = ranges.0.iter().any(|spec| matches!(spec, Spec::Last(_)));
        let is_good = ranges.0.len() > 1
            && (has_suffix || ranges.satisfied_by(u64::MAX).is_some_and(|parts| parts.len() > 1));
        is_good.then_some(ranges)
    }

    /// The one range that has all of them in it, as a Range header; `None` where it depends on the length.
    pub fn cover(&self) -> Option<String> {
        if self.0.iter().any(|spec| matches!(spec, Spec::Last(_))) {
            return None;
        }
        match (self.0.first()?, self.0.last()?) {
            (Spec::Bytes(first, _), Spec::Bytes(_, last)) => Some(format!("bytes={first}-{last}")),
            (Spec::Bytes(first, _), _) => Some(format!("bytes={first}-")),
            _ => None,
        }
    }

    /// The parts of a body of this length; `None` where there is none, and where the whole must be sent.
    pub fn satisfied_by(&self, length: u64) -> Option<Satisfied> {
        let mut parts = Satisfied::new();
        let (mut sent, mut skipped) = (0_u64, 0_u64);
        for spec in &self.0 {
            let (first, last) = match *spec {
                Spec::Bytes(first, last) => (first, last.min(length.saturating_sub(1))),
                Spec::From(first) => (first, length.saturating_sub(1)),
                Spec::Last(0) => continue,
                Spec::Last(count) => (length.saturating_sub(count), length.saturating_sub(1)),
            };
            if first >= length {
                continue;
            }
            if let Some((_, before)) = parts.last_mut() {
                if first <= *before {
                    return None;
                }
                let gap = first - *before - 1;
                if gap < SMALLEST_GAP {
                    sent = sent.saturating_add(last - *before);
                    *before = last;
                    continue;
                }
                skipped = skipped.saturating_add(gap);
                if skipped > LARGEST_GAP.saturating_add(sent.saturating_mul(GAP_SHARE)) {
                    return None;
                }
            }
            sent = sent.saturating_add(last - first + 1);
            parts.push((first, last));
        }
        (!parts.is_empty()).then_some(parts)
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, |sum, b| sum * 10 + u64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(value: &str, length: u64) -> Option<Vec<(u64, u64)>> {
        Some(Ranges::read(value.as_bytes())?.satisfied_by(length)?.to_vec())
    }

    #[test]
    fn several_ranges_become_parts() {
        for (value, length, expected) in [
            ("bytes=0-9, 1000-1009", 5000, vec![(0, 9), (1000, 1009)]),
            ("Bytes=0-9,,1000-", 2000, vec![(0, 9), (1000, 1999)]),
            ("bytes=0-9,-10", 2000, vec![(0, 9), (1990, 1999)]),
            // Cut at the end, and what lies behind it is left out.
            ("bytes=0-9,1000-9999,20000-", 1500, vec![(0, 9), (1000, 1499)]),
            ("bytes=0-9,1000-1009", 500, vec![(0, 9)]),
            // A gap that is not worth a part.
            ("bytes=0-9,20-29,1000-1009", 5000, vec![(0, 29), (1000, 1009)]),
            ("bytes=0-9,-0,1000-1000", 5000, vec![(0, 9), (1000, 1000)]),
        ] {
            assert_eq!(parts(value, length), Some(expected), "{value}");
        }
    }

    #[test]
    fn other_ranges_are_answered_with_the_whole() {
        let many: Vec<String> = (0..17).map(|n| format!("{}-{}", n * 1000, n * 1000)).collect();
        for value in [
            "bytes=0-9",
            "bytes=",
            "bytes=a-b,c-d",
            "bytes=9-0,1000-1001",
            "bytes=-,5-6",
            "lines=0-9,1000-1009",
            // In another order, and one in the other.
            "bytes=1000-1009,0-9",
            "bytes=0-999,500-1500",
            "bytes=0-,500-600",
            // Together they are one.
            "bytes=0-9,10-19",
            // A client that reads nothing must not make us read much.
            "bytes=0-0,1073741824-1073741824",
            &format!("bytes={}", many.join(",")),
            &format!("bytes=0-{},{}-", "9".repeat(19), "9".repeat(20)),
        ] {
            assert_eq!(Ranges::read(value.as_bytes()), None, "{value}");
        }
        assert_eq!(parts("bytes=0-9,-2000", 2000), None, "one in the other");
        assert_eq!(parts("bytes=0-0,-1", 1 << 30), None, "too far");
        assert_eq!(parts("bytes=0-0,-1", 0), None);
        // More of the first, and more may lie between.
        assert!(parts("bytes=0-999999,8000000-8000009", 1 << 30).is_some());
        // What is cut off does not count: the last range cannot pay for the gap before it.
        assert_eq!(Ranges::read(b"bytes=0-0,1073741824-99999999999999999"), None);
    }

    #[test]
    fn one_range_covers_them_where_the_length_does_not_matter() {
        let cover = |value: &str| Ranges::read(value.as_bytes()).unwrap().cover();
        assert_eq!(cover("bytes=5-9,1000-1009").as_deref(), Some("bytes=5-1009"));
        assert_eq!(cover("bytes=5-9,1000-").as_deref(), Some("bytes=5-"));
        assert_eq!(cover("bytes=5-9,-10"), None);
    }

    proptest! {
        #[test]
        fn parts_ascend_and_stay_within_the_length(
            list in proptest::collection::vec((0_u64..4000, proptest::option::of(0_u64..4000)), 1..20),
            length in 0_u64..5000,
        ) {
            let list: Vec<String> = list.iter().map(|(first, last)| match last {
                Some(last) => format!("{first}-{last}"),
                None if first % 2 == 0 => format!("{first}-"),
                None => format!("-{first}"),
            }).collect();
            let value = format!("bytes={}", list.join(","));
            if let Some(ranges) = Ranges::read(value.as_bytes())
                && let Some(parts) = ranges.satisfied_by(length)
            {
                prop_assert!(parts.len() <= MOST_RANGES);
                prop_assert!(parts.iter().all(|(first, last)| first <= last && *last < length));
                prop_assert!(parts.windows(2).all(|two| two[0].1 + SMALLEST_GAP < two[1].0));
                // The cover begins with the first of them, and ends with the last or behind it.
                if let Some(cover) = ranges.cover() {
                    let begins = format!("bytes={}-", parts[0].0);
                    prop_assert!(cover.starts_with(&begins), "{} {}", cover, begins);
                }
            }
        }

        #[test]
        fn any_bytes_have_a_reading(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Ranges::read(&value);
            let _ = Ranges::read(&[b"bytes=", value.as_slice()].concat());
        }
    }
}
