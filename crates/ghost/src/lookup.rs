//! What an object is looked for by: the key, and what the client takes of what is stored.

use model::names::socket_parts;
use router::cache::{Cache, Key, Wanted};
use router::sent::OwnWord;
use router::{Decision, NormalHost};

use crate::asked::Asked;
use crate::ffi::{self, Ctx};
use crate::message::{ClientRequest, Message};
use crate::socket::Socket;
use crate::task::Task;
use crate::{aside, hot, search, sent};

/// What the client's Cache-Control says of stored objects, where the policy obeys it.
pub(crate) fn asked(request: Message<'_>) -> Option<Asked> {
    let wanted = Wanted::read(request.headers("Cache-Control"))?;
    Some(Asked::new(wanted, request.header("Host").unwrap_or_default(), request.url()))
}

/// Joins the lines of headers that the client has repeated (RFC 9110, 5.3). Varnish keeps and finds variants by the first line alone: a
/// response to several lines would be given to a client that sends only the first of them. Requests that pass stay as they are. In vcl_hash,
/// after user VCL, which may decide that a request does not pass.
///
/// # Safety
/// `ctx` must be the live context whose request it is.
unsafe fn join_repeated(ctx: *const Ctx, task: &mut Task, request: Message<'_>) {
    let has_content = task.content.is_some();
    let as_sent = ClientRequest { message: request, socket: b"", server_name: None };
    if !task.decision().is_some_and(|decision| decision.asks_cache(&as_sent, has_content)) {
        return;
    }
    task.has_joined = true;
    let mut names: Vec<(Vec<u8>, usize)> = Vec::new();
    request.survey(|name, _| {
        match names.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, lines)) => *lines += 1,
            None => names.push((name.to_vec(), 1)),
        }
        0
    });
    for (name, _) in names.iter().filter(|(_, lines)| *lines > 1) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let between: &[u8] = if name.eq_ignore_ascii_case("Cookie") { b"; " } else { b", " };
        let lines: Vec<&[u8]> = request.headers(name).collect();
        let joined = lines.join(between);
        request.set_header(name, &joined);
    }
    // SAFETY: the caller's promise.
    unsafe { request.fail_if_lost(ctx) };
}

/// Leaves one value of each header that the policy names, or none: fewer variants are kept.
pub(crate) fn normalize(cache: &Cache, request: Message<'_>) {
    for normal in cache.normal() {
        let Some(first) = request.header(normal.name()) else { continue };
        match normal.choose(|| request.headers(normal.name())) {
            Some(left) if left.as_bytes() == first && request.headers(normal.name()).nth(1).is_none() => {}
            Some(left) => request.set_header(normal.name(), left.as_bytes()),
            None => request.remove_header(normal.name()),
        }
    }
}

/// What the request's object is found by.
///
/// # Safety
/// `ctx` must be the live context whose request `message` is.
pub(crate) unsafe fn key(ctx: *const Ctx, task: Option<&Task>, message: Message<'_>) -> Key {
    let decision = task.and_then(Task::decision);
    // Not the listener's: a trusted proxy may have ended TLS.
    let scheme = message.header("X-Forwarded-Proto").unwrap_or(b"http");
    let (host, url) = (message.header("Host").unwrap_or_default(), message.url());
    let values = |name: &str, seen: &mut dyn FnMut(&[u8])| message.headers(name).for_each(seen);
    let searched = decision.filter(|decision| decision.cache().is_some_and(Cache::obeys_search));
    let mut key = match searched.and_then(|decision| decision.rule()) {
        None => Key::new(decision, scheme, host, url, None, values),
        Some(rule) => {
            let learned = search::find(rule.identity(), host, url);
            let learned = learned.as_ref().map(|learned| (&learned.parameters, learned.id));
            if let Some((_, id)) = learned {
                search::mark(message, id);
            }
            Key::new(decision, scheme, host, url, learned, values)
        }
    };
    if let Some(content) = task.and_then(|task| task.content.as_ref()) {
        key.content(content, values);
    }
    if let Some(task) = task.filter(|task| task.sent != 0) {
        // SAFETY: the caller's promise.
        let of_session = unsafe { Socket::of(ctx) };
        let socket = task.client.map_or(&*of_session, |client| client.socket.as_bytes());
        let port = std::str::from_utf8(socket).ok().and_then(socket_parts).map(|(_, port)| port);
        let own = OwnWord { host, scheme, port };
        sent::keyed(message, task.sent, &own, |name, value| key.sent(name, value));
    }
    key
}

/// In vcl_hash.
///
/// # Safety
/// `ctx` must be the live context whose request `message` is.
pub(crate) unsafe fn hash(ctx: *const Ctx, mut task: Option<&mut Task>, message: Message<'_>) {
    if let Some(task) = task.as_deref_mut().filter(|task| task.repeats) {
        // SAFETY: the caller's promise.
        unsafe { join_repeated(ctx, task, message) };
    }
    // SAFETY: the caller's promise.
    let key = unsafe { key(ctx, task.as_deref(), message) };
    let host = message.header("Host").unwrap_or_default();
    if let Some(task) = task.as_ref().filter(|task| task.hot) {
        let cache = task.decision().and_then(Decision::cache);
        hot::asks(cache, NormalHost::new(host).as_bytes(), message.url());
    }
    let owner = task.as_ref().and_then(|task| task.rule()).map_or("", |rule| rule.namespace());
    let is_kept = task.as_ref().is_some_and(|task| task.kept.is_some());
    if is_kept || aside::VALIDATED.has(owner, host, message.url()) {
        // SAFETY: the caller's promise.
        unsafe { ffi::gs_do_not_wait(ctx) };
    }
    if aside::RESCUED.has(owner, host, message.url())
        && let Some(task) = task.as_ref().filter(|task| !task.rescued)
        && task.decision().and_then(Decision::cache).is_some_and(|cache| cache.grace().is_none())
    {
        // SAFETY: the caller's promise.
        unsafe { ffi::gs_set_grace(ctx, 0.0) };
    }
    if let Some(task) = task
        && !task.rescued
        && let Some(asked) = &mut task.asked
    {
        // SAFETY: the caller's promise; it lives in the task, which takes it back at its end.
        unsafe {
            ffi::gs_look_with(ctx, (&raw mut *asked).cast());
            if asked.wanted.only_if_cached {
                ffi::gs_do_not_wait(ctx);
            }
        }
    }
    // SAFETY: the caller's promise; Varnish reads the key, and keeps nothing of it.
    unsafe { ffi::gs_hash(ctx, key.into_c_bytes().as_ref().as_ptr().cast()) };
}
