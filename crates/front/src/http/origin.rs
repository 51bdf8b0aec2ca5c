//! The straight way: one request to a group, of which one endpoint answers.

use std::time::{Duration, Instant};

use http::{Request, Response};
use model::Timeouts;
use router::random;

use super::Http;
use super::attempt::{Target, Unanswered, attempt};
use super::body::{ClientBody, OriginBody};
use super::health::{self, Fault, TRIES, Tried};
use super::pool::Lease;
use super::record::Record;
use super::table::{RuleId, Table};
use crate::BackendEvent;

/// Why there is no answer of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No endpoint took a connection.
    Unreachable,
    /// It said nothing within its time.
    Timeout,
    /// It closed the connection, or its answer is no HTTP.
    Broken,
    /// The client broke off its upload, or its chunks are invalid.
    Upload,
    /// The client stopped sending its upload.
    Stalled,
    /// The endpoint speaks HTTP/2, and takes no WebSockets over it.
    NoWebSockets,
}

/// How long an origin may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
    pub(crate) idle: Duration,
}

impl From<Timeouts> for Patience {
    fn from(from: Timeouts) -> Self {
        let time =
            |seconds: f64| Duration::try_from_secs_f64(seconds.clamp(0.001, 1e6)).unwrap_or(Duration::MAX);
        Self {
            connect: time(from.connect_seconds),
            first_byte: time(from.first_byte_seconds),
            idle: time(from.idle_seconds),
        }
    }
}

/// An origin's answer, and the connection that it comes by.
pub(crate) type Answered = (Response<OriginBody>, Lease);

/// Sends the request to one endpoint of a rule's group. `pooled`: it may share a connection with others.
pub(crate) async fn send(
    http: &Http,
    table: &Table,
    (rule, group): (RuleId, usize),
    request: Request<ClientBody>,
    pooled: bool,
    record: &mut Record,
) -> Result<Answered, Failure> {
    let began = Instant::now();
    let answered = try_endpoints(http, table, (rule, group), request, pooled, began, record).await;
    if let Some(counters) = table.counters(Some(rule)) {
        counters.fetched(began.elapsed().as_secs_f64(), answered.is_ok());
    }
    answered
}

/// Asks endpoints of the group, one after the other, until one has taken the request.
async fn try_endpoints(
    http: &Http,
    table: &Table,
    (rule, group): (RuleId, usize),
    mut request: Request<ClientBody>,
    pooled: bool,
    began: Instant,
    record: &mut Record,
) -> Result<Answered, Failure> {
    let health = table.health(rule, group).ok_or(Failure::Unreachable)?;
    let group = table.rule(rule).and_then(|rule| rule.groups().get(group)).ok_or(Failure::Unreachable)?;
    let profile = match group.tls() {
        None => None,
        Some(name) => Some((name, http.backends.profile(name).ok_or(Failure::Unreachable)?)),
    };
    let profile = profile.as_ref().map(|(name, ready)| (&***name, ready));
    let patience = Patience::from(table.router().timeouts());
    let mut tried = Tried::default();
    let mut tries = TRIES.min(group.endpoints().len().max(1));
    loop {
        let at = health
            .pick(group, &http.health.clock, random::next(), &tried)
            .filter(|at| *at < group.endpoints().len())
            .ok_or(Failure::Unreachable)?;
        let target = Target { endpoint: group.endpoints()[at], profile, protocol: group.protocol() };
        let Unanswered { failure, fault, unsent } =
            match attempt(&http.backends, target, request, pooled, patience, record).await {
                Ok(answered) => {
                    health.succeeded(at, &http.health.clock, began);
                    return Ok(answered);
                }
                Err(unanswered) => unanswered,
            };
        if let Some(fault) = fault {
            note_failure(http, health, group, at, fault, began);
        }
        tries -= 1;
        match unsent {
            Some(unsent) if tries > 0 => request = *unsent,
            _ => return Err(failure),
        }
        tried.add(at);
    }
}

/// Counts a failure of an endpoint, and reports an endpoint that is avoided from now on.
fn note_failure(
    http: &Http,
    health: &health::Group,
    group: &router::Group,
    at: usize,
    (fault, why): (Fault, &'static str),
    began: Instant,
) {
    let Some(ejected) = health.failed(at, fault, &http.health, began) else { return };
    if ejected.is_first
        && let Some(endpoint) = group.endpoints().get(at)
    {
        http.backends.report(BackendEvent::Avoided {
            service: group.name().to_owned(),
            endpoint: *endpoint,
            time: ejected.time,
            why,
        });
    }
}
