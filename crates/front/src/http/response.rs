//! The way out: what an origin answered becomes what the client is to see; and the gateway's own answers.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use model::names::{CACHE_HOST_HEADER, CACHE_URL_HEADER, TAG_HEADERS};
use router::answer::Own;
use router::counters::OTHER;

use super::body::{AnswerBody, head_bytes};
use super::record::Record;
use super::request::{Edited, remove_hop_by_hop, remove_internals};
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

/// Takes away what is about the connection to the origin. hyper has read the body by these headers.
pub(crate) fn unframe(headers: &mut HeaderMap) -> Result<(), Ambiguous> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(first) = codings.next() {
        if codings.next().is_some() || !first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Ambiguous);
        }
        headers.remove(header::TRANSFER_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
    } else if headers.get_all(header::CONTENT_LENGTH).iter().nth(1).is_some()
        && let Some(length) = headers.get(header::CONTENT_LENGTH).cloned()
    {
        // All the same: hyper has compared them.
        headers.insert(header::CONTENT_LENGTH, length);
    }
    remove_hop_by_hop(headers);
    Ok(())
}

/// Makes an origin's head the client's: without what is for the cache alone, with the rule's edits.
pub(crate) fn edit(headers: &mut HeaderMap, table: &Table, rule: Option<RuleId>) {
    for name in TAG_HEADERS.into_iter().chain([CACHE_HOST_HEADER, CACHE_URL_HEADER]) {
        headers.remove(name);
    }
    remove_internals(headers);
    if table.router().tells_cache_status() {
        headers.insert(X_CACHE, PASS);
    }
    if let Some(rule) = rule.and_then(|rule| table.rule(rule)) {
        rule.edit_response(&mut Edited(headers));
        remove_internals(headers);
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
pub(crate) fn finish(mut response: Response<AnswerBody>, closes: bool) -> Response<AnswerBody> {
    if closes {
        response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    let bytes = head_bytes(response.headers());
    response.body_mut().head(bytes);
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
    if let Some(table) = table {
        record.answered(table, rule, status.as_u16(), cache);
    }
    let mut response = Response::new(AnswerBody::own(body, record));
    *response.status_mut() = status;
    if length > 0 {
        response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    }
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(table) = table {
        edit(response.headers_mut(), table, rule);
    }
    response
}
