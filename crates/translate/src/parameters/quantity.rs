//! Kubernetes quantities, as far as sizes need them.

/// `512Mi`, `1.5Gi` or `1000000` in bytes, rounded down; `None` if it is not a size.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor);
    let part = parts / 10u128.pow(u32::try_from(fraction.len()).ok()?);
    whole.checked_add(u64::try_from(part).ok()?)
}

/// In varnishd's form, with the largest unit that loses nothing: `256m`.
pub(crate) fn varnish_size(bytes: u64) -> String {
    for (shift, unit) in [(30, 'g'), (20, 'm'), (10, 'k')] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}b")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1000000", Some(1_000_000)),
            ("1k", Some(1_000)),
            ("128Mi", Some(128 << 20)),
            ("1.5Gi", Some(1536 << 20)),
            ("0.5M", Some(500_000)),
            ("2Ti", Some(2 << 40)),
            ("256m", None),
            ("1e9", None),
            ("-1Gi", None),
            (".5Gi", None),
            ("1.2.3", None),
            ("99999999999Ti", None),
            ("Gi", None),
            ("", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_written_as_varnishd_reads_them() {
        for (bytes, expected) in
            [(1 << 30, "1g"), (1536 << 20, "1536m"), (3 << 10, "3k"), (1000, "1000b"), (0, "0b")]
        {
            assert_eq!(varnish_size(bytes), expected);
        }
    }
}
