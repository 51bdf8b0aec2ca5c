//! Cache-Control, as a shared cache reads it.

/// What an answer says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Directives {
    pub(super) no_store: bool,
    pub(super) private: bool,
    pub(super) no_cache: bool,
    pub(super) must_revalidate: bool,
    /// Seconds; 0 where the number makes no sense.
    pub(super) max_age: Option<u64>,
    pub(super) s_maxage: Option<u64>,
}

impl Directives {
    pub(super) fn read(&mut self, value: &[u8]) {
        for directive in Parts(value) {
            let (name, argument) = match directive.iter().position(|b| *b == b'=') {
                Some(at) => (&directive[..at], Some(directive[at + 1..].trim_ascii())),
                None => (directive, None),
            };
            let is = |wanted: &[u8]| name.trim_ascii().eq_ignore_ascii_case(wanted);
            // Of several, the first counts.
            if is(b"max-age") {
                self.max_age = self.max_age.or(Some(seconds(argument)));
            } else if is(b"s-maxage") {
                self.s_maxage = self.s_maxage.or(Some(seconds(argument)));
            } else {
                self.no_store |= is(b"no-store");
                // Also where it names a few headers alone: to take these out is not ours.
                self.private |= is(b"private");
                self.no_cache |= is(b"no-cache");
                self.must_revalidate |= is(b"must-revalidate") || is(b"proxy-revalidate");
            }
        }
    }
}

/// A number that is too large stands for one that is large.
fn seconds(argument: Option<&[u8]>) -> u64 {
    let digits = argument.unwrap_or_default();
    let digits = digits.strip_prefix(b"\"").and_then(|d| d.strip_suffix(b"\"")).unwrap_or(digits);
    let digit = |sum: Option<u64>, b: &u8| {
        let sum = sum?.saturating_mul(10);
        b.is_ascii_digit().then(|| sum.saturating_add(u64::from(b - b'0')))
    };
    if digits.is_empty() { 0 } else { digits.iter().fold(Some(0), digit).unwrap_or(0) }
}

/// Parted by commas that do not stand in quotes.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let mut quoted = false;
        let ends = |b: &u8| {
            quoted ^= *b == b'"';
            *b == b',' && !quoted
        };
        let end = self.0.iter().position(ends).unwrap_or(self.0.len());
        let part = self.0[..end].trim_ascii();
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Directives {
        let mut directives = Directives::default();
        directives.read(value.as_bytes());
        directives
    }

    #[test]
    fn directives_are_told_apart() {
        assert_eq!(read("public, stale-while-revalidate=60, ,").max_age, None);
        assert_eq!(read("Max-Age=60 , s-maxage=\"5\"").max_age, Some(60));
        assert_eq!(read("max-age=1,s-maxage=\"5\"").s_maxage, Some(5));
        assert_eq!(read("max-age=1, max-age=9").max_age, Some(1));
        assert!(read("max-age=1, PRIVATE").private);
        assert!(read("private=\"x-a, x-b\", max-age=5").private);
        assert_eq!(read("private=\"max-age=1\"").max_age, None);
        assert!(!read("x-private, privately, no-storex").private);
        assert!(read("no-store").no_store && read("no-cache=\"set-cookie\"").no_cache);
        assert!(read("proxy-revalidate").must_revalidate && read("must-revalidate").must_revalidate);
    }

    #[test]
    fn numbers_that_make_no_sense_are_zero_and_large_ones_large() {
        for value in ["max-age", "max-age=", "max-age=soon", "max-age=-1", "max-age=1.5", "max-age=\"\""] {
            assert_eq!(read(value).max_age, Some(0), "{value}");
        }
        assert_eq!(read("max-age=99999999999999999999999").max_age, Some(u64::MAX));
    }
}
