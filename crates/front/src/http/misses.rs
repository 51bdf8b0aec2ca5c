//! Misses and passes of varnishd, for groups that only the front reaches as their rule says: with TLS, by HTTP/2, with timeouts, retries,
//! mirrors, or with filters of a backendRef.
//!
//! varnishd speaks HTTP/1.1 on its unix socket, after a PROXY header that names rule and group. ghost has made the edits of the rule, and
//! makes those of its answer. Guarantees that what breaks off on one side breaks off on the other, and that only a request of which no
//! endpoint has got anything is answered with the proof, by which ghost knows that it was not sent.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{self, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use model::MissFor;
use tokio::net::UnixStream;
use tokio::time::sleep;

use super::Http;
use super::body::{AnswerBody, ClientBody};
use super::deadline;
use super::exchange::Prepared;
use super::hints;
use super::origin::{Failure, Sent};
use super::post;
use super::record::Record;
use super::request::{Client, remove_hop_by_hop, remove_internals};
use super::response::{self, failed};
use super::table::{RuleId, Table};
use super::upstream::{self, Call};
use crate::{HttpLimits, proxy};

const PROOF: HeaderName = HeaderName::from_static("x-ghost-front");
const URL: HeaderName = HeaderName::from_static("x-ghost-url");
const HINTS: HeaderName = HeaderName::from_static("x-ghost-hints");
const KEPT: HeaderName = HeaderName::from_static("x-ghost-kept");
const ENDPOINT: HeaderName = HeaderName::from_static("x-ghost-endpoint");

/// The most headers and bytes that a request of varnishd has.
const HEADERS: usize = 512;
const HEAD_BYTES: usize = 256 << 10;

/// ghost may have a newer table for a moment: so long and so often a rule is looked for.
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(50);

/// Serves one connection of varnishd, for requests to this group.
pub(crate) async fn serve(stream: UnixStream, http: &Arc<Http>, group: &str, proof: &str) {
    let Some(miss) = MissFor::parse(group) else { return };
    let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let limits = HttpLimits { body_bytes: None, ..HttpLimits::default() };
    let client = Client::new(Arc::clone(http), nobody, "cache".into(), proxy::Header::default(), limits);
    let client = Arc::new(client);
    let service = service_fn(|request| {
        let client = &client;
        async move { Ok::<_, Infallible>(answer(client, miss, request, proof).await) }
    });
    let mut builder = Builder::new();
    builder.max_headers(HEADERS).max_header_size(HEAD_BYTES).max_buf_size(HEAD_BYTES * 2).half_close(true);
    // How it ends is between the two; a request that it breaks off is over.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    client: &Arc<Client>,
    miss: MissFor<'_>,
    request: Request<Incoming>,
    proof: &str,
) -> Response<AnswerBody> {
    let (began, mut record) = (Instant::now(), Record::of_miss(client));
    if let Some(token) = request.headers().get(KEPT) {
        // The kept response is the answer. No endpoint is asked.
        return match client.http.posts.take(token.as_bytes(), miss) {
            Some(post::Answered { headers, body, .. }) => {
                let mut response = Response::new(AnswerBody::own(body, record));
                *response.headers_mut() = headers;
                response
            }
            None => not_sent("Response gone", proof, record),
        };
    }
    let Some((table, rule, group)) = find(&client.http, miss).await else {
        return not_sent("Backend unknown", proof, record);
    };
    let Some(found) = table.rule(rule) else { return not_sent("Backend unknown", proof, record) };
    let mut request = request;
    let number = request.headers().get(HINTS).and_then(|number| number.to_str().ok()?.parse().ok());
    if let Some(hints) = number.and_then(|number| client.http.hints.find(number)) {
        hints::hand_on(request.extensions_mut(), hints);
    }
    let (mut parts, body) = request.into_parts();
    let body = ClientBody::h1(body, None, &client.movement);
    let before = parts.headers.remove(URL);
    remove_internals(&mut parts.headers);
    remove_hop_by_hop(&mut parts.headers);
    parts.headers.remove(header::TRANSFER_ENCODING);
    // No trailers cross varnishd.
    parts.headers.remove(header::TE);
    parts.version = Version::HTTP_11;
    let of_request = || parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let url = before.and_then(|url| PathAndQuery::try_from(url.as_bytes()).ok()).unwrap_or_else(of_request);
    let deadline = deadline::of_request(found, &parts.headers, began);
    let call = Call {
        http: &client.http,
        table: &table,
        rule,
        group,
        pooled: true,
        deadline,
        session: None,
        is_miss: true,
    };
    match upstream::send(call, Prepared { parts, body, url }, &mut record).await {
        Ok(sent) => deliver(sent, call, record),
        Err(Failure::Unreachable) => not_sent("Backend unreachable", proof, record),
        Err(failure) => response::with_body(failed(failure), None, None, record, 0),
    }
}

/// The rule and the group of these names. A table that is newer than ours names others.
async fn find(http: &Http, miss: MissFor<'_>) -> Option<(Arc<Table>, RuleId, usize)> {
    for look in 0..LOOKS {
        if look > 0 {
            sleep(LOOK).await;
        }
        let Some(table) = http.table.load_full() else { continue };
        if let Some((rule, group)) = table.find(miss) {
            return Some((table, rule, group));
        }
    }
    None
}

/// The origin's response, without headers that concern the connection to it. ghost makes the edits of the rule.
fn deliver(sent: Sent, call: Call<'_>, record: Record) -> Response<AnswerBody> {
    let Call { table, rule, group, .. } = call;
    let endpoint = table.target(rule, group).and_then(|to| to.group.endpoints().get(sent.endpoint).copied());
    let Sent { answered: (response, lease), until, .. } = sent;
    let (mut parts, body) = response.into_parts();
    let Some(is_clear) =
        response::unframe(&mut parts.headers).ok().filter(|_| !parts.status.is_informational())
    else {
        return response::with_body(failed(Failure::Broken), None, None, record, 0);
    };
    parts.version = Version::HTTP_11;
    remove_internals(&mut parts.headers);
    // Without it none are sent.
    parts.headers.remove(header::TRAILER);
    response::edit_of_backend(&mut parts.headers, table, (rule, group));
    remove_internals(&mut parts.headers);
    if let Some(endpoint) = endpoint.and_then(|endpoint| HeaderValue::from_str(&endpoint.to_string()).ok()) {
        parts.headers.insert(ENDPOINT, endpoint);
    }
    let idle = table.patience.idle;
    let lease = Some(lease).filter(|_| is_clear);
    Response::from_parts(parts, AnswerBody::upstream(body, lease, (idle, until), record))
}

/// No endpoint has got anything of the request: ghost knows it by the proof. The reason is for people who read varnishd's log.
fn not_sent(why: &'static str, proof: &str, record: Record) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::own("", record));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response.extensions_mut().insert(ReasonPhrase::from_static(why.as_bytes()));
    if let Ok(proof) = HeaderValue::from_str(proof) {
        response.headers_mut().insert(PROOF, proof);
    }
    response
}
