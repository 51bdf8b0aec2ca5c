//! How long an answer is kept, if at all.

use super::directives::Directives;
use super::{Cache, Lifetime, sane};

/// An origin's answer, as far as the cache asks. The carrier lends its bytes.
pub trait Answer {
    fn status(&self) -> u16;
    /// Shows every value of a header to `seen`, until it answers true. Names compare without case.
    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool;
    /// Seconds since 1970 of a date in one of HTTP's forms.
    fn time(&self, date: &[u8]) -> Option<f64>;
    /// Seconds since 1970.
    fn now(&self) -> f64;
    /// Seconds since the origin, or what stands between, made the answer.
    fn age(&self) -> f64;
}

/// For how long: seconds from now on, then after each other. Nothing is kept without a `ttl`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Keeping {
    pub ttl: f64,
    pub grace: f64,
    pub keep: f64,
}

impl Cache {
    /// What the policy makes of an answer, its headers that forbid keeping aside: see [`forbids`](Self::forbids).
    pub fn keeping(&self, answer: &impl Answer) -> Keeping {
        let says = Says::of(answer);
        let ttl = match (self.lifetime, answer.status()) {
            (_, ..200 | 500..) => 0.0,
            (Lifetime::Forced(seconds), status) if keepable(status) => seconds,
            (Lifetime::Forced(_), _) => 0.0,
            (_, status) if !keepable(status) => 0.0,
            (_, _) if says.no_cache => 0.0,
            (lifetime, status) => match (says.lifetime, lifetime) {
                (Some(seconds), _) => sane(seconds - answer.age()),
                (None, Lifetime::Default(seconds)) if keepable_unasked(status) => seconds,
                (None, _) => 0.0,
            },
        };
        if ttl <= 0.0 {
            return Keeping::default();
        }
        // To be asked about before it is served again; it may still be kept for that.
        let grace = if says.must_revalidate && !self.overrules_the_origin() { 0.0 } else { self.grace };
        Keeping { ttl, grace, keep: self.keep }
    }

    /// Whether a header forbids to keep the answer for others. No policy overrules these.
    pub fn forbids(answer: &impl Answer) -> bool {
        let mut directives = Directives::default();
        answer.any_header("Cache-Control", &mut |value| {
            directives.read(value);
            false
        });
        let mut surrogates = Directives::default();
        answer.any_header("Surrogate-Control", &mut |value| {
            surrogates.read(value);
            false
        });
        directives.private
            || directives.no_store
            || surrogates.no_store
            || answer.any_header("Set-Cookie", &mut |_| true)
            || answer
                .any_header("Vary", &mut |value| value.split(|b| *b == b',').any(|v| v.trim_ascii() == b"*"))
    }

    /// Whether this Cache-Control wants an answer to be revalidated before it is served stale.
    pub fn must_revalidate(cache_control: &[u8]) -> bool {
        let mut directives = Directives::default();
        directives.read(cache_control);
        directives.must_revalidate
    }
}

/// Statuses that are kept where somebody says for how long.
fn keepable(status: u16) -> bool {
    keepable_unasked(status) || matches!(status, 302 | 307)
}

/// Statuses that are kept where the origin is silent: HTTP calls them cacheable by default.
fn keepable_unasked(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 410 | 414)
}

/// What the origin says.
struct Says {
    /// Seconds, of which the answer's age is to be taken.
    lifetime: Option<f64>,
    no_cache: bool,
    must_revalidate: bool,
}

impl Says {
    fn of(answer: &impl Answer) -> Self {
        let mut directives = Directives::default();
        let mut controlled = false;
        answer.any_header("Cache-Control", &mut |value| {
            controlled = true;
            directives.read(value);
            false
        });
        let pragma =
            || answer.any_header("Pragma", &mut |value| value.trim_ascii().eq_ignore_ascii_case(b"no-cache"));
        let asked = directives.s_maxage.or(directives.max_age).map(|seconds| seconds as f64);
        Self {
            lifetime: asked.or_else(|| until_expiry(answer)),
            no_cache: directives.no_cache || (!controlled && pragma()),
            must_revalidate: directives.must_revalidate,
        }
    }
}

/// Expires, counted from the answer's own Date. One that is no date lies in the past.
fn until_expiry(answer: &impl Answer) -> Option<f64> {
    let mut expires = None;
    answer.any_header("Expires", &mut |value| {
        expires = Some(answer.time(value));
        true
    });
    let mut date = None;
    answer.any_header("Date", &mut |value| {
        date = answer.time(value);
        true
    });
    expires.map(|expires| expires.map_or(0.0, |at| at - date.unwrap_or_else(|| answer.now())))
}

#[cfg(test)]
mod tests {
    use model::CachePolicy;

    use super::*;

    struct Sample(u16, Vec<(&'static str, &'static str)>);

    impl Answer for Sample {
        fn status(&self) -> u16 {
            self.0
        }
        fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
            self.1.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).any(|(_, v)| seen(v.as_bytes()))
        }
        fn time(&self, date: &[u8]) -> Option<f64> {
            std::str::from_utf8(date).ok()?.strip_prefix('t')?.parse().ok()
        }
        fn now(&self) -> f64 {
            1000.0
        }
        fn age(&self) -> f64 {
            self.1.iter().find(|(n, _)| *n == "age").map_or(0.0, |(_, v)| v.parse().unwrap())
        }
    }

    fn policy(default: Option<f64>, forced: Option<f64>) -> Cache {
        let policy = CachePolicy {
            default_ttl_seconds: default,
            forced_ttl_seconds: forced,
            grace_seconds: Some(5.0),
            keep_seconds: Some(7.0),
            ..CachePolicy::default()
        };
        Cache::compile(&policy).unwrap()
    }

    /// ttl with defaultTTL 60, forcedTTL 90, and as the origin says.
    fn ttls(status: u16, headers: &[(&'static str, &'static str)]) -> [f64; 3] {
        let answer = Sample(status, headers.to_vec());
        [policy(Some(60.0), None), policy(None, Some(90.0)), policy(None, None)]
            .map(|p| p.keeping(&answer).ttl)
    }

    #[test]
    fn who_says_how_long() {
        assert_eq!(ttls(200, &[]), [60.0, 90.0, 0.0]);
        assert_eq!(ttls(200, &[("cache-control", "public")]), [60.0, 90.0, 0.0]);
        assert_eq!(ttls(200, &[("cache-control", "max-age=10")]), [10.0, 90.0, 10.0]);
        assert_eq!(ttls(200, &[("cache-control", "max-age=10, s-maxage=20")]), [20.0, 90.0, 20.0]);
        assert_eq!(
            ttls(200, &[("cache-control", "public"), ("cache-control", "max-age=10")]),
            [10.0, 90.0, 10.0]
        );
        assert_eq!(ttls(200, &[("cache-control", "max-age=10"), ("age", "4")]), [6.0, 90.0, 6.0]);
        assert_eq!(ttls(200, &[("cache-control", "max-age=10"), ("age", "40")]), [0.0, 90.0, 0.0]);
        assert_eq!(ttls(200, &[("cache-control", "max-age=0")]), [0.0, 90.0, 0.0]);
        assert_eq!(ttls(200, &[("cache-control", "no-cache, max-age=10")]), [0.0, 90.0, 0.0]);
        assert_eq!(ttls(200, &[("pragma", "no-cache")]), [0.0, 90.0, 0.0]);
        assert_eq!(ttls(200, &[("pragma", "no-cache"), ("cache-control", "max-age=10")]), [10.0, 90.0, 10.0]);
        assert_eq!(ttls(200, &[("expires", "t1030"), ("date", "t1010")]), [20.0, 90.0, 20.0]);
        assert_eq!(ttls(200, &[("expires", "t1030")]), [30.0, 90.0, 30.0]);
        assert_eq!(ttls(200, &[("expires", "0")]), [0.0, 90.0, 0.0]);
        assert_eq!(ttls(200, &[("expires", "t1030"), ("cache-control", "max-age=3")]), [3.0, 90.0, 3.0]);
    }

    #[test]
    fn statuses_that_are_kept() {
        let fresh = [("cache-control", "max-age=10")];
        for status in [200, 203, 204, 300, 301, 308, 404, 410, 414] {
            assert_eq!(ttls(status, &[]), [60.0, 90.0, 0.0], "{status}");
            assert_eq!(ttls(status, &fresh), [10.0, 90.0, 10.0], "{status}");
        }
        for status in [302, 307] {
            assert_eq!(ttls(status, &[]), [0.0, 90.0, 0.0], "{status}");
            assert_eq!(ttls(status, &fresh), [10.0, 90.0, 10.0], "{status}");
        }
        for status in [101, 206, 303, 400, 401, 403, 405, 429, 451, 500, 501, 502, 503, 504, 599] {
            assert_eq!(ttls(status, &fresh), [0.0, 0.0, 0.0], "{status}");
        }
    }

    #[test]
    fn what_must_be_revalidated_is_not_served_stale_unless_forced() {
        let answer = Sample(200, vec![("cache-control", "max-age=10, must-revalidate")]);
        assert_eq!(policy(Some(1.0), None).keeping(&answer), Keeping { ttl: 10.0, grace: 0.0, keep: 7.0 });
        assert_eq!(policy(None, Some(9.0)).keeping(&answer), Keeping { ttl: 9.0, grace: 5.0, keep: 7.0 });
        let answer = Sample(200, vec![("cache-control", "stale-while-revalidate=900")]);
        assert_eq!(policy(Some(1.0), None).keeping(&answer), Keeping { ttl: 1.0, grace: 5.0, keep: 7.0 });
    }

    #[test]
    fn some_headers_forbid_it_whatever_the_policy() {
        for (name, value) in [
            ("set-cookie", "a=1"),
            ("cache-control", "max-age=10, private"),
            ("cache-control", "No-Store"),
            ("surrogate-control", "no-store"),
            ("vary", "Accept, *"),
        ] {
            assert!(Cache::forbids(&Sample(200, vec![(name, value)])), "{name}: {value}");
        }
        assert!(!Cache::forbids(&Sample(200, vec![("cache-control", "no-cache"), ("vary", "Accept")])));
    }
}
