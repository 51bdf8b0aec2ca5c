//! A client's stream that records its activity, so that an idle connection can be distinguished from a busy one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::h1::Wire;

/// A head and a body of no more bytes than this are copied together: the kernel takes one part more quickly than two.
const TOGETHER: usize = 2048;

/// All parts as one; `None` where that is not worth a copy.
fn join<'b>(parts: &[IoSlice<'_>], to: &'b mut [u8; TOGETHER]) -> Option<&'b [u8]> {
    if parts.len() < 2 {
        return None;
    }
    let mut end = 0;
    for part in parts {
        to.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    Some(&to[..end])
}

/// What moved on one connection. Only its own thread writes.
#[derive(Debug)]
pub(crate) struct Movement {
    /// Requests that are under way.
    active: AtomicUsize,
    /// Bodies of requests that have not come to their end.
    uploads: AtomicUsize,
    /// Requests that are over.
    finished: AtomicU64,
    /// Bytes from the client, and those of them when a request began or ended last.
    read: AtomicU64,
    mark: AtomicU64,
    written: AtomicU64,
    /// All that was written has been handed to the kernel.
    flushed: AtomicBool,
    /// The body ends with the connection (HTTP/1.0): if it breaks off, only a reset shows that it is incomplete.
    is_open_ended: AtomicBool,
    /// The client may still be sending when the connection closes.
    lingers: AtomicBool,
}

impl Default for Movement {
    fn default() -> Self {
        Self {
            active: AtomicUsize::new(0),
            uploads: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
            read: AtomicU64::new(0),
            mark: AtomicU64::new(0),
            written: AtomicU64::new(0),
            flushed: AtomicBool::new(true),
            is_open_ended: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
        }
    }
}

impl Movement {
    pub(crate) fn begins(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.mark.store(self.read.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn ends(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.mark.store(self.read.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// How the connection has to end after an answer.
    pub(crate) fn answers(&self, lingers: bool, is_open_ended: bool) {
        self.lingers.store(lingers, Ordering::Relaxed);
        self.is_open_ended.store(is_open_ended, Ordering::Relaxed);
    }

    /// All answers were sent to their end.
    pub(crate) fn is_whole(&self) {
        self.is_open_ended.store(false, Ordering::Relaxed);
    }

    pub(crate) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed)
    }

    pub(crate) fn upload_begins(&self) {
        self.uploads.fetch_add(1, Ordering::Relaxed);
    }

    /// Its last byte was read. One that is dropped before never ends: the connection cannot be used again.
    pub(crate) fn upload_ends(&self) {
        self.uploads.fetch_sub(1, Ordering::Relaxed);
        self.mark.store(self.read.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A request is under way, or the body of one: what comes next is not the head of another.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0 || self.uploads.load(Ordering::Relaxed) > 0
    }

    /// Changes with everything that happens.
    pub(crate) fn total(&self) -> (u64, u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.finished), load(&self.read), load(&self.written))
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// The client has begun a request, and not finished its head.
    pub(crate) fn has_begun(&self) -> bool {
        self.read.load(Ordering::Relaxed) != self.mark.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Watched<S: Wire> {
    /// None only once it was taken out.
    stream: Option<S>,
    /// Read already, and to be read again.
    first: Bytes,
    movement: Arc<Movement>,
}

impl<S: Wire> Drop for Watched<S> {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream
            && self.movement.is_open_ended.load(Ordering::Relaxed)
        {
            stream.reset_when_dropped();
        }
    }
}

impl<S: Wire> Watched<S> {
    pub(crate) fn new(stream: S, first: Bytes, movement: Arc<Movement>) -> Self {
        Self { stream: Some(stream), first, movement }
    }

    pub(crate) fn into_inner(mut self) -> Option<S> {
        self.stream.take()
    }

    fn stream(&mut self) -> io::Result<Pin<&mut S>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        self.movement.flushed.store(false, Ordering::Relaxed);
        if let Poll::Ready(Ok(count)) = written {
            self.movement.written.fetch_add(*count as u64, Ordering::Relaxed);
        }
    }
}

impl<S: Wire> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        if self.first.is_empty() {
            ready!(self.stream()?.poll_read(cx, to))?;
        } else {
            let count = self.first.len().min(to.remaining());
            to.put_slice(&self.first[..count]);
            self.first.advance(count);
        }
        self.movement.read.fetch_add((to.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: Wire> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream()?.poll_write(cx, bytes);
        self.wrote(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream()?.poll_flush(cx))?;
        self.movement.flushed.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut together = [0; TOGETHER];
        let written = match join(parts, &mut together) {
            Some(bytes) => self.stream()?.poll_write(cx, bytes),
            None => self.stream()?.poll_write_vectored(cx, parts),
        };
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_written_as_one() {
        let mut to = [0; TOGETHER];
        let of = |parts: &[&[u8]], to: &mut [u8; TOGETHER]| {
            let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            join(&parts, to).map(<[u8]>::to_vec)
        };
        assert_eq!(of(&[b"head", b"", b"body"], &mut to).as_deref(), Some(&b"headbody"[..]));
        assert_eq!(of(&[b"head"], &mut to), None);
        let most = [7; TOGETHER - 4];
        assert_eq!(of(&[b"head", &most], &mut to).map(|all| all.len()), Some(TOGETHER));
        assert_eq!(of(&[b"head", &most, b"1"], &mut to), None);
    }
}
