//! Every object in the cache, by the client's host and URL, and by the tags that its origin gave it.
//!
//! Varnish tells of objects that come and go, in whichever VCL (see c/index.c). Guarantees that an object which is looked at
//! is alive, and that no request which begins after an invalidation was acknowledged gets an object that the invalidation means. Never looks
//! at objects of another host.
//!
//! An invalidation takes a number, notes what it means, ends the objects that are here, notes it again, and is acknowledged. A fetch
//! remembers the newest number before it asks its origin. Its object is held against what was noted since: in vcl_backend_response; when it
//! is in the index; and by every hit in between, since an object can be found before Varnish tells of it ([`pending`]).

mod bans;
mod claim;
mod known;
pub(crate) mod map;
mod order;
mod owners;
pub(crate) mod pending;
mod recent;
mod stored;
pub(crate) mod tags;
pub(crate) mod urls;

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use model::kept::Order;
use model::names::GHOST_INDEX_ENV;
use router::cache::Parameters;

use crate::ffi::{self, RawObject, RawWorker};
use crate::guard::stopped;
use crate::hot::{self, Ending};
use crate::{stats, storage};
use bans::Bans;
pub(crate) use claim::Claim;
use known::Known;
use map::Map;
use order::AtWork;
use owners::Owners;
use page::Slot;
use pending::Pending;
use recent::Recent;
use stored::Stored;
pub(crate) use stored::{is_never_stale, rescue_seconds, without_port};
use urls::{Kept, Urls};

static MAP: LazyLock<Map> = LazyLock::new(Map::default);
static RECENT: LazyLock<Recent> = LazyLock::new(Recent::default);
static BANS: LazyLock<Bans<Kept>> = LazyLock::new(Bans::default);
static PENDING: LazyLock<Pending<Fetch>> = LazyLock::new(Pending::default);
static OWNERS: LazyLock<Owners> = LazyLock::new(Owners::default);
static KNOWN: LazyLock<Known<Parameters>> = LazyLock::new(Known::default);

/// The default size of the index: this part of all storages, and so much at least.
const SHARE_OF_STORAGES: u64 = 4;
const LEAST_BUDGET: usize = 16 << 20;

/// Ways to leave parameters out: origins may name no more once so many are known. A purge looks for each.
const MOST_WAYS: usize = 512;

/// What is known of a fetch when its object comes into the cache.
#[derive(Clone, Copy, Default)]
struct Fetch {
    /// The newest invalidation when the origin was asked.
    began: u64,
    kept_as: u64,
}

thread_local! {
    /// Of the fetch that this thread is at: Varnish runs one from its beginning to its end on one thread.
    static BEGAN: Cell<u64> = const { Cell::new(0) };
    static FETCH: Cell<Fetch> = const { Cell::new(Fetch { began: 0, kept_as: 0 }) };
}

/// In vcl_backend_fetch: this thread's fetch is about to ask its origin.
pub(crate) fn fetch_begins() {
    BEGAN.set(order::newest());
}

/// The same for a response that the front has got already: it is held against what comes after this. False where the number is not of this
/// process.
pub(crate) fn fetch_began(after: Order) -> bool {
    let is_known = after.process == order::process() && after.number <= order::newest();
    if is_known {
        BEGAN.set(after.number);
    }
    is_known
}

/// The newest invalidation.
pub(crate) fn order_now() -> Order {
    Order { process: order::process(), number: order::newest() }
}

/// In vcl_backend_response: this thread's fetch brings this object, whose URL is kept as these say. To be called before the first look
/// at what has overtaken it. It lasts until the index has the object, or [`ghost_fetch_over`].
pub(crate) fn fetches(object: *mut RawObject, parameters: Option<&Parameters>) {
    let fetch = Fetch { began: BEGAN.get(), kept_as: MAP.kept_as(parameters) };
    FETCH.set(fetch);
    // Without one the fetch fails.
    if !object.is_null() {
        PENDING.enter(object as usize, fetch);
    }
}

/// The fetch has ended, or user VCL has rolled it back. Most objects are in the index by now.
#[unsafe(no_mangle)]
extern "C" fn ghost_fetch_over(object: *mut RawObject) {
    stopped((), || PENDING.leave(object as usize));
}

/// A configuration has these.
pub(crate) fn learn<'a>(all: impl Iterator<Item = &'a Parameters>) {
    let now = order::seconds();
    let has_objects = |kept_as| MAP.way_keys(kept_as).any(|key| MAP.has(key));
    let all = all.map(|parameters| (MAP.kept_as(Some(parameters)), parameters));
    let forgotten = KNOWN.learn(all, (order::newest(), now), has_objects);
    for kept_as in &forgotten {
        // No purge will look for them any more. One that comes later is noticed when it is inserted.
        for key in MAP.way_keys(*kept_as) {
            MAP.each(key, |object| end(object, Fate::Gone));
        }
    }
    // Once they have ended: what the front stores from now on is none of them.
    if !forgotten.is_empty() {
        hot::end_all();
    }
}

/// An origin has said that these count (No-Vary-Search). Gives what objects are kept by then; `None` where there are too many of them.
pub(crate) fn learn_of_origin(parameters: &Parameters) -> Option<u64> {
    let kept_as = MAP.kept_as(Some(parameters));
    let now = order::seconds();
    KNOWN.learn_one(kept_as, parameters, (order::newest, now), MOST_WAYS).then_some(kept_as)
}

/// How many bytes the index may take.
fn budget() -> usize {
    static BUDGET: LazyLock<usize> = LazyLock::new(|| {
        let given = std::env::var(GHOST_INDEX_ENV).ok().and_then(|text| text.parse().ok());
        given.unwrap_or_else(|| {
            let of_storages = storage::sum() / SHARE_OF_STORAGES;
            usize::try_from(of_storages).unwrap_or(usize::MAX).max(LEAST_BUDGET)
        })
    });
    *BUDGET
}

/// Does the index take an object with so many tags? What it does not take must not be kept: no purge would find it.
pub(crate) fn has_room_for(tags: usize) -> bool {
    tags::most(MAP.charged(), budget()).is_some_and(|most| tags <= most)
}

/// How many routers there are in all VCLs, and what Varnish knows us by.
static WATCHING: Mutex<(usize, usize)> = Mutex::new((0, 0));

/// While one of these is there, Varnish tells us of objects.
pub(crate) struct Watching(());

impl Watching {
    pub(crate) fn begin() -> Self {
        let mut watching = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
        if watching.0 == 0 {
            // SAFETY: the callbacks are ours, and stay loaded until the last router ends. No event takes this lock.
            watching.1 = unsafe { ffi::gs_subscribe() };
        }
        watching.0 += 1;
        Self(())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watching = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
        watching.0 -= 1;
        if watching.0 == 0 {
            // SAFETY: the handle is ours, and given back once.
            unsafe { ffi::gs_unsubscribe(watching.1) };
            hot::withdraw(None);
            // varnishd does not report their end any more.
            MAP.clear();
            RECENT.clear();
            BANS.clear();
            order::forget();
            OWNERS.clear();
        }
    }
}

/// What to do with objects that are found.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    Gone,
    Stale,
}

/// Ends all objects of a client's URL, whatever policy was in force when they came. The host has no port.
pub(crate) fn end_url(host: &[u8], url: &[u8], fate: Fate) -> u64 {
    end_each_url(host, url, |key| noted(key, || MAP.each(key, |object| end(object, fate))))
}

/// The same for objects of one namespace.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn end_own_url(
    worker: *mut RawWorker,
    owner: &[u8],
    host: &[u8],
    url: &[u8],
    fate: Fate,
) -> u64 {
    end_each_url(host, url, |key| {
        let look = |object: usize| {
            // SAFETY: the map shows objects that are alive; the caller's promise.
            let stored = unsafe { Stored::place(worker, object as *mut RawObject) };
            stored.owner() == owner && end(object, fate)
        };
        noted(MAP.owned_key(owner, key), || MAP.each(key, look))
    })
}

/// Adds up what `end` says of each key that objects of the URL may have.
fn end_each_url(host: &[u8], url: &[u8], end: impl Fn(u64) -> u64) -> u64 {
    let mut count = 0;
    let mut ending = Ending::default();
    KNOWN.each(|parameters, is_configured| {
        let mut as_kept = Vec::with_capacity(url.len());
        match parameters {
            Some(parameters) => parameters.write(url, &mut as_kept),
            None => as_kept.extend_from_slice(url),
        }
        // What an origin says of its parameters makes no hot objects: it cannot make every purge end those of others.
        if is_configured {
            ending.add(hot::slots().of_url(host, &as_kept));
        }
        count += end(MAP.url_key(host, MAP.kept_as(parameters), &as_kept));
    });
    count
}

/// Ends all objects with a tag, or those of one host.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn end_tag(worker: *mut RawWorker, tag: &[u8], host: Option<&[u8]>, fate: Fate) -> u64 {
    let Some(host) = host else {
        let _ending = Ending::of(hot::slots().of_tag(tag));
        let key = MAP.tag_key(tag);
        return noted(key, || MAP.each(key, |object| end(object, fate)));
    };
    let _ending = Ending::of(hot::slots().of_host_tag(host, tag));
    let key = MAP.host_tag_key(host, tag);
    noted(key, || match OWNERS.all() {
        Some(owners) => {
            let keys = owners.iter().map(|owner| MAP.owned_key(owner, key));
            keys.map(|key| MAP.each(key, |object| end(object, fate))).sum()
        }
        None => MAP.each(MAP.tag_key(tag), |object| {
            // SAFETY: the map shows objects that are alive; the caller's promise.
            let stored = unsafe { Stored::place(worker, object as *mut RawObject) };
            stored.host() == Some(host) && end(object, fate)
        }),
    })
}

/// Ends the objects of one namespace and host with a tag. Looks at no others.
pub(crate) fn end_own_tag(owner: &[u8], host: &[u8], tag: &[u8], fate: Fate) -> u64 {
    let _ending = Ending::of(hot::slots().of_host_tag(host, tag));
    let key = MAP.owned_key(owner, MAP.host_tag_key(host, tag));
    noted(key, || MAP.each(key, |object| end(object, fate)))
}

/// Ends all objects of a host whose URLs match.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn end_matching(worker: *mut RawWorker, host: &[u8], urls: &Urls) {
    // An expression is not held against hot objects one by one: all of the host end, and none of another.
    let _ending = Ending::of(hot::slots().of_host(host));
    let _at_work = AtWork::begin();
    let number = order::next();
    // Before the look: what comes into the cache from now on is noticed.
    BANS.note(host, urls.kept(), number, order::seconds());
    for key in MAP.host_keys(host) {
        MAP.each(key, |object| {
            // SAFETY: the map shows objects that are alive; the caller's promise.
            let stored = unsafe { Stored::place(worker, object as *mut RawObject) };
            let is_meant = stored.host() == Some(host) && stored.url.is_some_and(|url| urls.matches(url));
            is_meant && end(object, Fate::Gone)
        });
    }
    BANS.renew(host, number, order::next());
}

/// Ends the objects that a key stands for: `end` looks for them.
///
/// The key is noted before the look: what comes into the cache from now on is noticed. And after it: a fetch that began meanwhile may
/// have found an object just before it ended, and have its origin say that it is still the same.
fn noted(key: u64, end: impl FnOnce() -> u64) -> u64 {
    let _at_work = AtWork::begin();
    let note = || RECENT.note(key, order::next(), order::seconds());
    note();
    let count = end();
    note();
    count
}

/// Was what this thread's fetch brings purged or banned since it began? `host`, `url` and `owner` are those that it will be found by.
pub(crate) fn is_overtaken<'a>(
    host: &[u8],
    url: &[u8],
    owner: &[u8],
    tags: impl Iterator<Item = &'a [u8]>,
) -> bool {
    was_overtaken(FETCH.get(), host, url, owner, tags)
}

/// In vcl_hit: must the object not be delivered to a request that begins now? It was found before the index had it, and an
/// invalidation has not; or it has ended since it was found.
///
/// # Safety
/// `worker` must be the thread's own, and the object alive, with its headers.
pub(crate) unsafe fn is_hit_overtaken(worker: *mut RawWorker, object: *mut RawObject) -> bool {
    let is_overtaken = PENDING.of(object as usize).is_some_and(|fetch| {
        // SAFETY: the caller's promise.
        let stored = unsafe { Stored::read(worker, object) };
        let (host, url) = (stored.host().unwrap_or_default(), stored.url.unwrap_or_default());
        was_overtaken(fetch, host, url, stored.owner(), stored.tags())
    });
    // After the look at what is pending: what has left it has ended by now, if it had to.
    // SAFETY: the caller's promise.
    is_overtaken || unsafe { ffi::gs_has_ended(object) != 0 }
}

fn was_overtaken<'a>(
    Fetch { began, kept_as }: Fetch,
    host: &[u8],
    url: &[u8],
    owner: &[u8],
    tags: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let now = order::seconds();
    let keys = || {
        let with_owned = |key: u64| [key, MAP.owned_key(owner, key)];
        let of_tags = tags.flat_map(|tag| {
            let [of_host, owned] = with_owned(MAP.host_tag_key(host, tag));
            [MAP.tag_key(tag), of_host, owned]
        });
        with_owned(MAP.url_key(host, kept_as, url)).into_iter().chain(of_tags).collect()
    };
    // A purge looks for URLs only in the ways that are known to it.
    let is_lost = kept_as != 0 && !KNOWN.has_known(kept_as, began);
    is_lost || RECENT.is_any_since(keys, began, now) || BANS.is_any_since(host, url, began, now)
}

/// How many objects and keys there are.
pub(crate) fn size() -> (usize, usize) {
    MAP.len()
}

/// About how many bytes the index takes, by a look at all of it.
pub(crate) fn bytes() -> usize {
    MAP.bytes()
}

/// About how many bytes the index takes as it is counted, how many it may take, and how many recent bans take.
pub(crate) fn budgets() -> (usize, usize, usize) {
    (MAP.charged(), budget(), BANS.bytes())
}

/// How many purges of late are known one by one, and how many ways to leave parameters out.
pub(crate) fn remembered() -> (usize, usize) {
    (RECENT.len(), KNOWN.len())
}

/// Held while the lifetime of an object is changed. An object that has ended must not be given time again.
pub(crate) fn lifetime_of(object: usize) -> MutexGuard<'static, ()> {
    static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
    // Objects are some hundred bytes apart.
    LOCKS[(object >> 7) % LOCKS.len()].lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(object: usize, fate: Fate) -> bool {
    let _one_at_a_time = lifetime_of(object);
    // SAFETY: the map shows objects that are alive.
    unsafe { ffi::gs_expire(object as *mut RawObject, c_int::from(fate == Fate::Stale)) != 0 }
}

/// What a mark says of an object: by which slots it ends, and the names in Vary, in lower case and with commas.
pub(crate) struct Marked {
    pub(crate) slots: Vec<Slot>,
    pub(crate) vary: String,
}

/// `None` for an object that cannot be hot: the index does not have it by its URL, it has too many tags, a cookie, or varies by what
/// the front cannot compare.
///
/// # Safety
/// `worker` must be the thread's own, and the object alive, with its headers.
pub(crate) unsafe fn marked(
    worker: *mut RawWorker,
    object: *mut RawObject,
    most_tags: usize,
) -> Option<Marked> {
    // SAFETY: the caller's promise.
    let stored = unsafe { Stored::read(worker, object) };
    let (host, url) = (stored.host()?, stored.url?);
    if stored.too_many || stored.tags.len() > most_tags || stored.has_cookie {
        return None;
    }
    let by = hot::slots();
    let mut slots = vec![by.of_host(host), by.of_url(host, url)];
    slots.extend(stored.tags().flat_map(|tag| [by.of_tag(tag), by.of_host_tag(host, tag)]));
    let mut vary = String::new();
    for name in stored.vary.iter().flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
        if name.is_empty() {
            continue;
        }
        // These are the gateway's own word by now, and not what the front compares. `*` is no name.
        let is_token =
            name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !is_token || router::sent::kind(name).is_some() || name.eq_ignore_ascii_case(b"Host") {
            return None;
        }
        if !vary.is_empty() {
            vary.push(',');
        }
        vary.extend(name.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    }
    Some(Marked { slots, vary })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_index_insert(worker: *mut RawWorker, object: *mut RawObject) {
    stopped((), || {
        linger();
        // SAFETY: Varnish shows its own worker, and an object that has its headers and is alive.
        if !stopped(false, || unsafe { insert(worker, object) }) {
            // SAFETY: as above.
            unsafe { ffi::gs_forget(object) };
        }
        PENDING.leave(object as usize);
    });
}

/// For tests of what may happen between the moment at which an object can be found and the one at which the index has it.
#[cfg(debug_assertions)]
fn linger() {
    static PAUSE: LazyLock<Option<std::time::Duration>> = LazyLock::new(|| {
        let given = std::env::var("GHOST_TEST_INSERT_PAUSE_MS").ok()?;
        given.parse().ok().map(std::time::Duration::from_millis)
    });
    if let Some(pause) = *PAUSE {
        std::thread::sleep(pause);
    }
}

#[cfg(not(debug_assertions))]
fn linger() {}

/// False if the object must not be kept.
///
/// # Safety
/// The worker is this thread's, and the object has its headers and is alive.
unsafe fn insert(worker: *mut RawWorker, object: *mut RawObject) -> bool {
    // SAFETY: the caller's promise.
    let (mut stored, is_empty) =
        unsafe { (Stored::read(worker, object), ffi::gs_is_hit_for_miss(object) != 0) };
    if is_empty {
        hot::is_new(stored.host().unwrap_or_default(), stored.url.unwrap_or_default());
        // It says that nothing is kept. No purge has to find it, and requests need it where the index is full.
        stored.tags.clear();
        stored.too_many = false;
    }
    // Varnish's own rules or user VCL decided to keep it, or the room was taken meanwhile.
    if stored.too_many || !has_room_for(stored.tags.len()) {
        if !is_empty {
            stats::not_kept(stats::INDEX);
        }
        return is_empty;
    }
    let kept_as = FETCH.get().kept_as;
    let mut keys = Vec::with_capacity(3 + 2 * stored.tags.len());
    if let (Some(host), Some(url)) = (stored.host(), stored.url) {
        keys.push(MAP.url_key(host, kept_as, url));
        keys.push(MAP.host_key(host, object as usize));
        if kept_as != 0 {
            keys.push(MAP.way_key(kept_as, object as usize));
        }
    }
    keys.extend(stored.tags().map(|tag| MAP.tag_key(tag)));
    if let Some(host) = stored.host().filter(|_| !stored.tags.is_empty()) {
        OWNERS.add(stored.owner());
        let owned = |tag: &[u8]| MAP.owned_key(stored.owner(), MAP.host_tag_key(host, tag));
        keys.extend(stored.tags().map(owned));
    }
    if keys.is_empty() {
        return true;
    }
    MAP.insert(object as usize, keys);
    // Between the look in vcl_backend_response and this moment an invalidation may have found nothing.
    let (host, url) = (stored.host().unwrap_or_default(), stored.url.unwrap_or_default());
    let is_kept = !is_overtaken(host, url, stored.owner(), stored.tags());
    match is_kept {
        true => hot::is_new(host, url),
        false => hot::was_overtaken(host, url, stored.tags()),
    }
    is_kept
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_index_remove(object: *mut RawObject) {
    stopped((), || MAP.remove(object as usize));
}
