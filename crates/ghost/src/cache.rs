//! A rule's cache policy inside varnishd. What is kept and by which key is `router`'s to say; here it is done.
//!
//! Past grace, an object that is kept is revalidated before it is served: Varnish does that by itself. Where that fetch
//! fails, the object is given time again, the failed answer is marked, and the client's side restarts the request,
//! which finds the object.

mod rescue;

use std::borrow::Cow;
use std::ffi::CStr;

use model::names::{
    CACHE_GROUPS_HEADER, CACHE_HOST_HEADER, CACHE_STATUS_HEADER, CACHE_URL_HEADER, GHOST_PREFIX, NEVER_STALE,
    OMIT_HEADER, OWNER_HEADER, RANGE_HEADER, RESCUE_HEADER, RESCUE_SECONDS_HEADER, SENT_HEADER, TAG_HEADERS,
};
use router::cache::{
    Answer, Cache, Keeping, Parameters, Rescue, coalesced, field_names, invalidates, is_one_range,
    no_vary_search,
};
use router::{Decision, NormalHost, Rule};

use crate::ffi::{self, Ctx, Text};
use crate::index::{self, tags};
use crate::message::{ClientRequest, Message};
use crate::task::Task;
use crate::{answer, aside, bound, cache_status, posted, query, search, stats, target, unshared, writes};

use rescue::{leave_fresh, may_serve_stale, rescue};

/// Without a cache policy every request passes, unless user VCL removes this.
const NO_POLICY: &CStr = c"X-Ghost-Pass: no cache policy";
const AMBIGUOUS: &CStr = c"X-Ghost-Pass: the path has encoded separators or dot segments";
const BODY: &CStr = c"X-Ghost-Pass: the request has a body";
const BYPASS: &CStr = c"X-Ghost-Pass: bypass of the cache policy";
const RESCUE: &CStr = c"X-Ghost-Rescue: 1";

/// For so long an answer that cannot be kept lets requests go to the origin side by side.
const HIT_FOR_MISS_SECONDS: f64 = 120.0;
/// A failure passes sooner.
const HIT_FOR_MISS_SECONDS_OF_FAILURES: f64 = 1.0;

/// In vcl_recv, once it is decided where the request goes: does it ask the cache? (User VCL may change that.)
///
/// # Safety
/// `ctx` must be the live context whose request it is.
pub(crate) unsafe fn ask(
    ctx: *const Ctx,
    task: &mut Task,
    decision: &Decision<'_>,
    request: &ClientRequest<'_>,
) -> bool {
    let mut asks = matches!(request.message.method(), b"GET" | b"HEAD");
    // SAFETY: the lines are static; the caller's promise.
    unsafe {
        let Some(cache) = decision.cache() else {
            let why = if decision.is_ambiguous() { AMBIGUOUS } else { NO_POLICY };
            request.message.add_static(why);
            return false;
        };
        if cache.is_bypassed_by(request) {
            request.message.add_static(BYPASS);
            asks = false;
        } else if query::looks_up(ctx, task, cache, request) {
            asks = true;
        } else if ffi::gs_has_body(ctx) == 1 {
            // The body is no part of the key.
            request.message.add_static(BODY);
            asks = false;
        }
        if task.rescued {
            request.message.add_static(RESCUE);
        }
        // Where the policy does not say, the object does.
        ffi::gs_set_grace(ctx, if task.rescued { -1.0 } else { cache.grace().unwrap_or(-1.0) });
    }
    asks
}

/// In vcl_backend_fetch: is this the refresh that Varnish starts beside an object that is served because the origin has
/// just failed?
///
/// # Safety
/// `ctx` must be the live context of the fetch whose request `bereq` is.
pub(crate) unsafe fn is_vain(ctx: *const Ctx, bereq: Message<'_>) -> bool {
    // SAFETY: the caller's promise.
    bereq.header(RESCUE_HEADER).is_some() && unsafe { ffi::gs_is_bgfetch(ctx) == 1 }
}

/// The rule whose answer a fetch brings.
///
/// # Safety
/// `ctx` must be the live context of a fetch, and the reference must not outlive the call from VCL.
unsafe fn rule<'a>(ctx: *const Ctx) -> Option<&'a Rule> {
    // SAFETY: the caller's promise; the director lives as long as the fetch.
    unsafe {
        let director = ffi::gs_bereq_backend(ctx);
        match target::of_director(director) {
            Some(target) => Some(target.rule()),
            None => answer::of_director(director)?.empty_groups_rule(),
        }
    }
}

/// In vcl_backend_response, before user VCL.
///
/// # Safety
/// `ctx` must be the live context of a fetch.
pub(crate) unsafe fn response(ctx: *const Ctx) {
    // SAFETY: the caller's promise; the fetch's messages are this thread's.
    unsafe {
        let (Some(before), Some(beresp)) =
            (Message::new(ffi::gs_bereq0(ctx)), Message::new(ffi::gs_beresp(ctx)))
        else {
            return;
        };
        let validated = ffi::gs_validated(ctx);
        if !validated.is_null() {
            unshared::leave_out(ffi::gs_worker(ctx), validated, beresp);
        }
        let rule = rule(ctx);
        let cache = rule.and_then(Rule::cache);
        let kept = match (rule, cache) {
            (Some(rule), Some(cache)) if cache.obeys_search() && ffi::gs_uncacheable(ctx) == 0 => {
                let says = no_vary_search(&OriginsAnswer { ctx, message: beresp, before });
                let is_success = matches!(beresp.status(), 200..=299);
                search::of_response(rule.identity(), before, says, is_success)
            }
            _ => search::Kept::AsAsked,
        };
        let parameters = match &kept {
            search::Kept::By(parameters) => Some(parameters),
            _ => cache.and_then(Cache::parameters),
        };
        if ffi::gs_uncacheable(ctx) == 0 {
            index::fetches(ffi::gs_fetched_object(ctx), parameters);
        }
        if rule.is_some_and(Rule::invalidates_on_unsafe)
            && invalidates(before.method(), beresp.status())
            && let Some(target) = target::of_director(ffi::gs_bereq_backend(ctx))
        {
            writes::after_response(ffi::gs_worker(ctx), target, before, beresp);
        }
        let Some(rule) = rule.filter(|_| ffi::gs_uncacheable(ctx) == 0) else { return };
        name(beresp, before, rule, parameters);
        if let Some(cache) = cache {
            keep(ctx, (rule, cache), before, beresp);
            if beresp.status() >= 500 && ffi::gs_refreshes(ctx) == 1 {
                leave_fresh(ctx);
            } else if beresp.status() >= 500 {
                rescue(ctx, before, beresp);
            } else if may_serve_stale(ctx) {
                // A body that breaks off is a failure, too.
                ffi::gs_do_not_stream(ctx);
            }
        }
        let is_searched_otherwise = matches!(kept, search::Kept::Not);
        if is_searched_otherwise || is_overtaken(beresp) {
            if cache.is_some() {
                let why = if is_searched_otherwise { "no-vary-search" } else { "purged" };
                cache_status::note_detail(beresp, why);
            }
            ffi::gs_keep_for(ctx, 0.0, 0.0, 0.0);
            ffi::gs_set_uncacheable(ctx);
        } else if bound::has_outgrown(&*ffi::gs_digest(ctx).cast()) {
            // Here and not in store(), which user VCL may skip: the fetch would end at the limit each time.
            ffi::gs_keep_for(ctx, hit_for_miss_seconds(before, HIT_FOR_MISS_SECONDS), 0.0, 0.0);
            ffi::gs_set_uncacheable(ctx);
        }
        beresp.fail_if_lost(ctx);
    }
}

/// A response to POST that cannot be stored says nothing of those to GET.
fn hit_for_miss_seconds(before: Message<'_>, seconds: f64) -> f64 {
    if posted::is_fetch_of(before) { 0.0 } else { seconds }
}

/// How long the policy keeps the answer, and what must be known of it later.
///
/// # Safety
/// `ctx` must be the live context of the fetch whose messages these are.
unsafe fn keep(ctx: *const Ctx, (rule, cache): (&Rule, &Cache), before: Message<'_>, beresp: Message<'_>) {
    let answer = OriginsAnswer { ctx, message: beresp, before };
    let Keeping { age, ttl, grace, keep, rescue } = cache.keeping(&answer);
    let is_stale_at_once = ttl <= 0.0 && grace + keep > 0.0;
    // SAFETY: the caller's promise.
    unsafe {
        ffi::gs_set_age(ctx, age);
        if is_stale_at_once {
            ffi::gs_keep_to_validate(ctx, grace, keep);
        } else {
            ffi::gs_keep_for(ctx, ttl, grace, keep);
        }
        let host = before.header("Host").unwrap_or_default();
        aside::VALIDATED.note(rule.namespace(), host, before.url(), is_stale_at_once && grace <= 0.0);
        if beresp.status() < 500 {
            aside::RESCUED.note(rule.namespace(), host, before.url(), false);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { cache_status::note_forward(ctx, beresp) };
    // After a 304 the stored answer's own word is here.
    beresp.remove_header(RESCUE_SECONDS_HEADER);
    beresp.remove_header(OMIT_HEADER);
    if keep + grace > 0.0 {
        match rescue {
            Rescue::WhileKept => {}
            Rescue::For(seconds) => {
                // Of an object that was never fresh, its whole age counts.
                let seconds = if is_stale_at_once { age + seconds } else { seconds };
                beresp.add_header(RESCUE_SECONDS_HEADER, format!("{seconds:.0}").as_bytes());
            }
            Rescue::Never => beresp.add_header(RESCUE_SECONDS_HEADER, NEVER_STALE.as_bytes()),
        }
    }
    let mut omitted = Vec::new();
    cache.unshared_fields(&answer, |list| omitted.push(list.to_vec()));
    omitted.iter().for_each(|list| beresp.add_header(OMIT_HEADER, list));
}

/// The origin may have made this answer before what a purge or a ban is about.
fn is_overtaken(beresp: Message<'_>) -> bool {
    let part = |name| beresp.header(name).unwrap_or_default();
    let tags: Vec<_> = tags_of(beresp).take(tags::MOST).collect();
    let host = index::without_port(part(CACHE_HOST_HEADER));
    let tags = tags.iter().map(AsRef::as_ref);
    index::is_overtaken(host, part(CACHE_URL_HEADER), part(OWNER_HEADER), tags)
}

/// The tags and groups of a response.
fn tags_of(beresp: Message<'_>) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let lines = TAG_HEADERS.into_iter().flat_map(move |name| beresp.headers(name));
    tags::with_groups(lines, beresp.headers(CACHE_GROUPS_HEADER))
}

/// By these an object is found for invalidation, whatever its key is made of.
fn name(beresp: Message<'_>, before: Message<'_>, rule: &Rule, parameters: Option<&Parameters>) {
    beresp.set_header(OWNER_HEADER, rule.namespace().as_bytes());
    let host = NormalHost::new(before.header("Host").unwrap_or_default());
    beresp.set_header(CACHE_HOST_HEADER, host.as_bytes());
    match parameters {
        Some(parameters) => {
            let mut url = Vec::with_capacity(before.url().len());
            parameters.write(before.url(), &mut url);
            beresp.set_header(CACHE_URL_HEADER, &url);
        }
        None => beresp.set_header(CACHE_URL_HEADER, before.url()),
    }
}

/// In vcl_backend_response, after user VCL: what is not to be kept becomes hit-for-miss. False where there is no policy.
///
/// # Safety
/// `ctx` must be the live context of a fetch.
pub(crate) unsafe fn store(ctx: *const Ctx) -> bool {
    // SAFETY: the caller's promise; the fetch's messages are this thread's.
    unsafe {
        let cache = rule(ctx).and_then(Rule::cache);
        let Some(message) = Message::new(ffi::gs_beresp(ctx)) else { return false };
        if ffi::gs_uncacheable(ctx) == 1 {
            return cache.is_some();
        }
        if let (Some(before), Some(bereq)) =
            (Message::new(ffi::gs_bereq0(ctx)), Message::new(ffi::gs_bereq(ctx)))
        {
            vary_by_the_clients(message, before, bereq);
            bereq.fail_if_lost(ctx);
        }
        if cache.is_none() {
            // User VCL switched caching on.
            if ffi::gs_ttl(ctx) > 0.0 && does_not_fit(ctx, message) {
                ffi::gs_keep_for(ctx, HIT_FOR_MISS_SECONDS, 0.0, 0.0);
                ffi::gs_set_uncacheable(ctx);
            }
            return false;
        }
        if message.header(RESCUE_HEADER).is_some() {
            // No lookup may find it.
            ffi::gs_keep_for(ctx, 0.0, 0.0, 0.0);
            ffi::gs_set_uncacheable(ctx);
        } else if let Some(why) = not_kept(ctx, cache, message) {
            cache_status::note_detail(message, why);
            if ffi::gs_refreshes(ctx) == 1 {
                leave_fresh(ctx);
                return true;
            }
            let failed = message.status() >= 500;
            let seconds = if failed { HIT_FOR_MISS_SECONDS_OF_FAILURES } else { HIT_FOR_MISS_SECONDS };
            let before = Message::new(ffi::gs_bereq0(ctx));
            let seconds = before.map_or(seconds, |before| hit_for_miss_seconds(before, seconds));
            ffi::gs_keep_for(ctx, seconds, 0.0, 0.0);
            ffi::gs_set_uncacheable(ctx);
        }
        true
    }
}

/// Why the answer is not kept, as a word for Cache-Status; `None` where it is.
///
/// # Safety
/// `ctx` must be the live context of the fetch whose answer `beresp` is.
unsafe fn not_kept(ctx: *const Ctx, cache: Option<&Cache>, beresp: Message<'_>) -> Option<&'static str> {
    // SAFETY: the caller's promise.
    unsafe {
        let (Some(cache), Some(before)) = (cache, Message::new(ffi::gs_bereq0(ctx))) else {
            return Some("unknown");
        };
        let is_to_validate = ffi::gs_is_kept_to_validate(ctx) == 1 && !posted::is_fetch_of(before);
        let has_no_lifetime = ffi::gs_ttl(ctx) <= 0.0 && !is_to_validate;
        let forbidden = || cache.forbidden_by(&OriginsAnswer { ctx, message: beresp, before });
        if let Some(why) = forbidden() {
            Some(why)
        } else if has_no_lifetime {
            Some(cache.not_kept_by(beresp.status()))
        } else if does_not_fit(ctx, beresp) {
            Some("size")
        } else {
            cannot_be_indexed(beresp).then_some("index")
        }
    }
}

/// One that does not say how long it is fits until it does not.
///
/// # Safety
/// `ctx` must be the live context of the fetch whose answer `beresp` is.
unsafe fn does_not_fit(ctx: *const Ctx, beresp: Message<'_>) -> bool {
    let length: Option<u64> =
        beresp.header("Content-Length").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    // SAFETY: the caller's promise; the name is the storage's own, which stays.
    unsafe {
        let Some(length) = length else { return false };
        let name = ffi::gs_storage_name(ctx);
        let storage = if name.is_null() { c"" } else { CStr::from_ptr(name) };
        let is_too_large = length > bound::most(rule(ctx), storage.to_str().unwrap_or_default());
        if is_too_large {
            stats::not_kept(stats::SIZE);
        }
        is_too_large
    }
}

/// No purge would find it by all of its tags.
fn cannot_be_indexed(beresp: Message<'_>) -> bool {
    let is_full = !index::has_room_for(tags_of(beresp).take(tags::MOST + 1).count());
    if is_full {
        stats::not_kept(stats::INDEX);
    }
    is_full
}

/// Varnish keeps a variant by the headers that went to the origin, and finds it by those of the client. Those that differ, since
/// a filter has changed them, are the client's again: what the filter made of them follows from them.
fn vary_by_the_clients(beresp: Message<'_>, before: Message<'_>, bereq: Message<'_>) {
    let names = beresp.headers("Vary").flat_map(|line| line.split(|byte| *byte == b','));
    for name in names.filter_map(|name| std::str::from_utf8(name.trim_ascii()).ok()) {
        if name.is_empty() || bereq.headers(name).eq(before.headers(name)) {
            continue;
        }
        let sent: Vec<Vec<u8>> =
            bereq.headers(name).map(|value| [name.as_bytes(), b": ", value].concat()).collect();
        bereq.remove_header(name);
        before.headers(name).for_each(|value| bereq.add_header(name, value));
        match sent.as_slice() {
            [] => bereq.add_header(SENT_HEADER, name.as_bytes()),
            sent => sent.iter().for_each(|line| bereq.add_header(SENT_HEADER, line)),
        }
    }
}

/// Another try of a fetch whose answer was there already: what goes to the origin is what went there.
pub(crate) fn send_again(bereq: Message<'_>) {
    let all: Vec<Vec<u8>> = bereq.headers(SENT_HEADER).map(<[u8]>::to_vec).collect();
    let parts = || {
        all.iter().filter_map(|line| {
            let line = std::str::from_utf8(line).ok()?;
            Some(line.split_once(": ").map_or((line, None), |(name, value)| (name, Some(value))))
        })
    };
    parts().for_each(|(name, _)| bereq.remove_header(name));
    for (name, value) in parts() {
        if let Some(value) = value {
            bereq.add_header(name, value.as_bytes());
        }
    }
}

/// In vcl_backend_error: the origin could not be reached, or said nothing that makes sense.
///
/// # Safety
/// `ctx` must be the live context of a fetch.
pub(crate) unsafe fn failed(ctx: *const Ctx) {
    // SAFETY: the caller's promise; the fetch's messages are this thread's.
    unsafe {
        let cache = rule(ctx).and_then(Rule::cache);
        let (Some(cache), Some(before), Some(beresp)) =
            (cache, Message::new(ffi::gs_bereq0(ctx)), Message::new(ffi::gs_beresp(ctx)))
        else {
            return;
        };
        if posted::is_fetch_of(before) {
            return posted::failed(ctx);
        }
        // A pass. An answer that was not to be kept may have failed after that.
        if ffi::gs_uncacheable(ctx) == 1 && !may_serve_stale(ctx) {
            return;
        }
        if ffi::gs_refreshes(ctx) == 1 {
            return leave_fresh(ctx);
        }
        index::fetches(ffi::gs_fetched_object(ctx), cache.parameters());
        // Varnish lets requests that wait for this fetch have its failure, too. Later requests must not get it.
        ffi::gs_keep_for(ctx, ffi::gs_ttl(ctx), 0.0, 0.0);
        rescue(ctx, before, beresp);
        beresp.fail_if_lost(ctx);
    }
}

/// In vcl_deliver: true once, where a stale object must be served instead of this answer.
pub(crate) fn is_to_be_rescued(task: &mut Task, resp: Message<'_>) -> bool {
    let first = !task.rescued && resp.header(RESCUE_HEADER).is_some();
    task.rescued |= first;
    first
}

/// What is for the cache alone; and what we say ourselves.
const FOR_THE_CACHE: [Text; 5] = [
    Text::of(CACHE_HOST_HEADER),
    Text::of(CACHE_URL_HEADER),
    Text::of(TAG_HEADERS[0]),
    Text::of(TAG_HEADERS[1]),
    Text::of(CACHE_STATUS_HEADER),
];

/// Headers that no client ever sees, even if user VCL sets them: it may show tags, but not these. With `is_reused`, fields that the origin
/// wants to be seen by the first client alone go, too.
pub(crate) fn leave_out_internals(resp: Message<'_>, is_reused: bool) {
    let mut omitted: Vec<Vec<u8>> = Vec::new();
    resp.survey(|name, value| {
        // All of ours begin with it, and few others do.
        if !matches!(name.first(), Some(b'x' | b'X')) {
            return 0;
        }
        let is_internal = name
            .get(..GHOST_PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(GHOST_PREFIX.as_bytes()))
            || [CACHE_HOST_HEADER, CACHE_URL_HEADER]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        if is_internal && is_reused && name.eq_ignore_ascii_case(OMIT_HEADER.as_bytes()) {
            omitted.extend(field_names(value).map(<[u8]>::to_vec));
        }
        if is_internal { ffi::DROP } else { 0 }
    });
    for name in omitted.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
        resp.remove_header(name);
    }
}

/// A part that the origin sent, requested or not, is shown to the client as it is. Varnish would refuse a part that it has not requested, and
/// every other response with Content-Range, where the field means nothing (RFC 9110, 14.4).
pub(crate) fn hide_range(beresp: Message<'_>) {
    let Some(range) = beresp.header("Content-Range") else { return };
    let range = range.to_vec();
    beresp.remove_header("Content-Range");
    // It says nothing about the stored response that is validated.
    if beresp.status() != 304 {
        beresp.set_header(RANGE_HEADER, &range);
    }
}

/// Back to the name that the origin gave it; unless Varnish sends a part of the response, and says which.
pub(crate) fn show_range(req: Option<Message<'_>>, resp: Message<'_>) {
    let Some(range) = resp.header(RANGE_HEADER) else { return };
    if resp.status() != 200 || req.is_some_and(|req| req.header("Range").is_none()) {
        resp.set_header("Content-Range", range);
    }
}

/// In vcl_deliver: takes away what is for the cache alone, and says what the cache did. Also gives it back, as a position in
/// [`model::stats::CACHE_RESULTS`].
///
/// # Safety
/// `ctx` must be the live context whose response `resp` is.
pub(crate) unsafe fn tell(ctx: *const Ctx, tells_status: bool, resp: Message<'_>) -> u8 {
    // SAFETY: the caller's promise; the lines are static.
    unsafe {
        let (line, result) = match ffi::gs_cache_status(ctx) {
            0 => (c"X-Cache: PASS", stats::PASS),
            1 => (c"X-Cache: MISS", stats::MISS),
            2 => (c"X-Cache: HIT", stats::HIT),
            _ => (c"X-Cache: STALE", stats::STALE),
        };
        let all = if tells_status { FOR_THE_CACHE.len() } else { FOR_THE_CACHE.len() - 1 };
        resp.remove_any(&FOR_THE_CACHE[..all]);
        if tells_status {
            resp.add_static(line);
        }
        result
    }
}

/// In vcl_recv: ranges that touch each other become one. Requests for anything else but one range get the whole response. Varnish would answer 416 out of the cache, and 503 by a
/// pass.
pub(crate) fn leave_out_odd_ranges(req: Message<'_>) {
    let mut ranges = req.headers("Range");
    let Some(first) = ranges.next() else { return };
    // Range is defined for GET (RFC 9110, 14.2) and QUERY (RFC 10008) only. Varnish would answer other methods with 206, too.
    if ranges.next().is_some() || !matches!(req.method(), b"GET" | b"QUERY") {
        req.remove_header("Range");
    } else if !is_one_range(first) {
        match coalesced(first) {
            Some(one) => req.set_header("Range", one.as_bytes()),
            None => req.remove_header("Range"),
        }
    }
}

/// What the origin says, after a 304 together with what it had said before.
struct OriginsAnswer<'a> {
    ctx: *const Ctx,
    message: Message<'a>,
    /// The request as the client sent it.
    before: Message<'a>,
}

impl Answer for OriginsAnswer<'_> {
    fn status(&self) -> u16 {
        self.message.status()
    }

    fn any_header<'s>(&'s self, name: &str, seen: &mut dyn FnMut(&'s [u8]) -> bool) -> bool {
        self.message.headers(name).any(seen)
    }

    fn now(&self) -> f64 {
        // SAFETY: made from a live context, and used while it is one.
        unsafe { ffi::gs_now(self.ctx) }
    }

    fn waited(&self) -> f64 {
        // SAFETY: as above.
        unsafe { ffi::gs_waited(self.ctx) }
    }

    fn is_authorized(&self) -> bool {
        self.before.header("Authorization").is_some()
    }
}
