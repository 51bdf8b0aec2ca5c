//! Answers, and what a browser may make of them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

/// Whole, or piece by piece.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Full<Bytes>),
    Pieces(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Pieces(pieces) => pieces.poll_recv(context).map(|piece| Some(Ok(Frame::data(piece?)))),
        }
    }
}

pub(crate) type Answer = Response<Content>;

/// Everything comes from here, and nothing frames us.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

fn secure(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

fn with_content(status: StatusCode, kind: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    secure(answer.headers_mut());
    answer.headers_mut().insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

pub(crate) fn text(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    with_content(StatusCode::OK, kind, Content::Whole(Full::new(body.into())))
}

pub(crate) fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(mut body) => {
            body.push(b'\n');
            text("application/json", body)
        }
        Err(e) => error(StatusCode::INTERNAL_SERVER_ERROR, &e.to_string()),
    }
}

pub(crate) fn error(status: StatusCode, why: &str) -> Answer {
    let body = format!("{}\n", json!({ "error": why }));
    with_content(status, "application/json", Content::Whole(Full::new(body.into())))
}

pub(crate) fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, &format!("the method must be {allowed}"));
    answer.headers_mut().insert(hyper::header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

pub(crate) fn stream(pieces: mpsc::Receiver<Bytes>) -> Answer {
    with_content(StatusCode::OK, "text/event-stream", Content::Pieces(pieces))
}
