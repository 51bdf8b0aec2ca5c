//! One request that is under way. When it is over, it is counted, logged and recorded here, once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::HeaderValue;
use http::request::Parts;
use http::{HeaderName, Request};
use router::counters::{OTHER, Way};
use router::trace::{self, Trace};
use tokio::sync::OwnedSemaphorePermit;

use super::body::ClientBody;
use super::details::{Details, Outcome};
use super::reason::Reason;
use super::request::Client;
use super::table::{ListenerId, RuleId, Table};

const TRACE_PARENT: HeaderName = HeaderName::from_static(trace::PARENT);
const TRACE_STATE: HeaderName = HeaderName::from_static(trace::STATE);

/// One request that is under way. Counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    client: Arc<Client>,
    began: Instant,
    counted: Option<Counted>,
    /// The group of the rule that the request is for.
    group: Option<usize>,
    /// On the way past a cache that is not there.
    place: Option<OwnedSemaphorePermit>,
    bytes: u64,
    way: Way,
    reason: Option<Reason>,
    /// The answer was handed on to its end.
    is_whole: bool,
    /// Another one stands for the same request.
    is_second: bool,
    /// varnishd has the request, and so has another record or ghost.
    is_miss: bool,
    /// Where it is logged or recorded.
    details: Option<Box<Details>>,
}

#[derive(Debug)]
struct Counted {
    table: Arc<Table>,
    rule: Option<RuleId>,
    status: u16,
    cache: u8,
}

/// The trace of a request that goes on: ours, and the id of the span below it that stands for the origin's part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traced {
    trace: Trace,
    child: u64,
}

impl Traced {
    /// Names the parent for the next hop: varnishd hands it on, an origin asked straight has its own span of ours.
    pub(crate) fn write(&self, headers: &mut HeaderMap, is_direct: bool) {
        let span = if is_direct && self.child != 0 { self.child } else { self.trace.span };
        if let Ok(value) = HeaderValue::from_bytes(self.trace.header(span).as_bytes()) {
            headers.insert(TRACE_PARENT, value);
        }
    }
}

impl Record {
    pub(crate) fn begin(client: &Arc<Client>) -> Self {
        client.http.in_flight.fetch_add(1, Ordering::Relaxed);
        client.movement.begins();
        Self {
            client: Arc::clone(client),
            began: Instant::now(),
            counted: None,
            group: None,
            place: None,
            bytes: 0,
            way: Way::Own,
            reason: None,
            is_whole: false,
            is_second: false,
            is_miss: false,
            details: None,
        }
    }

    /// Of a request whose head was read.
    pub(crate) fn of(client: &Arc<Client>, request: &Request<ClientBody>) -> Self {
        let mut record = Self::begin(client);
        if client.http.logs() {
            let mut details = Box::<Details>::default();
            let upload = request.body().progress();
            details.read(request.method(), request.uri(), request.version(), request.headers(), upload);
            record.details = Some(details);
        }
        record
    }

    /// Keeps the connection busy for a request that another record stands for.
    pub(crate) fn second(client: &Arc<Client>) -> Self {
        let mut record = Self::begin(client);
        record.is_second = true;
        record
    }

    /// Of a request of varnishd, which is counted where it came in.
    pub(crate) fn of_miss(client: &Arc<Client>) -> Self {
        let mut record = Self::second(client);
        client.http.in_flight.fetch_sub(1, Ordering::Relaxed);
        record.is_miss = true;
        record
    }

    /// The parser refused the request: there is no head to speak of.
    pub(crate) fn unread(client: &Arc<Client>, status: u16, reason: Reason) {
        let mut record = Self::begin(client);
        if client.http.logs() {
            record.details = Some(Box::new(Details::unread(status)));
        }
        record.reason = Some(reason);
        record.is_whole = true;
    }

    /// The request becomes a span if the configuration says so. Removes headers of the client's trace that must not be forwarded.
    pub(crate) fn trace(&mut self, parts: &mut Parts, table: &Table, trusted: bool) -> Option<Traced> {
        let ratio = table.router().front_trace_sampling()?;
        let mut given = parts.headers.get_all(TRACE_PARENT).iter();
        let first = given.next().map(HeaderValue::as_bytes);
        // Of several, none can be the right one.
        let trace = Trace::begin(first.filter(|_| given.next().is_none()), ratio, trusted);
        if trace.is_new() {
            parts.headers.remove(TRACE_STATE);
        }
        let observer = self.client.http.observer.as_deref();
        let is_recorded = trace.sampled && observer.is_some_and(|observer| observer.exports_spans());
        let child = if is_recorded { router::random::next().max(1) } else { 0 };
        if is_recorded || self.details.is_some() {
            let details = self.details.get_or_insert_default();
            if !details.has_head() {
                details.read(&parts.method, &parts.uri, parts.version, &parts.headers, None);
            }
            details.trace = Some((trace, child));
        }
        Some(Traced { trace, child })
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// What the router decided.
    pub(crate) fn routed(
        &mut self,
        parts: &Parts,
        table: &Arc<Table>,
        to: (Option<RuleId>, Option<usize>, Option<ListenerId>),
    ) {
        if let Some(details) = &mut self.details {
            details.routed(parts.headers.get(http::header::HOST), table, to);
        }
    }

    /// Are details wanted? They cost time.
    pub(crate) fn has_details(&self) -> bool {
        self.details.is_some()
    }

    /// The request leaves this way. Until it does, the gateway answers itself.
    pub(crate) fn goes(&mut self, way: Way) {
        self.way = way;
        if way == Way::Direct
            && let Some(details) = &mut self.details
        {
            details.asks(self.began.elapsed());
        }
    }

    /// The request is for this group of its rule.
    pub(crate) fn is_for(&mut self, group: Option<usize>) {
        self.group = group;
    }

    /// The request is refused, failed or broke off. The first reason counts.
    pub(crate) fn because(&mut self, reason: Reason) {
        self.reason.get_or_insert(reason);
    }

    /// One more endpoint is asked.
    pub(crate) fn tries(&mut self, endpoint: SocketAddr) {
        if let Some(details) = &mut self.details {
            details.tries(endpoint);
        }
    }

    /// A new connection took so long.
    pub(crate) fn connected(&mut self, took: Option<Duration>) {
        if let (Some(details), Some(took)) = (&mut self.details, took) {
            details.connected(took);
        }
    }

    /// The head of an origin's answer is there; it was asked then.
    pub(crate) fn was_answered(&mut self, asked: Instant) {
        if let Some(details) = &mut self.details {
            details.was_answered(asked);
        }
    }

    /// The head of the answer goes to the client.
    pub(crate) fn head(&mut self, status: u16, bytes: u64) {
        self.bytes += bytes;
        if let Some(details) = &mut self.details {
            details.answers(status, self.began.elapsed());
        }
    }

    /// All of the answer was handed on.
    pub(crate) fn is_whole(&mut self) {
        self.is_whole = true;
    }

    /// This is its answer. `cache` is a position in [`model::stats::CACHE_RESULTS`].
    pub(crate) fn answered(&mut self, table: &Arc<Table>, rule: Option<RuleId>, status: u16, cache: u8) {
        self.counted = Some(Counted { table: Arc::clone(table), rule, status, cache });
        if let Some(details) = &mut self.details {
            details.cache = Some(cache);
        }
    }

    pub(crate) fn is_tunnel(&mut self, table: &Arc<Table>, rule: Option<RuleId>) {
        // As ghost counts it: a status that is in no class.
        self.answered(table, rule, u16::MAX, OTHER);
    }

    /// The tunnel is over.
    pub(crate) fn carried(&mut self, up: u64, down: u64) {
        self.bytes += down;
        self.is_whole = true;
        if let Some(details) = &mut self.details {
            details.upgraded_bytes_in = up;
        }
    }

    /// Held until the request is over.
    pub(crate) fn holds(&mut self, place: OwnedSemaphorePermit) {
        self.place = Some(place);
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

/// The record of tries to reach an endpoint. A copy of a request has no record.
#[derive(Debug)]
pub(crate) struct Watch<'a>(pub(crate) Option<&'a mut Record>);

impl Watch<'_> {
    pub(crate) fn has_details(&self) -> bool {
        self.0.as_ref().is_some_and(|record| record.has_details())
    }

    pub(crate) fn tries(&mut self, endpoint: SocketAddr) {
        if let Some(record) = &mut self.0 {
            record.tries(endpoint);
        }
    }

    pub(crate) fn connected(&mut self, took: Option<Duration>) {
        if let Some(record) = &mut self.0 {
            record.connected(took);
        }
    }

    pub(crate) fn was_answered(&mut self, asked: Instant) {
        if let Some(record) = &mut self.0 {
            record.was_answered(asked);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let http = &self.client.http;
        if !self.is_miss {
            http.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        self.client.movement.ends();
        if self.is_second {
            return;
        }
        let reason = self.reason.or((!self.is_whole).then_some(Reason::ClientGone));
        http.tallies.finished(self.way, reason);
        if self.counted.is_none() && self.details.is_none() {
            return;
        }
        let took = self.began.elapsed();
        if let Some(Counted { table, rule, status, cache }) = &self.counted {
            if let Some(counters) = table.counters(*rule) {
                counters.answered(*status, *cache, self.bytes, took.as_secs_f64());
                counters.took(self.way);
            }
            let group = self.group.filter(|_| self.way != Way::Own);
            for flow in table.flows(&self.client.socket, *rule, group) {
                flow.answered(self.way, *status, *cache);
            }
        }
        let (Some(details), Some(observer)) = (&self.details, &http.observer) else { return };
        let outcome = Outcome { client: &self.client, took, bytes: self.bytes, way: self.way, reason };
        if let Some(log) = observer.access_log() {
            details.log(&outcome, log);
        }
        if let Some(finished) = details.finished(&outcome) {
            observer.record(finished);
        }
    }
}
