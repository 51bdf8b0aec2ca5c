//! Whole numbers of seconds.

/// Digits and nothing else. A number that is too large stands for a large one.
pub(super) fn delta_seconds(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, b: &u8| {
        b.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add(u64::from(b - b'0')))
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}
