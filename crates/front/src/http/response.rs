//! The way out: what an origin answered becomes what the client is to see; and the gateway's own answers.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use model::names::{CACHE_HOST_HEADER, CACHE_URL_HEADER, TAG_HEADERS};
use router::answer::Own;
use router::counters::OTHER;

use super::body::{AnswerBody, head_bytes};
use super::grpc;
use super::origin::Failure;
use super::reason::Reason;
use super::record::Record;
use super::request::{Edited, is_internal, refused, remove_hop_by_hop, remove_internals, remove_where};
use super::table::{RuleId, Table};

pub(crate) const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
pub(crate) const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
const PASS: HeaderValue = HeaderValue::from_static("PASS");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// An answer whose framing can be read in two ways, or in none.
#[derive(Debug)]
pub(crate) struct Ambiguous;

/// Removes headers that concern the connection to the origin. hyper has read the body by these headers. Returns whether the
/// connection may carry another request: not after an answer with chunks and a length, which others would read otherwise.
pub(crate) fn unframe(headers: &mut HeaderMap) -> Result<bool, Ambiguous> {
    let mut is_clear = true;
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(first) = codings.next() {
        if codings.next().is_some() || !first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Ambiguous);
        }
        headers.remove(header::TRANSFER_ENCODING);
        is_clear = headers.remove(header::CONTENT_LENGTH).is_none();
    } else if headers.contains_key(header::CONTENT_LENGTH) {
        reframe(headers)?;
    }
    remove_hop_by_hop(headers);
    Ok(is_clear)
}

/// One Content-Length, in digits. hyper takes lists of equal ones, and does not look at all where no body may follow.
fn reframe(headers: &mut HeaderMap) -> Result<(), Ambiguous> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    if lengths.next().is_some_and(|first| is_plain(first.as_bytes())) && lengths.next().is_none() {
        return Ok(());
    }
    let length = length(headers).ok_or(Ambiguous)?;
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(())
}

pub(crate) fn is_plain(length: &[u8]) -> bool {
    !length.is_empty()
        && length.iter().all(u8::is_ascii_digit)
        && (length == b"0" || !length.starts_with(b"0"))
}

/// What all values of Content-Length say.
pub(crate) fn length(headers: &HeaderMap) -> Option<u64> {
    let number = |one: &[u8]| {
        let one = one.trim_ascii();
        let is_number = !one.is_empty() && one.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(one).ok().filter(|_| is_number)?.parse::<u64>().ok()
    };
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let mut lengths = lengths.flat_map(|value| value.as_bytes().split(|b| *b == b',')).map(number);
    let first = lengths.next().flatten()?;
    lengths.all(|other| other == Some(first)).then_some(first)
}

/// Headers that decide how a message is read, routed or authorised come before its body or not at all (RFC 9110, 6.5.1).
const NO_TRAILERS: [HeaderName; 24] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::RANGE,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::WWW_AUTHENTICATE,
    KEEP_ALIVE,
    PROXY_CONNECTION,
];

/// Removes trailers that must not be trailers, and those for the cache only.
pub(crate) fn remove_forbidden(trailers: &mut HeaderMap) {
    for name in &NO_TRAILERS {
        trailers.remove(name);
    }
    remove_where(trailers, |name| is_for_cache(name) || is_internal(name));
}

/// Tags, and what an origin says about the place of a response in the cache.
fn is_for_cache(name: &str) -> bool {
    let names = TAG_HEADERS.into_iter().chain([CACHE_HOST_HEADER, CACHE_URL_HEADER]);
    names.into_iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Makes the client's head from an origin's: without headers for the cache only, with the rule's edits.
pub(crate) fn edit(headers: &mut HeaderMap, table: &Table, rule: Option<RuleId>) {
    remove_where(headers, |name| is_for_cache(name) || is_internal(name));
    if table.router().tells_cache_status() {
        headers.insert(X_CACHE, PASS);
    }
    if let Some(rule) = rule.and_then(|rule| table.rule(rule)).filter(|rule| rule.has_edits()) {
        rule.edit_response(&mut Edited(headers));
        remove_internals(headers);
    }
}

/// The edits of the backendRef alone, before those of the rule.
pub(crate) fn edit_of_backend(headers: &mut HeaderMap, table: &Table, (rule, group): (RuleId, usize)) {
    let group = table.rule(rule).and_then(|rule| rule.groups().get(group));
    if let Some(edits) = group.and_then(|group| group.edits()) {
        edits.edit_response(&mut Edited(headers));
    }
}

/// An edit of the rule made a URL or a host that no request can have.
pub(crate) fn no_url() -> Own {
    refused(
        StatusCode::INTERNAL_SERVER_ERROR,
        "a filter of the route makes a URL or a host that is not valid",
    )
}

/// The gateway's own response, if no origin responds.
pub(crate) fn failed(why: Failure) -> Own {
    match why {
        Failure::Unreachable => {
            refused(StatusCode::SERVICE_UNAVAILABLE, "no backend of this route can be reached now")
        }
        Failure::Timeout => refused(StatusCode::GATEWAY_TIMEOUT, "the backend did not answer in time"),
        Failure::Deadline => {
            refused(StatusCode::GATEWAY_TIMEOUT, "the request took longer than its route allows")
        }
        Failure::Filter => no_url(),
        Failure::Broken => {
            refused(StatusCode::BAD_GATEWAY, "the backend closed the connection or sent an invalid response")
        }
        Failure::NoWebSockets => refused(
            StatusCode::BAD_GATEWAY,
            "the backend speaks HTTP/2 and does not take WebSockets over it (RFC 8441)",
        ),
        Failure::Upload => refused(StatusCode::BAD_REQUEST, "the request's body broke off or is not valid"),
        Failure::Stalled => refused(StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time"),
    }
}

/// Marks an answer to a request that was refused at the entrance: what follows on an HTTP/1 connection is not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closes;

/// The answer to a request that was refused before it was routed.
pub(crate) fn refusal(why: Own, table: &Arc<Table>, record: Record) -> Response<AnswerBody> {
    let mut response = own(why, Some(table), None, record);
    response.extensions_mut().insert(Closes);
    response
}

/// Every response goes through here last.
pub(crate) fn finish(
    mut response: Response<AnswerBody>,
    is_head: bool,
    closes: bool,
) -> Response<AnswerBody> {
    if is_head && response.body_mut().leave_out_own() {
        // As in ghost: a Content-Type without content misleads some clients.
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    if closes {
        response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    let bytes = head_bytes(response.headers());
    let status = response.status().as_u16();
    response.body_mut().head(status, bytes);
    response
}

/// The gateway's own answer.
pub(crate) fn own(
    own: Own,
    table: Option<&Arc<Table>>,
    rule: Option<RuleId>,
    record: Record,
) -> Response<AnswerBody> {
    with_body(own, table, rule, record, OTHER)
}

/// In the place of an origin's answer: `cache` is a position in [`model::stats::CACHE_RESULTS`].
pub(crate) fn with_body(
    own: Own,
    table: Option<&Arc<Table>>,
    rule: Option<RuleId>,
    mut record: Record,
    cache: u8,
) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(own.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = match own.body {
        std::borrow::Cow::Borrowed(text) => bytes::Bytes::from_static(text.as_bytes()),
        std::borrow::Cow::Owned(text) => text.into(),
    };
    let length = body.len();
    let made = grpc::Made::of(std::str::from_utf8(&body).unwrap_or_default());
    if let Some(reason) = Reason::of_status(status.as_u16()) {
        record.because(reason);
    }
    if let Some(table) = table {
        record.answered(table, rule, status.as_u16(), cache);
    }
    let mut response = Response::new(AnswerBody::own(body, record));
    *response.status_mut() = status;
    response.extensions_mut().insert(made);
    if length > 0 {
        response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    }
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(table) = table {
        edit(response.headers_mut(), table, rule);
    }
    response
}
