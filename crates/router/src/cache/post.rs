//! Responses to POST that may answer later GETs (RFC 9110, 9.3.3; RFC 9111, 3 and 4). Where anything is in doubt, they may not.

use super::directives::field_names;
use super::lifetime::Answer;
use super::targeted::{surrogate, targeted};
use super::{Cache, same_origin_url};

/// Headers of a request that say something about its content or about how it is sent. A GET of the same URL has none of them.
pub fn is_about_content(name: &[u8]) -> bool {
    let begins = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
    let others = ["expect", "te", "trailer", "transfer-encoding", "digest", "repr-digest", "want-digest"];
    begins || others.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// A POST whose response has come.
#[derive(Debug, Clone, Copy)]
pub struct Posted<'a> {
    pub scheme: &'a [u8],
    /// With its port, if it has one.
    pub host: &'a [u8],
    /// Path and query, as the client sent them.
    pub url: &'a [u8],
    pub has_cookie: bool,
}

impl Cache {
    /// May this response to a POST answer later GETs of the same URL? Its body must be whole, too, which is not looked at.
    ///
    /// The origin must say so twice: by a lifetime of its own, and by a Content-Location that is the URL itself. A request with a Cookie needs
    /// a word for shared caches, as RFC 9111 (3.5) has it for Authorization.
    pub fn may_answer_get(&self, answer: &impl Answer, posted: &Posted<'_>) -> bool {
        let has = |name: &str| answer.any_header(name, &mut |_| true);
        if !self.keeps_posts() || self.obeys_search() || answer.status() != 200 || answer.is_authorized() {
            return false;
        }
        let unwanted = ["Set-Cookie", "Content-Range", "Trailer", "Transfer-Encoding", "Upgrade"];
        if unwanted.into_iter().any(has) || !names_itself(answer, posted) {
            return false;
        }
        let control = self.control(answer);
        let is_limited = control.no_store
            || control.private
            || control.no_cache
            || control.must_understand
            || !control.private_fields.is_empty()
            || !control.no_cache_fields.is_empty();
        if is_limited || self.forbids(answer) {
            return false;
        }
        let is_targeted =
            self.targets.iter().any(|name| targeted(answer, name).is_some()) || surrogate(answer).is_some();
        let is_for_all = control.public || control.s_maxage.is_some() || is_targeted;
        (is_for_all || !posted.has_cookie)
            && self.fresh_by_origin(answer)
            && self.keeping(answer).ttl > 0.0
            && may_vary(answer)
            && is_coding_known(answer)
    }
}

/// Content-Location is there once, and is the URL of the request, byte by byte.
fn names_itself(answer: &impl Answer, posted: &Posted<'_>) -> bool {
    let (mut lines, mut is_same) = (0, false);
    answer.any_header("Content-Location", &mut |value| {
        lines += 1;
        let is_plain = !value.is_empty() && !value.contains(&b'#');
        let named = same_origin_url(value, posted.scheme, posted.host, posted.url);
        is_same = is_plain && named.as_deref() == Some(posted.url);
        false
    });
    lines == 1 && is_same
}

/// A GET has no content: a variant by what is said about it would be that of all GETs.
fn may_vary(answer: &impl Answer) -> bool {
    let is_bad = |name: &[u8]| name == b"*" || is_about_content(name);
    !answer.any_header("Vary", &mut |line| field_names(line).any(is_bad))
}

/// Varnish asks for gzip alone, and unpacks it for clients that do not take it. Of others it does not know who takes them.
fn is_coding_known(answer: &impl Answer) -> bool {
    let mut lines = 0;
    let is_other = answer.any_header("Content-Encoding", &mut |value| {
        lines += 1;
        !value.trim_ascii().eq_ignore_ascii_case(b"gzip")
    });
    !is_other && lines <= 1
}

#[cfg(test)]
mod tests {
    use model::CachePolicy;

    use super::*;

    struct Response<'a>(u16, Vec<(&'a str, &'a str)>);

    impl Answer for Response<'_> {
        fn status(&self) -> u16 {
            self.0
        }
        fn any_header<'s>(&'s self, name: &str, seen: &mut dyn FnMut(&'s [u8]) -> bool) -> bool {
            let mut all = self.1.iter().filter(|(this, _)| this.eq_ignore_ascii_case(name));
            all.any(|(_, value)| seen(value.as_bytes()))
        }
        fn now(&self) -> f64 {
            784_111_777.0
        }
        fn waited(&self) -> f64 {
            0.0
        }
    }

    const POSTED: Posted<'_> =
        Posted { scheme: b"http", host: b"shop.test", url: b"/cart?a=1", has_cookie: false };
    const HERE: (&str, &str) = ("Content-Location", "/cart?a=1");
    const FRESH: (&str, &str) = ("Cache-Control", "max-age=60");

    fn policy(change: impl FnOnce(&mut CachePolicy)) -> Cache {
        let mut policy =
            CachePolicy { keep_posts: true, default_ttl_seconds: Some(60.0), ..CachePolicy::default() };
        change(&mut policy);
        Cache::compile(&policy).unwrap()
    }

    fn may(headers: &[(&str, &str)]) -> bool {
        policy(|_| {}).may_answer_get(&Response(200, headers.to_vec()), &POSTED)
    }

    #[test]
    fn a_response_that_names_itself_and_its_lifetime_may_answer_get() {
        assert!(may(&[HERE, FRESH]));
        for lifetime in [
            ("Cache-Control", "s-maxage=5"),
            ("CDN-Cache-Control", "max-age=5"),
            ("Surrogate-Control", "max-age=5"),
            ("Expires", "Sun, 06 Nov 1994 09:49:37 GMT"),
        ] {
            assert!(may(&[HERE, lifetime]), "{lifetime:?}");
        }
        for location in ["http://shop.test/cart?a=1", "//shop.test:80/cart?a=1", "?a=1", "cart?a=1"] {
            assert!(may(&[("Content-Location", location), FRESH]), "{location}");
        }
        assert!(may(&[
            HERE,
            FRESH,
            ("Vary", "Accept, Cookie"),
            ("Content-Encoding", "gzip"),
            ("ETag", "\"a\"")
        ]));
    }

    #[test]
    fn what_is_in_doubt_may_not() {
        for headers in [
            &[HERE][..],
            &[FRESH],
            &[HERE, HERE, FRESH],
            &[("Content-Location", "/cart"), FRESH],
            &[("Content-Location", "/cart?a=1#x"), FRESH],
            &[("Content-Location", ""), FRESH],
            &[("Content-Location", "/x/../cart?a=1"), FRESH],
            &[("Content-Location", "/Cart?a=1"), FRESH],
            &[("Content-Location", "https://shop.test/cart?a=1"), FRESH],
            &[("Content-Location", "http://other.test/cart?a=1"), FRESH],
            &[HERE, ("Cache-Control", "public")],
            &[HERE, ("Cache-Control", "max-age=0")],
            &[HERE, ("Cache-Control", "max-age=60, private")],
            &[HERE, ("Cache-Control", "max-age=60, private=\"x-a\"")],
            &[HERE, ("Cache-Control", "max-age=60, no-store")],
            &[HERE, ("Cache-Control", "max-age=60, no-cache")],
            &[HERE, ("Cache-Control", "max-age=60, no-store, must-understand")],
            &[HERE, ("CDN-Cache-Control", "no-store"), FRESH],
            &[HERE, ("Expires", "Sun, 06 Nov 1994 07:49:37 GMT")],
            &[HERE, FRESH, ("Age", "60")],
            &[HERE, FRESH, ("Set-Cookie", "a=1")],
            &[HERE, FRESH, ("Vary", "*")],
            &[HERE, FRESH, ("Vary", "Accept, Content-Type")],
            &[HERE, FRESH, ("Content-Encoding", "br")],
            &[HERE, FRESH, ("Content-Encoding", "gzip"), ("Content-Encoding", "gzip")],
            &[HERE, FRESH, ("Content-Range", "bytes 0-1/2")],
            &[HERE, FRESH, ("Transfer-Encoding", "chunked")],
        ] {
            assert!(!may(headers), "{headers:?}");
        }
        for status in [201, 204, 206, 301, 404, 500] {
            let response = Response(status, vec![HERE, FRESH]);
            assert!(!policy(|_| {}).may_answer_get(&response, &POSTED), "{status}");
        }
    }

    #[test]
    fn a_cookie_needs_a_word_for_shared_caches() {
        let posted = Posted { has_cookie: true, ..POSTED };
        for (control, is_enough) in
            [("max-age=60", false), ("max-age=60, public", true), ("s-maxage=60", true)]
        {
            let response = Response(200, vec![HERE, ("Cache-Control", control)]);
            assert_eq!(policy(|_| {}).may_answer_get(&response, &posted), is_enough, "{control}");
        }
    }

    #[test]
    fn no_lifetime_of_the_policy_takes_the_place_of_the_origins() {
        let silent = Response(200, vec![HERE, ("Last-Modified", "Sun, 06 Nov 1993 08:49:37 GMT")]);
        let forced = policy(|policy| {
            (policy.default_ttl_seconds, policy.forced_ttl_seconds) = (None, Some(60.0));
        });
        assert!(!forced.may_answer_get(&silent, &POSTED));
        assert!(forced.may_answer_get(&Response(200, vec![HERE, FRESH]), &POSTED));
        let heuristic = model::Heuristic { fraction: 0.1, max_seconds: 60.0 };
        assert!(!policy(|policy| policy.heuristic = Some(heuristic)).may_answer_get(&silent, &POSTED));
    }

    #[test]
    fn policies_that_do_not_invalidate_or_do_not_say_so_keep_none() {
        let response = Response(200, vec![HERE, FRESH]);
        for change in [
            (|policy| policy.keep_posts = false) as fn(&mut CachePolicy),
            |policy| policy.ignore_unsafe_methods = true,
            |policy| policy.no_vary_search = true,
        ] {
            assert!(!policy(change).may_answer_get(&response, &POSTED));
        }
    }
}
