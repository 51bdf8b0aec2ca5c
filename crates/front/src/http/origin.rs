//! The straight way: one request to a group, of which one endpoint answers.

use std::pin::pin;
use std::time::{Duration, Instant};

use http::{Request, Response};
use model::Timeouts;
use router::random;

use super::Http;
use super::attempt::{self, Unanswered, attempt};
use super::body::{ClientBody, OriginBody};
use super::deadline::{Limit, Until, within};
use super::health::{self, Fault, TRIES, Tried};
use super::pool::Lease;
use super::record::Watch;
use crate::BackendEvent;

/// Why there is no answer of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No endpoint took a connection.
    Unreachable,
    /// It said nothing within its time.
    Timeout,
    /// The time of the whole request is over.
    Deadline,
    /// It closed the connection, or its answer is no HTTP.
    Broken,
    /// The client broke off its upload, or its chunks are invalid.
    Upload,
    /// The client stopped sending its upload.
    Stalled,
    /// The endpoint speaks HTTP/2, and takes no WebSockets over it.
    NoWebSockets,
    /// A filter made a URL or a host that no request can have.
    Filter,
}

impl From<Until> for Failure {
    fn from(over: Until) -> Self {
        match over.limit {
            Limit::Try => Self::Timeout,
            Limit::Request => Self::Deadline,
        }
    }
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

/// An origin's response, and its connection.
pub(crate) type Answered = (Response<OriginBody>, Lease);

/// An answer, and where it is from.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) answered: Answered,
    /// The position of the endpoint in its group.
    pub(crate) endpoint: usize,
    /// The whole response must have been received by then.
    pub(crate) until: Option<Until>,
}

/// Where a request goes: a group, and what is known about its endpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) group: &'a router::Group,
    pub(crate) health: &'a health::Group,
}

/// How one try is made, and its result.
#[derive(Debug, Default)]
pub(crate) struct Try {
    /// It may share a connection with others.
    pub(crate) pooled: bool,
    /// This endpoint is asked first: the client has a session with it.
    pub(crate) pinned: Option<usize>,
    /// Endpoints that were asked before. They are asked again only if there is no other.
    pub(crate) tried: Tried,
    /// The try is over then, its answer included.
    pub(crate) until: Option<Until>,
    /// An endpoint may have got the request, or a part of it.
    pub(crate) was_sent: bool,
}

/// Asks endpoints of the group, one after the other, until one has taken the request.
pub(crate) async fn send(
    http: &Http,
    Target { group, health }: Target<'_>,
    patience: Patience,
    mut request: Box<Request<ClientBody>>,
    one: &mut Try,
    record: &mut Watch<'_>,
) -> Result<Sent, Failure> {
    let profile = match group.tls() {
        None => None,
        Some(name) => Some((name, http.backends.profile(name).ok_or(Failure::Unreachable)?)),
    };
    let profile = profile.as_ref().map(|(name, ready)| (&***name, ready));
    let began = Instant::now();
    let upload = request.body().progress();
    let until = one.until;
    let mut pinned = one.pinned.filter(|at| *at < group.endpoints().len());
    let mut tries = TRIES.min(group.endpoints().len().max(1));
    loop {
        let picked = pinned.take().or_else(|| {
            let picked = health.pick(group, &http.health.clock, random::next(), &one.tried);
            picked.filter(|at| *at < group.endpoints().len())
        });
        let at = picked.ok_or(Failure::Unreachable)?;
        let target = attempt::Target { endpoint: group.endpoints()[at], profile, protocol: group.protocol() };
        // Pinned here, so that `within` does not copy it.
        let trying = pin!(attempt(&http.backends, target, request, one.pooled, patience, record));
        let answered = match within(until, trying).await {
            Ok(answered) => answered,
            Err(over) => {
                one.tried.add(at);
                one.was_sent = true;
                // An upload that is not over may be the reason.
                if over.is_fault && upload.is_none_or(|upload| upload.is_done()) {
                    let fault = (Fault::Answer, "it does not answer in the time that its routes give");
                    note_failure(http, health, group, at, fault, began);
                }
                return Err(over.into());
            }
        };
        let Unanswered { failure, fault, unsent } = match answered {
            Ok(answered) => {
                health.succeeded(at, &http.health.clock, began);
                return Ok(Sent { answered, endpoint: at, until });
            }
            Err(unanswered) => unanswered,
        };
        if let Some(fault) = fault {
            note_failure(http, health, group, at, fault, began);
        }
        one.tried.add(at);
        tries -= 1;
        match unsent {
            Some(unsent) if tries > 0 => request = unsent,
            unsent => {
                one.was_sent = unsent.is_none() && failure != Failure::Unreachable;
                return Err(failure);
            }
        }
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
