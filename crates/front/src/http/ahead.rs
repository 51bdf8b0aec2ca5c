//! The body of an origin's response of which a part was read before it goes to the client.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::timeout;

use super::body::{BoxError, OriginBody};
use super::content::Place;

#[derive(Debug)]
pub(crate) struct Ahead {
    /// Read, and not handed on yet.
    read: Bytes,
    trailers: Option<HeaderMap>,
    rest: Rest,
    /// The memory of what was read, until it is dropped.
    _place: Arc<Place>,
}

#[derive(Debug)]
enum Rest {
    Over,
    /// It broke off.
    Broken(Option<BoxError>),
    Follows(Box<OriginBody>),
}

impl Ahead {
    /// Reads the body, if it comes in time and has this length. The second is the whole of it, where it has; the first goes to the
    /// client in any case.
    pub(crate) async fn read(
        mut body: OriginBody,
        (length, place): (usize, Arc<Place>),
        patience: Duration,
    ) -> (Self, Option<Bytes>) {
        let mut read = BytesMut::with_capacity(length);
        let mut trailers = None;
        let reads = async {
            loop {
                if read.len() > length {
                    return None;
                }
                match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    None => return Some(Rest::Over),
                    Some(Err(why)) => return Some(Rest::Broken(Some(why))),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => read.extend_from_slice(&data),
                        Err(frame) => trailers = frame.into_trailers().ok(),
                    },
                }
            }
        };
        let rest = timeout(patience, reads).await.ok().flatten();
        let (read, rest) = (read.freeze(), rest.unwrap_or_else(|| Rest::Follows(Box::new(body))));
        let is_whole = matches!(rest, Rest::Over) && trailers.is_none() && read.len() == length;
        let whole = is_whole.then(|| read.clone());
        (Self { read, trailers, rest, _place: place }, whole)
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.read)))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match &mut self.rest {
            Rest::Over => Poll::Ready(None),
            Rest::Broken(why) => Poll::Ready(why.take().map(Err)),
            Rest::Follows(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    /// The request's body moved since this was last asked.
    pub(crate) fn upload_has_moved(&mut self) -> bool {
        match &mut self.rest {
            Rest::Follows(body) => body.upload_has_moved(),
            Rest::Over | Rest::Broken(_) => false,
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let rest_is_over = match &self.rest {
            Rest::Over => true,
            Rest::Broken(_) => false,
            Rest::Follows(body) => body.is_end_stream(),
        };
        self.read.is_empty() && self.trailers.is_none() && rest_is_over
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Rest::Over if self.trailers.is_none() => SizeHint::with_exact(self.read.len() as u64),
            // Its Content-Length, if it has one, is in its headers.
            _ => SizeHint::default(),
        }
    }
}
