//! One connection to varnishd, by its unix socket: a request without a body goes out in one write, and a small answer comes back in
//! one read.
//!
//! varnishd is a peer that we know, and asked for each hit: it is spoken to without hyper, whose connections are tasks of their
//! own. Heads are read by httparse, as in hyper. What is not plainly the answer of a varnishd is an error, and the connection is
//! closed.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::kept;

/// Room for the first read: most hits fit.
const FIRST: usize = 8 << 10;
/// The most that is read of a large body at once.
const LARGEST: usize = 32 << 10;
/// Parts of a body below this size are copied, so that an origin that sends single bytes does not hold large blocks.
const SMALL: usize = 1 << 10;
/// The most that the head of an answer may have.
const HEAD_BYTES: usize = 128 << 10;
/// varnishd has at most 128 (http_max_hdr).
const HEADERS: usize = 160;
/// `ffffffffffffffff`
const LONGEST_SIZE: usize = 16;

/// Names that every answer has, and that `http` does not know: without an allocation.
const X_VARNISH: HeaderName = HeaderName::from_static("x-varnish");
const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
pub(crate) const RESULT: HeaderName = HeaderName::from_static("x-ghost-result");
pub(crate) const HOT: HeaderName = HeaderName::from_static("x-ghost-hot");

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The connection was closed before a byte of one.
    Closed,
    Broken,
}

/// How the rest of a body is told from what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Length(u64),
    /// Within a chunk, this many bytes before its end.
    Chunk(u64),
    /// At the line end after a chunk.
    ChunkEnd,
    /// At a line with the size of a chunk.
    Size,
    /// At the empty line after the last chunk.
    LastLine,
    Nothing,
}

/// The body of an answer, and the connection that it comes by.
#[derive(Debug)]
pub(crate) struct Reply {
    /// None once it was given back.
    stream: Option<UnixStream>,
    /// The start of varnishd that it belongs to; none where varnishd closes it.
    home: Option<u64>,
    /// Read, and not handed on yet.
    unread: BytesMut,
    /// Of the body, taken out and put back.
    ahead: Bytes,
    rest: Rest,
    /// The head has headers that are about the connection, or a length that others may read otherwise. Hits have none.
    pub(crate) has_hop_by_hop: bool,
}

/// Sends one request head and reads the head of its answer. Dropped before its end, it closes the connection.
pub(crate) async fn exchange(
    mut stream: UnixStream,
    request: &[u8],
    is_head: bool,
    home: u64,
) -> Result<(Parts, Reply), NoAnswer> {
    stream.write_all(request).await.map_err(|_| NoAnswer::Closed)?;
    let mut reply = Reply {
        stream: Some(stream),
        home: Some(home),
        unread: BytesMut::new(),
        ahead: Bytes::new(),
        rest: Rest::Nothing,
        has_hop_by_hop: false,
    };
    loop {
        let is_first = reply.unread.is_empty();
        match poll_fn(|cx| reply.poll_fill(cx, FIRST)).await {
            Ok(1..) => {}
            Ok(0) | Err(_) if is_first => return Err(NoAnswer::Closed),
            Ok(0) | Err(_) => return Err(NoAnswer::Broken),
        }
        if let Some(parts) = reply.head(is_head)? {
            reply.give_back_if_over();
            return Ok((parts, reply));
        }
        if reply.unread.len() > HEAD_BYTES {
            return Err(NoAnswer::Broken);
        }
    }
}

fn name(of: &str) -> Option<HeaderName> {
    match of.len() {
        7 if of.eq_ignore_ascii_case("x-cache") => Some(X_CACHE),
        9 if of.eq_ignore_ascii_case("x-varnish") => Some(X_VARNISH),
        11 if of.eq_ignore_ascii_case("x-ghost-hot") => Some(HOT),
        14 if of.eq_ignore_ascii_case("x-ghost-result") => Some(RESULT),
        _ => HeaderName::from_bytes(of.as_bytes()).ok(),
    }
}

/// [`super::response::unframe`] has something to do.
fn is_hop_by_hop(line: &httparse::Header<'_>) -> bool {
    let is = |name: &str| line.name.eq_ignore_ascii_case(name);
    match line.name.len() {
        2 => is("te"),
        7 => is("upgrade"),
        10 => is("keep-alive"),
        14 => is("http2-settings") || is("content-length") && line.value.len() > 1 && line.value[0] == b'0',
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        _ => false,
    }
}

impl Reply {
    /// The head, if all of it was read. What `Connection` says is obeyed here, and not handed on.
    fn head(&mut self, is_head: bool) -> Result<Option<Parts>, NoAnswer> {
        let mut room = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; HEADERS];
        let mut head = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let length = match config.parse_response_with_uninit_headers(&mut head, &self.unread, &mut room) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(NoAnswer::Broken),
        };
        let status = head.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(NoAnswer::Broken)?;
        if status.is_informational() {
            return Err(NoAnswer::Broken);
        }
        let mut parts = Response::new(()).into_parts().0;
        parts.status = status;
        if let Some(reason) = head.reason.filter(|reason| Some(*reason) != status.canonical_reason())
            && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes().to_vec())
        {
            parts.extensions.insert(reason);
        }
        // Values are parts of one block of memory: `unread` must not change before they are all found.
        let at = |value: &[u8]| value.as_ptr().addr() - self.unread.as_ptr().addr();
        let mut found = Vec::with_capacity(head.headers.len());
        let mut keeps = head.version == Some(1);
        let mut has_hop_by_hop = false;
        for line in head.headers.iter() {
            if line.name.eq_ignore_ascii_case("connection") {
                keeps &= line.value.eq_ignore_ascii_case(b"keep-alive");
                continue;
            }
            has_hop_by_hop |= is_hop_by_hop(line);
            let place =
                if line.value.is_empty() { 0..0 } else { at(line.value)..at(line.value) + line.value.len() };
            found.push((name(line.name).ok_or(NoAnswer::Broken)?, place));
        }
        self.has_hop_by_hop = has_hop_by_hop;
        let block = self.unread.split_to(length).freeze();
        parts.headers.reserve(found.len());
        for (name, place) in found {
            let value = HeaderValue::from_maybe_shared(block.slice(place));
            parts.headers.append(name, value.map_err(|_| NoAnswer::Broken)?);
        }
        let has_body = !is_head && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
        self.rest = if has_body { framing(&parts).ok_or(NoAnswer::Broken)? } else { Rest::Nothing };
        if !keeps {
            self.home = None;
        }
        Ok(Some(parts))
    }

    /// Reads into `unread`, at most about `most` bytes. 0: the other side has closed.
    fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(0)) };
        // Memory only where there is something to put into it.
        ready!(stream.poll_read_ready(cx))?;
        self.unread.reserve(most);
        pin!(stream.read_buf(&mut self.unread)).poll(cx)
    }

    /// Does nothing follow?
    pub(crate) fn is_over(&self) -> bool {
        self.is_read() && self.ahead.is_empty()
    }

    /// Does nothing follow on the connection?
    fn is_read(&self) -> bool {
        self.rest == Rest::Nothing
    }

    /// How many bytes follow, where it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.rest {
            Rest::Length(left) => Some(left + self.ahead.len() as u64),
            Rest::Nothing => Some(self.ahead.len() as u64),
            _ => None,
        }
    }

    /// Reads the body into `to`. False where it has more than `most` bytes; then some of it is left.
    pub(crate) async fn collect(&mut self, to: &mut BytesMut, most: usize) -> io::Result<bool> {
        while let Some(part) = poll_fn(|cx| self.poll_data(cx)).await {
            to.extend_from_slice(&part?);
            if to.len() > most {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What was taken out of the body comes first again.
    pub(crate) fn put_back(&mut self, ahead: Bytes) {
        self.ahead = ahead;
    }

    /// The whole body, if it has come with its head. The connection is free then.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        if self.is_read() {
            return Some(std::mem::take(&mut self.ahead)).filter(|whole| !whole.is_empty());
        }
        let Rest::Length(left) = self.rest else { return None };
        if !self.ahead.is_empty() || self.unread.len() as u64 != left {
            return None;
        }
        let whole = self.unread.split().freeze();
        self.rest = Rest::Nothing;
        self.give_back_if_over();
        Some(whole)
    }

    /// Without a byte too much: that would be the beginning of nobody's answer.
    fn give_back_if_over(&mut self) {
        if self.is_read()
            && let Some(stream) = self.stream.take()
            && let Some(home) = self.home.filter(|_| self.unread.is_empty())
        {
            kept::keep(home, stream);
        }
    }

    /// The next bytes of the body. An error means that it broke off.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if !self.ahead.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.ahead))));
        }
        loop {
            if self.is_read() {
                self.give_back_if_over();
                return Poll::Ready(None);
            }
            match self.next_part() {
                Ok(Some(data)) => {
                    self.give_back_if_over();
                    return Poll::Ready(Some(Ok(data)));
                }
                Ok(None) if self.is_read() => continue,
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            let most = match self.rest {
                Rest::Length(left) | Rest::Chunk(left) => {
                    usize::try_from(left).unwrap_or(LARGEST).saturating_add(8)
                }
                _ => FIRST,
            };
            match ready!(self.poll_fill(cx, most.clamp(512, LARGEST))) {
                Ok(1..) => {}
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// What was read of the body. None: more has to be read first.
    fn next_part(&mut self) -> io::Result<Option<Bytes>> {
        let broken = || Err(io::ErrorKind::InvalidData.into());
        loop {
            match self.rest {
                Rest::Nothing => return Ok(None),
                _ if self.unread.is_empty() => return Ok(None),
                Rest::Length(left) | Rest::Chunk(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.unread.len());
                    let after = left - count as u64;
                    self.rest = match self.rest {
                        Rest::Length(_) if after == 0 => Rest::Nothing,
                        Rest::Length(_) => Rest::Length(after),
                        _ if after == 0 => Rest::ChunkEnd,
                        _ => Rest::Chunk(after),
                    };
                    let part = if count < SMALL {
                        // Its block of memory is many times as large.
                        let part = Bytes::copy_from_slice(&self.unread[..count]);
                        self.unread.advance(count);
                        part
                    } else {
                        self.unread.split_to(count).freeze()
                    };
                    // The end of the body may be here already: the connection is free sooner.
                    if self.rest == Rest::ChunkEnd {
                        self.skip_ends()?;
                    }
                    return Ok(Some(part));
                }
                Rest::ChunkEnd | Rest::Size | Rest::LastLine => {
                    let before = self.rest;
                    self.skip_ends()?;
                    if self.rest == before {
                        // An incomplete line.
                        if self.unread.len() > LONGEST_SIZE + 2 {
                            return broken();
                        }
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Takes the lines between chunks, as far as they have come.
    fn skip_ends(&mut self) -> io::Result<()> {
        loop {
            let broken = || Err(io::ErrorKind::InvalidData.into());
            let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') else {
                let may_go_on = matches!(&self.unread[..], [] | [b'\r']) || self.rest == Rest::Size;
                return if may_go_on { Ok(()) } else { broken() };
            };
            let Some(line) = self.unread[..end].strip_suffix(b"\r") else { return broken() };
            self.rest = match self.rest {
                Rest::ChunkEnd if line.is_empty() => Rest::Size,
                Rest::LastLine if line.is_empty() => Rest::Nothing,
                Rest::Size => match size(line) {
                    Some(0) => Rest::LastLine,
                    Some(size) => Rest::Chunk(size),
                    None => return broken(),
                },
                _ => return broken(),
            };
            self.unread.advance(end + 1);
            if matches!(self.rest, Rest::Chunk(_) | Rest::Nothing) {
                return Ok(());
            }
        }
    }
}

/// In hexadecimal digits and nothing else: varnishd has no extensions.
fn size(line: &[u8]) -> Option<u64> {
    let is_plain = !line.is_empty() && line.len() <= LONGEST_SIZE && line.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(line).ok().filter(|_| is_plain)?;
    u64::from_str_radix(text, 16).ok()
}

/// None where it has more than one reading.
fn framing(parts: &Parts) -> Option<Rest> {
    let one = |name: HeaderName| {
        let mut all = parts.headers.get_all(name).iter();
        (all.next(), all.next().is_some())
    };
    match (one(header::TRANSFER_ENCODING), one(header::CONTENT_LENGTH)) {
        // varnishd always says how long it is: what ends with the connection may have broken off.
        ((None, _), (None, _)) => None,
        ((None, _), (Some(length), false)) => {
            let digits = length.as_bytes();
            let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?;
            match text.parse().ok()? {
                0 => Some(Rest::Nothing),
                length => Some(Rest::Length(length)),
            }
        }
        ((Some(coding), false), (None, _)) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Some(Rest::Size)
        }
        _ => None,
    }
}
