//! The response to a POST that the front wants to store: only if nothing that it may be older than was invalidated since the POST was sent.
//!
//! The front asks for the newest number before it sends the POST. The response is held against what was invalidated since, except the
//! POST's own invalidation: before that one begins, by URL and tags. While it lasts, no other invalidation may begin, whatever it is about. After
//! it, the response is a fetch that began with its number: what comes later overtakes it as it overtakes others.

use std::borrow::Cow;

use model::kept::Order;
use router::cache::Parameters;

use super::{Fetch, KNOWN, MAP, order, was_overtaken};

/// Made before the invalidation of a POST begins, by the thread that carries it out.
pub(crate) struct Claim {
    newest: u64,
    made: u64,
}

impl Claim {
    /// `None` where something was invalidated since `began` that the response may be older than. `urls` are the spellings of its URL.
    pub(crate) fn new(
        began: Order,
        host: &[u8],
        urls: &[&[u8]],
        owner: &[u8],
        tags: &[Cow<'_, [u8]>],
    ) -> Option<Self> {
        // In this order. An invalidation that begins after the look at who is at work takes numbers above `newest`, which [`Self::holds`]
        // notices. One that has ended before that look has noted its keys, which are looked for below.
        let (newest, made) = (order::newest(), order::made());
        if began.process != order::process() || began.number > newest || order::is_any_at_work() {
            return None;
        }
        let mut ways = Vec::new();
        KNOWN.each(|parameters, _| ways.push(parameters.cloned()));
        let as_sent = Fetch { began: began.number, kept_as: MAP.kept_as(None::<&Parameters>) };
        // Once: tags are the same in all ways, and there may be many of both.
        let of_tags = || {
            was_overtaken(
                as_sent,
                host,
                urls.first().copied().unwrap_or_default(),
                owner,
                tags.iter().map(AsRef::as_ref),
            )
        };
        let is_overtaken = of_tags()
            || ways.iter().any(|parameters| {
                let fetch = Fetch { began: began.number, kept_as: MAP.kept_as(parameters.as_ref()) };
                urls.iter().any(|url| {
                    let mut as_kept = Vec::with_capacity(url.len());
                    match parameters {
                        Some(parameters) => parameters.write(url, &mut as_kept),
                        None => as_kept.extend_from_slice(url),
                    }
                    was_overtaken(fetch, host, &as_kept, owner, std::iter::empty())
                })
            });
        (!is_overtaken).then_some(Self { newest, made })
    }

    /// After the invalidation: its last number, unless another one took a number meanwhile.
    pub(crate) fn holds(self) -> Option<Order> {
        let newest = order::newest();
        let is_alone = newest - self.newest == order::made() - self.made;
        is_alone.then(|| Order { process: order::process(), number: newest })
    }
}
