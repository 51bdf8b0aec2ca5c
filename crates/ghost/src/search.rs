//! No-Vary-Search: what origins have said of the queries of a path, for the requests after that.
//!
//! An object is found by a key that is made before its response is there. So the first response of a path teaches what counts, and requests
//! after it are looked up by that. A response that says something else than what its key was made by is not kept, and replaces the rule: no
//! response is ever used for a query that it does not allow.
//!
//! Bounded: a table of places by host, rule and path, where the last one counts, and a number of different words of origins
//! ([`crate::index::learn_of_origin`]). What finds no room is kept by its whole URL. Looked up without a lock, for policies that obey
//! origins alone.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use foldhash::fast::RandomState;
use model::names::SEARCH_HEADER;
use router::cache::Parameters;

use crate::index;
use crate::message::Message;

const PLACES: usize = 4096;

static TABLE: [ArcSwapOption<Learned>; PLACES] = [const { ArcSwapOption::const_empty() }; PLACES];
static ANY: AtomicBool = AtomicBool::new(false);
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// What an origin has said of one path.
pub(crate) struct Learned {
    of: u64,
    pub(crate) parameters: Parameters,
    /// No other parameters have it.
    pub(crate) id: u64,
}

fn hash(rule: &str, host: &[u8], url: &[u8]) -> u64 {
    let path = url.split(|b| *b == b'?').next().unwrap_or_default();
    let mut hasher = SEED.build_hasher();
    for part in [rule.as_bytes(), host, path] {
        hasher.write(part);
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

fn place(of: u64) -> &'static ArcSwapOption<Learned> {
    &TABLE[(of >> 32) as usize % PLACES]
}

/// What is known of the URL's path, where it has a query.
pub(crate) fn find(rule: &str, host: &[u8], url: &[u8]) -> Guard<Option<std::sync::Arc<Learned>>> {
    if !ANY.load(Ordering::Relaxed) || !url.contains(&b'?') {
        return Guard::from_inner(None);
    }
    let of = hash(rule, host, url);
    let found = place(of).load();
    if found.as_ref().is_some_and(|learned| learned.of == of) { found } else { Guard::from_inner(None) }
}

/// From now on requests for the path are looked up so; by the whole URL where there is nothing to learn.
fn learn(rule: &str, host: &[u8], url: &[u8], says: Option<(Parameters, u64)>) {
    let of = hash(rule, host, url);
    let place = place(of);
    let known = place.load();
    let is_known = known.as_ref().is_some_and(|learned| learned.of == of);
    match says {
        Some((_, id)) if is_known && known.as_ref().is_some_and(|learned| learned.id == id) => {}
        Some((parameters, id)) => {
            place.store(Some(std::sync::Arc::new(Learned { of, parameters, id })));
            ANY.store(true, Ordering::Relaxed);
        }
        None if is_known => place.store(None),
        None => {}
    }
}

/// On the request whose key was made by this: its fetch must know.
pub(crate) fn mark(request: Message<'_>, id: u64) {
    let mut letters = [0; 16];
    letters.iter_mut().enumerate().for_each(|(at, letter)| *letter = b'a' + (id >> (4 * at) & 15) as u8);
    request.set_header(SEARCH_HEADER, &letters);
}

fn marked(request: Message<'_>) -> Option<u64> {
    let letters = request.header(SEARCH_HEADER)?;
    Some(
        letters
            .iter()
            .take(16)
            .enumerate()
            .fold(0, |id, (at, letter)| id | u64::from(letter.wrapping_sub(b'a') & 15) << (4 * at)),
    )
}

/// How the response to a request is kept.
pub(crate) enum Kept {
    /// By its whole URL, or as the policy says.
    AsAsked,
    /// By what its origin says.
    By(Parameters),
    /// Its key was made by what the origin does not say any more.
    Not,
}

/// In vcl_backend_response: `says` is what the response says, `is_success` whether it speaks for its path.
pub(crate) fn of_response(
    rule: &str,
    request: Message<'_>,
    says: Option<Parameters>,
    is_success: bool,
) -> Kept {
    let (host, url) = (request.header("Host").unwrap_or_default(), request.url());
    let says = says.and_then(|parameters| Some((index::learn_of_origin(&parameters)?, parameters)));
    let used = marked(request);
    let kept = match (&says, used) {
        (_, None) => Kept::AsAsked,
        (Some((id, parameters)), Some(used)) if *id == used => Kept::By(parameters.clone()),
        _ => Kept::Not,
    };
    if is_success {
        learn(rule, host, url, says.map(|(id, parameters)| (parameters, id)));
    }
    kept
}
