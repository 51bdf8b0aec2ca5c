//! What the gateway answers itself to gRPC clients: a gRPC status with HTTP 200, in one frame of headers ("Trailers-Only").
//!
//! Clients of gRPC read an HTTP status only where there is no gRPC status, and then guess. Origins' answers are left as they are.

use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, Method, Request, Response, StatusCode, Version};

use super::body::AnswerBody;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// On a response: the gateway made it. With the text for people.
#[derive(Debug, Clone)]
pub(crate) struct Made(pub(crate) Box<str>);

impl Made {
    /// Of a body in JSON, as [`router::answer::Own`] has it.
    pub(crate) fn of(body: &str) -> Self {
        let message = body.split_once("\"message\":\"").and_then(|(_, rest)| rest.split_once("\"}"));
        Self(message.map_or("", |(message, _)| message).into())
    }
}

/// Is it a call of gRPC: a POST by HTTP/2? gRPC-Web is not: its clients read statuses of HTTP. For no other request may our errors
/// become a 200, which a cache before us might keep.
pub(crate) fn is_call<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.version() == Version::HTTP_2 && has_type(request.headers())
}

fn has_type(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) else { return false };
    let start = kind.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC.as_bytes()));
    start && matches!(kind.get(GRPC.len()), None | Some(b'+' | b';' | b' '))
}

/// Makes of the gateway's own answer one that gRPC clients understand.
pub(crate) fn translate(response: &mut Response<AnswerBody>) {
    if response.status().as_u16() < 400 {
        return;
    }
    let Some(Made(message)) = response.extensions_mut().remove::<Made>() else { return };
    let status = status(response.status());
    response.body_mut().leave_out_own();
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from(status));
    if let Ok(message) = HeaderValue::from_str(&encoded(&message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
}

/// The gRPC status for an answer of ours. Where gRPC's own mapping says less, it says what happened.
fn status(status: StatusCode) -> u16 {
    match status.as_u16() {
        // CANCELLED: the client stopped sending.
        408 => 1,
        // DEADLINE_EXCEEDED
        504 => 4,
        // RESOURCE_EXHAUSTED: limits of the gateway.
        413 | 414 | 429 | 431 => 8,
        // UNIMPLEMENTED
        404 | 405 | 417 | 501 | 505 => 12,
        // INTERNAL
        400 | 508 => 13,
        // UNAVAILABLE: no backend, or it cannot be reached.
        500 | 502 | 503 => 14,
        // UNAUTHENTICATED
        401 => 16,
        // PERMISSION_DENIED
        403 => 7,
        // UNKNOWN
        _ => 2,
    }
}

/// As `grpc-message` is written: percent-encoded, but for printable ASCII.
fn encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' => text.push_str("%25"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use router::answer::Own;

    use super::*;

    #[test]
    fn calls_are_known_by_their_content_type() {
        let request = |method, version, kind: &'static str| {
            let request = Request::builder().method(method).version(version);
            request.header(header::CONTENT_TYPE, kind).body(()).unwrap()
        };
        let is_call = |kind| is_call(&request(Method::POST, Version::HTTP_2, kind));
        for call in ["application/grpc", "application/grpc+proto", "Application/GRPC; charset=utf-8"] {
            assert!(is_call(call), "{call}");
        }
        for other in ["application/grpc-web", "application/grpc-web+proto", "application/json", "application"]
        {
            assert!(!is_call(other), "{other}");
        }
        assert!(!super::is_call(&request(Method::GET, Version::HTTP_2, "application/grpc")));
        assert!(!super::is_call(&request(Method::POST, Version::HTTP_11, "application/grpc")));
    }

    #[test]
    fn messages_are_those_of_other_answers() {
        let own = Own::new(503, "Service Unavailable", "no backend is there");
        assert_eq!(&*Made::of(&own.body).0, "no backend is there");
        assert_eq!(&*Made::of("").0, "");
        assert_eq!(encoded("50 % é\n"), "50 %25 %C3%A9%0A");
    }
}
