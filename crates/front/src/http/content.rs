//! The content of a QUERY that the cache may answer: read before varnishd is asked, since it is part of the cache key.
//!
//! Guarantees that one request takes not more than `router::cache::MOST_CONTENT` bytes, and all of a namespace and of a Gateway not more than is
//! kept of uploads: a QUERY for which there is no room goes straight to its origin.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use router::cache::MOST_CONTENT;
use tokio::time::timeout;

use super::body::ClientBody;
use super::origin::Failure;
use super::upstream::upload::{Room, Taken};

/// Memory for the content of one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    length: usize,
    _taken: Vec<Taken>,
}

impl Place {
    /// `None` where too little is left.
    pub(crate) fn take(room: &Room, length: u64) -> Option<Self> {
        let length = usize::try_from(length.min(MOST_CONTENT)).ok()?;
        let taken = room.iter().map(|of| of.take(length)).collect::<Option<Vec<_>>>()?;
        Some(Self { length, _taken: taken })
    }

    /// Reads exactly the announced length.
    pub(crate) async fn read(&self, mut body: ClientBody, patience: Duration) -> Result<Bytes, Failure> {
        let mut content = Vec::with_capacity(self.length);
        loop {
            let frame = timeout(patience, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await;
            match frame.map_err(|_| Failure::Stalled)? {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        if content.len() + data.len() > self.length {
                            return Err(Failure::Upload);
                        }
                        content.extend_from_slice(data);
                    }
                }
                Some(Err(_)) => return Err(Failure::Upload),
                None if content.len() == self.length => return Ok(content.into()),
                None => return Err(Failure::Upload),
            }
        }
    }
}
