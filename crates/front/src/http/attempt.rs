//! One try: one request to one endpoint, by a connection that is there or a new one, until the head of the answer.
//!
//! All that is sent to endpoints on behalf of requests goes through [`attempt`]. Which endpoint is tried, and what follows a try that
//! failed, is decided by the caller.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use model::Protocol;
use rustls::AlertDescription;
use tokio::time::timeout;

use super::body::{ClientBody, OriginBody, Progress};
use super::health::Fault;
use super::multiplexed;
use super::origin::{Answered, Failure, Patience};
use super::plain;
use super::pool::{self, Key, Lease, Unconnected};
use super::record::Watch;
use super::reply;
use super::stream::{self, Hints};
use crate::backend::Ready;
use crate::{BackendFailure, BackendSide};

/// How often a request that an endpoint has not processed is sent to it again, on another stream or connection.
const AGAIN: usize = 2;

/// The target of one try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) endpoint: SocketAddr,
    /// Name and content of the profile by which the endpoint is verified.
    pub(crate) profile: Option<(&'a str, &'a Arc<Ready>)>,
    /// What it speaks.
    pub(crate) protocol: Protocol,
}

/// Why a try has no answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) failure: Failure,
    /// What it says about the endpoint, if anything.
    pub(crate) fault: Option<(Fault, &'static str)>,
    /// The endpoint has processed nothing of the request: it may be sent to another one.
    pub(crate) unsent: Option<Box<Request<ClientBody>>>,
}

impl Unanswered {
    fn new(failure: Failure, fault: Option<(Fault, &'static str)>) -> Self {
        Self { failure, fault, unsent: None }
    }
}

/// Sends the request to this endpoint. `pooled`: it may share a connection with others.
pub(crate) async fn attempt(
    side: &BackendSide,
    target: Target<'_>,
    request: Box<Request<ClientBody>>,
    pooled: bool,
    patience: Patience,
    record: &mut Watch<'_>,
) -> Result<Answered, Unanswered> {
    match target.protocol {
        Protocol::Http1 if pooled && target.profile.is_none() && request.body().is_empty() => {
            by_itself(target.endpoint, request, patience, record).await
        }
        Protocol::Http1 => Box::pin(by_http1(side, target, request, pooled, patience, record)).await,
        Protocol::Http2 => Box::pin(by_http2(side, target, request, patience, record)).await,
    }
}

/// On a stream of a connection that others share.
async fn by_http2(
    side: &BackendSide,
    Target { endpoint, profile, .. }: Target<'_>,
    request: Box<Request<ClientBody>>,
    patience: Patience,
    record: &mut Watch<'_>,
) -> Result<Answered, Unanswered> {
    let mut request = *request;
    let key = Key::new(endpoint, profile.map(|(_, ready)| ready));
    let began = Instant::now();
    let mut again = AGAIN;
    loop {
        record.tries(endpoint);
        let kept = multiplexed::take(&key);
        let is_kept = kept.is_some();
        let ticket = match kept {
            Some(ticket) => ticket,
            None => {
                let connecting = record.has_details().then(Instant::now);
                let connected = multiplexed::connect(endpoint, profile, side, patience.connect).await;
                record.connected(connecting.map(|since| since.elapsed()));
                match connected {
                    Ok(ticket) => ticket,
                    Err(why) => return Err(unconnected(why, Box::new(request), true)),
                }
            }
        };
        // An endpoint may close a connection while the request is on its way to it.
        let spare =
            (is_kept && request.body().is_empty() && is_idempotent(request.method())).then(|| copy(&request));
        let why =
            match stream::send(ticket, (endpoint, profile.is_some()), request, patience.first_byte).await {
                Ok(answered) => {
                    record.was_answered(began);
                    return Ok(answered);
                }
                Err(why) => why,
            };
        request = match (why, spare) {
            (stream::NoAnswer::Unprocessed(Some(unsent)), _) if again > 0 => *unsent,
            (stream::NoAnswer::Closed, Some(spare)) if again > 0 => spare,
            (why, _) => return Err(why.after(is_kept)),
        };
        again -= 1;
    }
}

impl stream::NoAnswer {
    fn after(self, is_kept: bool) -> Unanswered {
        match self {
            Self::Unprocessed(unsent) => Unanswered {
                failure: Failure::Unreachable,
                fault: Some((Fault::Connection, "it refuses requests")),
                unsent,
            },
            Self::Closed if is_kept => Unanswered::new(Failure::Broken, None),
            Self::Closed | Self::Broken => NoAnswer::Broken.after(false),
            Self::Timeout => NoAnswer::Timeout.after(false),
            Self::Upload => NoAnswer::Upload.after(false),
            Self::Stalled => NoAnswer::Stalled.after(false),
            Self::NoWebSockets => Unanswered::new(Failure::NoWebSockets, None),
        }
    }
}

/// Without a body, in the clear.
async fn by_itself(
    endpoint: SocketAddr,
    request: Box<Request<ClientBody>>,
    patience: Patience,
    record: &mut Watch<'_>,
) -> Result<Answered, Unanswered> {
    let key = Key::new(endpoint, None);
    // Clients of HTTP/1.0 may have none; HTTP/1.1 must have one.
    let has_host = request.headers().contains_key(header::HOST);
    let host = (!has_host).then(|| endpoint.to_string());
    let Some(head) = plain::head(&request, host.as_deref()) else {
        return Err(Unanswered::new(Failure::Filter, None));
    };
    let hints = request.extensions().get::<Hints>();
    let began = Instant::now();
    let mut pooled = true;
    // Once more where a kept connection was closed.
    loop {
        record.tries(endpoint);
        let kept = if pooled { pool::take_plain(&key) } else { None };
        let (stream, is_kept) = match kept {
            Some(stream) => (stream, true),
            None => {
                let connecting = record.has_details().then(Instant::now);
                let connected = Box::pin(pool::connect_plain(key, patience.connect)).await;
                record.connected(connecting.map(|since| since.elapsed()));
                match connected {
                    Ok(connected) => connected,
                    Err(why) => return Err(unconnected(why, request, true)),
                }
            }
        };
        let exchange = plain::exchange(stream, &head, request.method(), hints, key);
        let why = match timeout(patience.first_byte, exchange).await {
            Ok(Ok((parts, reply))) => {
                record.was_answered(began);
                let body = OriginBody::Plain(Box::new(reply));
                return Ok((Response::from_parts(parts, body), Lease::Body));
            }
            Ok(Err(why)) => why,
            Err(_) => return Err(NoAnswer::Timeout.after(is_kept)),
        };
        match why {
            plain::Unanswered::NotSent if is_kept => {}
            // It took the connection, and nothing of the request.
            plain::Unanswered::NotSent => {
                let fault = (Fault::Connection, "it closes connections at once");
                return Err(Unanswered {
                    failure: Failure::Broken,
                    fault: Some(fault),
                    unsent: Some(request),
                });
            }
            // An origin may close a connection while the request is on its way to it. Not by another that was kept: they may all have
            // been closed together.
            plain::Unanswered::Read(reply::NoAnswer::Closed)
                if is_kept && is_idempotent(request.method()) =>
            {
                pooled = false;
            }
            plain::Unanswered::Read(reply::NoAnswer::Closed) => return Err(NoAnswer::Closed.after(is_kept)),
            plain::Unanswered::Read(reply::NoAnswer::Broken) => return Err(NoAnswer::Broken.after(is_kept)),
        }
    }
}

async fn by_http1(
    side: &BackendSide,
    Target { endpoint, profile, .. }: Target<'_>,
    request: Box<Request<ClientBody>>,
    pooled: bool,
    patience: Patience,
    record: &mut Watch<'_>,
) -> Result<Answered, Unanswered> {
    let mut request = *request;
    let key = Key::new(endpoint, profile.map(|(_, ready)| ready));
    let upload = request.body().progress();
    // hyper would send no body with GET and HEAD unless a header announces it.
    if upload.is_some() && !request.headers().contains_key(header::CONTENT_LENGTH) {
        request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // Clients of HTTP/1.0 may have none; HTTP/1.1 must have one.
    let has_host = request.headers().contains_key(header::HOST);
    let began = Instant::now();
    let (shares, mut pooled) = (pooled, pooled);
    // Once more where a kept connection was closed.
    loop {
        record.tries(endpoint);
        let kept = if pooled { pool::take(&key).await } else { None };
        let mut is_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => {
                let connecting = record.has_details().then(Instant::now);
                let connected = pool::connect(endpoint, profile, side, patience.connect).await;
                record.connected(connecting.map(|since| since.elapsed()));
                match connected {
                    Ok((sender, was_kept)) => {
                        is_kept = was_kept;
                        sender
                    }
                    Err(why) => return Err(unconnected(why, Box::new(request), has_host)),
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
        // An endpoint that has sent a part of its response has accepted the request.
        let has_taken = |why: &NoAnswer| match why {
            NoAnswer::Closed => sender.has_heard(),
            // On a connection that was used before, it has taken our certificate.
            NoAnswer::Refused(_) => is_kept,
            _ => false,
        };
        if answered.as_ref().is_err_and(has_taken) {
            answered = Err(NoAnswer::Broken);
        }
        match (answered, spare) {
            (Ok(response), _) => {
                record.was_answered(began);
                let lease = if shares {
                    Lease::of_thread(sender, key, profile.map(|(_, ready)| Arc::clone(ready)), upload)
                } else {
                    Lease::of_nothing(sender)
                };
                return Ok((response.map(OriginBody::Http1), lease));
            }
            (Err(NoAnswer::NotSent(message)), _) if is_kept => request = *message,
            // It took the connection, and nothing of the request.
            (Err(NoAnswer::NotSent(mut message)), _) => {
                if !has_host {
                    message.headers_mut().remove(header::HOST);
                }
                let fault = (Fault::Connection, "it closes connections at once");
                return Err(Unanswered {
                    failure: Failure::Broken,
                    fault: Some(fault),
                    unsent: Some(message),
                });
            }
            (Err(NoAnswer::Closed), Some(spare)) => {
                // Not by another that was kept: they may all have been closed together.
                pooled = false;
                request = spare;
            }
            (Err(why), _) => {
                if let (NoAnswer::Refused(alert), Some((name, _))) = (&why, profile) {
                    side.ill(name.to_owned(), endpoint, BackendFailure::Refused, alert.clone());
                }
                return Err(why.after(is_kept));
            }
        }
    }
}

/// Nothing was sent.
fn unconnected(why: Unconnected, mut request: Box<Request<ClientBody>>, has_host: bool) -> Unanswered {
    if !has_host {
        request.headers_mut().remove(header::HOST);
    }
    let fault = (Fault::Connection, "it takes no connections");
    Unanswered {
        failure: Failure::Unreachable,
        fault: (why == Unconnected::Endpoint).then_some(fault),
        // Without a file descriptor no other endpoint can be reached either.
        unsent: (why != Unconnected::Exhausted).then_some(request),
    }
}

enum NoAnswer {
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

impl NoAnswer {
    fn after(self, is_kept: bool) -> Unanswered {
        match self {
            Self::Refused(_) => {
                Unanswered::new(Failure::Unreachable, Some((Fault::Connection, "it refuses our certificate")))
            }
            Self::Timeout => {
                Unanswered::new(Failure::Timeout, Some((Fault::Answer, "it does not answer in time")))
            }
            // A connection that was kept may have been idle for too long: that is no failure.
            Self::NotSent(_) | Self::Closed if is_kept => Unanswered::new(Failure::Broken, None),
            Self::NotSent(_) | Self::Closed | Self::Broken => Unanswered::new(
                Failure::Broken,
                Some((Fault::Answer, "it closes connections or sends invalid answers")),
            ),
            Self::Upload => Unanswered::new(Failure::Upload, None),
            Self::Stalled => Unanswered::new(Failure::Stalled, None),
        }
    }
}

/// Waits for the head of the answer. While an upload moves, the origin may be silent.
async fn answer(
    sent: impl Future<Output = Result<Response<Incoming>, TrySendError<Request<ClientBody>>>>,
    patience: Duration,
    upload: Option<&Progress>,
) -> Result<Response<Incoming>, NoAnswer> {
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
                Some(upload) if !upload.is_done() => return Err(NoAnswer::Stalled),
                _ => return Err(NoAnswer::Timeout),
            },
        };
        if let Some(message) = failed.take_message() {
            return Err(NoAnswer::NotSent(Box::new(message)));
        }
        let error = failed.into_error();
        return Err(if let Some(alert) = alert(&error) {
            NoAnswer::Refused(alert)
        } else if error.is_user() {
            NoAnswer::Upload
        } else if error.is_incomplete_message() || error.is_canceled() || is_reset(&error) {
            NoAnswer::Closed
        } else {
            NoAnswer::Broken
        });
    }
}

/// What a backend's TLS said about our certificate instead of an answer. After another alert it may have taken the request.
fn alert(error: &hyper::Error) -> Option<String> {
    let io = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    let tls = io.get_ref()?.downcast_ref::<rustls::Error>()?;
    let is_about_us = matches!(
        tls,
        rustls::Error::AlertReceived(
            AlertDescription::HandshakeFailure
                | AlertDescription::NoCertificate
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::DecryptError
        )
    );
    is_about_us.then(|| tls.to_string())
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

/// RFC 9110, 9.2.2, and RFC 10008.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    if method.as_str() == "QUERY" {
        return true;
    }
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
