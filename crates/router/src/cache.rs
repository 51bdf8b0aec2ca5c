//! A cache policy, compiled: which requests ask the cache, what an object is found by, and how long it stays.
//!
//! Takes the policy of a rule, a request or an answer; guarantees that two requests get the same key only where the
//! policy calls them the same; never reads a clock, and never stores anything.

mod age;
mod client;
mod conditional;
mod content;
mod date;
mod directives;
mod groups;
mod hot;
mod key;
mod lifetime;
mod normalize;
mod number;
mod post;
mod query;
mod range;
mod ranges;
mod search;
mod targeted;
mod writes;

use model::{BypassHeader, CachePolicy};

use crate::Request;
use crate::header::pattern_matches_header;
use crate::pattern::{self, Pattern};

pub use self::age::{age, initial_age};
pub use self::client::Wanted;
pub use self::conditional::{Conditions, Stored, Verdict, holds_if_range};
pub use self::content::{MOST_CONTENT, of_query};
pub use self::date::date;
pub use self::directives::{Directives, field_names};
pub use self::groups::{LONGEST_TAG, groups};
pub use self::hot::{accepts_gzip, may_vary_by};
pub use self::key::Key;
pub use self::lifetime::{Answer, Keeping, Rescue};
pub use self::normalize::{Normal, may_be_normalized};
pub use self::post::{Posted, is_about_content};
pub use self::query::Parameters;
pub use self::range::{coalesced, is_one_range};
pub use self::ranges::{Ranges, Satisfied};
pub use self::search::no_vary_search;
pub use self::writes::{invalidates, same_origin_url};

/// What a rule's policy says.
#[derive(Debug, Clone)]
pub struct Cache {
    lifetime: Lifetime,
    /// As the policy says; else as the origin does.
    grace: Option<f64>,
    keep: Option<f64>,
    heuristic: Option<Heuristic>,
    /// Headers that Cache-Control gives way to.
    targets: Box<[Box<str>]>,
    max_object_bytes: Option<u64>,
    key_headers: Box<[Box<str>]>,
    parameters: Option<Parameters>,
    bypass: Box<[Bypass]>,
    cookies_pass: bool,
    ignores_writes: bool,
    obeys_clients: bool,
    shares_authorized: bool,
    normal: Box<[Normal]>,
    obeys_search: bool,
    /// The key follows from what the client sent alone.
    is_plain: bool,
    keeps_queries: bool,
    keeps_posts: bool,
}

/// Who says how long an answer is fresh.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lifetime {
    Origin,
    /// The origin; these seconds where it is silent.
    Default(f64),
    Forced(f64),
}

/// How long a response is fresh whose origin says only when it changed last.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Heuristic {
    fraction: f64,
    most: f64,
}

#[derive(Debug, Clone)]
struct Bypass {
    name: Box<str>,
    value: Option<Pattern>,
}

impl Cache {
    pub(crate) fn compile(from: &CachePolicy) -> Result<Self, pattern::Error> {
        let lifetime = match (from.forced_ttl_seconds, from.default_ttl_seconds) {
            (Some(seconds), _) => Lifetime::Forced(sane(seconds)),
            (None, Some(seconds)) => Lifetime::Default(sane(seconds)),
            (None, None) => Lifetime::Origin,
        };
        let key = from.cache_key.clone().unwrap_or_default();
        let bypass = |header: &BypassHeader| {
            let value = header.value_regex.as_deref().map(Pattern::compile).transpose()?;
            Ok(Bypass { name: header.name.as_str().into(), value })
        };
        // A policy that says itself which parameters count wins.
        let obeys_search =
            from.no_vary_search && key.query_params_include.is_none() && key.query_params_exclude.is_none();
        let key_headers: Box<[Box<str>]> =
            key.headers.iter().map(|name| name.to_ascii_lowercase().into()).collect();
        Ok(Self {
            lifetime,
            grace: from.grace_seconds.map(sane),
            keep: from.keep_seconds.map(sane),
            heuristic: from.heuristic.as_ref().map(|heuristic| Heuristic {
                fraction: if heuristic.fraction.is_nan() { 0.0 } else { heuristic.fraction.clamp(0.0, 1.0) },
                most: sane(heuristic.max_seconds),
            }),
            targets: match &from.cache_control_targets {
                Some(names) => names.iter().map(|name| name.as_str().into()).collect(),
                None => targeted::DEFAULT_TARGETS.map(Into::into).into(),
            },
            max_object_bytes: from.max_object_bytes,
            is_plain: Self::has_plain_key(obeys_search, &key_headers),
            key_headers,
            parameters: Parameters::new(key.query_params_include.as_ref(), key.query_params_exclude.as_ref()),
            cookies_pass: from.cookies_pass,
            ignores_writes: from.ignore_unsafe_methods,
            obeys_clients: from.obey_clients,
            shares_authorized: from.share_authorized,
            normal: from.normalize.iter().map(Normal::new).collect(),
            obeys_search,
            keeps_queries: from.keep_queries,
            keeps_posts: from.keep_posts,
            bypass: from.bypass_headers.iter().map(bypass).collect::<Result<_, _>>()?,
        })
    }

    /// Seconds for which a stale answer may be served while it is fetched again, where the policy says so; else the object knows.
    pub fn grace(&self) -> Option<f64> {
        self.grace
    }

    /// A larger answer is not kept; `None` where the storage alone decides.
    pub fn max_object_bytes(&self) -> Option<u64> {
        self.max_object_bytes
    }

    /// Whether an answer that must be revalidated may be served stale all the same.
    pub fn overrules_the_origin(&self) -> bool {
        matches!(self.lifetime, Lifetime::Forced(_))
    }

    /// Whether a header of the request takes it past the cache.
    pub fn is_bypassed_by(&self, request: &impl Request) -> bool {
        self.bypass.iter().any(|bypass| match &bypass.value {
            None => request.any_header(&bypass.name, &mut |_| true),
            // A value that is too long to be matched may be the one that must not be cached.
            Some(pattern) => pattern_matches_header(pattern, &bypass.name, request).unwrap_or(true),
        })
    }

    /// Whether a Cookie takes a request past the cache, where nothing else does.
    pub fn cookies_pass(&self) -> bool {
        self.cookies_pass
    }

    /// Whether a response to an unsafe method invalidates what is stored of its URL.
    pub fn invalidates_on_unsafe(&self) -> bool {
        !self.ignores_writes
    }

    /// Whether Cache-Control of requests counts.
    pub fn obeys_clients(&self) -> bool {
        self.obeys_clients
    }

    /// Whether requests with Authorization ask the cache. Their objects are not those of other requests.
    pub fn shares_authorized(&self) -> bool {
        self.shares_authorized
    }

    /// Whether the origin says by No-Vary-Search which query parameters count.
    pub fn obeys_search(&self) -> bool {
        self.obeys_search
    }

    /// Whether this request is a QUERY whose answer may be kept, by its content.
    pub fn keeps_query(&self, request: &impl Request) -> bool {
        self.keeps_queries && of_query(request).is_some()
    }

    /// Whether an answer to POST may be kept for GET, where it qualifies ([`may_answer_get`](Self::may_answer_get)).
    pub fn keeps_posts(&self) -> bool {
        self.keeps_posts && self.invalidates_on_unsafe()
    }

    /// Headers of which one value is left before the cache is asked.
    pub fn normal(&self) -> &[Normal] {
        &self.normal
    }

    pub(crate) fn key_headers(&self) -> impl Iterator<Item = &str> {
        self.key_headers.iter().map(AsRef::as_ref)
    }

    /// Where not all query parameters count, or their order does not.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.parameters.as_ref()
    }

    /// The URL as the cache knows it, written behind what is in `to`.
    pub fn write_url(&self, url: &[u8], to: &mut impl Extend<u8>) {
        match &self.parameters {
            Some(parameters) => parameters.write(url, to),
            None => to.extend(url.iter().copied()),
        }
    }
}

/// A file may say anything. Ten years are for ever, and fit into Varnish's numbers.
fn sane(seconds: f64) -> f64 {
    const TEN_YEARS: f64 = 3.2e8;
    if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, TEN_YEARS) }
}
