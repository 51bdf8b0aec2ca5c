//! Responses to POST that the front keeps and the cache is to store for GET (RFC 9110, 9.3.3). The front sends a GET of the same URL with a
//! token, ghost asks the front for the miss, and the front answers with what it keeps.
//!
//! Guarantees that such a GET never reaches an origin; that it leaves nothing behind where the response cannot be stored; and that an
//! invalidation after the POST's own one keeps the response out of the cache ([`index::Claim`]).

use std::borrow::Cow;
use std::ffi::CStr;

use model::kept::{Kept, Order};
use model::names::{CACHE_GROUPS_HEADER, KEPT_HEADER, ORDER_HEADER, ORDER_METHOD, OWNER_HEADER, TAGS_HEADER};
use router::{NormalHost, Router};

use crate::ffi::{self, Ctx};
use crate::index::{self, Claim, tags};
use crate::message::Message;
use crate::target::Target;

/// In varnishd's log, where the front does not have the response any more.
const GONE: &CStr = c"ghost: the response to a POST that was to be stored is gone";

/// What the front says of a response that it keeps, in exactly one header.
pub(crate) fn of_request(message: Message<'_>) -> Option<Kept> {
    let mut said = message.headers(KEPT_HEADER);
    let kept = Kept::parse(said.next()?)?;
    said.next().is_none().then_some(kept)
}

/// Is it a request for the number of the newest invalidation? Its answer has it.
pub(crate) fn asks_for_order(message: Message<'_>) -> bool {
    let asks = message.method() == ORDER_METHOD.as_bytes();
    if asks {
        message.set_header(ORDER_HEADER, index::order_now().to_string().as_bytes());
    }
    asks
}

/// Before the invalidation that the front asks for: takes what it says of the response.
pub(crate) fn claim(router: &Router, request: Message<'_>) -> Option<Claim> {
    let began = request.header(ORDER_HEADER).map(Order::parse);
    // What is there at the end is the answer.
    request.remove_header(ORDER_HEADER);
    let began = began??;
    let host = NormalHost::new(request.header("Host")?);
    let normal = router.normalize(request.url()).ok()?.url;
    let urls = [Some(request.url()), normal.as_deref()];
    let urls: Vec<&[u8]> = urls.into_iter().flatten().collect();
    let tags = tags::with_groups(request.headers(TAGS_HEADER), request.headers(CACHE_GROUPS_HEADER));
    let tags: Vec<Cow<'_, [u8]>> = tags.take(tags::MOST + 1).collect();
    if tags.len() > tags::MOST {
        return None;
    }
    let owner = request.header(OWNER_HEADER)?;
    Claim::new(began, host.as_bytes(), &urls, owner, &tags)
}

/// After it: says whether the response may be stored.
pub(crate) fn answer(claim: Option<Claim>, request: Message<'_>) {
    if let Some(order) = claim.and_then(Claim::holds) {
        request.set_header(ORDER_HEADER, order.to_string().as_bytes());
    }
}

/// Is it the fetch of such a response? `before` is the request as it was looked up.
pub(crate) fn is_fetch_of(before: Message<'_>) -> bool {
    before.header(KEPT_HEADER).is_some()
}

/// In vcl_backend_fetch, of such a fetch: true where the front may be asked.
///
/// # Safety
/// `ctx` must be the live context of the fetch whose request `before` is.
pub(crate) unsafe fn begins(ctx: *const Ctx, target: Option<&Target>, before: Message<'_>) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let is_miss = ffi::gs_uncacheable(ctx) == 0 && ffi::gs_is_bgfetch(ctx) == 0;
        let begins = is_miss
            && target.is_some_and(Target::takes_kept)
            && of_request(before).is_some_and(|kept| index::fetch_began(kept.order));
        if begins {
            // The response is whole, and validates nothing.
            ffi::gs_let_go(ctx);
        }
        begins
    }
}

/// In vcl_backend_error, of such a fetch. Requests that wait for it must not get its failure: it is as if it had not been.
///
/// # Safety
/// `ctx` must be the live context of the fetch.
pub(crate) unsafe fn failed(ctx: *const Ctx) {
    // SAFETY: the caller's promise.
    unsafe { ffi::gs_fail(ctx, GONE.as_ptr()) };
}
