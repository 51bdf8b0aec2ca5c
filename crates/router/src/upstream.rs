//! What a rule says of the way to its backends: timeouts, retries, mirrors, sticky sessions. Most rules say nothing.

use std::time::Duration;

use model::matches::PathMatchType;
use model::{Fraction, Retry, SessionPersistence, ghost};

use crate::group::{Group, Turns};
use crate::random;
use crate::rule::Rule;

/// The longest time that a rule can name; longer ones are cut.
const LONGEST: Duration = Duration::from_secs(86_400);

#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    request_timeout: Option<Duration>,
    backend_timeout: Option<Duration>,
    retry: Option<Retry>,
    mirrors: Box<[Mirror]>,
    session: Option<SessionPersistence>,
}

/// Endpoints that get copies of requests.
#[derive(Debug, Clone)]
pub struct Mirror {
    group: Group,
    fraction: Option<Fraction>,
}

impl Mirror {
    pub(crate) fn new(from: &ghost::Mirror, turns: &mut Turns) -> Self {
        Self { group: Group::new(&from.group, None, turns), fraction: from.fraction }
    }

    pub(crate) fn take_over(&mut self, older: &Turns) {
        self.group.take_over(older);
    }

    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Does it get a copy of this request? Each of `random` is as likely as the other.
    pub fn takes(&self, random: u64) -> bool {
        self.fraction.is_none_or(|Fraction { numerator, denominator }| {
            random::below(u64::from(denominator.max(1)), random) < u64::from(numerator)
        })
    }
}

/// Zero means none.
fn time(seconds: Option<f64>) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(seconds?).ok()?;
    (!time.is_zero()).then(|| time.min(LONGEST))
}

impl Upstream {
    pub(crate) fn compile(from: &ghost::Route, turns: &mut Turns) -> Option<Box<Self>> {
        let timeouts = from.timeouts.unwrap_or_default();
        let mirrors = from.mirrors.iter().map(|mirror| Mirror::new(mirror, turns));
        let upstream = Self {
            request_timeout: time(timeouts.request_seconds),
            backend_timeout: time(timeouts.backend_request_seconds),
            retry: from.retry.as_deref().cloned(),
            mirrors: mirrors.collect(),
            session: from.session_persistence.as_deref().cloned(),
        };
        let says_nothing = upstream.request_timeout.is_none()
            && upstream.backend_timeout.is_none()
            && upstream.retry.is_none()
            && upstream.mirrors.is_empty()
            && upstream.session.is_none();
        (!says_nothing).then(|| Box::new(upstream))
    }

    pub(crate) fn take_over(&mut self, older: &Turns) {
        self.mirrors.iter_mut().for_each(|mirror| mirror.take_over(older));
    }
}

impl Rule {
    /// It says nothing of the way to its backends: one try, without a timeout of its own.
    pub fn is_plain(&self) -> bool {
        self.upstream.is_none()
    }

    /// Only the front reaches this group as the rule says: varnishd hands it the request.
    pub fn needs_front(&self, group: usize) -> bool {
        !self.is_plain() || self.groups().get(group).is_some_and(Group::needs_front)
    }

    /// For the whole request, all tries together.
    pub fn request_timeout(&self) -> Option<Duration> {
        self.upstream.as_ref()?.request_timeout
    }

    /// For one try.
    pub fn backend_timeout(&self) -> Option<Duration> {
        self.upstream.as_ref()?.backend_timeout
    }

    pub fn retry(&self) -> Option<&Retry> {
        self.upstream.as_ref()?.retry.as_ref()
    }

    pub fn mirrors(&self) -> &[Mirror] {
        self.upstream.as_ref().map_or(&[], |upstream| &upstream.mirrors)
    }

    pub fn session(&self) -> Option<&SessionPersistence> {
        self.upstream.as_ref()?.session.as_ref()
    }

    /// The `Path` of a session's cookie: what the rule matches; of a pattern, the part before it (GEP-1619).
    pub fn cookie_path(&self) -> &str {
        let path = match self.path.kind {
            PathMatchType::Exact | PathMatchType::PathPrefix => &*self.path.value,
            PathMatchType::RegularExpression => before_pattern(&self.path.value),
        };
        let is_plain = path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b';');
        if is_plain { path } else { "/" }
    }
}

/// The whole segments that every path begins with that the pattern matches.
fn before_pattern(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
    let fixed = match pattern.find(special) {
        _ if pattern.contains('|') => "",
        Some(at) => &pattern[..at],
        None => return pattern,
    };
    fixed.rfind('/').map_or("", |at| &fixed[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_get_the_path_before_a_pattern() {
        assert_eq!(before_pattern("/p1/p2/.*/p3"), "/p1/p2");
        assert_eq!(before_pattern("^/shop/[0-9]+"), "/shop");
        assert_eq!(before_pattern("/shop/cart"), "/shop/cart");
        assert_eq!(before_pattern("/shop/carts?"), "/shop");
        assert_eq!(before_pattern("/[a-z]+"), "");
        assert_eq!(before_pattern("/a/b|/c"), "");
        assert_eq!(before_pattern(".*"), "");
    }
}
