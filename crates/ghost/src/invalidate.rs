//! Takes objects out of the cache, as the loopback socket is asked to.

use std::collections::HashMap;

use model::invalidation::{Invalidation, MOST_AT_ONCE, Method, Order, Outcome, Outcomes};
use router::Router;

use crate::ffi::{self, Ctx, RawWorker};
use crate::index::urls::{self, Urls};
use crate::index::{self, Fate};

/// 256 paths of 2048 bytes, and their clothes.
const LARGEST_ORDER: usize = 2 << 20;
/// All errors of one answer together: it has to fit into the fetch's workspace.
const ROOM_FOR_ERRORS: usize = 8 << 10;
const LONGEST_ERROR: usize = 200;

/// Does what the body of a request asks for. An error: nothing was done. The worker is the thread's own.
pub(crate) fn carry_out(worker: *mut RawWorker, router: &Router, body: &[u8]) -> Result<Outcomes, String> {
    let order: Order = serde_json::from_slice(body).map_err(|e| format!("the body cannot be read: {e}"))?;
    let count: usize = order.invalidations.iter().map(|one| one.paths.len() + one.tags.len()).sum();
    if count > MOST_AT_ONCE {
        return Err(format!("{count} paths and tags are too many for one request: {MOST_AT_ONCE} at most"));
    }
    let mut bans = Bans::default();
    let all: Vec<Vec<Outcome>> =
        order.invalidations.iter().map(|one| of_one(worker, router, one, &mut bans)).collect();
    // SAFETY: the worker is this thread's.
    unsafe { bans.carry_out(worker) };
    Ok(Outcomes { outcomes: with_room(all) })
}

/// The body of a request that came by one of varnishd's own sockets.
pub(crate) fn body(ctx: *const Ctx) -> Result<Vec<u8>, String> {
    let mut n = 0;
    // SAFETY: ctx is the fetch's live context; the body is ours until it is given back.
    unsafe {
        let body = ffi::gs_request_body(ctx, LARGEST_ORDER, &mut n);
        if body.is_null() {
            return Err(format!("a body of JSON is needed, of {LARGEST_ORDER} bytes at most"));
        }
        let copy = std::slice::from_raw_parts(body, n).to_vec();
        ffi::gs_free(body.cast());
        Ok(copy)
    }
}

fn of_one(worker: *mut RawWorker, router: &Router, one: &Invalidation, bans: &mut Bans) -> Vec<Outcome> {
    let host = one.hostname.as_ref().map(|host| host.to_ascii_lowercase());
    let fate = match one.method {
        Method::Ban => {
            let path = |regex: &String| match &host {
                Some(host) => bans.add(host, regex),
                None => failed("a ban needs a hostname"),
            };
            let tags = one.tags.iter().map(|_| failed("tags cannot be banned: purge them"));
            return one.paths.iter().map(path).chain(tags).collect();
        }
        Method::Purge => Fate::Gone,
        Method::SoftPurge => Fate::Stale,
    };
    let (host, owner) = (host.as_deref().map(str::as_bytes), one.owner.as_deref().map(str::as_bytes));
    let path = |path: &String| {
        let url = path.as_bytes();
        match (host, owner) {
            (Some(host), None) => found(end_url(router, host, url, fate)),
            (Some(host), Some(owner)) => {
                // SAFETY: the worker is this thread's.
                found(unsafe { end_own_url(worker, router, owner, host, url, fate) })
            }
            (None, _) => failed("a path needs a hostname"),
        }
    };
    let tag = |tag: &String| match (host, owner) {
        (Some(host), Some(owner)) => found(index::end_own_tag(owner, host, tag.as_bytes(), fate)),
        // SAFETY: the worker is this thread's.
        (_, None) => found(unsafe { index::end_tag(worker, tag.as_bytes(), host, fate) }),
        (None, Some(_)) => failed("a tag of one namespace needs a hostname"),
    };
    one.paths.iter().map(path).chain(one.tags.iter().map(tag)).collect()
}

/// The URL as requests for it are kept; and as it was written, since user VCL or a former setting may have kept it so.
pub(crate) fn end_url(router: &Router, host: &[u8], url: &[u8], fate: Fate) -> u64 {
    let normal = router.normalize(url).ok().and_then(|normal| normal.url);
    let of_normal = normal.map_or(0, |normal| index::end_url(host, &normal, fate));
    of_normal + index::end_url(host, url, fate)
}

/// The same for objects of one namespace.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn end_own_url(
    worker: *mut RawWorker,
    router: &Router,
    owner: &[u8],
    host: &[u8],
    url: &[u8],
    fate: Fate,
) -> u64 {
    let normal = router.normalize(url).ok().and_then(|normal| normal.url);
    // SAFETY: the caller's promise.
    let end = |url: &[u8]| unsafe { index::end_own_url(worker, owner, host, url, fate) };
    normal.map_or(0, |normal| end(&normal)) + end(url)
}

fn found(objects: u64) -> Outcome {
    Outcome { objects: Some(objects), error: None }
}

fn failed(why: impl Into<String>) -> Outcome {
    let why: String = why.into().chars().take(LONGEST_ERROR).collect();
    Outcome { objects: None, error: Some(why) }
}

/// Errors beyond what fits are summed up in two words.
fn with_room(mut all: Vec<Vec<Outcome>>) -> Vec<Vec<Outcome>> {
    let mut room = ROOM_FOR_ERRORS;
    for error in all.iter_mut().flatten().filter_map(|outcome| outcome.error.as_mut()) {
        if error.len() > room {
            *error = "see the other errors".to_owned();
        }
        room = room.saturating_sub(error.len());
    }
    all
}

/// Bans of one order, by host: all expressions of a host are looked for at once.
#[derive(Default)]
struct Bans(HashMap<String, Vec<String>>);

impl Bans {
    /// Looked at now, carried out at the end.
    fn add(&mut self, host: &str, regex: &String) -> Outcome {
        if let Err(why) = urls::check(regex) {
            return failed(why);
        }
        let of_host = self.0.entry(host.to_owned()).or_default();
        if !of_host.contains(regex) {
            of_host.push(regex.clone());
        }
        Outcome::default()
    }

    /// # Safety
    /// `worker` must be the thread's own.
    unsafe fn carry_out(self, worker: *mut RawWorker) {
        for (host, regexes) in self.0 {
            for urls in Urls::all(&regexes) {
                // SAFETY: the caller's promise.
                unsafe { index::end_matching(worker, host.as_bytes(), &urls) };
            }
        }
    }
}
