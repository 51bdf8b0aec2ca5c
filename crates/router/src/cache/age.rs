//! The response header Age, and how old a response is (RFC 9111, 4.2.3 and 5.1).

use super::number::delta_seconds;

/// Seconds in an Age header: the first member of the first line. Anything but a plain number is ignored, as RFC 9111 says; one that is
/// too large stands for a large one.
pub fn age(line: &[u8]) -> Option<u64> {
    let first = line.split(|b| *b == b',').next().unwrap_or_default();
    delta_seconds(first.trim_ascii())
}

/// How old a response was when it had arrived. `waited`: seconds between the request and the response.
///
/// A Date in the past is evidence of age only where another cache may have kept the response (`cached_before`): without one it is a
/// clock that is slow, and nothing would ever be fresh.
pub fn initial_age(age: Option<u64>, date: Option<f64>, now: f64, waited: f64, cached_before: bool) -> f64 {
    let corrected = age.unwrap_or_default() as f64 + waited.max(0.0);
    let apparent = match date {
        Some(date) if cached_before => now - date,
        _ => 0.0,
    };
    corrected.max(apparent).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_member_counts_and_others_are_ignored() {
        for (line, seconds) in [
            ("0", Some(0)),
            ("7200", Some(7200)),
            (" 7200 ", Some(7200)),
            ("007", Some(7)),
            ("7200, 0", Some(7200)),
            ("0,7200", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("", None),
            (",5", None),
            ("abc", None),
            ("-7200", None),
            ("+5", None),
            ("7200.0", None),
            ("7200;a=b", None),
            ("\"7200\"", None),
            ("72 00", None),
        ] {
            assert_eq!(age(line.as_bytes()), seconds, "{line}");
        }
    }

    #[test]
    fn a_date_counts_only_behind_another_cache() {
        assert_eq!(initial_age(None, Some(900.0), 1000.0, 0.5, false), 0.5);
        assert_eq!(initial_age(None, Some(900.0), 1000.0, 0.5, true), 100.0);
        assert_eq!(initial_age(Some(30), Some(990.0), 1000.0, 2.0, true), 32.0);
        assert_eq!(initial_age(Some(30), None, 1000.0, 2.0, true), 32.0);
        // A Date in the future, and a clock that was set back.
        assert_eq!(initial_age(None, Some(2000.0), 1000.0, -3.0, true), 0.0);
    }
}
