//! The gateway's own answers: no route, no backend, a refused path. The same words from every carrier.

use std::borrow::Cow;

use crate::decision::{Action, TooLong};

const NOT_FOUND: &str = concat!(
    r#"{"status":404,"error":"Not Found","#,
    r#""message":"no route of this gateway matches the request's host and path"}"#,
    "\n"
);
const NO_BACKEND: &str = concat!(
    r#"{"status":500,"error":"Internal Server Error","#,
    r#""message":"the route has no backend for this request"}"#,
    "\n"
);
const UNAVAILABLE: &str = concat!(
    r#"{"status":503,"error":"Service Unavailable","#,
    r#""message":"no backend is there for this request now"}"#,
    "\n"
);
const MISDIRECTED: &str = concat!(
    r#"{"status":421,"error":"Misdirected Request","#,
    r#""message":"this connection was made for another listener of the gateway: make one for this host"}"#,
    "\n"
);
const LOOP: &str = concat!(
    r#"{"status":508,"error":"Loop Detected","#,
    r#""message":"this request has been through this gateway before: a backend of its route leads back here"}"#,
    "\n"
);

const URL_TOO_LONG: &str = concat!(
    r#"{"status":414,"error":"URI Too Long","#,
    r#""message":"the path or a query parameter is too long for the regular expressions of this host's routes"}"#,
    "\n"
);
const HEADER_TOO_LONG: &str = concat!(
    r#"{"status":431,"error":"Request Header Fields Too Large","#,
    r#""message":"a header is too long for the regular expressions of this host's routes"}"#,
    "\n"
);

/// An answer with a body of JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    pub status: u16,
    pub body: Cow<'static, str>,
}

impl Own {
    /// What the gateway answers itself; `None` for what an origin or a redirect answers.
    pub fn to(action: Action) -> Option<Self> {
        let (status, body) = match action {
            Action::Forward { .. } | Action::Redirect => return None,
            Action::Preflight => (204, ""),
            Action::NotFound => (404, NOT_FOUND),
            Action::NoBackend => (500, NO_BACKEND),
            Action::Unavailable => (503, UNAVAILABLE),
            Action::Misdirected => (421, MISDIRECTED),
            Action::Loop => (508, LOOP),
            Action::TooLong(TooLong::Url) => (414, URL_TOO_LONG),
            Action::TooLong(TooLong::Header) => (431, HEADER_TOO_LONG),
            Action::Refused(why) => return Some(Self::new(400, "Bad Request", why.message())),
        };
        Some(Self { status, body: Cow::Borrowed(body) })
    }

    /// To a request that wants an answer of the cache or none (`only-if-cached`).
    pub fn not_cached() -> Self {
        Self::new(504, "Gateway Timeout", "the request has only-if-cached, and no stored response fits it")
    }

    /// `message` must need no escapes in JSON.
    pub fn new(status: u16, error: &str, message: &str) -> Self {
        let body = format!("{{\"status\":{status},\"error\":\"{error}\",\"message\":\"{message}\"}}\n");
        Self { status, body: body.into() }
    }
}
