//! The way to varnishd, for requests that the cache may answer.
//!
//! Connections are shared by all clients of a thread ([`kept`]): each request says in a header of our own whose it is. What goes there
//! otherwise is what the client sent; ghost makes of it what the gateway says, as it does for its own sockets. Its answer says what
//! the cache did, and the front counts it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, response};
use model::event;
use model::kept::Order;
use model::names::{
    ALSO_HEADER, CLIENT_HEADER, GROUP_INVALIDATION_HEADER, GROUPS_HEADER, HINTS_HEADER, HOT_HEADER,
    INVALIDATE_METHOD, ORDER_HEADER, ORDER_METHOD, OWNER_HEADER,
};
use model::stats::CACHE_RESULTS;
use router::cache::{groups, invalidates, same_origin_url};
use router::counters::OTHER;
use router::{NormalHost, Rule};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::hints::Ticket;
use super::request::{self, Client};
use super::stream::Hints;
use super::upstream::Call;
use super::varnishd::{NoAnswer, RESULT, Reply, exchange};
use super::{Http, kept};

/// For the connection to varnishd. After it the request goes to its origin.
const CONNECT: Duration = Duration::from_millis(250);
/// Requests to one group that go past a cache that is not there, at once. The cache would have kept most of them from it.
const ROOM: usize = 128;
const MOST_ROOMS: usize = 1024;
/// A response to an unsafe method waits for ghost not longer than this.
const INVALIDATION: Duration = Duration::from_secs(1);
const MOST_NAMED: usize = 16;
pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// Longer URLs and lists of groups are left out, and what all of them take together: varnishd would refuse the whole request.
const LONGEST_NAMED: usize = 4 << 10;
const NAMED_TOGETHER: usize = 12 << 10;
/// The same for the tags of a response that ghost stores.
const TAGS_TOGETHER: usize = 6 << 10;

/// Places on the way past the cache, by group.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<HashMap<Box<str>, Arc<Semaphore>>>);

impl Http {
    /// A place for one request that goes to its origin since varnishd is not there; `None` where there is none.
    pub(crate) fn fall_back(&self, group: &str) -> Option<OwnedSemaphorePermit> {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
        let room = {
            let mut rooms = self.fallback_rooms.0.lock().unwrap_or_else(PoisonError::into_inner);
            match rooms.get(group) {
                Some(room) => Arc::clone(room),
                None => {
                    // Groups come and go with routes.
                    if rooms.len() >= MOST_ROOMS {
                        rooms.retain(|_, room| room.available_permits() < ROOM);
                    }
                    let room = Arc::new(Semaphore::new(ROOM));
                    rooms.insert(group.into(), Arc::clone(&room));
                    room
                }
            }
        };
        room.try_acquire_owned().ok()
    }
}

/// What varnishd is sent: what the client sent, and who the client is.
pub(crate) fn head(
    client: &Client,
    parts: &Parts,
    url: &[u8],
    asks_hot: bool,
    hints: Option<&Ticket<'_>>,
) -> Option<Vec<u8>> {
    let identity = client.identity.as_ref()?;
    let mut head = Vec::with_capacity(1024);
    head.extend_from_slice(parts.method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(url);
    head.extend_from_slice(b" HTTP/1.1\r\n");
    let mut line = |name: &str, value: &HeaderValue| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    };
    // Names and values were checked when they were read: no line end is in them. Our own names were taken away at the entrance.
    for (name, value) in &parts.headers {
        line(name.as_str(), value);
    }
    line(CLIENT_HEADER, identity);
    if asks_hot {
        line(HOT_HEADER, &HeaderValue::from_static("1"));
    }
    if let Some(ticket) = hints {
        line(HINTS_HEADER, &HeaderValue::from(ticket.number));
    }
    head.extend_from_slice(b"\r\n");
    Some(head)
}

/// A request that went past the cache, although its rule has a policy: Cache-Status (RFC 9211) says so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bypassed {
    why: &'static str,
}

impl Bypassed {
    pub(crate) fn of(call: &Call<'_>, parts: &Parts) -> Option<Self> {
        let has_policy = || call.table.rule(call.rule).is_some_and(|rule| rule.cache().is_some());
        if !call.table.router().tells_cache_status() || !has_policy() {
            return None;
        }
        let is_asked = matches!(parts.method, Method::GET | Method::HEAD);
        Some(Self { why: if is_asked { "bypass" } else { "method" } })
    }

    /// Behind what caches before us said.
    pub(crate) fn tell<B>(self, response: &mut http::Response<B>, is_stored: bool) {
        let stored = if is_stored { "; stored" } else { "" };
        let status = response.status().as_u16();
        let value = format!("varnish-gateway; fwd={}; fwd-status={status}{stored}", self.why);
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().append(CACHE_STATUS, value);
        }
    }
}

/// What a response to an unsafe method may have changed: the client's own host and URL.
#[derive(Debug)]
pub(crate) struct Written {
    host: HeaderValue,
    url: Vec<u8>,
    method: Method,
    /// The namespace of the route.
    owner: Box<str>,
}

impl Written {
    /// Where the rule invalidates, and the method is not safe.
    pub(crate) fn of(rule: Option<&Rule>, parts: &Parts, url: &[u8]) -> Option<Self> {
        // The status is not known yet.
        let may = invalidates(parts.method.as_str().as_bytes(), 200)
            && rule.is_some_and(Rule::invalidates_on_unsafe);
        let host = parts.headers.get(header::HOST).filter(|_| may)?;
        let owner = rule?.namespace().into();
        Some(Self { host: host.clone(), url: url.to_vec(), method: parts.method.clone(), owner })
    }

    /// The invalidation to send to ghost, if this response says that something has changed.
    pub(crate) fn write(&self, scheme: &str, status: StatusCode, headers: &HeaderMap) -> Option<Write> {
        let changed = invalidates(self.method.as_str().as_bytes(), status.as_u16());
        changed.then(|| self.request(scheme.as_bytes(), headers))
    }

    fn request(&self, scheme: &[u8], headers: &HeaderMap) -> Write {
        let host = self.host.as_bytes();
        let mut request = Vec::with_capacity(256);
        request.extend_from_slice(INVALIDATE_METHOD.as_bytes());
        request.push(b' ');
        request.extend_from_slice(&self.url);
        request.extend_from_slice(b" HTTP/1.1\r\n");
        let mut line = |name: &str, value: &[u8]| {
            request.extend_from_slice(name.as_bytes());
            request.extend_from_slice(b": ");
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        };
        line("Host", host);
        line(OWNER_HEADER, self.owner.as_bytes());
        let named = [header::LOCATION, header::CONTENT_LOCATION];
        let (mut room, mut is_whole) = (NAMED_TOGETHER, true);
        let mut fits = |value: &[u8]| {
            let fits = value.len() <= LONGEST_NAMED.min(room);
            room -= if fits { value.len() } else { 0 };
            is_whole &= fits;
            fits
        };
        for value in named.iter().flat_map(|name| headers.get_all(name)).take(MOST_NAMED) {
            if let Some(url) = same_origin_url(value.as_bytes(), scheme, host, &self.url)
                && fits(&url)
            {
                line(ALSO_HEADER, &url);
            }
        }
        for value in headers.get_all(GROUP_INVALIDATION_HEADER).iter().take(MOST_NAMED) {
            if fits(value.as_bytes()) {
                line(GROUPS_HEADER, value.as_bytes());
            }
        }
        request.extend_from_slice(b"\r\n");
        Write { request, host: self.host.clone(), is_whole }
    }
}

impl Written {
    /// Reports the write to the other pods, without waiting for them.
    pub(crate) fn tell(&self, client: &Client, headers: &HeaderMap) {
        if client.http.told.get().is_none() {
            return;
        }
        let text = event::Write::text;
        let (host, scheme) = (self.host.as_bytes(), client.scheme().as_bytes());
        let named = [header::LOCATION, header::CONTENT_LOCATION];
        let named = named.iter().flat_map(|name| headers.get_all(name)).take(MOST_NAMED);
        let named = named.filter_map(|value| same_origin_url(value.as_bytes(), scheme, host, &self.url));
        let named = named.filter_map(|url| text(&url)).collect();
        let lines = headers.get_all(GROUP_INVALIDATION_HEADER).iter().take(MOST_NAMED);
        let groups = groups(lines.map(HeaderValue::as_bytes)).take(MOST_NAMED);
        let groups = groups.filter_map(|group| event::Write::group(group.as_bytes())).collect();
        let Some(host) = text(NormalHost::new(host).as_bytes()) else { return };
        let (url, owner) = (text(&self.url), self.owner.to_string());
        client.http.tell_peers(event::Write { host, url, owner, named, groups });
    }
}

/// An invalidation for ghost.
#[derive(Debug)]
pub(crate) struct Write {
    request: Vec<u8>,
    /// All that it names is of this host.
    host: HeaderValue,
    /// False where something that the origin named was too long.
    is_whole: bool,
}

impl Write {
    /// ghost is to say whether the response, which has these tags, may be stored: it was asked for after `began`. False where it has too many.
    pub(crate) fn claims<'a>(
        &mut self,
        began: Order,
        tags: impl Iterator<Item = (&'static str, &'a HeaderValue)>,
    ) -> bool {
        let mut lines = format!("{ORDER_HEADER}: {began}\r\n").into_bytes();
        let (mut room, mut left) = (TAGS_TOGETHER, MOST_NAMED);
        for (name, tag) in tags {
            if tag.len() > LONGEST_NAMED.min(room) || left == 0 {
                return false;
            }
            (room, left) = (room - tag.len(), left - 1);
            lines.extend_from_slice(name.as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(tag.as_bytes());
            lines.extend_from_slice(b"\r\n");
        }
        if !self.is_whole {
            return false;
        }
        // Before the empty line.
        let end = self.request.len().saturating_sub(2);
        self.request.splice(end..end, lines);
        true
    }
}

/// Says something to ghost, by a kept connection or a new one.
pub(crate) async fn say(client: &Client, request: &[u8]) -> Option<(response::Parts, Reply)> {
    let http = &client.http;
    let home = http.cache_start()?;
    if let Some(stream) = kept::take(home)
        && let Ok(said) = exchange(stream, request, false, home).await
    {
        return Some(said);
    }
    let stream = UnixStream::connect(&http.cache_socket).await.ok()?;
    exchange(stream, request, false, home).await.ok()
}

/// The newest invalidation that ghost knows of.
pub(crate) async fn newest(client: &Client, host: &HeaderValue) -> Option<Order> {
    let mut request = format!("{ORDER_METHOD} / HTTP/1.1\r\nHost: ").into_bytes();
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(b"\r\n\r\n");
    let (said, _) = say(client, &request).await?;
    order_in(&said)
}

/// ghost says 204. Anything else is varnishd's own, say 400, and nothing was done.
fn order_in(said: &response::Parts) -> Option<Order> {
    let order = said.headers.get(ORDER_HEADER).filter(|_| said.status == StatusCode::NO_CONTENT)?;
    Order::parse(order.as_bytes())
}

/// Reports the write to ghost, and waits until stored objects are removed; not longer than [`INVALIDATION`]. If the response may be
/// stored, returns the number of this invalidation.
pub(crate) async fn invalidate(client: &Client, write: &Write) -> Option<Order> {
    let http = &client.http;
    // Where varnishd does not run, nothing is stored, unless it ended a moment ago.
    let Some(home) = http.cache_start() else {
        http.end_hot(&write.host);
        return None;
    };
    let is_done = |said: &response::Parts| said.status == StatusCode::NO_CONTENT;
    let told = async {
        if let Some(stream) = kept::take(home)
            && let Ok((said, _)) = exchange(stream, &write.request, false, home).await
            && is_done(&said)
        {
            return Some(said);
        }
        let stream = UnixStream::connect(&http.cache_socket).await.ok()?;
        let (said, _) = exchange(stream, &write.request, false, home).await.ok()?;
        is_done(&said).then_some(said)
    };
    let said = timeout(INVALIDATION, told).await.ok().flatten();
    if said.is_none() || !write.is_whole {
        http.end_hot(&write.host);
        http.not_invalidated.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    order_in(&said?)
}

/// Asks varnishd. None where it is not there: the request, which is safe, may go to its origin.
///
/// `content` is part of the cache key. `asks_hot`: ghost is to say whether the front may store the response.
pub(crate) async fn ask(
    client: &Client,
    parts: &Parts,
    url: &[u8],
    content: &[u8],
    asks_hot: bool,
) -> Option<(response::Parts, Reply)> {
    let http = &client.http;
    let home = http.cache_start()?;
    // Until the head of the answer is there.
    let hints = parts.extensions.get::<Hints>().and_then(|hints| http.hints.enter(hints));
    let mut request = head(client, parts, url, asks_hot, hints.as_ref())?;
    request.extend_from_slice(content);
    let is_head = parts.method == Method::HEAD;
    if let Some(stream) = kept::take(home) {
        match exchange(stream, &request, is_head, home).await {
            Ok(answer) => return Some(answer),
            // varnishd closes idle connections after some seconds; or its child has died.
            Err(NoAnswer::Closed) => {}
            Err(NoAnswer::Broken) => return None,
        }
    }
    let mut gone = pin!(http.cache_gone.notified());
    // Before the look at whether it runs: what ends after it is noticed. A new connection may wait for a child that never takes it.
    gone.as_mut().enable();
    let home = http.cache_start()?;
    let asked = async {
        let stream = timeout(CONNECT, UnixStream::connect(&http.cache_socket)).await.ok()?.ok()?;
        exchange(stream, &request, is_head, home).await.ok()
    };
    tokio::select! {
        biased;
        answer = asked => answer,
        () = &mut gone => None,
    }
}

/// Remembers why the cache did not answer, as far as Cache-Status says it.
pub(crate) fn note(client: &Client, request: &Parts, headers: &HeaderMap) {
    let ours = headers.get_all(CACHE_STATUS).iter().next_back();
    if let (Some(said), Some(host)) = (ours, request.headers.get(header::HOST)) {
        let (host, url) = (NormalHost::new(host.as_bytes()), request::url(&request.uri));
        client.http.uncached.note(host.as_bytes(), &url, said.as_bytes());
    }
}

/// What ghost says that the cache did, as a position in [`CACHE_RESULTS`]. Clients do not see it.
pub(crate) fn take_result(headers: &mut HeaderMap) -> u8 {
    let said = headers.remove(RESULT);
    let position = said.and_then(|said| CACHE_RESULTS.iter().position(|known| said == *known));
    position.and_then(|position| u8::try_from(position).ok()).unwrap_or(OTHER)
}
