//! How long a response is kept, if at all (RFC 9111, 3 and 4.2; RFC 5861).

use super::age::{age, initial_age};
use super::date::date;
use super::directives::{Directives, field_names};
use super::targeted::{SURROGATE_CONTROL, surrogate, targeted};
use super::{Cache, Lifetime, sane};

/// A response that can be validated is kept so long after it was fresh, where the policy does not say: to be asked about, not to be
/// served.
pub(super) const VALIDATION_SECONDS: f64 = 3600.0;

/// An origin's response, as far as the cache asks. The carrier lends its bytes.
pub trait Answer {
    fn status(&self) -> u16;
    /// Shows every value of a header to `seen`, until it answers true. Names compare without case.
    fn any_header<'s>(&'s self, name: &str, seen: &mut dyn FnMut(&'s [u8]) -> bool) -> bool;
    /// Seconds since 1970.
    fn now(&self) -> f64;
    /// Seconds between the request and the response.
    fn waited(&self) -> f64;
    /// Whether the request had Authorization.
    fn is_authorized(&self) -> bool {
        false
    }
}

/// For how long: seconds from now on, then after each other.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Keeping {
    /// How old the response is now.
    pub age: f64,
    /// How long it is fresh. Where it is 0, the response is kept only if `grace` or `keep` is not: to be validated on each use.
    pub ttl: f64,
    pub grace: f64,
    pub keep: f64,
    /// Seconds after it was fresh during which it may take the place of a failure.
    pub rescue: Rescue,
}

/// When a stale response may take the place of a failure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Rescue {
    /// As long as it is kept.
    #[default]
    WhileKept,
    /// For so many seconds after it was fresh.
    For(f64),
    /// It must be validated before it is served again, whatever a client wants.
    Never,
}

impl Cache {
    /// What the policy makes of a response, its headers that forbid keeping aside: see [`forbids`](Self::forbids).
    pub fn keeping(&self, answer: &impl Answer) -> Keeping {
        let says = Says::of(self, answer);
        let age = says.age;
        let ttl = match (self.lifetime, answer.status()) {
            (_, ..200 | 206 | 304 | 500..) => return Keeping { age, ..Keeping::default() },
            (Lifetime::Forced(seconds), status) if keepable(status) => seconds,
            (Lifetime::Forced(_), _) => 0.0,
            (_, _) if says.no_cache => 0.0,
            (lifetime, status) => match (says.lifetime, lifetime) {
                (Some(seconds), _) if keepable_by_word(status) => sane(seconds - age),
                (None, _) if !keepable_unasked(status) => 0.0,
                (None, Lifetime::Default(seconds)) => self.heuristic_lifetime(answer, age).unwrap_or(seconds),
                (None, Lifetime::Origin) => self.heuristic_lifetime(answer, age).unwrap_or_default(),
                _ => 0.0,
            },
        };
        let has = |name| answer.any_header(name, &mut |_| true);
        let can_be_validated = answer.status() == 200 && (has("ETag") || has("Last-Modified"));
        if ttl <= 0.0 {
            return self.stale_at_once(&says, answer.status(), can_be_validated);
        }
        // To be asked about before it is served again.
        let forbids_stale = says.forbids_stale && !self.overrules_the_origin();
        let grace = match self.grace {
            _ if forbids_stale => 0.0,
            Some(grace) => grace,
            None => says.stale_while_revalidate,
        };
        let may_rescue = if forbids_stale { 0.0 } else { says.stale_if_error.max(grace) };
        let (keep, rescue) = match self.keep {
            Some(keep) if forbids_stale => (keep, Rescue::Never),
            Some(keep) => (keep, Rescue::WhileKept),
            None => {
                let to_validate = if can_be_validated { VALIDATION_SECONDS } else { 0.0 };
                let rescue = if forbids_stale { Rescue::Never } else { Rescue::For(may_rescue) };
                (to_validate.max(may_rescue - grace), rescue)
            }
        };
        Keeping { age, ttl, grace, keep, rescue }
    }

    /// A response that is never fresh. It is kept to be validated on each use, and to be served stale where the origin allows that
    /// (`max-age=0, stale-while-revalidate=60`).
    fn stale_at_once(&self, says: &Says, status: u16, can_be_validated: bool) -> Keeping {
        let obeys = !self.overrules_the_origin();
        let may_be_stale = obeys && keepable_by_word(status) && !says.no_cache && !says.forbids_stale;
        // How much is left of the seconds after it was fresh.
        let left = |seconds: f64| match says.lifetime.filter(|_| may_be_stale) {
            Some(lifetime) => sane(lifetime + seconds - says.age),
            None => 0.0,
        };
        let grace = if self.grace.is_some() { 0.0 } else { left(says.stale_while_revalidate) };
        let may_rescue = if self.keep.is_some() { grace } else { left(says.stale_if_error).max(grace) };
        let to_validate =
            if can_be_validated && obeys { self.keep.unwrap_or(VALIDATION_SECONDS) } else { 0.0 };
        let rescue = if may_rescue > 0.0 { Rescue::For(may_rescue) } else { Rescue::Never };
        Keeping { age: says.age, ttl: 0.0, grace, keep: to_validate.max(may_rescue - grace), rescue }
    }

    /// Is the response fresh by its origin's own word, whatever the policy says?
    pub(super) fn fresh_by_origin(&self, answer: &impl Answer) -> bool {
        let says = Says::of(self, answer);
        !says.no_cache && says.lifetime.is_some_and(|seconds| seconds - says.age > 0.0)
    }

    /// A part of the time since the last change, where the policy says so.
    fn heuristic_lifetime(&self, answer: &impl Answer, age: f64) -> Option<f64> {
        let heuristic = self.heuristic?;
        let modified = first(answer, "Last-Modified").and_then(|text| date(text, answer.now()))?;
        let made = first(answer, "Date").and_then(|text| date(text, answer.now())).unwrap_or(answer.now());
        Some(sane(((made - modified) * heuristic.fraction).min(heuristic.most) - age))
    }

    /// Whether a header forbids to keep the response for others. No policy overrules these.
    pub fn forbids(&self, answer: &impl Answer) -> bool {
        self.forbidden_by(answer).is_some()
    }

    /// Which header forbids to keep the response for others, as a word for Cache-Status.
    pub fn forbidden_by(&self, answer: &impl Answer) -> Option<&'static str> {
        let control = self.control(answer);
        let surrogate = surrogate(answer);
        // The status is understood, and so no-store, which is there for caches that do not know must-understand, is not meant.
        let understood = control.must_understand && keepable_by_word(answer.status());
        let is_not_shared = answer.is_authorized()
            && !(control.public || control.must_revalidate || control.s_maxage.is_some());
        if control.private {
            Some("private")
        } else if control.no_store && !understood {
            Some("no-store")
        } else if is_not_shared {
            Some("authorization")
        } else if surrogate.is_some_and(|says| says.no_store) {
            Some("surrogate-control")
        } else if answer.any_header("Set-Cookie", &mut |_| true) && !names_field(&control, b"Set-Cookie") {
            Some("set-cookie")
        } else {
            let varies_by_all = |value| field_names(value).any(|name| name == b"*");
            answer.any_header("Vary", &mut |value| varies_by_all(value)).then_some("vary")
        }
    }

    /// Why a response without a lifetime is not kept, as a word for Cache-Status.
    pub fn not_kept_by(&self, status: u16) -> &'static str {
        if keepable_by_word(status) { "no-lifetime" } else { "status" }
    }

    /// The targeted field that counts first; Surrogate-Control; Cache-Control.
    pub(super) fn control<'s, A: Answer>(&self, answer: &'s A) -> Directives<'s> {
        for name in &self.targets {
            if let Some(says) = targeted(answer, name) {
                return says;
            }
        }
        surrogate(answer).unwrap_or_else(|| cache_control(answer))
    }
}

fn cache_control<A: Answer>(answer: &A) -> Directives<'_> {
    let mut says = Directives::default();
    answer.any_header("Cache-Control", &mut |line| {
        says.read(line);
        false
    });
    says
}

/// Whether the origin names a field that is for the first client alone.
fn names_field(control: &Directives<'_>, name: &[u8]) -> bool {
    let lists = control.private_fields.iter().chain(&control.no_cache_fields);
    lists.copied().flat_map(field_names).any(|named| named.eq_ignore_ascii_case(name))
}

fn first<'s>(answer: &'s impl Answer, name: &str) -> Option<&'s [u8]> {
    let mut found = None;
    answer.any_header(name, &mut |value| {
        found = Some(value);
        true
    });
    found
}

/// Statuses that are kept where the policy says for how long.
fn keepable(status: u16) -> bool {
    keepable_unasked(status) || matches!(status, 302 | 307)
}

/// Statuses that are kept where the origin says for how long. No errors: a client that can cause one must not give it to others.
fn keepable_by_word(status: u16) -> bool {
    keepable(status) || matches!(status, 200..=205 | 207..=299 | 303)
}

/// Statuses that are kept where the origin is silent: HTTP calls them heuristically cacheable.
fn keepable_unasked(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 410 | 414)
}

/// What the origin says.
struct Says {
    age: f64,
    /// Seconds, from which the response's age must be subtracted.
    lifetime: Option<f64>,
    no_cache: bool,
    /// It must not be served stale.
    forbids_stale: bool,
    stale_while_revalidate: f64,
    stale_if_error: f64,
}

impl Says {
    fn of(cache: &Cache, answer: &impl Answer) -> Self {
        let now = answer.now();
        let made = first(answer, "Date").and_then(|text| date(text, now));
        let has = |name: &str| answer.any_header(name, &mut |_| true);
        let aged = first(answer, "Age").and_then(age);
        let age = initial_age(aged, made, now, answer.waited(), aged.is_some() || has("Via"));
        let targeted = cache.targets.iter().any(|name| targeted(answer, name).is_some());
        let is_targeted = targeted || surrogate(answer).is_some();
        let control = cache.control(answer);
        let pragma =
            || answer.any_header("Pragma", &mut |value| value.trim_ascii().eq_ignore_ascii_case(b"no-cache"));
        let asked = control.s_maxage.or(control.max_age).map(|seconds| seconds as f64);
        let expiry = || if is_targeted { None } else { until_expiry(answer, made) };
        let stale = |seconds: Option<u64>| sane(seconds.unwrap_or_default() as f64);
        // s-maxage alone means proxy-revalidate. An origin that also says for how long it may be stale means that.
        let names_stale = control.stale_while_revalidate.is_some() || control.stale_if_error.is_some();
        Self {
            age,
            lifetime: asked.or_else(expiry),
            no_cache: control.no_cache || (!is_targeted && !has("Cache-Control") && pragma()),
            forbids_stale: control.must_revalidate
                || control.proxy_revalidate
                || control.no_cache
                || (control.s_maxage.is_some() && !names_stale),
            stale_while_revalidate: stale(control.stale_while_revalidate),
            stale_if_error: stale(control.stale_if_error),
        }
    }
}

/// Expires, counted from the response's own Date. One that is no date lies in the past.
fn until_expiry(answer: &impl Answer, made: Option<f64>) -> Option<f64> {
    let expires = first(answer, "Expires")?;
    let now = answer.now();
    Some(date(expires, now).map_or(0.0, |at| at - made.unwrap_or(now)))
}

impl Cache {
    /// Fields that are for the first client alone, or to be validated first: they are left out where the response is used again.
    /// Shows each list of names.
    pub fn unshared_fields<'s, A: Answer>(&self, answer: &'s A, mut show: impl FnMut(&'s [u8])) {
        let control = self.control(answer);
        control.private_fields.iter().chain(&control.no_cache_fields).for_each(|list| show(list));
    }

    /// Headers that are for this cache, and for no other behind it.
    pub fn consumed_fields(&self) -> impl Iterator<Item = &str> {
        let is_common = |name: &&str| !name.eq_ignore_ascii_case(super::targeted::DEFAULT_TARGETS[0]);
        self.targets.iter().map(AsRef::as_ref).filter(is_common).chain([SURROGATE_CONTROL])
    }
}

#[cfg(test)]
mod tests;
