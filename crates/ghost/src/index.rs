//! Every object in the cache, by the client's host and URL, and by the tags that its origin gave it.
//!
//! Varnish tells of objects that come and go, in whichever VCL (see c/index.c). Guarantees that an object which is looked at
//! is alive. Never looks at objects of another host.

mod bans;
mod known;
pub(crate) mod map;
mod owners;
mod recent;
pub(crate) mod tags;
pub(crate) mod urls;

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::{LazyLock, Mutex, PoisonError};

use model::names::{
    CACHE_HOST_HEADER, CACHE_URL_HEADER, GHOST_INDEX_ENV, NEVER_STALE, OWNER_HEADER, RESCUE_SECONDS_HEADER,
};
use router::cache::Parameters;

use crate::ffi::{self, RawObject, RawWorker};
use crate::guard::stopped;
use crate::hot::{self, Ending};
use crate::{stats, storage};
use bans::Bans;
use known::Known;
use map::Map;
use owners::Owners;
use page::Slot;
use recent::Recent;
use urls::{Kept, Urls};

static MAP: LazyLock<Map> = LazyLock::new(Map::default);
static RECENT: LazyLock<Recent> = LazyLock::new(Recent::default);
static BANS: LazyLock<Bans<Kept>> = LazyLock::new(Bans::default);
static OWNERS: LazyLock<Owners> = LazyLock::new(Owners::default);
static KNOWN: LazyLock<Known<Parameters>> = LazyLock::new(Known::default);

/// The default size of the index: this part of all storages, and so much at least.
const SHARE_OF_STORAGES: u64 = 4;
const LEAST_BUDGET: usize = 16 << 20;

/// Ways to leave parameters out: origins may name no more once so many are known. A purge looks for each.
const MOST_WAYS: usize = 512;

/// What vcl_backend_response knows of the object that the same thread puts into the cache after it.
#[derive(Clone, Copy, Default)]
struct Fetch {
    began: f64,
    kept_as: u64,
}

thread_local! {
    static FETCH: Cell<Fetch> = const { Cell::new(Fetch { began: 0.0, kept_as: 0 }) };
}

/// From now on this thread's fetch is one that began then, and whose URL is kept as these say.
pub(crate) fn fetches(began: f64, parameters: Option<&Parameters>) {
    FETCH.set(Fetch { began, kept_as: MAP.kept_as(parameters) });
}

/// A configuration has these.
pub(crate) fn learn<'a>(all: impl Iterator<Item = &'a Parameters>) {
    // SAFETY: it takes nothing.
    let now = unsafe { ffi::gs_real_time() };
    let has_objects = |kept_as| MAP.way_keys(kept_as).any(|key| MAP.has(key));
    let all = all.map(|parameters| (MAP.kept_as(Some(parameters)), parameters));
    let forgotten = KNOWN.learn(all, now, has_objects);
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
    // SAFETY: it takes nothing.
    let now = unsafe { ffi::gs_real_time() };
    KNOWN.learn_one(kept_as, parameters, now, MOST_WAYS).then_some(kept_as)
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
    end_each_url(host, url, |key| {
        // Before the look: what comes into the cache from now on is noticed.
        note(key);
        MAP.each(key, |object| end(object, fate))
    })
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
        note(MAP.owned_key(owner, key));
        MAP.each(key, |object| {
            // SAFETY: the map shows objects that are alive; the caller's promise.
            let stored = unsafe { Stored::place(worker, object as *mut RawObject) };
            stored.owner() == owner && end(object, fate)
        })
    })
}

/// Adds up what `end` says of each key that objects of the URL may have.
fn end_each_url(host: &[u8], url: &[u8], end: impl Fn(u64) -> u64) -> u64 {
    let mut count = 0;
    let mut ending = Ending::default();
    KNOWN.each(|parameters| {
        let mut as_kept = Vec::with_capacity(url.len());
        match parameters {
            Some(parameters) => parameters.write(url, &mut as_kept),
            None => as_kept.extend_from_slice(url),
        }
        ending.add(Slot::of_url(host, &as_kept));
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
        let _ending = Ending::of(Slot::of_tag(tag));
        note(MAP.tag_key(tag));
        return MAP.each(MAP.tag_key(tag), |object| end(object, fate));
    };
    let _ending = Ending::of(Slot::of_host_tag(host, tag));
    let key = MAP.host_tag_key(host, tag);
    note(key);
    match OWNERS.all() {
        Some(owners) => {
            let keys = owners.iter().map(|owner| MAP.owned_key(owner, key));
            keys.map(|key| MAP.each(key, |object| end(object, fate))).sum()
        }
        None => MAP.each(MAP.tag_key(tag), |object| {
            // SAFETY: the map shows objects that are alive; the caller's promise.
            let stored = unsafe { Stored::place(worker, object as *mut RawObject) };
            stored.host() == Some(host) && end(object, fate)
        }),
    }
}

/// Ends the objects of one namespace and host with a tag. Looks at no others.
pub(crate) fn end_own_tag(owner: &[u8], host: &[u8], tag: &[u8], fate: Fate) -> u64 {
    let _ending = Ending::of(Slot::of_host_tag(host, tag));
    let key = MAP.owned_key(owner, MAP.host_tag_key(host, tag));
    note(key);
    MAP.each(key, |object| end(object, fate))
}

/// Ends all objects of a host whose URLs match.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn end_matching(worker: *mut RawWorker, host: &[u8], urls: &Urls) {
    // An expression is not held against hot objects one by one: all of the host end, and none of another.
    let _ending = Ending::of(Slot::of_host(host));
    // Before the look: what comes into the cache from now on is noticed.
    // SAFETY: it takes nothing.
    BANS.note(host, urls.kept(), unsafe { ffi::gs_real_time() });
    for key in MAP.host_keys(host) {
        MAP.each(key, |object| {
            // SAFETY: the map shows objects that are alive; the caller's promise.
            let stored = unsafe { Stored::place(worker, object as *mut RawObject) };
            let is_meant = stored.host() == Some(host) && stored.url.is_some_and(|url| urls.matches(url));
            is_meant && end(object, Fate::Gone)
        });
    }
}

fn note(key: u64) {
    // SAFETY: it takes nothing.
    RECENT.note(key, unsafe { ffi::gs_real_time() });
}

/// Was what this thread's fetch brings purged or banned since it began? `host`, `url` and `owner` are those that it will be found by.
pub(crate) fn is_overtaken<'a>(
    host: &[u8],
    url: &[u8],
    owner: &[u8],
    tags: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let Fetch { began, kept_as } = FETCH.get();
    // SAFETY: it takes nothing.
    let now = unsafe { ffi::gs_real_time() };
    let keys = || {
        let with_owned = |key: u64| [key, MAP.owned_key(owner, key)];
        let of_tags = tags.flat_map(|tag| {
            let [of_host, owned] = with_owned(MAP.host_tag_key(host, tag));
            [MAP.tag_key(tag), of_host, owned]
        });
        with_owned(MAP.url_key(host, kept_as, url)).into_iter().chain(of_tags).collect()
    };
    RECENT.is_any_since(keys, began, now) || BANS.is_any_since(host, url, began, now)
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

fn end(object: usize, fate: Fate) -> bool {
    // SAFETY: the map shows objects that are alive.
    unsafe { ffi::gs_expire(object as *mut RawObject, c_int::from(fate == Fate::Stale)) != 0 }
}

/// For how many seconds after it was fresh an object may take the place of a failure; `None` where nothing limits it.
///
/// # Safety
/// `worker` must be the thread's own, and the object alive, with its headers.
pub(crate) unsafe fn rescue_seconds(worker: *mut RawWorker, object: *mut RawObject) -> Option<f64> {
    // SAFETY: the caller's promise.
    let value = unsafe { staleness(worker, object) }?;
    Some(std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok()).unwrap_or(0.0))
}

/// Must the object be validated before it is served stale, whatever the client takes?
///
/// # Safety
/// As [`rescue_seconds`].
pub(crate) unsafe fn is_never_stale(worker: *mut RawWorker, object: *mut RawObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { staleness(worker, object) }.is_some_and(|value| value.trim_ascii() == NEVER_STALE.as_bytes())
}

/// The value of [`RESCUE_SECONDS_HEADER`].
///
/// # Safety
/// As [`rescue_seconds`]; it must not outlive the object.
unsafe fn staleness<'a>(worker: *mut RawWorker, object: *mut RawObject) -> Option<&'a [u8]> {
    let mut line = std::ptr::null();
    loop {
        // SAFETY: the caller's promise; the line is the one that was given last.
        line = unsafe { ffi::gs_stored_header(worker, object, line) };
        if line.is_null() {
            return None;
        }
        // SAFETY: stored headers end in a zero byte, and live as long as the object.
        let text = unsafe { CStr::from_ptr(line) }.to_bytes();
        if let Some((name, value)) = text.split_at_checked(RESCUE_SECONDS_HEADER.len())
            && name.eq_ignore_ascii_case(RESCUE_SECONDS_HEADER.as_bytes())
            && let Some(value) = value.strip_prefix(b":")
        {
            return Some(value);
        }
    }
}

/// What an object's stored headers say of it.
#[derive(Default)]
struct Stored<'a> {
    host: Option<&'a [u8]>,
    url: Option<&'a [u8]>,
    owner: Option<&'a [u8]>,
    tags: Vec<&'a [u8]>,
    /// Lines of Vary.
    vary: Vec<&'a [u8]>,
    has_cookie: bool,
    /// There are more tags than are read.
    too_many: bool,
}

impl<'a> Stored<'a> {
    /// # Safety
    /// `worker` must be the thread's own, and the object alive for `'a`, with its headers.
    unsafe fn read(worker: *mut RawWorker, object: *mut RawObject) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::read_until(worker, object, |_| false) }
    }

    /// Host, URL and owner alone.
    ///
    /// # Safety
    /// As for all of it.
    unsafe fn place(worker: *mut RawWorker, object: *mut RawObject) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Self::read_until(worker, object, |stored| {
                stored.host.is_some() && stored.url.is_some() && stored.owner.is_some()
            })
        }
    }

    /// # Safety
    /// As for all of it.
    unsafe fn read_until(
        worker: *mut RawWorker,
        object: *mut RawObject,
        is_enough: impl Fn(&Self) -> bool,
    ) -> Self {
        let mut stored = Self::default();
        let mut line = std::ptr::null();
        loop {
            // SAFETY: the caller's promise; the line is the one that was given last.
            line = unsafe { ffi::gs_stored_header(worker, object, line) };
            if line.is_null() {
                return stored;
            }
            // SAFETY: stored headers end in a zero byte, and live as long as the object.
            stored.take(unsafe { CStr::from_ptr(line) }.to_bytes());
            if is_enough(&stored) {
                return stored;
            }
        }
    }

    fn take(&mut self, line: &'a [u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(CACHE_HOST_HEADER.as_bytes()) {
            self.host = Some(value);
        } else if name.eq_ignore_ascii_case(CACHE_URL_HEADER.as_bytes()) {
            self.url = Some(value);
        } else if name.eq_ignore_ascii_case(OWNER_HEADER.as_bytes()) {
            self.owner = Some(value);
        } else if name.eq_ignore_ascii_case(b"Vary") {
            self.vary.push(value);
        } else if name.eq_ignore_ascii_case(b"Set-Cookie") {
            self.has_cookie = true;
        } else if tags::is_tag_header(name) {
            let mut all = tags::tags(value);
            self.tags.extend(all.by_ref().take(tags::MOST - self.tags.len()));
            self.too_many |= all.next().is_some();
        }
    }

    fn host(&self) -> Option<&'a [u8]> {
        self.host.map(without_port)
    }

    fn owner(&self) -> &'a [u8] {
        self.owner.unwrap_or_default()
    }
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
    let mut slots = vec![Slot::of_host(host), Slot::of_url(host, url)];
    slots.extend(stored.tags.iter().flat_map(|tag| [Slot::of_tag(tag), Slot::of_host_tag(host, tag)]));
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

/// `example.com:8080` and `[::1]:8080`.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) && !host[..colon].ends_with(b":") => {
            &host[..colon]
        }
        _ => host,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_index_insert(worker: *mut RawWorker, object: *mut RawObject) {
    stopped((), || {
        // SAFETY: Varnish shows its own worker, and an object that has its headers and is alive.
        if !stopped(false, || unsafe { insert(worker, object) }) {
            // SAFETY: as above.
            unsafe { ffi::gs_forget(object) };
        }
    });
}

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
    keys.extend(stored.tags.iter().map(|tag| MAP.tag_key(tag)));
    if let Some(host) = stored.host().filter(|_| !stored.tags.is_empty()) {
        OWNERS.add(stored.owner());
        let owned = |tag: &&[u8]| MAP.owned_key(stored.owner(), MAP.host_tag_key(host, tag));
        keys.extend(stored.tags.iter().map(owned));
    }
    if keys.is_empty() {
        return true;
    }
    MAP.insert(object as usize, keys);
    // Between the look in vcl_backend_response and this moment an invalidation may have found nothing. And a purge looks for
    // URLs only in the ways that are known.
    let (host, url) = (stored.host().unwrap_or_default(), stored.url.unwrap_or_default());
    let is_lost = || kept_as != 0 && !KNOWN.contains(kept_as);
    let tags = || stored.tags.iter().copied();
    let is_kept = !is_overtaken(host, url, stored.owner(), tags()) && !is_lost();
    match is_kept {
        true => hot::is_new(host, url),
        false => hot::was_overtaken(host, url, tags()),
    }
    is_kept
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_index_remove(object: *mut RawObject) {
    stopped((), || MAP.remove(object as usize));
}
