//! The straight way: one request to one endpoint of a group, by a connection that is there or a new one.

use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use model::Timeouts;
use router::random;
use tokio::time::timeout;

use super::Http;
use super::body::{ClientBody, Progress};
use super::health::{self, Fault, TRIES, Tried};
use super::pool::{self, Key, Lease, Unconnected};
use super::record::Record;
use super::table::{RuleId, Table};
use crate::{BackendEvent, BackendFailure};

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
pub(crate) type Answered = (Response<Incoming>, Lease);

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
    let ready = profile.as_ref().map(|(_, ready)| ready);
    let patience = Patience::from(table.router().timeouts());
    let upload = request.body().progress();
    // hyper would send no body with GET and HEAD unless a header announces it.
    if upload.is_some() && !request.headers().contains_key(header::CONTENT_LENGTH) {
        request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // Clients of HTTP/1.0 may have none; HTTP/1.1 must have one.
    let has_host = request.headers().contains_key(header::HOST);
    let failed = |at: usize, fault: Fault, why: &'static str| {
        note_failure(http, health, group, at, (fault, why), began);
    };
    let mut tried = Tried::default();
    let mut tries = TRIES.min(group.endpoints().len().max(1));
    let (shares, mut pooled) = (pooled, pooled);
    // Once more to the endpoint whose kept connection was closed.
    let mut again = None;
    loop {
        let at = match again.take() {
            Some(at) => at,
            None => health
                .pick(group, &http.health.clock, random::next(), &tried)
                .filter(|at| *at < group.endpoints().len())
                .ok_or(Failure::Unreachable)?,
        };
        let endpoint = group.endpoints()[at];
        let key = Key::new(endpoint, ready);
        record.tries(endpoint);
        let kept = if pooled { pool::take(&key).await } else { None };
        let mut is_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => {
                let by = profile.as_ref().map(|(name, ready)| (&***name, ready));
                let connecting = record.has_details().then(Instant::now);
                let connected = pool::connect(endpoint, by, &http.backends, patience.connect).await;
                record.connected(connecting.map(|since| since.elapsed()));
                match connected {
                    Ok((sender, was_kept)) => {
                        is_kept = was_kept;
                        sender
                    }
                    Err(Unconnected::Exhausted) => return Err(Failure::Unreachable),
                    Err(why) => {
                        if why == Unconnected::Endpoint {
                            failed(at, Fault::Connection, "it takes no connections");
                        }
                        tries -= 1;
                        if tries == 0 {
                            return Err(Failure::Unreachable);
                        }
                        tried.add(at);
                        continue;
                    }
                }
            }
        };
        if !has_host && let Ok(host) = HeaderValue::from_str(&endpoint.to_string()) {
            request.headers_mut().insert(header::HOST, host);
        }
        // An origin may close a connection while the request is on its way to it.
        let spare =
            (is_kept && request.body().is_empty() && is_idempotent(request.method())).then(|| copy(&request));
        let mut answered =
            answer(sender.try_send_request(request), patience.first_byte, upload.as_deref()).await;
        // With a part of its answer it has taken the request.
        if matches!(answered, Err(Unanswered::Closed)) && sender.has_heard() {
            answered = Err(Unanswered::Broken);
        }
        match (answered, spare) {
            (Ok(response), _) => {
                health.succeeded(at, &http.health.clock, began);
                record.was_answered(began);
                let lease = if shares {
                    Lease::of_thread(sender, key, profile.map(|(_, ready)| ready), upload)
                } else {
                    Lease::of_nothing(sender)
                };
                return Ok((response, lease));
            }
            (Err(Unanswered::NotSent(message)), _) if is_kept => request = *message,
            // It took the connection, and nothing of the request.
            (Err(Unanswered::NotSent(message)), _) if tries > 1 => {
                failed(at, Fault::Connection, "it closes connections at once");
                tries -= 1;
                tried.add(at);
                request = *message;
            }
            (Err(Unanswered::Closed), Some(spare)) => {
                // Not by another that was kept: they may all have been closed together.
                (pooled, again) = (false, Some(at));
                request = spare;
            }
            (Err(why), _) => {
                if let (Unanswered::Refused(alert), Some((name, _))) = (&why, &profile) {
                    http.backends.ill(name.to_string(), endpoint, BackendFailure::Refused, alert.clone());
                }
                return Err(match why {
                    Unanswered::Refused(_) => {
                        failed(at, Fault::Connection, "it refuses our certificate");
                        Failure::Unreachable
                    }
                    Unanswered::Timeout => {
                        failed(at, Fault::Answer, "it does not answer in time");
                        Failure::Timeout
                    }
                    // A connection that was kept may have been idle for too long: that is no failure.
                    Unanswered::NotSent(_) | Unanswered::Closed if is_kept => Failure::Broken,
                    Unanswered::NotSent(_) | Unanswered::Closed | Unanswered::Broken => {
                        failed(at, Fault::Answer, "it closes connections or sends invalid answers");
                        Failure::Broken
                    }
                    Unanswered::Upload => Failure::Upload,
                    Unanswered::Stalled => Failure::Stalled,
                });
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

enum Unanswered {
    NotSent(Box<Request<ClientBody>>),
    /// Without a byte of an answer.
    Closed,
    Broken,
    Timeout,
    Upload,
    /// A TLS alert instead of an answer: in TLS 1.3 a backend says after the handshake what it thinks of our certificate.
    Refused(String),
    Stalled,
}

/// Waits for the head of the answer. While an upload moves, the origin may be silent.
async fn answer(
    sent: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<ClientBody>>>>,
    patience: Duration,
    upload: Option<&Progress>,
) -> Result<Response<Incoming>, Unanswered> {
    tokio::pin!(sent);
    let mut moved = 0;
    loop {
        let mut failed = match timeout(patience, &mut sent).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(failed)) => failed,
            Err(_) => match upload {
                Some(upload) if !upload.is_done() && upload.bytes() != moved => {
                    moved = upload.bytes();
                    continue;
                }
                Some(upload) if !upload.is_done() => return Err(Unanswered::Stalled),
                _ => return Err(Unanswered::Timeout),
            },
        };
        if let Some(message) = failed.take_message() {
            return Err(Unanswered::NotSent(Box::new(message)));
        }
        let error = failed.into_error();
        return Err(if let Some(alert) = alert(&error) {
            Unanswered::Refused(alert)
        } else if error.is_user() {
            Unanswered::Upload
        } else if error.is_incomplete_message() || error.is_canceled() || is_reset(&error) {
            Unanswered::Closed
        } else {
            Unanswered::Broken
        });
    }
}

/// What a backend's TLS said instead of an answer.
fn alert(error: &hyper::Error) -> Option<String> {
    let io = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    let tls = io.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(tls, rustls::Error::AlertReceived(_)).then(|| tls.to_string())
}

/// The other side closed the connection before it said anything.
fn is_reset(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>());
    source.is_some_and(|e| {
        matches!(
            e.kind(),
            std::io::ErrorKind::ConnectionReset
                | std::io::ErrorKind::BrokenPipe
                | std::io::ErrorKind::NotConnected
        )
    })
}

/// RFC 9110, 9.2.2.
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE, Method::TRACE].contains(method)
}

/// The same request once more; it has no body.
fn copy(request: &Request<ClientBody>) -> Request<ClientBody> {
    let mut copy = Request::new(ClientBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}
