//! One request, from its head to the head of its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response, StatusCode, Version};
use router::answer::Own;
use router::counters::{HIT, MISS, OTHER, PASS, Way};
use router::{Action, Routed, random};

use super::body::{AnswerBody, ClientBody};
use super::cache;
use super::content;
use super::cors::{self, Sharing};
use super::deadline::{self, Until, within};
use super::fits::fits_varnishd;
use super::grpc;
use super::hot::{self, Look, Looked};
use super::origin::{Failure, Sent};
use super::post::{self, Candidate};
use super::ranges;
use super::record::{Record, Traced};
use super::request::{self, Admitted, Client, EditedRequest, View, refused};
use super::response::{self, Closes, failed, no_url};
use super::table::{ListenerId, RuleId, Table};
use super::tunnel::{self, ClientSide};
use super::upstream::session::Found;
use super::upstream::{self, Call};
use super::varnishd::{HOT, Reply};

/// What was decided, without a borrow of the table.
#[derive(Debug)]
struct Decided {
    action: Action,
    rule: Option<RuleId>,
    /// The group whose share the request is.
    group: Option<usize>,
    /// Takes the place of the request's URL. Rare, so it takes no room in requests that have none.
    url: Option<Box<[u8]>>,
    asks_cache: bool,
    /// Where it is logged.
    listener: Option<ListenerId>,
    traced: Option<Traced>,
    /// The request is over then, by its rule.
    deadline: Option<Until>,
    session: Option<Found>,
}

/// A request as an origin is to see it, but for the edits of its backendRef.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) parts: Parts,
    pub(crate) body: ClientBody,
    /// Before all edits.
    pub(crate) url: PathAndQuery,
}

/// A request that was read and routed.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and a box would cost an allocation"
)]
pub(crate) enum Begun {
    /// It is answered already: refused, or out of memory.
    Answered(Response<AnswerBody>),
    /// varnishd or an endpoint has to be asked.
    Waits(Waiting),
}

/// A request on its way to varnishd or to an endpoint, or one for which the gateway makes an answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    parts: Parts,
    body: ClientBody,
    upgrade: Option<ClientSide>,
    admitted: Admitted,
    table: Arc<Table>,
    decided: Decided,
    /// The result of the lookup among hot objects.
    looked: Option<Looked>,
    /// The edits of every response to the request, applied last.
    sharing: Option<Sharing>,
    is_grpc: bool,
    record: Record,
}

/// Answers one request. `upgrade`: the client's connection, where it may become a tunnel.
pub(crate) async fn exchange(
    client: &Arc<Client>,
    request: Request<ClientBody>,
    upgrade: Option<ClientSide>,
) -> Response<AnswerBody> {
    match begin(client, request, upgrade) {
        Begun::Answered(response) => response,
        Begun::Waits(waiting) => waiting.answer(client).await,
    }
}

/// As far as a request comes without waiting. Hot objects end here: no future is made for them.
pub(crate) fn begin(
    client: &Arc<Client>,
    request: Request<ClientBody>,
    upgrade: Option<ClientSide>,
) -> Begun {
    let is_grpc = grpc::is_call(&request);
    let mut record = Record::of(client, &request);
    let own = |mut response: Response<AnswerBody>| {
        if is_grpc {
            grpc::translate(&mut response);
        }
        Begun::Answered(response)
    };
    let Some(table) = client.http.table.load_full() else {
        let why = refused(StatusCode::SERVICE_UNAVAILABLE, "the gateway has no configuration yet");
        return own(response::own(why, None, None, record));
    };
    let (mut parts, body) = request.into_parts();
    let admitted = match request::admit(&mut parts, !body.is_empty(), client, table.router()) {
        Ok(admitted) => admitted,
        Err(why) => return own(response::refusal(why, &table, record)),
    };
    let traced = record.trace(&mut parts, &table, admitted.trusted);
    let (mut decided, looked) = decide(&parts, !body.is_empty(), client, &admitted, &table, &record);
    let sharing = Sharing::of(&parts, &table, decided.rule, decided.action);
    if let Some(Looked::Hit((status, reason), head, body)) = looked {
        // The group is a part of the key.
        record.routed(&parts, &table, (decided.rule, decided.group, decided.listener));
        record.is_for(decided.group);
        record.goes(Way::Hot);
        record.answered(&table, decided.rule, status.as_u16(), HIT);
        let mut response = Response::new(AnswerBody::own(body.unwrap_or_default(), record));
        *response.status_mut() = status;
        *response.headers_mut() = head;
        if let Some(reason) = reason {
            response.extensions_mut().insert(reason);
        }
        if let Some(sharing) = sharing {
            sharing.write(response.headers_mut());
        }
        return Begun::Answered(response);
    }
    decided.traced = traced;
    decided.deadline =
        decided.rule.and_then(|rule| deadline::of_request(table.rule(rule)?, &parts.headers, record.began()));
    find_session(&mut decided, &parts, &table);
    // Of several groups ghost picks its own.
    let is_known = !decided.asks_cache
        || decided.rule.and_then(|rule| table.rule(rule)).is_some_and(|rule| rule.groups().len() == 1);
    let group = decided.group.filter(|_| is_known);
    record.routed(&parts, &table, (decided.rule, group, decided.listener));
    record.is_for(group);
    Begun::Waits(Waiting { parts, body, upgrade, admitted, table, decided, looked, sharing, is_grpc, record })
}

impl Waiting {
    pub(crate) fn parts_mut(&mut self) -> &mut Parts {
        &mut self.parts
    }

    pub(crate) async fn answer(self, client: &Arc<Client>) -> Response<AnswerBody> {
        let Self { parts, body, upgrade, admitted, table, decided, looked, sharing, is_grpc, record } = self;
        let mut response = if decided.asks_cache && !body.is_empty() {
            Box::pin(answer_query((client, &table), parts, body, &admitted, decided, record)).await
        } else if decided.asks_cache {
            let nothing = (Bytes::new(), None);
            // Boxed, like everything that direct requests do not need: the whole future is allocated and copied for each request.
            Box::pin(ask_cache(client, parts, nothing, &admitted, &table, (decided, looked), record)).await
        } else {
            forward((client, &table), parts, body, upgrade, &admitted, decided, record).await
        };
        if let Some(sharing) = sharing {
            sharing.write(response.headers_mut());
        }
        if is_grpc {
            grpc::translate(&mut response);
        }
        response
    }
}

/// To an endpoint; or by the gateway's own answer.
async fn forward(
    (client, table): (&Arc<Client>, &Arc<Table>),
    parts: Parts,
    body: ClientBody,
    upgrade: Option<ClientSide>,
    admitted: &Admitted,
    decided: Decided,
    record: Record,
) -> Response<AnswerBody> {
    match (decided.action, decided.rule) {
        (Action::Forward { group }, Some(rule)) => {
            let url = decided.url.as_deref().map_or_else(|| request::url(&parts.uri), Into::into);
            // Boxed: most requests have none, and the future of all would be larger.
            let mut written = cache::Written::of(table.rule(rule), &parts, &url).map(|w| Box::new((w, None)));
            drop(url);
            if let Some((_, post)) = written.as_deref_mut().filter(|_| decided.url.is_none()) {
                *post = Candidate::of(client, (table, rule), &parts, admitted);
            }
            let Some(request) = prepared(parts, body, client, admitted, table, &decided) else {
                return response::own(no_url(), Some(table), Some(rule), record);
            };
            if let Some((_, post)) = written.as_deref_mut() {
                post.take_if(|post| !post.is_sent_as_asked(&request));
            }
            let upgrade = upgrade.filter(|_| admitted.websocket);
            let (http, pooled) = (&client.http, upgrade.is_none());
            let Decided { deadline, session, .. } = decided;
            let call = Call { http, table, rule, group, pooled, deadline, session, is_miss: false };
            match upgrade {
                Some(upgrade) => Box::pin(tunnel::open(client, call, request, upgrade, record)).await,
                None => direct(client, call, request, written, record).await,
            }
        }
        _ => answer(client, &parts, table, &decided, record),
    }
}

/// A QUERY that the cache may answer: its content is read first.
async fn answer_query(
    (client, table): (&Arc<Client>, &Arc<Table>),
    parts: Parts,
    body: ClientBody,
    admitted: &Admitted,
    mut decided: Decided,
    mut record: Record,
) -> Response<AnswerBody> {
    match content_of_query(client, &parts, body, table, &decided).await {
        Ok(Content::Read(bytes, place)) => {
            let content = (bytes, Some(place));
            ask_cache(client, parts, content, admitted, table, (decided, None), record).await
        }
        Ok(Content::TooMuch(body)) => {
            decided.asks_cache = false;
            forward((client, table), parts, body, None, admitted, decided, record).await
        }
        Err(failure) => {
            record.because(failure.into());
            let mut response = response::with_body(failed(failure), Some(table), decided.rule, record, OTHER);
            response.extensions_mut().insert(Closes);
            response
        }
    }
}

/// The content of a request that is looked up by it.
enum Content {
    Read(Bytes, content::Place),
    /// There is no room for it.
    TooMuch(ClientBody),
}

async fn content_of_query(
    client: &Client,
    parts: &Parts,
    body: ClientBody,
    table: &Table,
    decided: &Decided,
) -> Result<Content, Failure> {
    let namespace = decided.rule.and_then(|rule| table.rule(rule)).map_or("", |rule| rule.namespace());
    let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
    let place =
        length.and_then(|length| content::Place::take(&client.http.upstream.uploads.of(namespace), length));
    let Some(place) = place else { return Ok(Content::TooMuch(body)) };
    let bytes = within(decided.deadline, place.read(body, client.limits.stall_timeout)).await;
    Ok(Content::Read(bytes.map_err(Failure::from)??, place))
}

/// Also looks into the front's own memory, where the cache may answer.
fn decide(
    parts: &Parts,
    has_body: bool,
    client: &Client,
    admitted: &Admitted,
    table: &Table,
    record: &Record,
) -> (Decided, Option<Looked>) {
    let sent = request::url(&parts.uri);
    let view = View { parts, client, admitted, url: &sent };
    let Routed { mut decision, url } = table.router().route(&view, random::next());
    if admitted.loops {
        client.http.loops.fetch_add(1, Ordering::Relaxed);
        decision = decision.looped();
    }
    // Without a Host, which HTTP/1.0 allows, varnishd would refuse it.
    let asks_cache = !admitted.websocket
        && parts.headers.contains_key(header::HOST)
        && decision.asks_cache(&view, has_body)
        && fits_varnishd(parts);
    let looked = match &client.http.hot {
        // A request whose content is part of its key is not looked up among hot objects.
        Some(hot) if asks_cache && !has_body && client.identity.is_some() => hot.look(&Look {
            decision: &decision,
            method: &parts.method,
            headers: &parts.headers,
            scheme: client.scheme(),
            url: url.as_deref().unwrap_or(&sent),
            trusted: admitted.trusted,
            digest: table.digest,
            tells_status: table.router().tells_cache_status(),
            now: record.began(),
        }),
        _ => None,
    };
    let decided = Decided {
        action: decision.action(),
        rule: RuleId::of(&decision),
        group: decision.group(),
        asks_cache,
        url: url.as_deref().map(Into::into),
        listener: record.has_details().then(|| table.listener(&decision)).flatten(),
        traced: None,
        deadline: None,
        session: None,
    };
    (decided, looked)
}

/// A session decides about the group, too, whatever the weights are. What the cache may answer is the same for all clients.
fn find_session(decided: &mut Decided, parts: &Parts, table: &Table) {
    let is_for_backend = decided.group.is_some()
        && matches!(decided.action, Action::Forward { .. } | Action::NoBackend | Action::Unavailable);
    if !is_for_backend || decided.asks_cache {
        return;
    }
    let found = decided
        .rule
        .and_then(|rule| table.sessions(rule)?.find(table.rule(rule)?.session()?, &parts.headers));
    if let Some(found) = found {
        decided.action = Action::Forward { group: found.group };
        (decided.group, decided.session) = (Some(found.group), Some(found));
    }
}

/// The gateway's own response.
fn answer(
    client: &Client,
    parts: &Parts,
    table: &Arc<Table>,
    decided: &Decided,
    record: Record,
) -> Response<AnswerBody> {
    let redirect = |rule: RuleId| {
        let url = decided.url.as_deref().map_or_else(|| request::url(&parts.uri), Into::into);
        let host = parts.headers.get(header::HOST).map_or(&[][..], HeaderValue::as_bytes);
        table.rule(rule)?.redirect(&client.socket, host, &url)
    };
    if decided.action == Action::Redirect
        && let Some((status, location)) = decided.rule.and_then(redirect)
        && let Ok(location) = HeaderValue::from_bytes(&location)
    {
        let own = Own { status, body: "".into() };
        let mut response = response::own(own, Some(table), decided.rule, record);
        response.headers_mut().insert(header::LOCATION, location);
        return response;
    }
    if decided.action == Action::Preflight {
        return cors::preflight(parts, table, decided.rule, record);
    }
    let own = Own::to(decided.action).or_else(|| Own::to(Action::NoBackend)).unwrap_or_else(no_url);
    response::own(own, Some(table), decided.rule, record)
}

/// With the edits of its rule.
fn prepared(
    mut parts: Parts,
    body: ClientBody,
    client: &Client,
    admitted: &Admitted,
    table: &Table,
    decided: &Decided,
) -> Option<Prepared> {
    let id = decided.rule?;
    let rule = table.rule(id)?;
    request::speak_for_gateway(&mut parts, client, admitted, table, id);
    if let Some(traced) = &decided.traced {
        traced.write(&mut parts.headers, true);
    }
    let url = match &decided.url {
        Some(url) => PathAndQuery::try_from(&**url).ok()?,
        None => match parts.uri.path_and_query() {
            Some(url) if url.as_str().starts_with('/') || url == "*" => url.clone(),
            _ => PathAndQuery::try_from(request::url(&parts.uri).into_owned()).ok()?,
        },
    };
    let before = url.clone();
    parts.uri = Uri::from(url);
    parts.version = Version::HTTP_11;
    let mut edited = EditedRequest { parts: &mut parts, failed: false };
    rule.edit_request(before.as_str().as_bytes(), &mut edited);
    if edited.failed {
        return None;
    }
    if rule.has_edits() {
        request::remove_internals(&mut parts.headers);
    }
    request::name_us(&mut parts.headers, table);
    // HTTP/2 streams have a length only where a header says so; hyper chunks the others.
    Some(Prepared { parts, body, url: before })
}

/// Straight to the origin.
async fn direct(
    client: &Client,
    call: Call<'_>,
    request: Prepared,
    mut written: Option<Box<(cache::Written, Option<Box<Candidate>>)>>,
    mut record: Record,
) -> Response<AnswerBody> {
    let upload = request.body.progress();
    record.goes(Way::Direct);
    let status = cache::Bypassed::of(&call, &request.parts);
    if let Some((_, Some(post))) = written.as_deref_mut() {
        Box::pin(post.begin(client)).await;
    }
    let mut sent = upstream::send(call, request, &mut record).await;
    if matches!(sent, Err(Failure::Upload)) && upload.is_some_and(|upload| upload.is_too_large()) {
        let mut response =
            response::with_body(request::too_large(), Some(call.table), Some(call.rule), record, PASS);
        response.extensions_mut().insert(Closes);
        return response;
    }
    if let Ok(Sent { answered: (response, _), .. }) = &mut sent {
        let mut is_stored = false;
        if let Some((written, post)) = written.map(|both| *both)
            && let Some(write) = written.write(client.scheme(), response.status(), response.headers())
        {
            // Before the client knows: what it asks for next must not be what it has just changed.
            is_stored = Box::pin(post::complete(client, post, (&written, write), response)).await;
        }
        if let Some(status) = status {
            status.tell(response, is_stored);
        }
    }
    deliver(sent, client, call, record)
}

/// An origin's answer, or ours in its place.
pub(crate) fn deliver(
    sent: Result<Sent, Failure>,
    client: &Client,
    call: Call<'_>,
    mut record: Record,
) -> Response<AnswerBody> {
    let Call { table, rule, group, .. } = call;
    let failure = match sent {
        Ok(Sent { answered: (response, lease), until, endpoint }) => {
            let (mut parts, body) = response.into_parts();
            let unframed =
                if body.has_no_framing() { Ok(true) } else { response::unframe(&mut parts.headers) };
            if let Ok(is_clear) = unframed
                && !parts.status.is_informational()
            {
                // An origin's HTTP/1.0 is between it and us: the client's connection stays, and its chunks show what breaks off.
                parts.version = Version::HTTP_11;
                response::edit_of_backend(&mut parts.headers, table, (rule, group));
                response::edit(&mut parts.headers, table, Some(rule));
                tell_session(&mut parts.headers, client, call, endpoint);
                record.answered(table, Some(rule), parts.status.as_u16(), PASS);
                let idle = table.patience.idle;
                let lease = Some(lease).filter(|_| is_clear);
                return Response::from_parts(parts, AnswerBody::upstream(body, lease, (idle, until), record));
            }
            Failure::Broken
        }
        Err(failure) => failure,
    };
    record.because(failure.into());
    response::with_body(failed(failure), Some(table), Some(rule), record, PASS)
}

/// After all edits: a filter must not take a session away.
pub(crate) fn tell_session(headers: &mut HeaderMap, client: &Client, call: Call<'_>, endpoint: usize) {
    let Some((sessions, rule)) = call.table.sessions(call.rule).zip(call.table.rule(call.rule)) else {
        return;
    };
    sessions.tell(rule, call.session, (call.group, endpoint), client.is_tls, headers);
}

/// The miss that varnishd waits for ends with the request's time. For this time the front then waits for what varnishd makes of it: a
/// stale response, where the cache policy allows one.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// By varnishd; or to the origin where it is not there.
async fn ask_cache(
    client: &Arc<Client>,
    mut parts: Parts,
    (content, _place): (Bytes, Option<content::Place>),
    admitted: &Admitted,
    table: &Arc<Table>,
    (decided, looked): (Decided, Option<Looked>),
    mut record: Record,
) -> Response<AnswerBody> {
    record.goes(Way::Cache);
    let asks_hot = matches!(looked, Some(Looked::Asks(_)));
    if let Some(traced) = &decided.traced {
        traced.write(&mut parts.headers, false);
    }
    // As the client sent it: what it claims to be is ghost's to judge, by the same rules.
    let patience = decided.deadline.map(|until| Until { at: until.at + LAST_MOMENT, ..until });
    let ranges = ranges::Asked::take(&mut parts);
    let asked =
        within(patience, cache::ask(client, &parts, &request::url(&parts.uri), &content, asks_hot)).await;
    let is_late = decided.deadline.is_some_and(|until| until.is_over());
    let is_timeout = |asked: &Option<(http::response::Parts, Reply)>| {
        is_late && asked.as_ref().is_some_and(|(parts, _)| parts.status == StatusCode::GATEWAY_TIMEOUT)
    };
    let Some(asked) = asked.ok().filter(|asked| !is_timeout(asked)) else {
        record.because(Failure::Deadline.into());
        return response::with_body(failed(Failure::Deadline), Some(table), decided.rule, record, OTHER);
    };
    if let Some((mut answer, mut reply)) = asked {
        let result = cache::take_result(&mut answer.headers);
        let mark = answer.headers.remove(HOT);
        if matches!(result, MISS | PASS) {
            cache::note(client, &parts, &answer.headers);
        }
        let request = parts.headers;
        let mut parts = answer;
        // ghost has edited it.
        if reply.has_hop_by_hop && response::unframe(&mut parts.headers).is_err() {
            return response::with_body(failed(Failure::Broken), Some(table), decided.rule, record, OTHER);
        }
        if let (Some(hot), Some(looked)) = (&client.http.hot, looked.filter(|_| ranges.is_none())) {
            let cache = decided.rule.and_then(|rule| table.rule(rule)?.cache());
            hot::heard(hot, looked, (result, mark), (cache, &request), &parts, &mut reply).await;
        }
        let steps = ranges.and_then(|ranges| ranges.answer(&mut parts));
        record.answered(table, decided.rule, parts.status.as_u16(), result);
        let idle = table.patience.idle;
        // A stale response that comes in place of 504 has begun after the end.
        let until = decided.deadline.filter(|_| !is_late);
        return Response::from_parts(parts, AnswerBody::of_cache(reply, steps, (idle, until), record));
    }
    // No origin was asked yet.
    record.goes(Way::Own);
    if let Some(ranges) = ranges {
        ranges.put_back(&mut parts.headers);
    }
    let (Action::Forward { group }, Some(rule)) = (decided.action, decided.rule) else {
        return answer(client, &parts, table, &decided, record);
    };
    let name =
        table.rule(rule).and_then(|rule| rule.groups().get(decided.group?)).map_or("", |group| group.name());
    let Some(place) = client.http.fall_back(name) else {
        let why = refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "the cache is not there, and too many requests wait for the backend",
        );
        return response::own(why, Some(table), Some(rule), record);
    };
    record.holds(place);
    let body = if content.is_empty() { ClientBody::Empty } else { ClientBody::read(content) };
    match prepared(parts, body, client, admitted, table, &decided) {
        Some(request) => {
            let (http, deadline) = (&client.http, decided.deadline);
            let call =
                Call { http, table, rule, group, pooled: true, deadline, session: None, is_miss: false };
            Box::pin(direct(client, call, request, None, record)).await
        }
        None => response::own(no_url(), Some(table), Some(rule), record),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, T>(_: fn(A, B) -> T) -> usize {
        size_of::<T>()
    }

    /// It is allocated and copied for each request.
    #[test]
    fn the_future_of_a_request_is_small() {
        let answer = size(Waiting::answer as fn(Waiting, &'static Arc<Client>) -> _);
        assert!(answer <= 6656, "{answer}, of them {} for what was decided", size_of::<Waiting>());
    }
}
