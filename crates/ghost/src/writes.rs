//! Responses to unsafe methods: what is stored of their URLs goes (RFC 9111, 4.4; RFC 9875), before the client sees the response. By a
//! pass, ghost sees the response itself. Where the front has asked the origin, it says what to invalidate by a request of its own.

use model::names::{ALSO_HEADER, GROUP_INVALIDATION_HEADER, GROUPS_HEADER};
use router::cache::same_origin_url;
use router::{NormalHost, Router};

use crate::ffi::RawWorker;
use crate::index::{self, Fate, tags};
use crate::invalidate::end_url;
use crate::message::Message;

/// URLs and groups that one response may invalidate.
const MOST: usize = 64;

/// After a response to an unsafe method. The worker is the thread's own.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn after_response(
    worker: *mut RawWorker,
    router: &Router,
    before: Message<'_>,
    beresp: Message<'_>,
) {
    let (host, url) = (before.header("Host").unwrap_or_default(), before.url());
    let scheme = before.header("X-Forwarded-Proto").unwrap_or(b"http");
    let named = ["Location", "Content-Location"].into_iter().flat_map(|name| beresp.headers(name));
    let named = named.filter_map(|value| same_origin_url(value, scheme, host, url));
    let urls = std::iter::once(url.to_vec()).chain(named);
    // SAFETY: the caller's promise.
    unsafe { end(worker, router, host, urls, beresp.headers(GROUP_INVALIDATION_HEADER)) };
}

/// What the front asks for.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn as_asked(worker: *mut RawWorker, router: &Router, request: Message<'_>) {
    let host = request.header("Host").unwrap_or_default();
    let also = request.headers(ALSO_HEADER).map(<[u8]>::to_vec);
    let urls = std::iter::once(request.url().to_vec()).chain(also);
    // SAFETY: the caller's promise.
    unsafe { end(worker, router, host, urls, request.headers(GROUPS_HEADER)) };
}

/// # Safety
/// `worker` must be the thread's own.
unsafe fn end<'a>(
    worker: *mut RawWorker,
    router: &Router,
    host: &[u8],
    urls: impl Iterator<Item = Vec<u8>>,
    groups: impl Iterator<Item = &'a [u8]>,
) {
    let host = NormalHost::new(host);
    for url in urls.take(MOST) {
        end_url(router, host.as_bytes(), &url, Fate::Gone);
    }
    for group in groups.flat_map(tags::tags).take(MOST) {
        // SAFETY: the caller's promise.
        unsafe { index::end_tag(worker, group, Some(host.as_bytes()), Fate::Gone) };
    }
}
