use model::{CachePolicy, Heuristic};

use super::*;

const NOW: f64 = 784_111_777.0;
const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const TEN_LATER: &str = "Sun, 06 Nov 1994 08:49:47 GMT";
const THIRTY_LATER: &str = "Sun, 06 Nov 1994 08:50:07 GMT";

struct Sample {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    waited: f64,
    authorized: bool,
}

impl Answer for Sample {
    fn status(&self) -> u16 {
        self.status
    }
    fn any_header<'s>(&'s self, name: &str, seen: &mut dyn FnMut(&'s [u8]) -> bool) -> bool {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).any(|(_, v)| seen(v.as_bytes()))
    }
    fn now(&self) -> f64 {
        NOW
    }
    fn waited(&self) -> f64 {
        self.waited
    }
    fn is_authorized(&self) -> bool {
        self.authorized
    }
}

fn sample(status: u16, headers: &[(&'static str, &'static str)]) -> Sample {
    Sample { status, headers: headers.to_vec(), waited: 0.0, authorized: false }
}

fn policy(default: Option<f64>, forced: Option<f64>) -> CachePolicy {
    CachePolicy {
        default_ttl_seconds: default,
        forced_ttl_seconds: forced,
        grace_seconds: Some(5.0),
        keep_seconds: Some(7.0),
        ..CachePolicy::default()
    }
}

fn cache(policy: &CachePolicy) -> Cache {
    Cache::compile(policy).unwrap()
}

/// ttl with defaultTTL 60, forcedTTL 90, and as the origin says.
fn ttls(status: u16, headers: &[(&'static str, &'static str)]) -> [f64; 3] {
    let answer = sample(status, headers);
    [policy(Some(60.0), None), policy(None, Some(90.0)), policy(None, None)]
        .map(|p| cache(&p).keeping(&answer).ttl)
}

/// With a policy that names neither grace nor keep.
fn silent(headers: &[(&'static str, &'static str)]) -> Keeping {
    let policy = CachePolicy { default_ttl_seconds: Some(60.0), ..CachePolicy::default() };
    cache(&policy).keeping(&sample(200, headers))
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
    assert_eq!(ttls(200, &[("expires", THIRTY_LATER), ("date", TEN_LATER)]), [20.0, 90.0, 20.0]);
    assert_eq!(ttls(200, &[("expires", THIRTY_LATER)]), [30.0, 90.0, 30.0]);
    assert_eq!(ttls(200, &[("expires", THEN), ("expires", THIRTY_LATER)]), [0.0, 90.0, 0.0]);
    assert_eq!(ttls(200, &[("expires", "0")]), [0.0, 90.0, 0.0]);
    assert_eq!(ttls(200, &[("expires", THIRTY_LATER), ("cache-control", "max-age=3")]), [3.0, 90.0, 3.0]);
    assert_eq!(ttls(200, &[("cache-control", "no-cache=\"x-a\", max-age=10")]), [10.0, 90.0, 10.0]);
}

#[test]
fn age_is_what_the_headers_and_the_clock_say() {
    let age = |headers: &[(&'static str, &'static str)], waited: f64| {
        let answer = Sample { waited, ..sample(200, headers) };
        let Keeping { age, ttl, .. } = cache(&policy(None, None)).keeping(&answer);
        (age, ttl)
    };
    let fresh = ("cache-control", "max-age=3600");
    assert_eq!(age(&[fresh], 2.0), (2.0, 3598.0));
    assert_eq!(age(&[fresh, ("age", "100")], 2.0), (102.0, 3498.0));
    for ignored in ["abc", "-7200", "7200.0", "7200;a=b", ""] {
        assert_eq!(age(&[fresh, ("age", ignored)], 0.0), (0.0, 3600.0), "{ignored}");
    }
    assert_eq!(age(&[fresh, ("age", "7200, 0")], 0.0).1, 0.0);
    assert_eq!(age(&[fresh, ("age", "7200"), ("age", "0")], 0.0).1, 0.0);
    assert_eq!(age(&[fresh, ("age", "0"), ("age", "7200")], 0.0), (0.0, 3600.0));
    assert_eq!(age(&[fresh, ("age", "99999999999999999999")], 0.0).1, 0.0);
    // A Date of an hour ago: the origin's clock, unless another cache has been there.
    let hour_ago = ("date", "Sun, 06 Nov 1994 07:49:37 GMT");
    assert_eq!(age(&[fresh, hour_ago], 0.0), (0.0, 3600.0));
    assert_eq!(age(&[fresh, hour_ago, ("via", "1.1 old")], 0.0), (3600.0, 0.0));
    assert_eq!(age(&[fresh, ("date", TEN_LATER), ("via", "1.1 old")], 0.0), (0.0, 3600.0));
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
    for status in [201, 299, 303] {
        assert_eq!(ttls(status, &[]), [0.0, 0.0, 0.0], "{status}");
        assert_eq!(ttls(status, &fresh), [10.0, 0.0, 10.0], "{status}");
    }
    for status in [101, 206, 304, 400, 401, 403, 405, 429, 451, 500, 501, 502, 503, 504, 599] {
        assert_eq!(ttls(status, &fresh), [0.0, 0.0, 0.0], "{status}");
    }
}

#[test]
fn what_must_be_revalidated_is_not_served_stale_unless_forced() {
    for control in [
        "max-age=10, must-revalidate",
        "max-age=10, proxy-revalidate",
        "s-maxage=10",
        "max-age=10, must-revalidate, stale-while-revalidate=9, stale-if-error=9",
    ] {
        let answer = sample(200, &[("cache-control", control)]);
        let kept = cache(&policy(Some(1.0), None)).keeping(&answer);
        assert_eq!(
            (kept.ttl, kept.grace, kept.keep, kept.rescue),
            (10.0, 0.0, 7.0, Rescue::Never),
            "{control}"
        );
        let forced = cache(&policy(None, Some(9.0))).keeping(&answer);
        assert_eq!(
            (forced.ttl, forced.grace, forced.keep, forced.rescue),
            (9.0, 5.0, 7.0, Rescue::WhileKept),
            "{control}"
        );
        let kept = silent(&[("cache-control", control), ("etag", "\"1\"")]);
        assert_eq!(
            (kept.grace, kept.keep, kept.rescue),
            (0.0, VALIDATION_SECONDS, Rescue::Never),
            "{control}"
        );
    }
}

#[test]
fn the_origin_says_how_stale_where_the_policy_does_not() {
    let stale = [("cache-control", "max-age=10, stale-while-revalidate=20, stale-if-error=50")];
    let kept = silent(&stale);
    assert_eq!((kept.ttl, kept.grace, kept.keep, kept.rescue), (10.0, 20.0, 30.0, Rescue::For(50.0)));
    // The policy wins where it names them.
    let kept = cache(&policy(Some(1.0), None)).keeping(&sample(200, &stale));
    assert_eq!((kept.grace, kept.keep, kept.rescue), (5.0, 7.0, Rescue::WhileKept));
    let zero = CachePolicy { grace_seconds: Some(0.0), keep_seconds: Some(0.0), ..policy(Some(1.0), None) };
    let kept = cache(&zero).keeping(&sample(200, &stale));
    assert_eq!((kept.ttl, kept.grace, kept.keep), (10.0, 0.0, 0.0));
    // s-maxage with a word about staleness.
    let kept = silent(&[("cache-control", "s-maxage=10, stale-while-revalidate=20")]);
    assert_eq!((kept.grace, kept.keep, kept.rescue), (20.0, 0.0, Rescue::For(20.0)));
    // With a validator it is kept longer, to be asked about.
    let kept = silent(&[stale[0], ("last-modified", THEN)]);
    assert_eq!((kept.keep, kept.rescue), (VALIDATION_SECONDS, Rescue::For(50.0)));
}

#[test]
fn what_is_stale_at_once_is_kept_to_be_validated() {
    for control in ["no-cache", "max-age=0", "no-cache, max-age=100", "s-maxage=0"] {
        let kept = silent(&[("cache-control", control), ("etag", "\"1\"")]);
        assert_eq!(
            (kept.ttl, kept.grace, kept.keep, kept.rescue),
            (0.0, 0.0, VALIDATION_SECONDS, Rescue::Never)
        );
        assert_eq!(silent(&[("cache-control", control)]).keep, 0.0, "{control}");
    }
    let never = CachePolicy { keep_seconds: Some(0.0), ..policy(Some(1.0), None) };
    let answer = sample(200, &[("cache-control", "no-cache"), ("etag", "\"1\"")]);
    assert_eq!(cache(&never).keeping(&answer).keep, 0.0);
    let answer = sample(404, &[("cache-control", "no-cache"), ("etag", "\"1\"")]);
    assert_eq!(cache(&policy(Some(1.0), None)).keeping(&answer).keep, 0.0);
}

#[test]
fn what_is_stale_at_once_may_be_served_stale_where_the_origin_allows_it() {
    let of = |headers: &[(&'static str, &'static str)]| {
        let kept = silent(headers);
        assert_eq!(kept.ttl, 0.0);
        (kept.grace, kept.keep, kept.rescue)
    };
    let swr = ("cache-control", "max-age=0, stale-while-revalidate=60");
    assert_eq!(of(&[swr]), (60.0, 0.0, Rescue::For(60.0)));
    assert_eq!(of(&[swr, ("etag", "\"1\"")]), (60.0, VALIDATION_SECONDS, Rescue::For(60.0)));
    let sie = ("cache-control", "s-maxage=0, stale-if-error=600");
    assert_eq!(of(&[sie]), (0.0, 600.0, Rescue::For(600.0)));
    assert_eq!(of(&[swr, sie]), (60.0, 540.0, Rescue::For(600.0)));
    // It was fresh for 10 seconds, 30 seconds ago.
    let control = ("cache-control", "max-age=10, stale-while-revalidate=60, stale-if-error=600");
    assert_eq!(of(&[control, ("age", "40")]), (30.0, 540.0, Rescue::For(570.0)));
    assert_eq!(of(&[control, ("age", "4000")]), (0.0, 0.0, Rescue::Never));
    for forbids in ["no-cache", "must-revalidate", "proxy-revalidate"] {
        assert_eq!(of(&[swr, ("cache-control", forbids)]), (0.0, 0.0, Rescue::Never), "{forbids}");
    }
    // The policy's grace and keep count, where it names them.
    let answer = sample(200, &[("cache-control", "max-age=0, stale-while-revalidate=60, stale-if-error=60")]);
    let kept = cache(&policy(Some(1.0), None)).keeping(&answer);
    assert_eq!((kept.grace, kept.keep, kept.rescue), (0.0, 0.0, Rescue::Never));
    // An error is not kept for others.
    assert_eq!(cache(&CachePolicy::default()).keeping(&sample(400, &[swr])).grace, 0.0);
}

#[test]
fn some_headers_forbid_it_whatever_the_policy() {
    let cache = cache(&policy(Some(1.0), None));
    for (name, value) in [
        ("set-cookie", "a=1"),
        ("cache-control", "max-age=10, private"),
        ("cache-control", "No-Store"),
        ("surrogate-control", "no-store"),
        ("vary", "Accept, *"),
        ("vary", ", *"),
    ] {
        assert!(cache.forbids(&sample(200, &[(name, value)])), "{name}: {value}");
    }
    for (name, value) in [
        ("cache-control", "no-cache"),
        ("vary", "Accept"),
        ("cache-control", "private=\"x-a\""),
        ("cache-control", "no-store, must-understand"),
    ] {
        assert!(!cache.forbids(&sample(200, &[(name, value)])), "{name}: {value}");
    }
    assert!(cache.forbids(&sample(599, &[("cache-control", "no-store, must-understand")])));
    // The origin says that the cookie alone is the first client's.
    assert!(
        !cache.forbids(&sample(200, &[("set-cookie", "a=1"), ("cache-control", "private=\"Set-Cookie\"")]))
    );
}

#[test]
fn answers_to_authorized_requests_are_shared_only_by_the_origins_word() {
    let cache = cache(&policy(Some(1.0), None));
    let forbids = |control: &'static str| {
        cache.forbids(&Sample { authorized: true, ..sample(200, &[("cache-control", control)]) })
    };
    assert!(
        forbids("max-age=10") && forbids("") && forbids("proxy-revalidate") && forbids("public, private")
    );
    assert!(!forbids("public") && !forbids("s-maxage=10") && !forbids("max-age=10, must-revalidate"));
}

#[test]
fn targeted_fields_take_the_place_of_cache_control_and_expires() {
    let ttl = |headers: &[(&'static str, &'static str)]| silent(headers).ttl;
    let forbids = |headers: &[(&'static str, &'static str)]| {
        cache(&policy(Some(1.0), None)).forbids(&sample(200, headers))
    };
    let cdn = ("cdn-cache-control", "max-age=100");
    assert_eq!(ttl(&[cdn]), 100.0);
    assert_eq!(ttl(&[cdn, ("cache-control", "max-age=1")]), 100.0);
    assert_eq!(ttl(&[cdn, ("age", "40"), ("expires", "0")]), 60.0);
    assert_eq!(ttl(&[("cdn-cache-control", "max-age=0"), ("expires", THIRTY_LATER)]), 0.0);
    assert_eq!(ttl(&[("cdn-cache-control", "no-cache"), ("cache-control", "max-age=5")]), 0.0);
    assert!(!forbids(&[cdn, ("cache-control", "no-store")]));
    assert!(forbids(&[("cdn-cache-control", "private"), ("cache-control", "max-age=5")]));
    assert!(forbids(&[("cdn-cache-control", "no-store"), ("cache-control", "max-age=5")]));
    // What is not valid is not there.
    assert_eq!(ttl(&[("cdn-cache-control", "max-age=100, &&"), ("cache-control", "max-age=5")]), 5.0);
    assert!(forbids(&[("cdn-cache-control", "max-age=\"100\""), ("cache-control", "no-store")]));
    // Surrogate-Control comes after it.
    assert_eq!(ttl(&[("surrogate-control", "max-age=30"), ("cache-control", "max-age=5")]), 30.0);
    assert_eq!(ttl(&[("surrogate-control", "content=\"ESI/1.0\""), ("cache-control", "max-age=5")]), 5.0);
    assert_eq!(ttl(&[cdn, ("surrogate-control", "max-age=30")]), 100.0);
    // A list of one's own.
    let own = CachePolicy {
        cache_control_targets: Some(vec!["Shop-Cache-Control".into(), "CDN-Cache-Control".into()]),
        ..policy(Some(1.0), None)
    };
    let own = cache(&own);
    assert_eq!(own.keeping(&sample(200, &[cdn, ("shop-cache-control", "max-age=7")])).ttl, 7.0);
    assert_eq!(own.keeping(&sample(200, &[cdn])).ttl, 100.0);
    assert_eq!(own.consumed_fields().collect::<Vec<_>>(), ["Shop-Cache-Control", "Surrogate-Control"]);
}

#[test]
fn heuristic_freshness_is_a_part_of_the_time_since_the_last_change() {
    let heuristic = Some(Heuristic { fraction: 0.1, max_seconds: 50.0 });
    let of = |headers: &[(&'static str, &'static str)], status| {
        let policy = CachePolicy { heuristic: heuristic.clone(), ..policy(Some(60.0), None) };
        cache(&policy).keeping(&sample(status, headers)).ttl
    };
    assert_eq!(of(&[("last-modified", THEN), ("date", TEN_LATER)], 200), 1.0);
    assert_eq!(of(&[("last-modified", "Sat, 05 Nov 1994 08:49:37 GMT")], 200), 50.0);
    assert_eq!(of(&[], 200), 60.0);
    assert_eq!(of(&[("last-modified", "never")], 200), 60.0);
    assert_eq!(of(&[("last-modified", TEN_LATER), ("date", THEN)], 200), 0.0);
    assert_eq!(of(&[("last-modified", THEN), ("cache-control", "max-age=9")], 200), 9.0);
    assert_eq!(of(&[("last-modified", "Sat, 05 Nov 1994 08:49:37 GMT")], 302), 0.0);
}
