//! One request on a stream of an HTTP/2 connection to an endpoint, and the body of its answer.
//!
//! Uploads and answers move at once. Neither is taken faster than the other side takes it. What breaks off on one side is reset on
//! the other.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::accept_key::accept_key;
use super::body::{ClientBody, OriginBody, Progress};
use super::h2_io::H2Io;
use super::multiplexed::Ticket;
use super::origin::Answered;
use super::pool::Lease;
use super::upload::{Ended, Upload};

/// The most headers that an answer may have.
const HEADERS: usize = 256;
/// Informational answers (1xx) before the final one.
const MOST_INFORMATIONAL: usize = 16;

/// On a request: where 103 responses go.
#[derive(Debug, Clone)]
pub(crate) struct Hints(pub(crate) mpsc::Sender<Response<()>>);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The endpoint has processed nothing of the request, which is here unless a part of its body is gone.
    Unprocessed(Option<Box<Request<ClientBody>>>),
    /// The connection ended.
    Closed,
    Broken,
    Timeout,
    Upload,
    Stalled,
    /// The endpoint does not take WebSockets over HTTP/2.
    NoWebSockets,
}

/// Sends the request, and waits for the head of its answer.
pub(crate) async fn send(
    ticket: Ticket,
    (endpoint, is_tls): (SocketAddr, bool),
    request: Request<ClientBody>,
    patience: Duration,
) -> Result<Answered, NoAnswer> {
    let (parts, body) = request.into_parts();
    let mut sender = ticket.sender();
    let key = parts.headers.get(header::UPGRADE).and_then(|_| parts.headers.get(header::SEC_WEBSOCKET_KEY));
    let is_tunnel = parts.headers.contains_key(header::UPGRADE);
    if is_tunnel && !sender.is_extended_connect_protocol_enabled() {
        return Err(NoAnswer::NoWebSockets);
    }
    let head = head(&parts, endpoint, is_tls, is_tunnel).ok_or(NoAnswer::Broken)?;
    let (is_empty, progress) = (body.is_empty(), body.progress());
    let Ok((mut response, stream)) = sender.send_request(head, is_empty && !is_tunnel) else {
        ticket.retire();
        return Err(NoAnswer::Unprocessed(Some(Box::new(Request::from_parts(parts, body)))));
    };
    let hints = parts.extensions.get::<Hints>();
    let mut upload = Upload::new(body, stream, is_empty);
    let answered = wait(&mut response, &mut upload, hints, patience).await;
    match answered {
        Ok(answer) => {
            let accept = key.filter(|_| answer.status() == StatusCode::OK).map(accept_key);
            let mut answered =
                answer_of(answer, upload, is_tunnel.then_some(accept), ticket).ok_or(NoAnswer::Broken)?;
            if let OriginBody::Http2(body) = answered.0.body_mut() {
                body.progress = progress;
            }
            Ok(answered)
        }
        Err(Silent::Error(error)) => {
            if is_unprocessed(&error) {
                if error.is_go_away() {
                    ticket.retire();
                }
                let untouched = upload.take_untouched();
                return Err(NoAnswer::Unprocessed(
                    untouched.map(|body| Box::new(Request::from_parts(parts, body))),
                ));
            }
            Err(if error.is_io() { NoAnswer::Closed } else { NoAnswer::Broken })
        }
        Err(Silent::Flood) => Err(NoAnswer::Broken),
        Err(Silent::Upload) => Err(NoAnswer::Upload),
        Err(Silent::Stalled) => Err(NoAnswer::Stalled),
        Err(Silent::Timeout) => {
            // If the endpoint is gone without a word, later requests need another connection.
            ticket.retire();
            Err(NoAnswer::Timeout)
        }
    }
}

/// By RFC 9113, 8.7: refused streams, and those above the last one that a GOAWAY names.
fn is_unprocessed(error: &h2::Error) -> bool {
    error.is_remote()
        && (error.is_go_away() || (error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)))
}

/// The head as HTTP/2 has it: scheme and authority in the place of Host, nothing about a connection.
fn head(parts: &Parts, endpoint: SocketAddr, is_tls: bool, is_tunnel: bool) -> Option<Request<()>> {
    let mut headers = parts.headers.clone();
    let authority = match headers.remove(header::HOST) {
        Some(host) => Authority::try_from(host.as_bytes()).ok()?,
        // Clients of HTTP/1.0 may have none.
        None => Authority::try_from(endpoint.to_string()).ok()?,
    };
    for name in [header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE] {
        headers.remove(name);
    }
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = Some(authority);
    uri.path_and_query =
        Some(parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    let mut head = Request::new(());
    *head.method_mut() = parts.method.clone();
    if is_tunnel {
        // RFC 8441.
        headers.remove(header::SEC_WEBSOCKET_KEY);
        *head.method_mut() = Method::CONNECT;
        head.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    *head.uri_mut() = Uri::from_parts(uri).ok()?;
    *head.headers_mut() = headers;
    Some(head)
}

/// Why there is no head of an answer.
enum Silent {
    Error(h2::Error),
    /// Too many informational answers.
    Flood,
    Upload,
    Stalled,
    Timeout,
}

/// Waits for the head of the answer, and sends the upload meanwhile. While it moves, the endpoint may be silent.
async fn wait(
    response: &mut ResponseFuture,
    upload: &mut Upload,
    hints: Option<&Hints>,
    patience: Duration,
) -> Result<Response<RecvStream>, Silent> {
    let mut informational = 0;
    let mut moved = 0;
    loop {
        let happened = async {
            tokio::select! {
                biased;
                head = poll_fn(|cx| poll_head(response, hints, &mut informational, cx)) => Some(head),
                ended = upload.run(), if !upload.is_over() => match ended {
                    Ended::Broken => Some(Err(Silent::Upload)),
                    // An answer may follow, and says why.
                    Ended::Whole | Ended::Refused => None,
                },
            }
        };
        match timeout(patience, happened).await {
            Ok(Some(head)) => return head,
            Ok(None) => {}
            Err(_) if upload.is_over() => return Err(Silent::Timeout),
            Err(_) if upload.bytes() == moved && upload.waits_for_client() => return Err(Silent::Stalled),
            Err(_) if upload.bytes() == moved => return Err(Silent::Timeout),
            Err(_) => moved = upload.bytes(),
        }
    }
}

fn poll_head(
    response: &mut ResponseFuture,
    hints: Option<&Hints>,
    informational: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<RecvStream>, Silent>> {
    while let Poll::Ready(Some(hint)) = response.poll_informational(cx) {
        let hint = hint.map_err(Silent::Error)?;
        *informational += 1;
        if *informational > MOST_INFORMATIONAL {
            return Poll::Ready(Err(Silent::Flood));
        }
        if let Some(Hints(to)) = hints
            && hint.status() == StatusCode::EARLY_HINTS
        {
            // Those beyond the most are left out.
            let _ = to.try_send(early(hint.headers()));
        }
    }
    Pin::new(response).poll(cx).map_err(Silent::Error)
}

/// The part of a 103 that clients get.
pub(crate) fn early(headers: &HeaderMap) -> Response<()> {
    let mut early = Response::new(());
    *early.status_mut() = StatusCode::EARLY_HINTS;
    for link in headers.get_all(header::LINK) {
        early.headers_mut().append(header::LINK, link.clone());
    }
    early
}

/// None if it is not valid. `tunnel`: a tunnel was requested; contains what an HTTP/1 client gets when it opens.
fn answer_of(
    answer: Response<RecvStream>,
    upload: Upload,
    tunnel: Option<Option<HeaderValue>>,
    ticket: Ticket,
) -> Option<Answered> {
    let (mut parts, receive) = answer.into_parts();
    if parts.headers.len() > HEADERS {
        return None;
    }
    let lease = Lease::Stream { _ticket: ticket };
    let sending = match tunnel {
        Some(accept) if parts.status == StatusCode::OK => {
            parts.status = StatusCode::SWITCHING_PROTOCOLS;
            parts.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            if let Some(accept) = accept {
                parts.headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            }
            Sending::Tunnel(upload.into_stream())
        }
        _ if parts.status == StatusCode::SWITCHING_PROTOCOLS => return None,
        _ if upload.is_over() => Sending::Over,
        _ => Sending::Task { _task: Task(upload.spawn()) },
    };
    if matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        // Responses with these statuses have no body.
        return Some((Response::from_parts(parts, OriginBody::Nothing), lease));
    }
    let left =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = StreamBody { receive, sending, left, has_all_data: false, progress: None, moved: 0 };
    Some((Response::from_parts(parts, OriginBody::Http2(Box::new(body))), lease))
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct StreamBody {
    receive: RecvStream,
    sending: Sending,
    /// Bytes that its Content-Length still announces.
    left: Option<u64>,
    has_all_data: bool,
    /// Of the request's body, and how far it was when this was last asked.
    progress: Option<Arc<Progress>>,
    moved: u64,
}

#[derive(Debug)]
enum Sending {
    Over,
    /// Goes on in a task of its own.
    Task {
        _task: Task,
    },
    Tunnel(SendStream<Bytes>),
}

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        // The answer is over, or the client is gone: the endpoint sees a reset, unless the upload is whole.
        self.0.abort();
    }
}

impl StreamBody {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.has_all_data {
            match ready!(self.receive.poll_data(cx)) {
                Some(Ok(data)) => {
                    // The window opens as fast as the client takes what came.
                    let _ = self.receive.flow_control().release_capacity(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) if self.is_whole_after(&error) => {
                    self.has_all_data = true;
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.has_all_data = true,
            }
        }
        match ready!(self.receive.poll_trailers(cx)) {
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) if self.is_whole_after(&error) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    /// After a whole answer an endpoint may refuse the rest of the upload so (RFC 9113, 8.1).
    fn is_whole_after(&self, error: &h2::Error) -> bool {
        let is_refused = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
        is_refused && matches!(self.sending, Sending::Task { .. }) && self.left.unwrap_or(0) == 0
    }

    pub(crate) fn upload_has_moved(&mut self) -> bool {
        let now = self.progress.as_ref().map_or(0, |progress| progress.bytes());
        std::mem::replace(&mut self.moved, now) != now
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.receive.is_end_stream()
    }

    /// The stream, where it is a tunnel now.
    pub(crate) fn into_tunnel(self) -> Option<H2Io> {
        match self.sending {
            Sending::Tunnel(send) => Some(H2Io::new(self.receive, send)),
            Sending::Over | Sending::Task { .. } => None,
        }
    }
}
