//! What VCL calls. Every function stops a panic at its border ([`crate::guard`]).

mod hit;
mod reading;

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use model::names::{
    DEBUG_HEADER, GHOST_PREFIX, HOT_HEADER, INVALIDATE_METHOD, KEPT_HEADER, LISTENER_HEADER, LOOP_HEADER,
    PASS_HEADER, ROUTE_HEADER,
};
use router::edit::EditRequest;
use router::{Action, Decision, TooLong, is_host};

use crate::ffi::{self, Ctx, Director, OwnedDirector, c_string};
use crate::guard::{guarded, stopped};
use crate::message::{ClientRequest, Message, c_bytes};
use crate::object::{DRAINING, Ghost};
use crate::socket::Socket;
use crate::table::Table;
use crate::task::Task;
use crate::tunnel::{asks_for_websocket, tokens};
use crate::{
    answer, cache, cache_status, client, conditions, forwarded, hot, index, journal, lookup, posted, query,
    retire, sent, stats, target, trace, writes,
};

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router__init(
    ctx: *const Ctx,
    out: *mut *mut Ghost,
    _name: *const c_char,
    path: *const c_char,
) {
    guarded(ctx, (), || {
        // SAFETY: Varnish passes a live context, a place for the object, and a string or NULL.
        let path = String::from_utf8_lossy(unsafe { c_bytes(path) });
        match Ghost::new(ctx, &path) {
            // SAFETY: as above.
            Ok(ghost) => unsafe { *out = Box::into_raw(ghost) },
            Err(e) => {
                retire::finish();
                // SAFETY: as above.
                unsafe { ffi::gs_fail(ctx, c_string(&format!("ghost: {e}")).as_ptr()) }
            }
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router__fini(object: *mut *mut Ghost) {
    stopped((), || {
        // SAFETY: made by Box::into_raw in init, given back once, when no request of this VCL is left.
        let ghost = unsafe { std::mem::replace(&mut *object, std::ptr::null_mut()) };
        if !ghost.is_null() {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(ghost) });
            retire::finish();
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_recv(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let (ghost, socket) = unsafe { (&*ghost, Socket::of(ctx)) };
        if socket.is_reload() {
            if let Some(control) = ghost.control() {
                // SAFETY: as above.
                unsafe { ffi::gs_hint(ctx, control.raw()) };
            }
            return 1;
        }
        // SAFETY: as above; the request is this thread's.
        unsafe {
            if client::is_fronts(&socket)
                && let Some(request) = Message::new(ffi::gs_req(ctx))
                && (request.method() == INVALIDATE_METHOD.as_bytes() || posted::asks_for_order(request))
            {
                if request.method() == INVALIDATE_METHOD.as_bytes() {
                    writes::as_asked(ffi::gs_worker(ctx), ghost.table().router(), request);
                }
                ffi::gs_hint(ctx, ghost.invalidated.raw());
                return 1;
            }
            arrive(ctx, ghost, &socket, Call::Generated);
        }
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_route(ctx: *const Ctx, ghost: *const Ghost) {
    // SAFETY: Varnish passes a live context and our object; the request is this thread's.
    guarded(ctx, (), || unsafe { arrive(ctx, &*ghost, &Socket::of(ctx), Call::Users) });
}

/// Who asks for the routing.
#[derive(PartialEq)]
enum Call {
    Generated,
    /// Other headers of our names may be the user's by now.
    Users,
}

/// Routes the request, and makes its headers the gateway's own.
///
/// # Safety
/// `ctx` must be the live context of a client's task.
unsafe fn arrive(ctx: *const Ctx, ghost: &Ghost, socket: &[u8], call: Call) {
    // SAFETY: the caller's promise; the request is this thread's.
    unsafe {
        let (Some(message), Some(task)) = (Message::new(ffi::gs_req(ctx)), Task::of(ctx, ghost)) else {
            return;
        };
        // As the client sent it: at the first call, and again after std.rollback(req), which ends the task's state too.
        // On a restart it is not.
        let untouched = task.decision().is_none();
        if untouched && client::is_fronts(socket) {
            task.client = client::of_request(message);
            if task.client.is_none() {
                ffi::gs_fail(ctx, client::NO_CLIENT.as_ptr());
                return;
            }
            task.hints = client::hints_of_request(message);
            task.kept = posted::of_request(message).filter(|_| ffi::gs_is_included(ctx) == 0);
        }
        let of_front = task.client;
        let socket = of_front.map_or(socket, |client| client.socket.as_bytes());
        let trusted = untouched && forwarded::is_trusted(ctx, task);
        let mut seldom = 0;
        let mut asks_hot = false;
        if untouched {
            let mut names = sent::Names::default();
            seldom = message.survey(|name, _| {
                let bits = sent::of_client(name, trusted);
                asks_hot |= bits == ffi::DROP && name.eq_ignore_ascii_case(HOT_HEADER.as_bytes());
                if bits == ffi::DROP { bits } else { bits | names.note(name) }
            });
        } else if call == Call::Generated {
            message.survey(|name, _| sent::of_restart(name));
        } else {
            task.has_joined = false;
            for name in [LISTENER_HEADER, ROUTE_HEADER, PASS_HEADER] {
                message.remove_header(name);
            }
        }
        if seldom & sent::SCHEME != 0 && message.proto() == b"HTTP/2.0" {
            message.remove_header("scheme");
        }
        if untouched {
            take_host_out_of_url(message);
        }
        if seldom & sent::CONNECTION != 0 {
            leave_out_hop_by_hop(message);
        }
        if seldom & sent::RANGE != 0 {
            cache::leave_out_odd_ranges(message);
        }
        normal_host(message);
        if untouched {
            forwarded::set(ctx, message, task, socket, trusted, seldom & sent::FORWARDED != 0);
            task.sent = seldom & (sent::FORWARDED | sent::OVERRIDE | sent::ADDRESS);
            task.has_conditions = seldom & sent::CONDITION != 0;
            task.repeats = seldom & sent::REPEATED != 0;
            task.asked = None;
            let is_plain = seldom & (sent::CONDITION | sent::RANGE | sent::DEBUG) == 0;
            task.hot = asks_hot && of_front.is_some() && is_plain && message.method() == b"GET";
            task.shows_key = trusted
                && seldom & sent::DEBUG != 0
                && message.header(DEBUG_HEADER).is_some_and(|value| value.eq_ignore_ascii_case(b"key"));
            task.loops = seldom & sent::CDN_LOOP != 0 && has_been_here(message, task.table().router());
            if task.loops {
                stats::LOOPS.fetch_add(1, Ordering::Relaxed);
            }
            let sampling = task.table().router().trace_sampling();
            task.trace = sampling.map(|ratio| trace::begin(message, ratio, trusted));
        }
        // What the client asked for is held against its connection; a host that user VCL has set since is not.
        let is_clients = task.decision().is_none_or(|d| d.action() == Action::Misdirected);
        let server_name = match of_front {
            _ if !is_clients => None,
            // An ESI include may be of another host: no client asked for it.
            Some(client) => client.server_name.filter(|_| ffi::gs_is_included(ctx) == 0).map(str::as_bytes),
            None => ffi::gs_server_name(ctx).bytes(),
        };
        let asks = route(ctx, ghost, task, &ClientRequest { message, socket, server_name });
        if let Some(kept) = task.kept {
            message.set_header(KEPT_HEADER, kept.to_string().as_bytes());
            message.fail_if_lost(ctx);
        }
        if untouched && asks && task.sent & (sent::OVERRIDE | sent::ADDRESS) != 0 {
            task.sent = sent::leave_out_overrides(message, task.rule(), task.sent);
        }
        if asks && let Some(cache) = task.decision().and_then(Decision::cache) {
            lookup::normalize(cache, message);
            if untouched && seldom & sent::CACHE_CONTROL != 0 && cache.obeys_clients() {
                task.asked = lookup::asked(message);
            }
        }
    }
}

/// Does the request say that this Gateway has handed it on before? (CDN-Loop, RFC 8586.)
fn has_been_here(message: Message<'_>, router: &router::Router) -> bool {
    let Some(ours) = router.gateway_id() else { return false };
    // Parameters may follow an id.
    tokens(message, LOOP_HEADER).any(|element| {
        let id = element.split(|b| *b == b';').next().unwrap_or_default();
        id.trim_ascii() == ours.as_bytes()
    })
}

/// Decides, and tells Varnish and user VCL what was decided. True where the request asks the cache, unless user VCL says otherwise.
///
/// # Safety
/// `ctx` must be the live context whose request it is.
unsafe fn route(ctx: *const Ctx, ghost: &Ghost, task: &mut Task, request: &ClientRequest<'_>) -> bool {
    let ClientRequest { mut message, socket, .. } = *request;
    let (decision, url) = task.decide(request);
    let decision = *decision;
    // What was matched is what the cache and the origin get.
    if let Some(url) = url {
        message.set_url(&url);
    }
    // SAFETY: the caller's promise.
    let asks = unsafe { cache::ask(ctx, task, &decision, request) };
    let table = task.table();
    // SAFETY: the table's lines live in the task, and so longer than the request's headers.
    unsafe {
        match table.socket_lines(socket) {
            Some(lines) => message.add_static(&lines.listener),
            None => message.set_header(LISTENER_HEADER, socket),
        }
        if let Some(line) = table.route_line(&decision) {
            message.add_static(line);
        }
        ffi::gs_hint(ctx, chosen_director(ghost, table, &decision));
        message.fail_if_lost(ctx);
        asks
    }
}

fn chosen_director(ghost: &Ghost, table: &Table, decision: &Decision<'_>) -> Director {
    table.director(decision).unwrap_or_else(|| match decision.action() {
        Action::NotFound => ghost.not_found.raw(),
        Action::Misdirected => ghost.misdirected.raw(),
        Action::Refused(why) => ghost.refusal(why),
        Action::TooLong(TooLong::Url) => ghost.url_too_long.raw(),
        Action::TooLong(TooLong::Header) => ghost.header_too_long.raw(),
        Action::Unavailable => ghost.unavailable.raw(),
        Action::Loop => ghost.looped.raw(),
        Action::Preflight => ghost.preflight.raw(),
        _ => ghost.no_backend.raw(),
    })
}

/// Does the request go to an origin past the cache of its rule, because of its path?
fn bypasses(decision: &Decision<'_>) -> bool {
    let forwards = matches!(decision.action(), Action::Forward { .. });
    forwards && decision.is_ambiguous() && decision.rule().is_some_and(|rule| rule.cache().is_some())
}

/// Makes the response the client's own: what is stored stays as the origin sent it.
///
/// # Safety
/// `ctx` must be the live context of the client's task that `task` is.
unsafe fn edit_response(ctx: *const Ctx, task: &Task, resp: &mut Message<'_>) {
    let Some((decision, rule)) = task.decision().and_then(|decision| Some((decision, decision.rule()?)))
    else {
        return;
    };
    rule.edit_response(resp);
    // The front does it for its own clients.
    let Some(cors) = rule.cors().filter(|_| task.client.is_none()) else { return };
    // SAFETY: the caller's promise; the request is this thread's.
    let Some(message) = (unsafe { Message::new(ffi::gs_req(ctx)) }) else { return };
    if decision.action() == Action::Preflight {
        cors.answer_preflight(&ClientRequest { message, socket: b"", server_name: None }, resp);
    } else {
        cors.edit_response(message.header("Origin"), resp);
    }
}

/// Varnish takes the host out of an absolute URL only where a path follows it.
fn take_host_out_of_url(mut message: Message<'_>) {
    let Some((host, rest)) = absolute(message.url()) else { return };
    let slash: &[u8] = if rest.starts_with(b"/") { b"" } else { b"/" };
    // Copies: both lie in the URL that is about to go.
    let (host, url) = (host.to_vec(), [slash, rest].concat());
    message.set_header("Host", &host);
    message.set_url(&url);
}

/// Host, and the rest, of `http://example.com?q`.
fn absolute(url: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let begins = url.get(..scheme.len())?.eq_ignore_ascii_case(scheme);
        begins.then(|| &url[scheme.len()..])
    })?;
    let end = after.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(after.len());
    (end > 0).then(|| after.split_at(end))
}

/// Varnish does not hand on what `Connection` names. It must not choose a route, or be part of a cache key, either: what the
/// origin answers without it would be kept for those who send it.
///
/// Headers that frame the body stay, even if Connection names them: without them the origin would read the body as another request. In HTTP/2
/// the header means nothing.
fn leave_out_hop_by_hop(message: Message<'_>) {
    if message.proto() == b"HTTP/2.0" {
        message.remove_header("Connection");
        return;
    }
    let kept = [&b"close"[..], b"keep-alive", b"upgrade", b"content-length", b"transfer-encoding", b"host"];
    let is_header = |token: &&[u8]| !kept.iter().any(|kept| token.eq_ignore_ascii_case(kept));
    // A copy, since headers move when one is removed. Nearly all requests name none.
    let named: Vec<Vec<u8>> = tokens(message, "Connection").filter(is_header).map(<[u8]>::to_vec).collect();
    for name in named.iter().filter_map(|name| std::str::from_utf8(name).ok()).filter(|name| !name.is_empty())
    {
        message.remove_header(name);
    }
}

/// In lower case, as Varnish's builtin VCL has it, so that the cache key does not depend on the case. What is no host goes: without
/// one the postamble answers 400.
fn normal_host(message: Message<'_>) {
    match message.header("Host") {
        Some(host) if !is_host(host) => message.remove_header("Host"),
        Some(host) if host.iter().any(u8::is_ascii_uppercase) => {
            message.set_header("Host", &host.to_ascii_lowercase());
        }
        _ => {}
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_websocket(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let message = unsafe {
            if Task::existing(ctx, &*ghost).is_none() {
                // std.rollback(req) has taken the routing along, and X-Ghost-Pass: the postamble, which begins here, would
                // cache what must pass.
                arrive(ctx, &*ghost, &Socket::of(ctx), Call::Generated);
            }
            Message::new(ffi::gs_req(ctx))
        };
        u32::from(forwards(ctx, ghost) == Some(true) && message.is_some_and(asks_for_websocket))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_answers(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let task = unsafe { Task::existing(ctx, &*ghost) };
        let answers = |d: &Decision<'_>| !matches!(d.action(), Action::Forward { .. }) && d.cache().is_none();
        u32::from(task.and_then(|task| task.decision()).is_some_and(answers))
    })
}

/// Does the request go to an origin? `None` where it was not routed.
fn forwards(ctx: *const Ctx, ghost: *const Ghost) -> Option<bool> {
    // SAFETY: Varnish passes a live context and our object.
    let task = unsafe { Task::existing(ctx, &*ghost) };
    task?.decision().map(|decision| matches!(decision.action(), Action::Forward { .. }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_pipe(ctx: *const Ctx, ghost: *const Ghost) {
    guarded(ctx, (), || {
        // SAFETY: Varnish passes a live context and our object; both requests are this thread's.
        let (task, req, bereq) = unsafe {
            (Task::existing(ctx, &*ghost), Message::new(ffi::gs_req(ctx)), Message::new(ffi::gs_bereq(ctx)))
        };
        let Some(mut bereq) = bereq else { return };
        let mut task = task;
        if let Some(task) = &mut task {
            task.is_piped();
            // SAFETY: as above.
            unsafe { journal::log(ctx, task, None, stats::OTHER) };
        }
        if let Some(rule) = task.as_ref().and_then(|t| t.rule()) {
            let url = bereq.url();
            rule.edit_request(url, &mut bereq);
            let group = task.as_ref().and_then(|task| task.decision()?.group());
            if let Some(edits) = group.and_then(|group| rule.groups()[group].edits()) {
                edits.edit_request(url, &mut bereq);
            }
        }
        bereq.remove_headers_with(GHOST_PREFIX);
        // Varnish takes hop-by-hop headers away; the origin must see the upgrade. Where it refuses, it is to close after its
        // answer: what else came by this connection would reach it past all rules.
        // User VCL may pipe other requests: those are left as Varnish makes them.
        if req.is_some_and(asks_for_websocket) {
            bereq.set_header("Upgrade", b"websocket");
            bereq.set_header("Connection", b"Upgrade, close");
        }
        // SAFETY: as above.
        unsafe { bereq.fail_if_lost(ctx) };
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_hash(ctx: *const Ctx, ghost: *const Ghost) {
    guarded(ctx, (), || {
        // SAFETY: Varnish passes a live context and our object.
        let (task, message) = unsafe { (Task::existing(ctx, &*ghost), Message::new(ffi::gs_req(ctx))) };
        if let Some(message) = message {
            // SAFETY: as above.
            unsafe { lookup::hash(ctx, task, message) };
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_caches(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let task = unsafe { Task::existing(ctx, &*ghost) };
        u32::from(task.and_then(|task| task.decision()?.cache()).is_some_and(|cache| !cache.cookies_pass()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_shares(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let task = unsafe { Task::existing(ctx, &*ghost) };
        u32::from(
            task.and_then(|task| task.decision()?.cache()).is_some_and(|cache| cache.shares_authorized()),
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_response(ctx: *const Ctx, _ghost: *const Ghost) {
    // SAFETY: Varnish passes a live context of a fetch.
    guarded(ctx, (), || unsafe { cache::response(ctx) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_store(ctx: *const Ctx, _ghost: *const Ghost) -> u32 {
    // SAFETY: Varnish passes a live context of a fetch.
    guarded(ctx, 0, || u32::from(unsafe { cache::store(ctx) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_failed(ctx: *const Ctx, _ghost: *const Ghost) {
    // SAFETY: Varnish passes a live context of a fetch.
    guarded(ctx, (), || unsafe { cache::failed(ctx) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_rescue(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object; the response is this thread's.
        let (task, resp) = unsafe { (Task::existing(ctx, &*ghost), Message::new(ffi::gs_resp(ctx))) };
        u32::from(task.zip(resp).is_some_and(|(task, resp)| cache::is_to_be_rescued(task, resp)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_fetch(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context; the fetch's request is this thread's.
        unsafe {
            let Some(mut bereq) = Message::new(ffi::gs_bereq(ctx)) else { return 0 };
            if cache::is_vain(ctx, bereq) {
                return 1;
            }
            let director = ffi::gs_bereq_backend(ctx);
            let target = target::of_director(director);
            match Message::new(ffi::gs_bereq0(ctx)).filter(|before| posted::is_fetch_of(*before)) {
                Some(before) if !posted::begins(ctx, target, before) => return 1,
                Some(_) => {}
                // Before the look at what the fetch would replace.
                None => index::fetch_begins(),
            }
            ffi::gs_let_go_of_ended(ctx);
            // `gs_first_try()` returns true only once per fetch.
            let is_first = target.is_some() && ffi::gs_first_try(ctx) == 1;
            if !is_first {
                cache::send_again(bereq);
            }
            bereq.remove_headers_with(GHOST_PREFIX);
            query::ask(ctx, Message::new(ffi::gs_bereq0(ctx)));
            if let Some(target) = target.filter(|_| is_first) {
                target.rule().edit_request(bereq.url(), &mut bereq);
                bereq.fail_if_lost(ctx);
            } else if target.is_none()
                && answer::of_director(director).is_none()
                && let Some(id) = (*ghost).table().router().gateway_id()
            {
                // A backend of user VCL's own may lead back here, too.
                target::name_us(bereq, id);
            }
            0
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_internal(ctx: *const Ctx, ghost: *const Ghost) -> u32 {
    guarded(ctx, 0, || {
        // SAFETY: Varnish passes a live context and our object.
        let (ghost, director) = unsafe { (&*ghost, reading::director(ctx)) };
        let is_control = ghost.control().map(OwnedDirector::raw) == Some(director);
        u32::from(is_control || ghost.invalidated.raw() == director)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_deliver(ctx: *const Ctx, ghost: *const Ghost) {
    guarded(ctx, (), || {
        // SAFETY: Varnish passes a live context and our object; the response is this thread's.
        let (mut task, resp) = unsafe { (Task::existing(ctx, &*ghost), Message::new(ffi::gs_resp(ctx))) };
        let Some(mut resp) = resp else { return };
        let tells_status = task.as_ref().is_some_and(|task| task.table().router().tells_cache_status());
        // SAFETY: as above.
        let (result, req) = unsafe { (cache::tell(ctx, tells_status, resp), Message::new(ffi::gs_req(ctx))) };
        cache::show_range(req, resp);
        if let Some(task) = &task {
            let cache = task.decision().and_then(Decision::cache);
            if let Some(cache) = cache.filter(|_| result != stats::PASS) {
                cache.consumed_fields().for_each(|name| resp.remove_header(name));
            }
            if tells_status
                && (cache.is_some() || task.decision().is_some_and(bypasses))
                && let Some(req) = req
            {
                // SAFETY: as above.
                let key = task.shows_key.then(|| unsafe { lookup::key(ctx, Some(task), req) });
                // SAFETY: as above.
                unsafe { cache_status::tell(ctx, result, req, resp, key.as_ref()) };
            }
            // SAFETY: as above.
            unsafe { edit_response(ctx, task, &mut resp) };
        }
        if let Some(task) = &mut task {
            task.answers(resp.status(), result);
            // SAFETY: as above.
            unsafe { journal::log(ctx, task, Some(resp), task.cache_result()) };
        }
        if DRAINING.load(Ordering::Relaxed) {
            resp.set_header("Connection", b"close");
        }
        cache::leave_out_internals(resp, matches!(result, stats::HIT | stats::STALE));
        if let Some(task) = task {
            client::tell_front(task, resp);
            if task.hot
                && let Some(req) = req
            {
                // SAFETY: as above.
                unsafe { hot::mark(ctx, task, req, resp, result) };
            }
            if task.has_conditions
                && result != stats::PASS
                && let Some(req) = req
            {
                // SAFETY: as above.
                unsafe { conditions::apply(ctx, req, resp) };
            }
        }
        // SAFETY: as above.
        unsafe { resp.fail_if_lost(ctx) };
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vmod_router_count(ctx: *const Ctx, ghost: *const Ghost) {
    guarded(ctx, (), || {
        // SAFETY: Varnish passes a live context and our object; the response is this thread's.
        let (task, resp) = unsafe { (Task::existing(ctx, &*ghost), Message::new(ffi::gs_resp(ctx))) };
        if let Some(resp) = resp {
            // User VCL may have set one since.
            cache::leave_out_internals(resp, false);
        }
        let Some((task, resp)) = task.zip(resp) else { return };
        // SAFETY: as above.
        if unsafe { ffi::gs_in_synth(ctx) } == 1 {
            task.answers(resp.status(), stats::OTHER);
            // Behind user VCL it is said already.
            if !std::mem::replace(&mut task.told, true) {
                // SAFETY: as above.
                unsafe { journal::log(ctx, task, None, stats::OTHER) };
            }
        } else {
            task.changes_status(resp.status());
        }
        client::tell_front(task, resp);
    });
}
