//! Responses to unsafe methods: what is stored of their URLs goes (RFC 9111, 4.4; RFC 9875), before the client sees the response. By a
//! pass, ghost sees the response itself. Where the front has asked the origin, it says what to invalidate by a request of its own.
//!
//! Guarantees that an origin ends, beside the URL that the client named, only objects of routes of its own namespace.

use model::names::{ALSO_HEADER, GROUP_INVALIDATION_HEADER, GROUPS_HEADER, OWNER_HEADER};
use router::cache::same_origin_url;
use router::{NormalHost, Router};

use crate::events;
use crate::ffi::RawWorker;
use crate::index::{self, Fate};
use crate::invalidate::{end_own_url, end_url};
use crate::message::Message;
use crate::posted;
use crate::target::Target;

/// URLs and groups that one response may invalidate.
const MOST: usize = 64;
/// Groups are read up to here, the same ones counted.
const MOST_READ: usize = 1024;

/// After a response to an unsafe method. The worker is the thread's own.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn after_response(
    worker: *mut RawWorker,
    target: &Target,
    before: Message<'_>,
    beresp: Message<'_>,
) {
    let (host, url) = (before.header("Host").unwrap_or_default(), before.url());
    let scheme = before.header("X-Forwarded-Proto").unwrap_or(b"http");
    let named = ["Location", "Content-Location"].into_iter().flat_map(|name| beresp.headers(name));
    let named = distinct(named.filter_map(|value| same_origin_url(value, scheme, host, url)));
    let owner = target.rule().namespace();
    let order = Order { router: target.router(), owner: owner.as_bytes(), host, url };
    let also = named.iter().cloned();
    // SAFETY: the caller's promise.
    unsafe { order.carry_out(worker, also, beresp.headers(GROUP_INVALIDATION_HEADER)) };
    events::wrote(owner, host, url, &named, beresp);
}

/// What the front asks for.
///
/// # Safety
/// `worker` must be the thread's own.
pub(crate) unsafe fn as_asked(worker: *mut RawWorker, router: &Router, request: Message<'_>) {
    let claim = posted::claim(router, request);
    let host = request.header("Host").unwrap_or_default();
    let owner = request.header(OWNER_HEADER).unwrap_or_default();
    let also = request.headers(ALSO_HEADER).map(<[u8]>::to_vec);
    let order = Order { router, owner, host, url: request.url() };
    // SAFETY: the caller's promise.
    unsafe { order.carry_out(worker, also, request.headers(GROUPS_HEADER)) };
    posted::answer(claim, request);
}

struct Order<'a> {
    router: &'a Router,
    /// The namespace of the route whose origin has answered.
    owner: &'a [u8],
    host: &'a [u8],
    url: &'a [u8],
}

impl Order<'_> {
    /// # Safety
    /// `worker` must be the thread's own.
    unsafe fn carry_out<'a>(
        self,
        worker: *mut RawWorker,
        also: impl Iterator<Item = Vec<u8>>,
        groups: impl Iterator<Item = &'a [u8]>,
    ) {
        let host = NormalHost::new(self.host);
        end_url(self.router, host.as_bytes(), self.url, Fate::Gone);
        for url in distinct(also) {
            // SAFETY: the caller's promise.
            unsafe { end_own_url(worker, self.router, self.owner, host.as_bytes(), &url, Fate::Gone) };
        }
        for group in distinct(router::cache::groups(groups)) {
            index::end_own_tag(self.owner, host.as_bytes(), group.as_bytes(), Fate::Gone);
        }
    }
}

/// Each once, and not more than [`MOST`].
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all.take(MOST_READ) {
        if distinct.len() < MOST && !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}
