//! The body of a request on its way to an endpoint that speaks HTTP/2, as fast as the endpoint takes it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use hyper::body::Body;
use tokio::task::AbortHandle;

use super::body::ClientBody;

#[derive(Debug)]
pub(crate) struct Upload {
    body: ClientBody,
    to: SendStream<Bytes>,
    /// Read, and not sent yet.
    rest: Bytes,
    trailers: Option<HeaderMap>,
    place: Place,
    bytes: u64,
    /// Something of the body was read.
    is_touched: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Data,
    /// Nothing follows what was read.
    Last,
    Over,
}

/// How an upload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Whole,
    /// The client broke it off. The endpoint sees a reset.
    Broken,
    /// The endpoint takes no more of it.
    Refused,
}

impl Upload {
    pub(crate) fn new(body: ClientBody, to: SendStream<Bytes>, is_over: bool) -> Self {
        let place = if is_over { Place::Over } else { Place::Data };
        Self { body, to, rest: Bytes::new(), trailers: None, place, bytes: 0, is_touched: false }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// Bytes that were sent.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All that the client has sent is on its way.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.rest.is_empty()
    }

    /// The body, if nothing of it was read.
    pub(crate) fn take_untouched(&mut self) -> Option<ClientBody> {
        (!self.is_touched).then(|| std::mem::replace(&mut self.body, ClientBody::Empty))
    }

    pub(crate) fn into_stream(self) -> SendStream<Bytes> {
        self.to
    }

    /// Goes on in a task of this thread. If the task is aborted before the end, the endpoint sees a reset.
    pub(crate) fn spawn(mut self) -> AbortHandle {
        tokio::spawn(async move {
            self.run().await;
        })
        .abort_handle()
    }

    /// Sends until it is over. May be dropped and called again.
    pub(crate) async fn run(&mut self) -> Ended {
        let ended = loop {
            if self.is_over() {
                return Ended::Whole;
            }
            if !self.rest.is_empty() {
                if !self.send_some().await {
                    break Ended::Refused;
                }
                continue;
            }
            if self.place == Place::Last {
                let sent = match self.trailers.take() {
                    Some(trailers) => self.to.send_trailers(trailers),
                    None => self.to.send_data(Bytes::new(), true),
                };
                break if sent.is_ok() { Ended::Whole } else { Ended::Refused };
            }
            if let Some(ended) = self.read().await {
                break ended;
            }
        };
        self.place = Place::Over;
        if ended == Ended::Broken {
            // A body that broke off must not look complete.
            self.to.send_reset(Reason::CANCEL);
        }
        ended
    }

    /// Reads the next part of the body, unless the endpoint refuses the stream first.
    async fn read(&mut self) -> Option<Ended> {
        let Self { body, to, .. } = self;
        let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => to.poll_reset(cx).map(|_| Err(Ended::Refused)),
        })
        .await;
        let frame = match frame {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Some(Ended::Broken),
            Ok(None) => {
                self.place = Place::Last;
                return None;
            }
            Err(refused) => return Some(refused),
        };
        self.is_touched = true;
        match frame.into_data() {
            Ok(data) => {
                self.rest = data;
                if self.body.is_end_stream() {
                    self.place = Place::Last;
                }
            }
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                self.place = Place::Last;
            }
        }
        None
    }

    /// As the endpoint's window allows. False where it takes no more.
    async fn send_some(&mut self) -> bool {
        let Self { to, rest, .. } = self;
        to.reserve_capacity(rest.len());
        let room = loop {
            match to.capacity() {
                0 => match poll_fn(|cx| to.poll_capacity(cx)).await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return false,
                },
                room => break room,
            }
        };
        let part = rest.split_to(room.min(rest.len()));
        self.bytes += part.len() as u64;
        let is_last = self.place == Place::Last && self.rest.is_empty() && self.trailers.is_none();
        if self.to.send_data(part, is_last).is_err() {
            return false;
        }
        if is_last {
            self.place = Place::Over;
        }
        true
    }
}
