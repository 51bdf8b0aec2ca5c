//! CORS on the way out: the answer to a preflight request, and who may read any other response. The router decides; what is cached
//! is edited here as well, since ghost leaves it to the front.

use std::sync::Arc;

use http::Response;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use router::Action;
use router::answer::Own;

use super::body::AnswerBody;
use super::record::Record;
use super::request::Edited;
use super::response;
use super::table::{RuleId, Table};

/// The edits of a response to a request of a rule with CORS.
#[derive(Debug)]
pub(crate) struct Sharing {
    table: Arc<Table>,
    rule: RuleId,
    origin: Option<HeaderValue>,
}

impl Sharing {
    /// None for rules without CORS, and for preflight requests, whose answer says all itself.
    pub(crate) fn of(
        parts: &Parts,
        table: &Arc<Table>,
        rule: Option<RuleId>,
        action: Action,
    ) -> Option<Self> {
        let rule = rule.filter(|_| action != Action::Preflight)?;
        table.rule(rule)?.cors()?;
        let origin = parts.headers.get(header::ORIGIN).cloned();
        Some(Self { table: Arc::clone(table), rule, origin })
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Some(cors) = self.table.rule(self.rule).and_then(|rule| rule.cors()) {
            cors.edit_response(self.origin.as_ref().map(HeaderValue::as_bytes), &mut Edited(headers));
        }
    }
}

/// Answers a preflight request.
pub(crate) fn preflight(
    parts: &Parts,
    table: &Arc<Table>,
    rule: Option<RuleId>,
    record: Record,
) -> Response<AnswerBody> {
    let own = Own::to(Action::Preflight).unwrap_or(Own { status: 204, body: "".into() });
    let mut response = response::own(own, Some(table), rule, record);
    // A 204 has no body, so it has no length either.
    response.headers_mut().remove(header::CONTENT_LENGTH);
    if let Some(cors) = rule.and_then(|rule| table.rule(rule)).and_then(|rule| rule.cors()) {
        cors.answer_preflight(&Asked(&parts.headers), &mut Edited(response.headers_mut()));
    }
    response
}

/// The headers of a request that was routed already.
struct Asked<'a>(&'a HeaderMap);

impl router::Request for Asked<'_> {
    fn socket(&self) -> &[u8] {
        b""
    }

    fn host(&self) -> &[u8] {
        b""
    }

    fn method(&self) -> &[u8] {
        b"OPTIONS"
    }

    fn url(&self) -> &[u8] {
        b"/"
    }

    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.get_all(name).iter().any(|value| seen(value.as_bytes()))
    }
}
