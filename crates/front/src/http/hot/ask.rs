//! A response of varnishd, on its way into the store.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::header::{HeaderMap, HeaderValue};
use http::{StatusCode, response};
use page::Ticket;
use router::cache::Cache;
use router::counters::HIT;
use tokio::time::timeout;

use super::look::{Looked, value};
use super::{Entry, Hot, Mark, Name, NotHot, SHORTEST, Times, Varied};
use crate::http::varnishd::Reply;

/// An object that is whole in varnishd's cache comes at once.
const COLLECTING: Duration = Duration::from_millis(500);

/// A request whose response may become hot.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(super) ticket: Ticket,
    pub(super) name: Name,
    pub(super) tells_status: bool,
    pub(super) asked: Instant,
}

/// Statuses that ghost marks.
fn may_be_stored(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 301 | 302 | 307 | 308 | 404 | 410)
}

/// varnishd has answered a request for which nothing was found here. Stores the response, if the request asked for it and all that was promised
/// holds. Afterwards `reply` has the same body to give as before. `request`: the headers by which varnishd has found it.
pub(crate) async fn heard(
    hot: &Hot,
    looked: Looked,
    (result, mark): (u8, Option<HeaderValue>),
    (cache, request): (Option<&Cache>, &HeaderMap),
    parts: &response::Parts,
    reply: &mut Reply,
) {
    let (hash, asking) = match looked {
        Looked::Hit(..) => return,
        Looked::Nothing(hash) => (hash, None),
        Looked::Asks(asking) => (asking.name.hash, Some(asking)),
    };
    match (result, asking, cache) {
        (HIT, Some(asking), Some(cache)) => {
            hot.was_hit(hash);
            if let Err(why) = store(hot, *asking, mark.as_ref(), (cache, request), parts, reply).await {
                hot.refuse(why);
            }
        }
        (HIT, ..) => hot.was_hit(hash),
        // It may be newer than the stored response, which must not be delivered after it.
        _ => hot.was_replaced(hash),
    }
}

async fn store(
    hot: &Hot,
    asking: Asking,
    mark: Option<&HeaderValue>,
    (cache, request): (&Cache, &HeaderMap),
    parts: &response::Parts,
    reply: &mut Reply,
) -> Result<(), NotHot> {
    let Asking { ticket, name, tells_status, asked } = asking;
    let Some(mark) = mark else {
        // Others ask again after some more hits.
        hot.sketch.forget(name.hash);
        return Err(NotHot::Unmarked);
    };
    let mark = Mark::parse(mark.as_bytes()).ok_or(NotHot::Head)?;
    if mark.key != name.hash {
        return Err(NotHot::Key);
    }
    if !may_be_stored(parts.status) || mark.ttl <= SHORTEST {
        return Err(NotHot::Head);
    }
    if parts.headers.contains_key(http::header::SET_COOKIE) {
        return Err(NotHot::Head);
    }
    let varied = |name: &str| -> Result<Varied, NotHot> {
        let value = value(cache, request, name).map_err(|_| NotHot::Head)?;
        Ok((name.into(), value.map(Into::into)))
    };
    let vary: Box<[Varied]> = mark.vary.iter().map(|name| varied(name)).collect::<Result<_, _>>()?;
    let most = hot.max_object_bytes;
    if reply.length().is_some_and(|length| length > most as u64) {
        return Err(NotHot::Size);
    }
    let mut body = BytesMut::new();
    let is_whole = timeout(COLLECTING, reply.collect(&mut body, most)).await;
    let body = body.freeze();
    reply.put_back(body.clone());
    match is_whole {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return Err(NotHot::Size),
        Ok(Err(_)) | Err(_) => return Err(NotHot::Body),
    }
    let stamp = hot.page.admit(&ticket, &mark.slots).ok_or(NotHot::Invalidated)?;
    let read = Instant::now();
    let times = Times { asked, read, ttl: mark.ttl };
    let entry = Entry::new((name, vary), stamp, (parts, tells_status), &body, times).ok_or(NotHot::Head)?;
    if !hot.store.insert(entry, read) {
        return Err(NotHot::Size);
    }
    hot.stored.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}
