//! Compares a request with the stored objects.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use hyper::ext::ReasonPhrase;
use router::Decision;
use router::cache::{Cache, Key, Verdict, accepts_gzip};
use router::sent::{Kind, kind};

use super::{Asking, Hot, Name};

/// What was found for a request.
#[derive(Debug)]
pub(crate) enum Looked {
    /// The response, with its reason phrase where that is not the usual one.
    Hit((StatusCode, Option<ReasonPhrase>), HeaderMap, Option<Bytes>),
    /// Nothing; varnishd is asked, and ghost whether its response may be hot.
    Asks(Box<Asking>),
    /// Nothing; the key of the request has this hash.
    Nothing(u64),
}

/// A request that the cache may answer, as it was routed.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    pub(crate) decision: &'a Decision<'a>,
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) scheme: &'static str,
    /// As it goes to varnishd.
    pub(crate) url: &'a [u8],
    /// The client is a proxy that is believed.
    pub(crate) trusted: bool,
    /// Of the front's table.
    pub(crate) digest: u64,
    /// The last line of Cache-Status is ours.
    pub(crate) tells_status: bool,
    pub(crate) now: Instant,
}

/// A header of which more than one value came, so that it has more than one reading.
#[derive(Debug)]
pub(super) struct Several;

/// The value of a header by which varnishd distinguishes requests.
pub(super) fn value<'h>(
    cache: &'h Cache,
    headers: &'h HeaderMap,
    name: &str,
) -> Result<Option<&'h [u8]>, Several> {
    let mut all = headers.get_all(name).iter();
    let Some(first) = all.next().map(HeaderValue::as_bytes) else { return Ok(None) };
    if all.next().is_some() {
        return Err(Several);
    }
    match cache.normal().iter().find(|normal| normal.name().eq_ignore_ascii_case(name)) {
        Some(normal) => Ok(normal.choose(|| std::iter::once(first)).map(str::as_bytes)),
        None => Ok(Some(first)),
    }
}

/// The headers that matter beside the key.
struct Headers {
    gzip: bool,
    has_conditions: bool,
}

impl Look<'_> {
    /// `None` where one of them makes it a request for varnishd.
    fn survey(&self, cache: &Cache) -> Option<Headers> {
        let mut found = Headers { gzip: false, has_conditions: false };
        let mut has_encoding = false;
        for (name, value) in self.headers {
            let name = name.as_str();
            match name {
                "host" | "user-agent" | "accept" | "accept-language" => {}
                "accept-encoding" => {
                    if std::mem::replace(&mut has_encoding, true) {
                        return None;
                    }
                    found.gzip = accepts_gzip(value.as_bytes())?;
                }
                "if-none-match" | "if-modified-since" => found.has_conditions = true,
                "range" | "authorization" | "cache-debug" => return None,
                "cache-control" | "pragma" if cache.obeys_clients() => return None,
                _ if name.starts_with("if-") => return None,
                _ => match kind(name.as_bytes()) {
                    None => {}
                    // ghost removes headers that clients may not send.
                    Some(Kind::Forwarded) if !self.trusted => {}
                    Some(_) => return None,
                },
            }
        }
        Some(found)
    }
}

impl Hot {
    /// The response to a request, if there is one that may be served now. `None` for requests that can have none.
    pub(crate) fn look(&self, look: &Look<'_>) -> Option<Looked> {
        let cache = look.decision.cache().filter(|cache| cache.may_be_hot())?;
        let Headers { gzip, has_conditions } = look.survey(cache)?;
        let host = look.headers.get(header::HOST)?.as_bytes();
        let has_several = Cell::new(false);
        let key =
            Key::new(Some(look.decision), look.scheme.as_bytes(), host, look.url, None, |name, seen| {
                match value(cache, look.headers, name) {
                    Ok(Some(value)) => seen(value),
                    Ok(None) => {}
                    Err(Several) => has_several.set(true),
                }
            });
        if has_several.get() {
            return None;
        }
        let hash = key.hash64();
        let is_plain_get = !has_conditions && look.method == Method::GET;
        let of_request = |name: &str| value(cache, look.headers, name);
        let found =
            self.store.find(hash, gzip, |entry| entry.is_for((hash, gzip, key.as_bytes()), of_request));
        let entry = found.as_ref().and_then(|found| found.as_deref());
        if let Some(entry) = entry
            && !entry.is_over(look.now)
            && self.page.serves(&entry.stamp, look.digest)
        {
            if is_plain_get && entry.is_to_be_renewed(look.now) {
                return Some(self.asks(look, hash, gzip, &key));
            }
            let is_unmodified = match has_conditions {
                true => entry.judge(look.headers)? == Verdict::NotModified,
                false => false,
            };
            if !entry.used.load(Ordering::Relaxed) {
                entry.used.store(true, Ordering::Relaxed);
            }
            let mut head = entry.head(look.now);
            if is_unmodified {
                head.remove(header::CONTENT_LENGTH);
                return Some(Looked::Hit((StatusCode::NOT_MODIFIED, None), head, None));
            }
            let has_body = look.method != Method::HEAD && !entry.body.is_empty();
            let body = has_body.then(|| entry.body.clone());
            return Some(Looked::Hit(entry.status(), head, body));
        }
        if is_plain_get && self.wants(hash, look.now) {
            return Some(self.asks(look, hash, gzip, &key));
        }
        Some(Looked::Nothing(hash))
    }

    fn asks(&self, look: &Look<'_>, hash: u64, gzip: bool, key: &Key) -> Looked {
        // Before the request is written.
        match self.page.begin(look.digest) {
            Some(ticket) => {
                let name = Name { hash, gzip, key: key.as_bytes().into() };
                Looked::Asks(Box::new(Asking {
                    ticket,
                    name,
                    tells_status: look.tells_status,
                    asked: look.now,
                }))
            }
            None => Looked::Nothing(hash),
        }
    }
}
