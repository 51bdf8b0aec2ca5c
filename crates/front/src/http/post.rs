//! Responses to POST that may answer later GETs (RFC 9110, 9.3.3), where the policy of the rule keeps them.
//!
//! The POST goes straight to its origin, as others do. Before it is sent, ghost is asked for the number of the newest invalidation. The response is
//! judged, the POST's own invalidation is carried out, and ghost says whether the response may be older than another write. If it is not, the body
//! is read, and varnishd is asked for a GET of the same URL by a token. Its miss comes back to the front ([`Waiting::take`]) and gets
//! the response as the origin sent it.
//!
//! Guarantees that what is in doubt is not stored; that the response reaches the client whatever becomes of it here, at most [`PATIENCE`] later for
//! each of its steps; and that a token is valid for one fetch, of its own rule and group.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response};
use model::MissFor;
use model::kept::{Kept, Order, Token};
use model::names::{CACHE_GROUPS_HEADER, KEPT_HEADER, TAG_HEADERS, TAGS_HEADER};
use router::cache::{Answer, Cache, MOST_CONTENT, Posted, is_about_content};
use router::sent::{Kind, kind};
use router::{Action, Routed, Rule};
use tokio::time::timeout;

use super::ahead::Ahead;
use super::body::OriginBody;
use super::cache::{self, CACHE_STATUS, Write, Written};
use super::content::Place;
use super::exchange::Prepared;
use super::fits::{fits_response, fits_varnishd};
use super::request::{self, Admitted, Client, View, remove_internals};
use super::response;
use super::table::{RuleId, Table};

/// For each step that the client waits for: the number before the POST, the body of its response, and the storing.
const PATIENCE: Duration = Duration::from_millis(250);
/// Responses that wait for varnishd at once. They are there for milliseconds.
const PLACES: usize = 64;
/// Of these, for the rules of one namespace.
const PLACES_OF_NAMESPACE: usize = 16;

/// A POST whose response may be kept.
#[derive(Debug)]
pub(crate) struct Candidate {
    table: Arc<Table>,
    rule: RuleId,
    host: HeaderValue,
    url: Vec<u8>,
    has_cookie: bool,
    /// The head of the GET that varnishd is asked for, without its last line.
    get: Vec<u8>,
    /// Who must ask for the response: [`MissFor`].
    miss: Box<str>,
    /// The newest invalidation before it was sent.
    began: Option<Order>,
    sent: Instant,
}

impl Candidate {
    /// `None` where the rule keeps none, or the request says that its response cannot be kept.
    pub(crate) fn of(
        client: &Client,
        (table, id): (&Arc<Table>, RuleId),
        parts: &Parts,
        admitted: &Admitted,
    ) -> Option<Box<Self>> {
        let rule = table.rule(id)?;
        let cache = rule.cache().filter(|cache| cache.keeps_posts() && !cache.obeys_search())?;
        let [group] = rule.groups() else { return None };
        let is_plain = rule.session().is_none() && group.edits().is_none();
        if parts.method != Method::POST || !is_plain || admitted.loops || admitted.websocket {
            return None;
        }
        if is_in_doubt(&parts.headers, cache, admitted.trusted) {
            return None;
        }
        let mut get = Request::new(()).into_parts().0;
        get.uri = parts.uri.clone();
        get.headers = parts.headers.clone();
        request::remove_where(&mut get.headers, |name| is_about_content(name.as_bytes()));
        let url = request::url(&parts.uri).into_owned();
        let view = View { parts: &get, client, admitted, url: &url };
        let Routed { decision, url: other } = table.router().route(&view, 0);
        let is_same = other.is_none()
            && RuleId::of(&decision) == Some(id)
            && decision.action() == Action::Forward { group: 0 }
            && decision.asks_cache(&view, false);
        if !is_same || !fits_varnishd(&get) {
            return None;
        }
        let miss = MissFor { rule: rule.identity(), host: rule.hostname(), position: 0, group: group.name() };
        let mut head = cache::head(client, &get, &url, false, None)?;
        head.truncate(head.len() - 2);
        Some(Box::new(Self {
            host: get.headers.get(header::HOST)?.clone(),
            has_cookie: get.headers.contains_key(header::COOKIE),
            get: head,
            miss: miss.to_string().into(),
            table: Arc::clone(table),
            rule: id,
            url,
            began: None,
            sent: Instant::now(),
        }))
    }

    /// Does the origin see the URL and the host that the client has sent? Otherwise its Content-Location means another URL.
    pub(crate) fn is_sent_as_asked(&self, request: &Prepared) -> bool {
        request.parts.uri.path_and_query() == Some(&request.url)
            && request.url.as_str().as_bytes() == self.url
            && request.parts.headers.get(header::HOST) == Some(&self.host)
    }

    /// To be called before the request is sent.
    pub(crate) async fn begin(&mut self, client: &Client) {
        self.began = timeout(PATIENCE, cache::newest(client, &self.host)).await.ok().flatten();
        self.sent = Instant::now();
    }

    fn rule(&self) -> Option<&Rule> {
        self.table.rule(self.rule)
    }

    /// May the response be kept, as far as its head says?
    fn judge(&self, client: &Client, response: &Response<OriginBody>) -> Option<Judged> {
        let (began, rule) = (self.began?, self.rule()?);
        let mut headers = response.headers().clone();
        // hyper has taken it for HTTP/1 alone.
        let length = response::length(&headers).filter(|length| *length <= MOST_CONTENT)?;
        let age = age_of(&headers, self.sent.elapsed())?;
        let is_clear = !headers.contains_key(header::TRANSFER_ENCODING)
            && !headers.contains_key(header::TRAILER)
            && response::unframe(&mut headers).is_ok_and(|is_clear| is_clear);
        remove_internals(&mut headers);
        if age > 0 {
            headers.insert(header::AGE, HeaderValue::from(age));
        }
        let host = self.host.as_bytes();
        let scheme = client.scheme().as_bytes();
        let posted = Posted { scheme, host, url: &self.url, has_cookie: self.has_cookie };
        let head = Head { status: response.status().as_u16(), headers: &headers };
        if !is_clear || !fits_response(&headers) || !rule.cache()?.may_answer_get(&head, &posted) {
            return None;
        }
        let place = Arc::new(Place::take(&client.http.upstream.uploads.of(rule.namespace()), length)?);
        Some(Judged { began, headers, length: usize::try_from(length).ok()?, place })
    }
}

/// A response whose head says that it may be kept.
struct Judged {
    began: Order,
    headers: HeaderMap,
    length: usize,
    place: Arc<Place>,
}

impl Judged {
    /// Each with the header that carries it to ghost.
    fn tags(&self) -> impl Iterator<Item = (&'static str, &HeaderValue)> {
        let names = TAG_HEADERS.map(|name| (name, TAGS_HEADER)).into_iter();
        let names = names.chain([(CACHE_GROUPS_HEADER, CACHE_GROUPS_HEADER)]);
        names.flat_map(|(name, sent_as)| self.headers.get_all(name).iter().map(move |value| (sent_as, value)))
    }
}

/// True where the request says more, or something else, than a GET of its URL that asks this cache.
fn is_in_doubt(headers: &HeaderMap, cache: &Cache, is_trusted: bool) -> bool {
    const NEVER: [HeaderName; 8] = [
        header::AUTHORIZATION,
        header::PROXY_AUTHORIZATION,
        header::RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
    ];
    // Origins may take URL, method or address from these. With a GET that asks the cache they do not get them.
    let overrides = |name: &HeaderName| match kind(name.as_str().as_bytes()) {
        Some(Kind::Override) => true,
        Some(Kind::Address) => !is_trusted,
        Some(Kind::Own | Kind::Forwarded) | None => false,
    };
    let of_client = cache.obeys_clients()
        && (headers.contains_key(header::CACHE_CONTROL) || headers.contains_key(header::PRAGMA));
    // The origin has got what the client sent, and not the one value that is left of it for the cache.
    let is_normalized = cache.normal().iter().any(|normal| {
        let lines = || headers.get_all(normal.name()).iter().map(HeaderValue::as_bytes);
        lines().next().is_some_and(|first| {
            normal.choose(lines).map(str::as_bytes) != Some(first) || lines().nth(1).is_some()
        })
    });
    NEVER.iter().any(|name| headers.contains_key(name))
        || headers.keys().any(overrides)
        || of_client
        || is_normalized
}

/// How old the response is: what its origin says, and how long the POST took. `None` where that is not clear.
fn age_of(headers: &HeaderMap, took: Duration) -> Option<u64> {
    let mut said = headers.get_all(header::AGE).iter();
    let of_origin = match said.next() {
        Some(first) => router::cache::age(first.as_bytes())?,
        None => 0,
    };
    let took = took.as_secs() + u64::from(took.subsec_millis() >= 500);
    said.next().is_none().then(|| of_origin.saturating_add(took))
}

/// The head of a response, as the policy reads it.
struct Head<'a> {
    status: u16,
    headers: &'a HeaderMap,
}

impl Answer for Head<'_> {
    fn status(&self) -> u16 {
        self.status
    }

    fn any_header<'s>(&'s self, name: &str, seen: &mut dyn FnMut(&'s [u8]) -> bool) -> bool {
        self.headers.get_all(name).iter().any(|value| seen(value.as_bytes()))
    }

    fn now(&self) -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }

    fn waited(&self) -> f64 {
        // It is in Age.
        0.0
    }
}

/// Invalidates what a response has changed, here and in other pods, and has the cache store the response where it may. True where it is
/// stored.
pub(crate) async fn complete(
    client: &Client,
    candidate: Option<Box<Candidate>>,
    (written, mut write): (&Written, Write),
    response: &mut Response<OriginBody>,
) -> bool {
    let judged = candidate.as_ref().and_then(|candidate| candidate.judge(client, response));
    let judged = judged.filter(|judged| write.claims(judged.began, judged.tags()));
    let after = cache::invalidate(client, &write).await;
    written.tell(client, response.headers());
    let (Some(candidate), Some(judged), Some(order)) = (candidate, judged, after) else { return false };
    let body = std::mem::replace(response.body_mut(), OriginBody::Nothing);
    let (ahead, whole) = Ahead::read(body, (judged.length, Arc::clone(&judged.place)), PATIENCE).await;
    *response.body_mut() = OriginBody::Ahead(Box::new(ahead));
    let Some(body) = whole else { return false };
    let Judged { headers, place, .. } = judged;
    let namespace = candidate.rule().map_or("", |rule| rule.namespace()).into();
    let Candidate { mut get, miss, .. } = *candidate;
    let answer = Answered { miss, namespace, headers, body, _place: place };
    let Some(ticket) = client.http.posts.enter(answer) else { return false };
    let kept = Kept { token: ticket.token, order };
    get.extend_from_slice(format!("{KEPT_HEADER}: {kept}\r\n\r\n").as_bytes());
    let stores = async {
        let (said, mut reply) = cache::say(client, &get).await?;
        let _ = reply.collect(&mut BytesMut::new(), judged.length).await;
        let ours = said.headers.get_all(CACHE_STATUS).iter().next_back()?;
        Some(ours.as_bytes().windows(8).any(|part| part == b"; stored"))
    };
    timeout(PATIENCE, stores).await.ok().flatten().unwrap_or(false)
}

/// A response that waits for varnishd.
#[derive(Debug)]
pub(crate) struct Answered {
    miss: Box<str>,
    /// Of the rule.
    namespace: Box<str>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Of the body, which the response to the client shares.
    _place: Arc<Place>,
}

/// Responses that wait for varnishd, by their tokens.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<HashMap<Token, Answered>>);

/// A place among them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    waiting: &'a Waiting,
    token: Token,
}

impl Waiting {
    fn enter(&self, answered: Answered) -> Option<Ticket<'_>> {
        let random = RandomState::new();
        let token = Token([random.hash_one(0_u8), random.hash_one(1_u8)]);
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_namespace = waiting.values().filter(|other| other.namespace == answered.namespace).count();
        if waiting.len() >= PLACES || of_namespace >= PLACES_OF_NAMESPACE {
            return None;
        }
        waiting.insert(token, answered);
        Some(Ticket { waiting: self, token })
    }

    /// The response of this token, once, for the rule and group that it is for.
    pub(crate) fn take(&self, token: &[u8], miss: MissFor<'_>) -> Option<Answered> {
        let token = Token::parse(token)?;
        let answered = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&token)?;
        (*answered.miss == *miss.to_string()).then_some(answered)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.waiting.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

#[cfg(test)]
mod tests;
