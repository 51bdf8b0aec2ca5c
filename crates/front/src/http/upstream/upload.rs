//! The body of a request that is read more than once: by each try, and by mirrors.
//!
//! What came of it is kept up to [`MOST_KEPT`] bytes, so that the next try can begin with it. A larger body is sent on and not
//! kept; its request is sent only once. The kept bytes of all requests of a Gateway have a bound, too, and so have those of one namespace.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame};

use super::super::body::{BoxError, ClientBody, Progress};
use super::mirror::Feed;

/// Bytes of one body that are kept for another try.
pub(crate) const MOST_KEPT: usize = 64 << 10;
/// Of all bodies of one Gateway.
const MOST_TOGETHER: usize = 32 << 20;
/// Of these, for the rules of one namespace: slow uploads to it leave room for others.
const MOST_TOGETHER_OF_NAMESPACE: usize = 8 << 20;
/// Namespaces come and go: of more than this, those that keep nothing are forgotten.
const MOST_SHARES: usize = 1024;
/// What a reader gets of the kept bytes at once.
const PART: usize = 16 << 10;

/// Bytes that are taken of a bounded amount.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicUsize,
    most: usize,
}

impl Memory {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), most })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// None where too little is left.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        let taken = Taken { of: Arc::clone(self), bytes };
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= self.most).then_some(taken)
    }
}

/// The memory of one namespace, and that of all.
pub(crate) type Room = [Arc<Memory>; 2];

/// Memory for the bodies of one Gateway, by namespace.
#[derive(Debug)]
pub(crate) struct Rooms {
    all: Arc<Memory>,
    /// What one namespace may take of it.
    share: usize,
    shares: Mutex<HashMap<Box<str>, Arc<Memory>>>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self::new(MOST_TOGETHER, MOST_TOGETHER_OF_NAMESPACE)
    }
}

impl Rooms {
    pub(crate) fn new(all: usize, share: usize) -> Self {
        Self { all: Memory::new(all), share, shares: Mutex::default() }
    }

    /// `None` if the namespace has used its share, or all memory for bodies is used.
    pub(crate) fn take(&self, namespace: &str, amount: usize) -> Option<Vec<Taken>> {
        self.of(namespace).iter().map(|of| of.take(amount)).collect()
    }

    pub(crate) fn used(&self) -> usize {
        self.all.used()
    }

    /// For bodies of requests to rules of this namespace.
    pub(crate) fn of(&self, namespace: &str) -> Room {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = match shares.get(namespace) {
            Some(share) => Arc::clone(share),
            None => {
                if shares.len() >= MOST_SHARES {
                    shares.retain(|_, share| Arc::strong_count(share) > 1);
                }
                let share = Memory::new(self.share);
                shares.insert(namespace.into(), Arc::clone(&share));
                share
            }
        };
        [share, Arc::clone(&self.all)]
    }
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    of: Arc<Memory>,
    bytes: usize,
}

impl Taken {
    /// Takes more of the same. False where too little is left.
    fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.of.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.of.most
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The part of a body that was received.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    taken: Option<[Taken; 2]>,
}

#[derive(Debug)]
struct State {
    live: ClientBody,
    /// None where the body is not, or no longer, kept.
    kept: Option<Kept>,
    trailers: Option<HeaderMap>,
    /// Bytes that came.
    came: usize,
    is_over: bool,
    /// The newest reader. Older ones get nothing more.
    reader: u32,
    /// Mirrors: they get each part once, when it is received.
    feeds: Vec<Feed>,
}

/// One body, and the part of it that was kept.
#[derive(Debug)]
pub(crate) struct Upload {
    state: Mutex<State>,
    progress: Arc<Progress>,
    memory: Room,
}

/// Why a try gets no more of a body: another one reads it.
#[derive(Debug, thiserror::Error)]
#[error("the request is sent again")]
struct SentAgain;

impl Upload {
    /// `keeps`: there may be another try. None where there is no body.
    pub(crate) fn new(live: ClientBody, keeps: bool, feeds: Vec<Feed>, memory: Room) -> Option<Arc<Self>> {
        let progress = live.progress()?;
        let kept = keeps.then(Kept::default);
        let state = State { live, kept, trailers: None, came: 0, is_over: false, reader: 0, feeds };
        Some(Arc::new(Self { state: Mutex::new(state), progress, memory }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Can all of it be sent once more?
    pub(crate) fn is_kept(&self) -> bool {
        self.state().kept.is_some()
    }

    /// The body from its beginning. Readers of before get an error.
    pub(crate) fn reader(self: &Arc<Self>) -> ClientBody {
        let mut state = self.state();
        state.reader += 1;
        let number = state.reader;
        drop(state);
        ClientBody::Shared(Box::new(Reader { upload: Arc::clone(self), number, at: 0, gave_trailers: false }))
    }
}

impl State {
    fn keep(&mut self, data: &Bytes, memory: &Room) {
        let Some(kept) = &mut self.kept else { return };
        let taken = kept
            .taken
            .get_or_insert_with(|| memory.each_ref().map(|of| Taken { of: Arc::clone(of), bytes: 0 }));
        if kept.bytes.len() + data.len() <= MOST_KEPT && taken.iter_mut().all(|taken| taken.grow(data.len()))
        {
            kept.bytes.extend_from_slice(data);
        } else {
            self.kept = None;
        }
    }

    fn ends(&mut self) {
        self.is_over = true;
        for mut feed in self.feeds.drain(..) {
            feed.end();
        }
    }
}

/// One reading of an [`Upload`].
#[derive(Debug)]
pub(crate) struct Reader {
    upload: Arc<Upload>,
    number: u32,
    /// Bytes that it has given.
    at: usize,
    gave_trailers: bool,
}

impl Reader {
    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.upload.progress
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let state = self.upload.state();
        state.is_over && self.at >= state.came && (self.gave_trailers || state.trailers.is_none())
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let upload = Arc::clone(&self.upload);
        let mut state = upload.state();
        if state.reader != self.number {
            return Poll::Ready(Some(Err(SentAgain.into())));
        }
        if self.at < state.came {
            // Without kept bytes there is only one reader, and it has had everything.
            let bytes = state.kept.as_ref().and_then(|kept| kept.bytes.get(self.at..));
            let Some(bytes) = bytes else { return Poll::Ready(Some(Err(SentAgain.into()))) };
            let part = Bytes::copy_from_slice(&bytes[..bytes.len().min(PART)]);
            self.at += part.len();
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        if state.is_over {
            let trailers =
                state.trailers.clone().filter(|_| !std::mem::replace(&mut self.gave_trailers, true));
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let frame = ready!(Pin::new(&mut state.live).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    state.came += data.len();
                    self.at = state.came;
                    state.keep(data, &upload.memory);
                    state.feeds.iter_mut().for_each(|feed| feed.data(data));
                } else if let Some(trailers) = frame.trailers_ref() {
                    state.feeds.drain(..).for_each(|mut feed| feed.trailers(trailers));
                    state.trailers = Some(trailers.clone());
                    self.gave_trailers = true;
                    state.is_over = true;
                }
                if state.live.is_end_stream() {
                    state.ends();
                }
            }
            // A body that broke off is not sent again.
            Some(Err(_)) => {
                state.kept = None;
                state.feeds.clear();
            }
            None => state.ends(),
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bodies_of_one_namespace_leave_room_for_those_of_others() {
        let rooms = Rooms::default();
        let take = |namespace: &str, bytes: usize| rooms.take(namespace, bytes);
        let most = take("a", MOST_TOGETHER_OF_NAMESPACE).unwrap();
        assert!(take("a", 1).is_none());
        assert_eq!(rooms.used(), MOST_TOGETHER_OF_NAMESPACE);
        let others: Vec<_> =
            ["b", "c", "d"].map(|name| take(name, MOST_TOGETHER_OF_NAMESPACE).unwrap()).into();
        assert!(take("e", 1).is_none(), "all together have a bound");
        drop(others);
        assert!(take("e", 1).is_some());
        drop(most);
        assert!(take("a", MOST_TOGETHER_OF_NAMESPACE).is_some());
        assert_eq!(rooms.used(), 0);
    }

    #[test]
    fn namespaces_that_keep_nothing_are_forgotten() {
        let rooms = Rooms::default();
        let kept = rooms.of("kept");
        for number in 0..MOST_SHARES * 2 {
            rooms.of(&number.to_string());
        }
        assert!(rooms.shares.lock().unwrap().len() <= MOST_SHARES + 1);
        assert!(Arc::ptr_eq(&kept[0], &rooms.of("kept")[0]));
    }
}
