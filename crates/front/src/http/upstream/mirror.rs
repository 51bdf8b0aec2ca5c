//! Copies of requests, for Services that are to see them and whose answers count for nothing.
//!
//! A mirror never slows or fails a request: its task runs on a thread of low priority, its part of the body waits in a queue that is
//! bounded, and what does not fit is dropped and counted. So a gateway whose processor is busy drops copies, not requests.
//!
//! A body is sent to the mirror as it arrives. A mirror that takes it too slowly is cut off, and its request does not look complete.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use hyper::body::Frame;
use router::random;
use tokio::sync::mpsc;

use super::super::Http;
use super::super::body::{BoxError, ClientBody, Progress};
use super::super::deadline::{Limit, Until};
use super::super::origin::{self, Failure, Try};
use super::super::record::Watch;
use super::super::table::{MirrorsOf, Table};
use super::drain;
use super::upload::{Memory, Taken};
use crate::lanes;

/// Mirrored requests of one Gateway, at once.
const MOST: usize = 1024;
/// Of these, for the rules of one namespace: its mirrors may all hang, and others have places left.
const MOST_OF_NAMESPACE: usize = 256;
/// Of these, to one Service: one that never answers leaves places for others.
const MOST_OF_GROUP: usize = 128;
/// After this a mirrored request is given up.
const LONGEST: Duration = Duration::from_secs(10);
/// Parts of a body that wait for one mirror, and their bytes.
const QUEUE: usize = 64;
const MOST_WAITING: usize = 256 << 10;
/// Bytes that wait for all mirrors of one Gateway.
const MOST_TOGETHER: usize = 16 << 20;
/// Of these, for the mirrors of one namespace.
const MOST_TOGETHER_OF_NAMESPACE: usize = 4 << 20;
/// Namespaces come and go: of more than this, those without a mirrored request are forgotten.
const MOST_SHARES: usize = 1024;

/// The result of sending a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirrored {
    /// The mirror has answered, whatever it said.
    Answered,
    /// It could not be reached, or did not answer in time.
    Failed,
    /// Dropped: its Service has no endpoint.
    NoEndpoint,
    /// Dropped: too many are under way.
    TooMany,
    /// Cut off: the mirror took the body too slowly, or the client broke it off.
    BodyCutOff,
}

impl Mirrored {
    pub const ALL: [Self; 5] =
        [Self::Answered, Self::Failed, Self::NoEndpoint, Self::TooMany, Self::BodyCutOff];

    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::NoEndpoint => "no_endpoint",
            Self::TooMany => "too_many",
            Self::BodyCutOff => "body_cut_off",
        }
    }
}

/// What all mirrors of one Gateway share.
#[derive(Debug)]
pub(crate) struct Mirrors {
    under_way: AtomicUsize,
    memory: Arc<Memory>,
    shares: Mutex<HashMap<Box<str>, Arc<Share>>>,
    counts: [AtomicU64; Mirrored::ALL.len()],
}

impl Default for Mirrors {
    fn default() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            memory: Memory::new(MOST_TOGETHER),
            shares: Mutex::default(),
            counts: [const { AtomicU64::new(0) }; Mirrored::ALL.len()],
        }
    }
}

/// What the mirrors of one namespace take.
#[derive(Debug)]
struct Share {
    under_way: AtomicUsize,
    memory: Arc<Memory>,
}

impl Mirrors {
    fn share(&self, namespace: &str) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(namespace) {
            return Arc::clone(share);
        }
        if shares.len() >= MOST_SHARES {
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let memory = Memory::new(MOST_TOGETHER_OF_NAMESPACE);
        let share = Arc::new(Share { under_way: AtomicUsize::new(0), memory });
        shares.insert(namespace.into(), Arc::clone(&share));
        share
    }

    fn count(&self, what: Mirrored) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counted(&self, what: Mirrored) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }
}

/// A place for one mirrored request.
#[derive(Debug)]
struct Place {
    http: Arc<Http>,
    of_group: Arc<AtomicUsize>,
    of_namespace: Arc<Share>,
}

impl Place {
    fn take(http: &Arc<Http>, of_namespace: &Arc<Share>, of_group: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self {
            http: Arc::clone(http),
            of_group: Arc::clone(of_group),
            of_namespace: Arc::clone(of_namespace),
        };
        let all = http.upstream.mirrors.under_way.fetch_add(1, Ordering::Relaxed);
        let of_namespace = of_namespace.under_way.fetch_add(1, Ordering::Relaxed);
        let here = of_group.fetch_add(1, Ordering::Relaxed);
        (all < MOST && of_namespace < MOST_OF_NAMESPACE && here < MOST_OF_GROUP).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.http.upstream.mirrors.under_way.fetch_sub(1, Ordering::Relaxed);
        self.of_namespace.under_way.fetch_sub(1, Ordering::Relaxed);
        self.of_group.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends copies of the request to these mirrors of its rule or of its backendRef, each in a task of its own. `parts`: with the
/// edits made so far. Returns the queues that take the body as it comes in; none where no copy is sent.
pub(crate) fn begin(
    http: &Arc<Http>,
    table: &Arc<Table>,
    of: MirrorsOf,
    parts: &Parts,
    has_body: bool,
) -> Vec<Feed> {
    let mirrors = table.mirrors(of);
    let mut feeds = Vec::new();
    for at in (0..mirrors.len()).filter(|at| mirrors[*at].takes(random::next())) {
        let shared = &http.upstream.mirrors;
        let Some(target) = table.mirror(of, at).filter(|target| !target.group.endpoints().is_empty()) else {
            shared.count(Mirrored::NoEndpoint);
            continue;
        };
        // The most frequent reason, before anything that costs: a busy gateway has it for most requests.
        if target.health.mirrored().load(Ordering::Relaxed) >= MOST_OF_GROUP {
            shared.count(Mirrored::TooMany);
            continue;
        }
        let share = shared.share(table.rule(of.rule).map_or("", |rule| rule.namespace()));
        let Some(place) = Place::take(http, &share, target.health.mirrored()) else {
            shared.count(Mirrored::TooMany);
            continue;
        };
        let body = if has_body {
            let (feed, body) = Feed::new([&share.memory, &shared.memory]);
            feeds.push(feed);
            body
        } else {
            ClientBody::Empty
        };
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        let table = Arc::clone(table);
        let until = Until { at: Instant::now() + LONGEST, limit: Limit::Request, is_fault: false };
        lanes::spawn_behind(async move {
            let outcome = carry(&place.http, &table, (of, at), request, until).await;
            place.http.upstream.mirrors.count(outcome);
        });
    }
    feeds
}

async fn carry(
    http: &Http,
    table: &Table,
    (of, at): (MirrorsOf, usize),
    request: Request<ClientBody>,
    until: Until,
) -> Mirrored {
    let Some(target) = table.mirror(of, at) else { return Mirrored::NoEndpoint };
    if until.is_over() {
        return Mirrored::Failed;
    }
    let mut one = Try { pooled: true, until: Some(until), ..Try::default() };
    match origin::send(http, target, table.patience, Box::new(request), &mut one, &mut Watch(None)).await {
        Ok(sent) => {
            drain(sent).await;
            Mirrored::Answered
        }
        Err(Failure::Upload | Failure::Stalled) => Mirrored::BodyCutOff,
        Err(_) => Mirrored::Failed,
    }
}

/// A part of a body on its way to a mirror. Its bytes are given back when it is taken.
#[derive(Debug)]
enum Part {
    Data { data: Bytes, _taken: [Taken; 3] },
    Trailers(HeaderMap),
    End,
}

/// Where a copy of the body goes. Dropped without an end, the mirror's request breaks off.
#[derive(Debug)]
pub(crate) struct Feed {
    /// None once it is cut off.
    to: Option<mpsc::Sender<Part>>,
    /// Its own bound, its namespace's and that of all.
    memory: [Arc<Memory>; 3],
}

impl Feed {
    fn new([of_namespace, together]: [&Arc<Memory>; 2]) -> (Self, ClientBody) {
        let (to, from) = mpsc::channel(QUEUE);
        let memory = [Memory::new(MOST_WAITING), Arc::clone(of_namespace), Arc::clone(together)];
        let feed = Self { to: Some(to), memory };
        let body = Fed { from, progress: Progress::of_mirror(), is_over: false };
        (feed, ClientBody::Mirrored(Box::new(body)))
    }

    fn put(&mut self, part: Option<Part>) {
        let fits = self.to.as_ref().zip(part).is_some_and(|(to, part)| to.try_send(part).is_ok());
        if !fits {
            self.to = None;
        }
    }

    /// A copy: the bytes may be a small part of a large block of memory.
    pub(crate) fn data(&mut self, data: &Bytes) {
        if self.to.is_none() {
            return;
        }
        let part = match self.memory.each_ref().map(|memory| memory.take(data.len())) {
            [Some(own), Some(of_namespace), Some(together)] => {
                Some(Part::Data { data: Bytes::copy_from_slice(data), _taken: [own, of_namespace, together] })
            }
            _ => None,
        };
        self.put(part);
    }

    pub(crate) fn trailers(&mut self, trailers: &HeaderMap) {
        self.put(Some(Part::Trailers(trailers.clone())));
    }

    pub(crate) fn end(&mut self) {
        self.put(Some(Part::End));
        self.to = None;
    }
}

/// Why the request to a mirror breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the body of a mirrored request was cut off")]
struct CutOff;

/// The body of a mirrored request.
#[derive(Debug)]
pub(crate) struct Fed {
    from: mpsc::Receiver<Part>,
    progress: Arc<Progress>,
    is_over: bool,
}

impl Fed {
    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.is_over
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.from.poll_recv(cx)) {
            Some(Part::Data { data, .. }) => {
                let frame = Frame::data(data);
                self.progress.saw(Some(&frame));
                Some(Ok(frame))
            }
            Some(Part::Trailers(trailers)) => {
                self.over();
                Some(Ok(Frame::trailers(trailers)))
            }
            Some(Part::End) => {
                self.over();
                None
            }
            None => Some(Err(CutOff.into())),
        })
    }

    fn over(&mut self) {
        self.is_over = true;
        self.progress.saw(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_listed_in_their_order() {
        for (at, outcome) in Mirrored::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
    }

    #[test]
    fn a_mirror_that_takes_nothing_is_cut_off_and_its_bytes_are_given_back() {
        let together = Memory::new(MOST_TOGETHER);
        let of_namespace = Memory::new(MOST_TOGETHER_OF_NAMESPACE);
        let (mut feed, body) = Feed::new([&of_namespace, &together]);
        let data = Bytes::from(vec![0; 100 << 10]);
        feed.data(&data);
        feed.data(&data);
        assert_eq!(together.used(), 200 << 10);
        feed.data(&data);
        assert!(feed.to.is_none(), "more than {MOST_WAITING} bytes would wait");
        feed.data(&data);
        drop(body);
        assert_eq!((together.used(), of_namespace.used()), (0, 0));
    }

    #[test]
    fn a_namespace_takes_its_share_of_the_memory_alone() {
        let together = Memory::new(MOST_TOGETHER);
        let (one, other) = (Memory::new(MOST_TOGETHER_OF_NAMESPACE), Memory::new(MOST_TOGETHER_OF_NAMESPACE));
        let data = Bytes::from(vec![0; 200 << 10]);
        let hanging: Vec<_> = (0..100)
            .map(|_| {
                let (mut feed, body) = Feed::new([&one, &together]);
                feed.data(&data);
                (feed, body)
            })
            .collect();
        assert!(together.used() <= MOST_TOGETHER_OF_NAMESPACE);
        let (mut feed, _body) = Feed::new([&other, &together]);
        feed.data(&data);
        assert!(feed.to.is_some(), "another namespace has room");
        drop(hanging);
    }
}
