//! One request to a group: the one place where it is tried, tried again, and given up.
//!
//! The direct way calls [`send`] with a request that has the rule's edits. The edits of the backendRef are made here, after the
//! group is known. Rules that say nothing about their backends take a short way: one try, without a timer and without a copy.

pub(crate) mod budget;
pub(crate) mod mirror;
mod retry;
pub(crate) mod session;
pub(crate) mod upload;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http::header::{self, HeaderMap};
use http::request::Parts;
use http_body::Body;
use router::{Rule, random};
use tokio::time::{sleep, timeout};

use self::mirror::{Feed, Mirrors};
use self::retry::Policy;
use self::session::Found;
use self::upload::{MOST_KEPT, Rooms, Upload};
use super::Http;
use super::body::ClientBody;
use super::deadline::{self, Until};
use super::exchange::Prepared;
use super::origin::{self, Failure, Patience, Sent, Target, Try};
use super::record::{Record, Watch};
use super::request::{self, EditedRequest};
use super::response;
use super::table::{MirrorsOf, RuleId, Table};

/// How much is read of an answer that is discarded, so that its connection can carry another request.
const MOST_DRAINED: u64 = 64 << 10;
const DRAIN: Duration = Duration::from_secs(1);

/// What all requests of one Gateway share on the way to their backends.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) uploads: Rooms,
    pub(crate) mirrors: Mirrors,
    pub(crate) retries: AtomicU64,
    /// Retries that were not made, since the group had too many.
    pub(crate) over_budget: AtomicU64,
    /// Requests that were not sent again, since their body was not kept.
    pub(crate) not_kept: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            uploads: Rooms::default(),
            mirrors: Mirrors::default(),
            retries: AtomicU64::new(0),
            over_budget: AtomicU64::new(0),
            not_kept: AtomicU64::new(0),
        }
    }
}

impl Shared {
    /// Bytes of request bodies that are kept for another try.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.uploads.used()
    }
}

/// A request that is to reach one group of a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) http: &'a Arc<Http>,
    pub(crate) table: &'a Arc<Table>,
    pub(crate) rule: RuleId,
    pub(crate) group: usize,
    /// It may share a connection with others.
    pub(crate) pooled: bool,
    /// All tries are over then.
    pub(crate) deadline: Option<Until>,
    /// The client's session, where the rule has them and the request shows one.
    pub(crate) session: Option<Found>,
    /// varnishd asks, and ghost counts.
    pub(crate) is_miss: bool,
}

impl Call<'_> {
    fn patience(&self) -> Patience {
        self.table.patience
    }

    /// The endpoint of the client's session, unless it fails at the moment.
    fn pinned(&self, target: Target<'_>) -> Option<usize> {
        let at = self.session.filter(|found| found.group == self.group)?.endpoint;
        (!target.health.avoids(at, &self.http.health.clock)).then_some(at)
    }

    fn counts(&self, began: Instant, sent: &Result<Sent, Failure>) {
        if let Some(counters) = self.table.counters(Some(self.rule)).filter(|_| !self.is_miss) {
            counters.fetched(began.elapsed().as_secs_f64(), sent.is_ok());
        }
    }
}

/// Sends the request to the group.
pub(crate) async fn send(call: Call<'_>, request: Prepared, record: &mut Record) -> Result<Sent, Failure> {
    let Prepared { mut parts, body, url } = request;
    let rule = call.table.rule(call.rule).ok_or(Failure::Unreachable)?;
    let target = call.table.target(call.rule, call.group).ok_or(Failure::Unreachable)?;
    // A tunnel has one end.
    let mut feeds = Vec::new();
    if call.pooled && !rule.mirrors().is_empty() {
        let of = MirrorsOf { rule: call.rule, group: None };
        feeds = mirror::begin(call.http, call.table, of, &parts, !body.is_empty());
    }
    if let Some(edits) = target.group.edits() {
        let mut edited = EditedRequest { parts: &mut parts, failed: false };
        edits.edit_request(url.as_str().as_bytes(), &mut edited);
        if edited.failed {
            return Err(Failure::Filter);
        }
        request::remove_internals(&mut parts.headers);
        request::name_us(&mut parts.headers, call.table);
    }
    if call.pooled && !target.group.mirrors().is_empty() {
        let of = MirrorsOf { rule: call.rule, group: Some(call.group) };
        feeds.extend(mirror::begin(call.http, call.table, of, &parts, !body.is_empty()));
    }
    let has_one_try = rule.retry().is_none() && rule.backend_timeout().is_none();
    if has_one_try && call.deadline.is_none() && call.session.is_none() && feeds.is_empty() {
        let mut one = Try { pooled: call.pooled, ..Try::default() };
        let request = Box::new(Request::from_parts(parts, body));
        let began = Instant::now();
        let sent =
            origin::send(call.http, target, call.patience(), request, &mut one, &mut Watch(Some(record)))
                .await;
        call.counts(began, &sent);
        return sent;
    }
    Box::pin(tries(call, rule, target, parts, (body, feeds), record)).await
}

/// As often as the rule allows.
async fn tries(
    call: Call<'_>,
    rule: &Rule,
    target: Target<'_>,
    parts: Parts,
    (body, feeds): (ClientBody, Vec<Feed>),
    record: &mut Record,
) -> Result<Sent, Failure> {
    let (shared, clock) = (&call.http.upstream, &call.http.health.clock);
    let policy = Policy::new(rule.retry(), &parts.method);
    let (upload, mut body) = if body.is_empty() || policy.is_none() && feeds.is_empty() {
        (None, body)
    } else {
        let keeps = policy.is_some() && is_short(&parts.headers);
        (Upload::new(body, keeps, feeds, shared.uploads.of(rule.namespace())), ClientBody::Empty)
    };
    let budget = target.health.budget();
    if policy.is_some() {
        budget.request();
    }
    let mut one = Try { pooled: call.pooled, pinned: call.pinned(target), ..Try::default() };
    let mut retries = 0;
    loop {
        one.until = deadline::of_try(rule, call.deadline, retries);
        if let Some(until) = one.until.filter(Until::is_over) {
            return Err(until.into());
        }
        let body = match &upload {
            Some(upload) => upload.reader(),
            None => std::mem::replace(&mut body, ClientBody::Empty),
        };
        let request = Box::new(Request::from_parts(parts.clone(), body));
        let began = Instant::now();
        let sent =
            origin::send(call.http, target, call.patience(), request, &mut one, &mut Watch(Some(record)))
                .await;
        call.counts(began, &sent);
        let Some(policy) = policy else { return sent };
        if retries >= policy.attempts() || !policy.wants(&sent, &one) {
            return sent;
        }
        if upload.as_ref().is_some_and(|upload| !upload.is_kept()) {
            shared.not_kept.fetch_add(1, Ordering::Relaxed);
            return sent;
        }
        let pause = policy.pause(retries, random::next());
        if !Policy::has_time(pause, call.deadline.map(|until| until.at)) {
            return sent;
        }
        if !budget.retry(clock.now()) {
            shared.over_budget.fetch_add(1, Ordering::Relaxed);
            return sent;
        }
        shared.retries.fetch_add(1, Ordering::Relaxed);
        retries += 1;
        match sent {
            Ok(sent) => {
                one.tried.add(sent.endpoint);
                drop(tokio::spawn(drain(sent)));
            }
            // It may answer another one.
            Err(_) => one.pinned = None,
        }
        sleep(pause).await;
    }
}

/// May its body be short enough to be kept?
fn is_short(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
    length.is_none_or(|length: usize| length <= MOST_KEPT)
}

/// Reads a short answer that is discarded: its connection can then carry another request.
pub(crate) async fn drain(sent: Sent) {
    let (mut response, lease) = sent.answered;
    let is_clear = response::unframe(response.headers_mut()).is_ok_and(|is_clear| is_clear);
    if !is_clear || response.body().size_hint().lower() > MOST_DRAINED {
        return;
    }
    let mut body = response.into_body();
    let reads = async {
        let mut left = MOST_DRAINED;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let bytes = frame.ok()?.data_ref().map_or(0, Bytes::len) as u64;
            left = left.checked_sub(bytes)?;
        }
        Some(())
    };
    if let Ok(Some(())) = timeout(DRAIN, reads).await {
        lease.give_back();
    }
}
