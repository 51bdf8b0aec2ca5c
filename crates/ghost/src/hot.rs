//! Hot objects: which responses the front may answer from its own memory, and when it must not do so any more. The front is told by a
//! page that both map (crate `page`, which has the protocol).
//!
//! Guarantees that whatever ends an object for invalidation has raised one of its slots before it is acknowledged, and that a response
//! is marked only if every such end raises one of the slots that its mark names. Without a page, nothing is marked.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use model::names::{HOT_BYTES_ENV, HOT_HEADER, HOT_PAGE_ENV};
use page::{Page, SLOTS, Slot, Slots};
use router::cache::Cache;
use router::{Decision, Router};

use crate::ffi::{self, Ctx};
use crate::index::{self, Marked};
use crate::message::Message;
use crate::object::DRAINING;
use crate::task::Task;
use crate::{lookup, stats};

/// Objects with more tags are not marked.
const MOST_TAGS: usize = 16;
/// Bytes of all names in Vary together.
const MOST_VARY: usize = 256;
/// What is stale sooner is not worth it.
const LEAST_SECONDS: f64 = 1.0;
/// The front trusts no mark for longer than its lease. A day fits into the number.
const MOST_SECONDS: f64 = 86_400.0;
/// The front uses a response for ten seconds from when it asked. Two more, as these are whole seconds.
const LEASE_SECONDS: u32 = 12;
/// Of the body, where the environment does not say.
const DEFAULT_BYTES: u64 = 64 << 10;

/// Given by the chaperone. As long as there is none, nothing is marked.
static PAGE: OnceLock<Page> = OnceLock::new();

fn begin(page: Page) {
    // This process has an empty cache, and knows nothing of what another one was told.
    page.set_digest(0);
    page.raise_global();
    let _ = PAGE.set(page);
}

/// The chaperone has handed over the page. The first one stays.
pub(crate) fn take(file: OwnedFd) {
    if PAGE.get().is_none()
        && let Ok(page) = Page::from_sealed(file)
    {
        begin(page);
    }
}

static MOST_BYTES: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var(HOT_BYTES_ENV).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(DEFAULT_BYTES)
});

/// When the front last asked for a response of each URL slot, in whole seconds of [`now`]; 0: never.
static ASKED: LazyLock<Box<[AtomicU32]>> = LazyLock::new(|| (0..SLOTS).map(|_| AtomicU32::new(0)).collect());

/// Seconds of a clock that never goes back, from 1.
fn now() -> u32 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u32::try_from(BEGAN.elapsed().as_secs()).unwrap_or(u32::MAX - LEASE_SECONDS).saturating_add(1)
}

/// ghost decides by this table, and no other one is in use.
pub(crate) fn publish(router: &Router) {
    if let Some(page) = PAGE.get() {
        page.set_digest(router.digest());
    }
}

/// Nothing may be hot until [`publish`]: another table is about to be used. One with the same digest decides in the same way.
pub(crate) fn withdraw(next: Option<&Router>) {
    if let Some(page) = PAGE.get()
        && next.is_none_or(|router| router.digest() != page.digest())
    {
        page.set_digest(0);
    }
}

/// Where a file in the environment takes the place of the chaperone's page: varnishtest hands over nothing.
pub(crate) fn open() {
    if PAGE.get().is_none()
        && let Some(path) = std::env::var_os(HOT_PAGE_ENV)
        && let Ok(page) = Page::open(Path::new(&path))
    {
        begin(page);
    }
}

/// By which slots things end. Without a page any will do.
pub(crate) fn slots() -> Slots {
    PAGE.get().map(Page::slots).unwrap_or_default()
}

/// Ends all hot objects.
pub(crate) fn end_all() {
    if let Some(page) = PAGE.get() {
        page.raise_global();
    }
}

/// Raises slots when it is dropped: after the objects have ended, and also if a panic has cut that short.
#[derive(Default)]
pub(crate) struct Ending(Vec<Slot>);

impl Ending {
    pub(crate) fn of(slot: Slot) -> Self {
        Self(vec![slot])
    }

    pub(crate) fn add(&mut self, slot: Slot) {
        if !self.0.contains(&slot) {
            self.0.push(slot);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(page) = PAGE.get() {
            page.raise(&self.0);
        }
    }
}

/// In vcl_hash, before the look: the front asks for what it may store. An object that comes into the cache after this look ends
/// what the front stores now.
pub(crate) fn asks(cache: Option<&Cache>, host: &[u8], url: &[u8]) {
    if PAGE.get().is_none() {
        return;
    }
    let slot = match cache.and_then(Cache::parameters) {
        Some(parameters) => {
            let mut kept = Vec::with_capacity(url.len());
            parameters.write(url, &mut kept);
            slots().of_url(host, &kept)
        }
        None => slots().of_url(host, url),
    };
    let (asked, now) = (&ASKED[usize::from(slot.number())], now());
    if asked.load(Ordering::SeqCst) != now {
        asked.store(now, Ordering::SeqCst);
    }
}

/// An object can be found from now on, and older ones of its URL cannot. What the front has stored of those ends: a client that
/// has seen the newer one must not see the older one again. Where the front has not asked of late, it has stored none.
pub(crate) fn is_new(host: &[u8], url: &[u8]) {
    let Some(page) = PAGE.get() else { return };
    let slot = page.slots().of_url(host, url);
    let asked = ASKED[usize::from(slot.number())].load(Ordering::SeqCst);
    if asked != 0 && now().saturating_sub(asked) <= LEASE_SECONDS {
        page.raise(&[slot]);
    }
}

/// A fetch that was overtaken by an invalidation has ended, and its object with it.
pub(crate) fn was_overtaken<'a>(host: &[u8], url: &[u8], tags: impl Iterator<Item = &'a [u8]>) {
    let slots = slots();
    let mut ending = Ending::of(slots.of_url(host, url));
    for tag in tags {
        ending.add(slots.of_host_tag(host, tag));
    }
}

/// In vcl_deliver, for a request by which the front asks: adds the mark where the response may be hot.
///
/// # Safety
/// `ctx` must be the live context of the client's task that `task` is, whose messages these are.
pub(crate) unsafe fn mark(ctx: *const Ctx, task: &Task, req: Message<'_>, resp: Message<'_>, result: u8) {
    // SAFETY: the caller's promise.
    if let Some(mark) = unsafe { mark_of(ctx, task, req, resp, result) }
        && resp.has_room_for(HOT_HEADER.len() + mark.len())
    {
        resp.add_header(HOT_HEADER, mark.as_bytes());
    }
}

/// # Safety
/// As [`mark`].
unsafe fn mark_of(
    ctx: *const Ctx,
    task: &Task,
    req: Message<'_>,
    resp: Message<'_>,
    result: u8,
) -> Option<String> {
    let page = PAGE.get()?;
    let cache = task.decision().and_then(Decision::cache)?;
    let may_status = matches!(resp.status(), 200 | 203 | 204 | 301 | 302 | 307 | 308 | 404 | 410);
    let is_plain = task.sent == 0 && task.asked.is_none() && !task.rescued && !task.shows_key;
    if result != stats::HIT || !may_status || !is_plain || cache.obeys_search() {
        return None;
    }
    // The front's table must be this one.
    if page.digest() != task.table().router().digest() || DRAINING.load(Ordering::Relaxed) {
        return None;
    }
    if req.header("Authorization").is_some() || resp.header("Set-Cookie").is_some() {
        return None;
    }
    // SAFETY: the caller's promise; the object lives as long as the request that it is delivered to.
    unsafe {
        let mut length = 0;
        let object = ffi::gs_whole_object(ctx, &mut length);
        let fresh_for = ffi::gs_fresh_for(ctx).min(MOST_SECONDS);
        if object.is_null() || length > *MOST_BYTES || fresh_for <= LEAST_SECONDS {
            return None;
        }
        let Marked { slots, vary } = index::marked(ffi::gs_worker(ctx), object, MOST_TAGS)?;
        let mut mark = format!(
            "{:.0} {:016x} ",
            (fresh_for * 1000.0).floor(),
            lookup::key(ctx, Some(task), req).hash64()
        );
        for (n, slot) in slots.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            mark.push_str(&format!("{comma}{}", slot.number()));
        }
        if !vary.is_empty() {
            mark.push(' ');
            mark.push_str(&vary);
        }
        (vary.len() <= MOST_VARY).then_some(mark)
    }
}
