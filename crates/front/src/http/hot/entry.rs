//! One hot object: a response, its key, and how long it may be served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, response};
use hyper::ext::ReasonPhrase;
use page::Stamp;
use router::cache::{Conditions, Stored, Verdict};

/// No response is served for longer without another look at varnishd.
const LEASE: Duration = Duration::from_secs(10);
/// Of the lease is over when one request renews it, in percent.
const RENEWED_AT: u32 = 80;
/// The next request tries it if this one has not come back.
const RENEWAL: Duration = Duration::from_secs(1);
/// The approximate memory of an entry beside its key, head and body.
const OVERHEAD: usize = 768;
/// The number that varnishd, or vinyld, gave to the request.
const NUMBERS: [HeaderName; 2] = [HeaderName::from_static("x-varnish"), HeaderName::from_static("x-vinyl")];
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const OURS: &[u8] = b"varnish-gateway;";

/// The key by which the response to a request is found.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) hash: u64,
    pub(crate) gzip: bool,
    pub(crate) key: Box<[u8]>,
}

/// A header that Vary names, and its value in the request.
pub(crate) type Varied = (Box<str>, Option<Box<[u8]>>);

/// When a response was asked for and read, and for how long it is fresh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) asked: Instant,
    pub(crate) read: Instant,
    pub(crate) ttl: Duration,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    vary: Box<[Varied]>,
    pub(crate) stamp: Stamp,
    status: StatusCode,
    /// Where it is not the usual one.
    reason: Option<ReasonPhrase>,
    /// As it is in one second of the entry's life.
    head: ArcSwap<Head>,
    pub(crate) body: Bytes,
    age: u64,
    tells_status: bool,
    times: Times,
    lease_ends: Instant,
    renews: Instant,
    /// Milliseconds after `times.asked` when a renewal began last; 0: none has.
    renewal: AtomicU64,
    /// Since the hand of the clock was here last.
    pub(crate) used: AtomicBool,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Head {
    second: u64,
    fields: HeaderMap,
}

/// Seconds since then, whole ones.
fn seconds(from: Instant, to: Instant) -> u64 {
    to.saturating_duration_since(from).as_secs()
}

impl Entry {
    /// None where the head says something that cannot be said again.
    pub(crate) fn new(
        (name, vary): (Name, Box<[Varied]>),
        stamp: Stamp,
        (parts, tells_status): (&response::Parts, bool),
        body: &[u8],
        times: Times,
    ) -> Option<Self> {
        let mut ages = parts.headers.get_all(header::AGE).iter();
        let age = match (ages.next(), ages.next()) {
            (None, _) => 0,
            (Some(age), None) => age.to_str().ok()?.parse().ok()?,
            _ => return None,
        };
        let is_ours = |value: &HeaderValue| value.as_bytes().starts_with(OURS);
        let statuses = || parts.headers.get_all(CACHE_STATUS).iter();
        // Caches before us come first.
        let tells_status = tells_status && statuses().next_back().is_some_and(is_ours);
        let kept_statuses = statuses().count() - usize::from(tells_status);
        let mut statuses = 0;
        let mut is_kept = |name: &HeaderName| {
            if *name == CACHE_STATUS {
                statuses += 1;
                return statuses <= kept_statuses;
            }
            *name != header::AGE && *name != header::CONTENT_LENGTH && !NUMBERS.contains(name)
        };
        // All values are parts of one block, which has room for nothing else.
        let lines: Vec<_> = parts.headers.iter().filter(|(name, _)| is_kept(name)).collect();
        let mut block = BytesMut::with_capacity(lines.iter().map(|(_, value)| value.len()).sum());
        let mut head = HeaderMap::with_capacity(lines.len() + 3);
        let mut head_bytes = 0;
        for (name, value) in lines {
            block.extend_from_slice(value.as_bytes());
            let value = HeaderValue::from_maybe_shared(block.split().freeze()).ok()?;
            head_bytes += name.as_str().len() + value.len() + 144;
            head.append(name.clone(), value);
        }
        if parts.status != StatusCode::NO_CONTENT {
            head.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let varied =
            vary.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, |value| value.len()) + 64);
        // A copy: the phrase is a part of the block that the head was read into.
        let reason = parts.extensions.get::<ReasonPhrase>();
        let reason = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes().to_vec()).ok());
        head_bytes += reason.as_ref().map_or(0, |reason| reason.as_bytes().len());
        let bytes = OVERHEAD + name.key.len() + head_bytes + body.len() + varied.sum::<usize>();
        let lease = LEASE.min(times.ttl);
        head.insert(header::AGE, HeaderValue::from(age));
        if tells_status {
            let left = (times.asked + times.ttl).saturating_duration_since(times.read);
            head.append(CACHE_STATUS, told_status(left.as_secs()));
        }
        Some(Self {
            name,
            vary,
            stamp,
            status: parts.status,
            reason,
            head: ArcSwap::from_pointee(Head { second: 0, fields: head }),
            body: Bytes::copy_from_slice(body),
            age,
            tells_status,
            times,
            lease_ends: times.asked + lease,
            renews: times.asked + lease * RENEWED_AT / 100,
            renewal: AtomicU64::new(0),
            used: AtomicBool::new(true),
            bytes,
        })
    }

    /// Is it the response to such a request? `value`: what the request has of a header; an error where that is not plain.
    pub(crate) fn is_for<'v, E>(
        &self,
        (hash, gzip, key): (u64, bool, &[u8]),
        mut value: impl FnMut(&str) -> Result<Option<&'v [u8]>, E>,
    ) -> bool {
        self.name.hash == hash
            && self.name.gzip == gzip
            && *self.name.key == *key
            && self
                .vary
                .iter()
                .all(|(name, wanted)| value(name).is_ok_and(|value| value == wanted.as_deref()))
    }

    /// Is it of the same key and variant?
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (one, two) = (&self.name, &other.name);
        (one.hash, one.gzip, &one.key) == (two.hash, two.gzip, &two.key) && self.vary == other.vary
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.lease_ends
    }

    /// True for one request of those that come in the last part of the lease.
    pub(crate) fn is_to_be_renewed(&self, now: Instant) -> bool {
        if now < self.renews {
            return false;
        }
        let now =
            u64::try_from(now.saturating_duration_since(self.times.asked).as_millis()).unwrap_or(u64::MAX);
        let last = self.renewal.load(Ordering::Relaxed);
        let is_free = last == 0 || now.saturating_sub(last) >= RENEWAL.as_millis() as u64;
        is_free
            && self.renewal.compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Does the client have it already? Only where it is a 200: others are varnishd's to judge.
    pub(crate) fn judge(&self, request: &HeaderMap) -> Option<Verdict> {
        if self.status != StatusCode::OK {
            return None;
        }
        let head = self.head.load();
        let of = |name: HeaderName| head.fields.get(name).map(HeaderValue::as_bytes);
        let stored = Stored {
            etag: of(header::ETAG),
            last_modified: of(header::LAST_MODIFIED),
            date: of(header::DATE),
        };
        let tags = request.contains_key(header::IF_NONE_MATCH);
        let conditions = Conditions {
            if_none_match: tags
                .then(|| request.get_all(header::IF_NONE_MATCH).iter().map(HeaderValue::as_bytes)),
            if_modified_since: request.get(header::IF_MODIFIED_SINCE).map(HeaderValue::as_bytes),
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Some(conditions.judge(&stored, now.as_secs_f64()))
    }

    pub(crate) fn status(&self) -> (StatusCode, Option<ReasonPhrase>) {
        (self.status, self.reason.clone())
    }

    /// The head, as it is now. Made once a second; all others clone it.
    pub(crate) fn head(&self, now: Instant) -> HeaderMap {
        let second = seconds(self.times.read, now);
        let made = self.head.load();
        let mut fields = made.fields.clone();
        if made.second == second {
            return fields;
        }
        fields.insert(header::AGE, HeaderValue::from(self.age.saturating_add(second)));
        if self.tells_status
            && let header::Entry::Occupied(mut statuses) = fields.entry(CACHE_STATUS)
            && let Some(ours) = statuses.iter_mut().last()
        {
            let left = (self.times.asked + self.times.ttl).saturating_duration_since(now);
            *ours = told_status(left.as_secs());
        }
        self.head.store(Arc::new(Head { second, fields: fields.clone() }));
        fields
    }
}

/// Our own line of Cache-Status.
fn told_status(left: u64) -> HeaderValue {
    HeaderValue::try_from(format!("varnish-gateway; hit; ttl={left}"))
        .unwrap_or(HeaderValue::from_static("varnish-gateway; hit"))
}
