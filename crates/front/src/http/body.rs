//! Bodies: of clients on their way to origins, and of answers on their way back.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::ahead::Ahead;
use super::deadline::{Limit, Until};
use super::pool::Lease;
use super::ranges::{Sliced, Steps};
use super::reason::Reason;
use super::record::Record;
use super::stream::StreamBody;
use super::upstream::mirror::Fed;
use super::upstream::upload::Reader;
use super::varnishd::Reply;
use super::watched::Movement;
use super::{plain, request, response};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a client's request. An error means that it broke off: what it goes to must break off, too.
#[derive(Debug)]
pub(crate) enum ClientBody {
    Empty,
    H1(Incoming, Arc<Progress>),
    H2(Box<RecvStream>, Arc<Progress>),
    /// It may be sent again, or mirrored.
    Shared(Box<Reader>),
    /// The copy of one.
    Mirrored(Box<Fed>),
    /// It was read already.
    Read(Bytes, Arc<Progress>),
}

/// The progress of an upload, for the task that waits for its answer.
#[derive(Debug)]
pub(crate) struct Progress {
    bytes: AtomicU64,
    /// Beyond this number of bytes the upload is aborted.
    most: u64,
    done: AtomicBool,
    /// Of the HTTP/1 connection that it comes by.
    movement: Option<Arc<Movement>>,
}

impl Progress {
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn new(most: Option<u64>, movement: Option<Arc<Movement>>) -> Arc<Self> {
        let most = most.unwrap_or(u64::MAX);
        Arc::new(Self { bytes: AtomicU64::new(0), most, done: AtomicBool::new(false), movement })
    }

    pub(crate) fn of_mirror() -> Arc<Self> {
        Self::new(None, None)
    }

    /// More came than the client may send.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes() > self.most
    }

    pub(crate) fn saw(&self, frame: Option<&Frame<Bytes>>) {
        match frame {
            Some(frame) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            None => {
                if !self.done.swap(true, Ordering::Relaxed)
                    && let Some(movement) = &self.movement
                {
                    movement.upload_ends();
                }
            }
        }
    }
}

impl ClientBody {
    /// With at most this number of bytes.
    pub(crate) fn h1(body: Incoming, most: Option<u64>, movement: &Arc<Movement>) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        movement.upload_begins();
        Self::H1(body, Progress::new(most, Some(Arc::clone(movement))))
    }

    pub(crate) fn h2(body: RecvStream, most: Option<u64>) -> Self {
        if body.is_end_stream() { Self::Empty } else { Self::H2(Box::new(body), Progress::new(most, None)) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Self::Empty => None,
            Self::H1(_, progress) | Self::H2(_, progress) | Self::Read(_, progress) => {
                Some(Arc::clone(progress))
            }
            Self::Shared(reader) => Some(Arc::clone(reader.progress())),
            Self::Mirrored(fed) => Some(Arc::clone(fed.progress())),
        }
    }

    /// Bytes that were read already; they are not none.
    pub(crate) fn read(bytes: Bytes) -> Self {
        Self::Read(bytes, Progress::new(None, None))
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Shared(reader) => reader.poll(cx),
            Self::Mirrored(fed) => fed.poll(cx),
            Self::Read(bytes, progress) => {
                let frame = Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()).map(Frame::data);
                if let Some(frame) = &frame {
                    progress.saw(Some(frame));
                }
                progress.saw(None);
                Poll::Ready(frame.map(Ok))
            }
            Self::H1(body, progress) => {
                let mut frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                match &mut frame {
                    Some(Ok(frame)) => {
                        if let Some(trailers) = frame.trailers_mut() {
                            // hyper takes `0 CRLF LF` for the beginning of trailers, and skips up to the next empty line.
                            if trailers.is_empty() {
                                return Poll::Ready(Some(Err(NoTrailers.into())));
                            }
                            request::admit_trailers(trailers);
                        }
                        progress.saw(Some(frame));
                        if progress.is_too_large() {
                            return Poll::Ready(Some(Err(TooLarge.into())));
                        }
                        if body.is_end_stream() {
                            progress.saw(None);
                        }
                    }
                    Some(Err(_)) => {}
                    None => progress.saw(None),
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::H2(body, progress) => {
                match ready!(body.poll_data(cx)) {
                    Some(Ok(data)) => {
                        // The window opens as fast as the origin takes what came.
                        let _ = body.flow_control().release_capacity(data.len());
                        let frame = Frame::data(data);
                        progress.saw(Some(&frame));
                        if progress.is_too_large() {
                            return Poll::Ready(Some(Err(TooLarge.into())));
                        }
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    Some(Err(e)) => return Poll::Ready(Some(Err(e.into()))),
                    None => {}
                }
                let trailers = ready!(body.poll_trailers(cx));
                progress.saw(None);
                match trailers {
                    Ok(Some(mut trailers)) => {
                        request::admit_trailers(&mut trailers);
                        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                    }
                    Ok(None) => Poll::Ready(None),
                    Err(e) => Poll::Ready(Some(Err(e.into()))),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::H1(body, _) => body.is_end_stream(),
            Self::H2(body, _) => body.is_end_stream(),
            Self::Shared(reader) => reader.is_end_stream(),
            Self::Mirrored(fed) => fed.is_end_stream(),
            Self::Read(bytes, _) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::H1(body, _) => body.size_hint(),
            Self::Read(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            // Its Content-Length, if it has one, is in its headers.
            Self::H2(..) | Self::Shared(_) | Self::Mirrored(_) => SizeHint::default(),
        }
    }
}

/// The body of an answer. Counts when it ends, however it ends.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    Own(Option<Bytes>, Record),
    Upstream(Box<UpstreamBody>),
}

/// What an origin or varnishd sends.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    body: Source,
    /// Given back when the body has ended.
    lease: Option<Lease>,
    /// The longest pause between two reads.
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The whole body must have been received by then.
    end: Option<(Limit, Pin<Box<Sleep>>)>,
    record: Record,
}

#[derive(Debug)]
enum Source {
    Origin(OriginBody),
    Cache(Reply),
    /// Several ranges of what the cache has.
    Parts(Box<Sliced>),
}

/// The body of an origin's answer.
#[derive(Debug)]
pub(crate) enum OriginBody {
    Http1(Incoming),
    Plain(Box<plain::Reply>),
    Http2(Box<StreamBody>),
    /// A part of it was read already.
    Ahead(Box<Ahead>),
    /// None may follow.
    Nothing,
}

impl OriginBody {
    /// Its head has nothing that is about the connection: it was looked at as it was read.
    pub(crate) fn has_no_framing(&self) -> bool {
        matches!(self, Self::Plain(reply) if !reply.has_hop_by_hop)
    }

    /// The request's body moved since this was last asked.
    pub(crate) fn upload_has_moved(&mut self) -> bool {
        match self {
            Self::Http2(body) => body.upload_has_moved(),
            Self::Ahead(body) => body.upload_has_moved(),
            Self::Http1(_) | Self::Plain(_) | Self::Nothing => false,
        }
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Http1(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Plain(reply) => {
                reply.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Http2(body) => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Ahead(body) => body.poll_frame(cx),
            Self::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Plain(reply) => reply.is_over(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Ahead(body) => body.is_end_stream(),
            Self::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Plain(reply) => reply.length().map_or_else(SizeHint::default, SizeHint::with_exact),
            // Its Content-Length, if it has one, is in its headers.
            Self::Http2(_) => SizeHint::default(),
            Self::Ahead(body) => body.size_hint(),
            Self::Nothing => SizeHint::with_exact(0),
        }
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Origin(body) => Pin::new(body).poll_frame(cx),
            Self::Cache(reply) => {
                reply.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Parts(parts) => {
                parts.poll_data(cx).map(|data| data.map(|data| data.map(Frame::data).map_err(Into::into)))
            }
        }
    }

    /// The request's body moved since this was last asked. An origin may be silent while it takes one.
    fn upload_has_moved(&mut self) -> bool {
        match self {
            Self::Origin(body) => body.upload_has_moved(),
            Self::Cache(_) | Self::Parts(_) => false,
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Origin(body) => body.is_end_stream(),
            Self::Cache(reply) => reply.is_over(),
            Self::Parts(parts) => parts.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Origin(body) => body.size_hint(),
            Self::Cache(reply) => reply.length().map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Parts(parts) => SizeHint::with_exact(parts.length()),
        }
    }
}

/// Why an upload breaks off: the lines after its last chunk are no trailers.
#[derive(Debug, thiserror::Error)]
#[error("the lines after the last chunk are no trailers")]
struct NoTrailers;

/// Why an upload breaks off: it is larger than the client may send.
#[derive(Debug, thiserror::Error)]
#[error("the body is larger than this gateway accepts")]
struct TooLarge;

/// Why an answer breaks off: the origin is silent.
#[derive(Debug, thiserror::Error)]
#[error("the origin sent nothing for {0:?}")]
struct Silent(Duration);

/// Why an answer breaks off: the time that its rule gives is over.
#[derive(Debug, thiserror::Error)]
#[error("the answer took longer than its route allows")]
struct TimeIsOver;

fn timer(until: Option<Until>) -> Option<(Limit, Pin<Box<Sleep>>)> {
    until.map(|until| (until.limit, Box::pin(sleep_until(until.at.into()))))
}

impl AnswerBody {
    pub(crate) fn own(body: impl Into<Bytes>, record: Record) -> Self {
        let body: Bytes = body.into();
        if body.is_empty() { Self::none(record) } else { Self::Own(Some(body), record) }
    }

    fn none(mut record: Record) -> Self {
        record.is_whole();
        Self::Own(None, record)
    }

    /// Without a lease the connection is closed after the body.
    pub(crate) fn upstream(
        mut body: OriginBody,
        lease: Option<Lease>,
        (idle, until): (Duration, Option<Until>),
        record: Record,
    ) -> Self {
        if body.is_end_stream() {
            if let Some(lease) = lease {
                lease.give_back();
            }
            return Self::none(record);
        }
        if let OriginBody::Plain(reply) = &mut body
            && let Some(whole) = reply.take_whole()
        {
            return Self::Own(Some(whole), record);
        }
        let body = Source::Origin(body);
        let end = timer(until);
        Self::Upstream(Box::new(UpstreamBody { body, lease, idle, timer: None, end, record }))
    }

    /// The connection to varnishd is free once the body has come.
    pub(crate) fn of_cache(
        mut reply: Reply,
        steps: Option<Steps>,
        (idle, until): (Duration, Option<Until>),
        record: Record,
    ) -> Self {
        if let Some(steps) = steps {
            let body = Source::Parts(Box::new(Sliced::new(reply, steps)));
            let end = timer(until);
            return Self::Upstream(Box::new(UpstreamBody {
                body,
                lease: None,
                idle,
                timer: None,
                end,
                record,
            }));
        }
        if reply.is_over() {
            return Self::none(record);
        }
        if let Some(whole) = reply.take_whole() {
            return Self::Own(Some(whole), record);
        }
        let body = Source::Cache(reply);
        let end = timer(until);
        Self::Upstream(Box::new(UpstreamBody { body, lease: None, idle, timer: None, end, record }))
    }

    /// Without the body of the gateway's own, for HEAD, where nothing else has one here. False where there is none.
    pub(crate) fn leave_out_own(&mut self) -> bool {
        match self {
            Self::Own(body, record) => {
                record.is_whole();
                body.take().is_some()
            }
            Self::Upstream(_) => false,
        }
    }

    /// The head goes to the client: its status, and how many bytes it has.
    pub(crate) fn head(&mut self, status: u16, bytes: u64) {
        self.record().head(status, bytes);
    }

    fn record(&mut self) -> &mut Record {
        match self {
            Self::Own(_, record) => record,
            Self::Upstream(body) => &mut body.record,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = match &mut *self {
            Self::Own(body, _) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Self::Upstream(body) => body.poll(cx),
        };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let is_whole = self.is_end_stream() || frame.is_trailers();
                let record = self.record();
                record.add(bytes as u64);
                if is_whole {
                    record.is_whole();
                }
            }
            Poll::Ready(Some(Err(_))) => self.record().because(Reason::AnswerBroken),
            Poll::Ready(None) => self.record().is_whole(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body, _) => body.is_none(),
            Self::Upstream(body) => body.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body, _) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
            Self::Upstream(body) => body.body.size_hint(),
        }
    }
}

impl UpstreamBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some((limit, end)) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            self.record.because(match limit {
                Limit::Try => Reason::BackendTimeout,
                Limit::Request => Reason::RequestTimeout,
            });
            return Poll::Ready(Some(Err(TimeIsOver.into())));
        }
        let mut frame = match self.body.poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let idle = self.idle;
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
                loop {
                    ready!(timer.as_mut().poll(cx));
                    if !self.body.upload_has_moved() {
                        return Poll::Ready(Some(Err(Silent(idle).into())));
                    }
                    timer.as_mut().reset(Instant::now() + idle);
                }
            }
        };
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            response::remove_forbidden(trailers);
        }
        if let Some(timer) = &mut self.timer {
            timer.as_mut().reset(Instant::now() + self.idle);
        }
        let is_over = match &frame {
            None => true,
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if is_over && let Some(lease) = self.lease.take() {
            lease.give_back();
        }
        Poll::Ready(frame)
    }
}

/// Bytes of a head as HTTP/1 writes it, about.
pub(crate) fn head_bytes(headers: &HeaderMap) -> u64 {
    let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    (lines.sum::<usize>() + 19) as u64
}
