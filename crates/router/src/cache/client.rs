//! Cache-Control of requests (RFC 9111, 5.2.1), where the policy obeys it.

use super::directives::Directives;

/// What a client says about stored responses. Seconds; numbers that are too large stand for large ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// None without validation.
    pub no_cache: bool,
    /// What is fetched for this request is not stored.
    pub no_store: bool,
    /// Nothing may be fetched.
    pub only_if_cached: bool,
    /// Not older than this.
    pub max_age: Option<u32>,
    /// Fresh for so long.
    pub min_fresh: Option<u32>,
    /// Stale for so long at most.
    pub max_stale: Option<u32>,
}

impl Wanted {
    /// `None` where nothing is said that a cache could obey.
    pub fn read<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut says = Directives::default();
        lines.for_each(|line| says.read(line));
        let short = |seconds: Option<u64>| seconds.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        let wanted = Self {
            // Of requests it has no field names; one that has is about the whole.
            no_cache: says.no_cache || !says.no_cache_fields.is_empty(),
            no_store: says.no_store,
            only_if_cached: says.only_if_cached,
            max_age: short(says.max_age),
            min_fresh: short(says.min_fresh),
            max_stale: short(says.max_stale),
        };
        (wanted != Self::default()).then_some(wanted)
    }

    /// Whether a fresh response of this age, which stays fresh for so long, will do.
    pub fn takes_fresh(&self, age: f64, fresh_for: f64) -> bool {
        !self.no_cache
            && self.max_age.is_none_or(|most| age <= f64::from(most))
            && self.min_fresh.is_none_or(|least| fresh_for >= f64::from(least))
    }

    /// For how many seconds after it was fresh a response of this age will do: `None` where the client does not say. Whether it may be
    /// served stale at all is not its to say.
    pub fn takes_stale(&self, age: f64) -> Option<f64> {
        let is_too_old = self.max_age.is_some_and(|most| age > f64::from(most)) && self.max_stale.is_none();
        if self.no_cache || self.min_fresh.is_some() || is_too_old {
            return Some(0.0);
        }
        match self.max_stale {
            Some(most) => Some(f64::from(most)),
            // A client that names an age, and no staleness, wants none.
            None => self.max_age.map(|_| 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Wanted> {
        Wanted::read(std::iter::once(line.as_bytes()))
    }

    #[test]
    fn only_what_can_be_obeyed_counts() {
        assert_eq!(read(""), None);
        assert_eq!(read("no-transform, stale-if-error=5, x"), None);
        assert_eq!(read("No-Cache"), Some(Wanted { no_cache: true, ..Wanted::default() }));
        assert_eq!(read("no-cache=\"a\""), Some(Wanted { no_cache: true, ..Wanted::default() }));
        assert_eq!(
            read("max-age=99999999999, min-fresh=x"),
            Some(Wanted { max_age: Some(u32::MAX), min_fresh: Some(u32::MAX), ..Wanted::default() })
        );
        let two = [b"no-store".as_slice(), b"only-if-cached"];
        let wanted = Wanted::read(two.into_iter()).unwrap();
        assert!(wanted.no_store && wanted.only_if_cached && !wanted.no_cache);
    }

    #[test]
    fn stored_responses_are_taken_by_age_and_freshness() {
        for (line, age, fresh_for, takes) in [
            ("no-cache", 0.0, 60.0, false),
            ("no-store", 10.0, 60.0, true),
            ("max-age=10", 10.0, 1.0, true),
            ("max-age=10", 10.5, 60.0, false),
            ("max-age=0", 0.01, 60.0, false),
            ("max-age=x", 0.01, 60.0, false),
            ("min-fresh=10", 5.0, 10.0, true),
            ("min-fresh=10", 5.0, 9.9, false),
            ("max-stale", 5.0, 9.9, true),
            ("only-if-cached", 5.0, 9.9, true),
        ] {
            assert_eq!(read(line).unwrap().takes_fresh(age, fresh_for), takes, "{line} {age} {fresh_for}");
        }
    }

    #[test]
    fn stale_responses_are_taken_as_far_as_the_client_says() {
        for (line, age, takes) in [
            ("max-stale=60", 1000.0, Some(60.0)),
            ("max-stale", 1000.0, Some(f64::from(u32::MAX))),
            ("max-stale=x", 1000.0, Some(0.0)),
            ("max-age=2000", 1000.0, Some(0.0)),
            ("max-age=5, max-stale=60", 1000.0, Some(60.0)),
            ("min-fresh=1, max-stale=60", 1000.0, Some(0.0)),
            ("no-cache, max-stale=60", 1000.0, Some(0.0)),
            ("only-if-cached", 1000.0, None),
            ("no-store", 1000.0, None),
        ] {
            assert_eq!(read(line).unwrap().takes_stale(age), takes, "{line}");
        }
    }
}
