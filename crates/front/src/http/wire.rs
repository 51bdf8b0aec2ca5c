//! A connection to an origin or to varnishd, with an ear on it: whether anything was said since the last request began, and
//! how many informational answers. hyper reports neither.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Informational answers (1xx) before the final one. A connection with more is closed.
const MOST_INFORMATIONAL: u32 = 16;

/// The most that is read at once. hyper's buffers grow with what they are given: a client that reads nothing would hold as much.
pub(crate) const PART: usize = 32 << 10;

/// What the request's side knows of its connection.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    requests: AtomicU32,
    heard: AtomicBool,
}

impl Ear {
    /// The next request begins: bytes on the wire from now on belong to its response.
    pub(crate) fn begin(&self) {
        self.heard.store(false, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The other side has said something since.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    ear: Arc<Ear>,
    /// The request whose answer is counted.
    request: u32,
    place: Place,
    informational: u32,
}

/// Where in an answer the next byte stands. Counts heads and judges nothing: hyper reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// So many bytes into a status line.
    Status(u8),
    /// In the head of an informational answer; is its present line empty so far?
    Informational { is_empty: bool },
    /// In the final answer.
    Final,
}

/// The beginning of a status line of 1xx; `?` is any byte.
const INFORMATIONAL: &[u8; 10] = b"HTTP/1.? 1";
/// At the third digit of 10x, and of another 1xx.
const TENS: u8 = 11;
const LAST: u8 = 12;

#[derive(Debug, thiserror::Error)]
#[error("too many informational responses")]
struct TooMany;

impl<S> Wire<S> {
    pub(crate) fn new(stream: S) -> (Self, Arc<Ear>) {
        let ear = Arc::new(Ear::default());
        let wire =
            Self { stream, ear: Arc::clone(&ear), request: 0, place: Place::Status(0), informational: 0 };
        (wire, ear)
    }

    /// An error if there are too many informational answers.
    fn hear(&mut self, bytes: &[u8]) -> Result<(), TooMany> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.ear.has_heard() {
            self.ear.heard.store(true, Ordering::Relaxed);
        }
        let request = self.ear.requests.load(Ordering::Relaxed);
        if request != self.request {
            (self.request, self.place, self.informational) = (request, Place::Status(0), 0);
        }
        for byte in bytes {
            match self.place {
                Place::Final => return Ok(()),
                // hyper skips empty lines before a status line.
                Place::Status(0) if matches!(byte, b'\r' | b'\n') => {}
                // What follows 101 is no HTTP.
                Place::Status(TENS) if *byte == b'1' => self.place = Place::Final,
                Place::Status(TENS | LAST) => {
                    self.place = Place::Informational { is_empty: false };
                    self.informational += 1;
                }
                Place::Status(at) => {
                    self.place = match INFORMATIONAL.get(usize::from(at)) {
                        Some(expected) if expected == byte || *expected == b'?' => Place::Status(at + 1),
                        // The second digit.
                        None => Place::Status(if *byte == b'0' { TENS } else { LAST }),
                        _ => Place::Final,
                    }
                }
                Place::Informational { is_empty } => match byte {
                    b'\n' if is_empty => self.place = Place::Status(0),
                    b'\n' => self.place = Place::Informational { is_empty: true },
                    b'\r' => {}
                    _ => self.place = Place::Informational { is_empty: false },
                },
            }
            if self.informational > MOST_INFORMATIONAL {
                return Err(TooMany);
            }
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        if to.remaining() > PART {
            let mut part = ReadBuf::new(to.initialize_unfilled_to(PART));
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            let count = part.filled().len();
            to.advance(count);
        } else {
            ready!(Pin::new(&mut self.stream).poll_read(cx, to))?;
        }
        let new = to.filled().get(before..).unwrap_or_default();
        Poll::Ready(self.hear(new).map_err(io::Error::other))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(parts: &[&[u8]]) -> (bool, Place) {
        let (mut wire, ear) = Wire::new(());
        ear.begin();
        let is_ok = parts.iter().all(|part| wire.hear(part).is_ok());
        (is_ok, wire.place)
    }

    #[test]
    fn sixteen_informational_answers_are_taken_and_no_more() {
        let early = &b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"[..];
        let last = &b"HTTP/1.1 200 OK\r\n\r\n"[..];
        assert_eq!(told(&[&early.repeat(16), last]), (true, Place::Final));
        assert!(!told(&[&early.repeat(17), last]).0);
        // However they come in.
        let bytes = [&early.repeat(16)[..], last].concat();
        let one_by_one: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(told(&one_by_one), (true, Place::Final));
        let short = &b"HTTP/1.1 100\n\n"[..];
        assert!(!told(&[&short.repeat(17)]).0);
    }

    #[test]
    fn bodies_are_not_read_as_informational_answers() {
        let head = &b"\r\nHTTP/1.1 200 OK\r\n\r\n"[..];
        assert!(told(&[head, &b"HTTP/1.1 100 a\r\n\r\n".repeat(100)]).0);
    }

    #[test]
    fn what_follows_an_upgrade_is_not_read() {
        let switched = &b"HTTP/1.1 101 Switching Protocols\r\n\r\n"[..];
        assert_eq!(told(&[switched]), (true, Place::Final));
        assert!(told(&[switched, &b"HTTP/1.1 100 a\r\n\r\n".repeat(100)]).0);
    }

    #[test]
    fn each_request_is_counted_for_itself() {
        let (mut wire, ear) = Wire::new(());
        for _ in 0..5 {
            ear.begin();
            assert!(!ear.has_heard());
            assert!(wire.hear(&b"HTTP/1.1 100 a\r\n\r\n".repeat(16)).is_ok());
            assert!(wire.hear(b"HTTP/1.1 200 OK\r\n\r\n").is_ok());
            assert!(ear.has_heard());
        }
    }
}
