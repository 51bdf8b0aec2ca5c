//! Reads one answer of HTTP/1.1 from a stream: its head by httparse, with the settings that hyper has, then its body as it is asked
//! for. What can be read in two ways is an error, and its connection is closed.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};
use hyper::body::Frame;
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::response;

/// Room for the first read: most answers that are short fit.
const FIRST: usize = 8 << 10;
/// The most that is read of a large body at once.
const LARGEST: usize = 32 << 10;
/// Parts of a body below this size are copied, so that an origin that sends single bytes does not hold large blocks.
const SMALL: usize = 1 << 10;
/// The most that the head of an answer may have.
const HEAD_BYTES: usize = 128 << 10;
const HEADERS: usize = 256;
/// `ffffffffffffffff`
const LONGEST_SIZE: usize = 16;
/// The most that a line with the size of a chunk may have, its extensions included; and all extensions of an answer.
const LONGEST_LINE: usize = 4 << 10;
const MOST_EXTENSIONS: usize = 16 << 10;
/// The most that all trailers may have.
const TRAILER_BYTES: usize = 16 << 10;
/// Informational answers (1xx) before the final one.
const MOST_INFORMATIONAL: usize = 16;

/// Names that every answer of varnishd has, and that `http` does not know: without an allocation.
const X_VARNISH: HeaderName = HeaderName::from_static("x-varnish");
const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
pub(crate) const RESULT: HeaderName = HeaderName::from_static("x-ghost-result");
pub(crate) const HOT: HeaderName = HeaderName::from_static("x-ghost-hot");

/// The other side of a connection.
pub(crate) trait Peer: AsyncRead + Unpin + Sized {
    /// Where its connections are kept.
    type Home;
    /// Origins may say what varnishd never does: informational answers, bodies that end with the connection, chunk extensions, trailers.
    const IS_ORIGIN: bool;

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// The connection is free. `is_bodiless`: its last answer had no body, whatever its head says; a body may follow all the same.
    fn keep(self, home: Self::Home, is_bodiless: bool);
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The connection was closed before a byte of one.
    Closed,
    Broken,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Length(u64),
    /// Within a chunk, this many bytes before its end.
    Chunk(u64),
    /// At the line end after a chunk.
    ChunkEnd,
    /// At a line with the size of a chunk.
    Size,
    /// After the last chunk: trailers, and an empty line.
    LastLine,
    /// It ends with the connection.
    Close,
    Nothing,
}

/// The body of a response, and its connection.
#[derive(Debug)]
pub(crate) struct Reply<S: Peer> {
    /// None once it was given back.
    stream: Option<S>,
    /// None where the other side closes it, or must not be asked again.
    home: Option<S::Home>,
    /// Read, and not handed on yet.
    unread: BytesMut,
    /// Of the body, taken out and put back.
    ahead: Bytes,
    rest: Rest,
    /// It is to HEAD, or has a status without a body.
    is_bodiless: bool,
    /// Bytes of chunk extensions that were skipped.
    extensions: usize,
    trailers: Option<Box<HeaderMap>>,
    /// It broke off. Reported one poll later: bytes that were received before are delivered first.
    failed: Option<io::ErrorKind>,
    /// The head has headers that are about the connection, or a length that others may read otherwise. Hits have none.
    pub(crate) has_hop_by_hop: bool,
}

/// A head that was read.
enum Head {
    /// Not all of it has come.
    Partial,
    Informational(Parts),
    Final(Parts),
}

impl<S: Peer> Reply<S> {
    /// Reads the head of the answer. Dropped before its end, it closes the connection. `hint` is called for each 103.
    pub(crate) async fn read(
        stream: S,
        home: S::Home,
        is_head: bool,
        hint: impl Fn(&HeaderMap),
    ) -> Result<(Parts, Self), NoAnswer> {
        let mut reply = Self {
            stream: Some(stream),
            home: Some(home),
            unread: BytesMut::new(),
            ahead: Bytes::new(),
            rest: Rest::Nothing,
            is_bodiless: false,
            extensions: 0,
            trailers: None,
            failed: None,
            has_hop_by_hop: false,
        };
        let (mut informational, mut has_heard, mut seen) = (0, false, 0);
        loop {
            match poll_fn(|cx| reply.poll_fill(cx, FIRST)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) if !has_heard => return Err(NoAnswer::Closed),
                Ok(0) | Err(_) => return Err(NoAnswer::Broken),
            }
            has_heard = true;
            reply.skip_empty_lines();
            while !reply.unread.is_empty() && may_end(&reply.unread, seen) {
                match reply.head(is_head)? {
                    Head::Partial => break,
                    Head::Informational(parts) => {
                        informational += 1;
                        let is_more = !S::IS_ORIGIN || parts.status == StatusCode::SWITCHING_PROTOCOLS;
                        if is_more || informational > MOST_INFORMATIONAL {
                            return Err(NoAnswer::Broken);
                        }
                        if parts.status == StatusCode::EARLY_HINTS {
                            hint(&parts.headers);
                        }
                        reply.skip_empty_lines();
                        seen = 0;
                    }
                    Head::Final(parts) => {
                        reply.give_back_if_over();
                        return Ok((parts, reply));
                    }
                }
            }
            if reply.unread.len() > HEAD_BYTES {
                return Err(NoAnswer::Broken);
            }
            seen = reply.unread.len();
        }
    }

    /// Before a status line.
    fn skip_empty_lines(&mut self) {
        let mut rest = &self.unread[..];
        while let Some(after) = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")) {
            rest = after;
        }
        let count = self.unread.len() - rest.len();
        self.unread.advance(count);
    }

    /// The next head. What `Connection` says is obeyed here; that of varnishd is not handed on.
    fn head(&mut self, is_head: bool) -> Result<Head, NoAnswer> {
        let mut room = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; HEADERS];
        let mut head = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let length = match config.parse_response_with_uninit_headers(&mut head, &self.unread, &mut room) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES => length,
            Ok(httparse::Status::Partial) => return Ok(Head::Partial),
            _ => return Err(NoAnswer::Broken),
        };
        let status = head.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(NoAnswer::Broken)?;
        let mut parts = Response::new(()).into_parts().0;
        parts.status = status;
        if let Some(reason) = head.reason.filter(|reason| Some(*reason) != status.canonical_reason())
            && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes().to_vec())
        {
            parts.extensions.insert(reason);
        }
        // Values are parts of one block of memory: `unread` must not change before they are all found.
        let at = |value: &[u8]| value.as_ptr().addr() - self.unread.as_ptr().addr();
        let mut found = smallvec::SmallVec::<[_; 24]>::new();
        let is_http11 = head.version == Some(1);
        let (mut keeps, mut has_hop_by_hop, mut has_length) = (is_http11, false, false);
        for line in head.headers.iter() {
            if line.name.eq_ignore_ascii_case("connection") {
                keeps &= keeps_open(line.value, S::IS_ORIGIN);
                if !S::IS_ORIGIN || names_no_header(line.value) {
                    continue;
                }
                has_hop_by_hop = true;
            }
            if S::IS_ORIGIN && line.name.eq_ignore_ascii_case("content-length") {
                has_hop_by_hop |= has_length || !response::is_plain(line.value);
                has_length = true;
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
        if status.is_informational() {
            return Ok(Head::Informational(parts));
        }
        let has_body = !is_head && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
        self.is_bodiless = !has_body;
        let framing = Framing::of(&parts.headers, is_http11);
        keeps &= framing != Framing::Unclear;
        self.rest = match framing {
            _ if !has_body => Rest::Nothing,
            Framing::Length(0) => Rest::Nothing,
            Framing::Length(length) => Rest::Length(length),
            Framing::Chunks { has_length: false } => Rest::Size,
            Framing::Chunks { has_length: true } if S::IS_ORIGIN => {
                keeps = false;
                Rest::Size
            }
            // varnishd always says how long it is: what ends with the connection may have broken off.
            Framing::None if S::IS_ORIGIN => {
                keeps = false;
                Rest::Close
            }
            _ => return Err(NoAnswer::Broken),
        };
        if !keeps {
            self.home = None;
        }
        Ok(Head::Final(parts))
    }

    /// Reads into `unread`, at most about `most` bytes. 0: the other side has closed.
    fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(0)) };
        // Memory only where there is something to put into it.
        ready!(stream.poll_readable(cx))?;
        self.unread.reserve(most);
        pin!(stream.read_buf(&mut self.unread)).poll(cx)
    }

    /// Does nothing follow?
    pub(crate) fn is_over(&self) -> bool {
        self.is_read() && self.ahead.is_empty() && self.trailers.is_none()
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

    /// Bytes that were taken out of the body are put back at its beginning.
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

    /// Extra bytes after the body belong to no request, so the connection is closed.
    fn give_back_if_over(&mut self) {
        if self.is_read()
            && let Some(stream) = self.stream.take()
            && let Some(home) = self.home.take().filter(|_| self.unread.is_empty())
        {
            stream.keep(home, self.is_bodiless);
        }
    }

    /// The next part of the body. An error means that it broke off.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.ahead)))));
        }
        if let Some(why) = self.failed {
            return Poll::Ready(Some(Err(why.into())));
        }
        let frame = ready!(self.poll_next(cx));
        if let Some(Err(why)) = &frame {
            self.failed = Some(why.kind());
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(frame)
    }

    /// Of a body without trailers.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let frame = ready!(self.poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame?.into_data().or_else(|_| broken())))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if self.is_read() {
                self.give_back_if_over();
                return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))));
            }
            match self.next_part() {
                Ok(Some(data)) => {
                    self.give_back_if_over();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(None) if self.is_read() => continue,
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            let most = match self.rest {
                Rest::Length(left) | Rest::Chunk(left) => {
                    usize::try_from(left).unwrap_or(LARGEST).saturating_add(8)
                }
                Rest::Close => LARGEST,
                _ => FIRST,
            };
            match ready!(self.poll_fill(cx, most.clamp(512, LARGEST))) {
                Ok(1..) => {}
                Ok(0) if self.rest == Rest::Close => self.rest = Rest::Nothing,
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// What was read of the body. None: more has to be read first.
    fn next_part(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match self.rest {
                Rest::Nothing => return Ok(None),
                _ if self.unread.is_empty() => return Ok(None),
                Rest::Length(_) | Rest::Chunk(_) | Rest::Close => return self.take_part().map(Some),
                Rest::ChunkEnd | Rest::Size | Rest::LastLine => {
                    let before = self.rest;
                    self.skip_ends()?;
                    if self.rest == before {
                        // An incomplete line, or incomplete trailers.
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn take_part(&mut self) -> io::Result<Bytes> {
        let left = match self.rest {
            Rest::Length(left) | Rest::Chunk(left) => left,
            _ => u64::MAX,
        };
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.unread.len());
        let after = left - count as u64;
        self.rest = match self.rest {
            Rest::Length(_) if after == 0 => Rest::Nothing,
            Rest::Length(_) => Rest::Length(after),
            Rest::Chunk(_) if after == 0 => Rest::ChunkEnd,
            Rest::Chunk(_) => Rest::Chunk(after),
            other => other,
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
        Ok(part)
    }

    /// Takes the lines between chunks and after them, as far as they have come.
    fn skip_ends(&mut self) -> io::Result<()> {
        loop {
            if self.rest == Rest::LastLine && S::IS_ORIGIN && !matches!(&self.unread[..], [] | [b'\r', ..]) {
                return self.read_trailers();
            }
            let Some(end) = self.unread.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
                let most = if S::IS_ORIGIN { LONGEST_LINE - 1 } else { LONGEST_SIZE + 2 };
                let may_go_on = matches!(&self.unread[..], [] | [b'\r'])
                    || self.rest == Rest::Size && self.unread.len() <= most;
                return if may_go_on { Ok(()) } else { broken() };
            };
            let Some(line) = self.unread[..end].strip_suffix(b"\r") else { return broken() };
            self.rest = match self.rest {
                Rest::ChunkEnd if line.is_empty() => Rest::Size,
                Rest::LastLine if line.is_empty() => Rest::Nothing,
                Rest::Size => {
                    let digits = size_of(line, S::IS_ORIGIN).ok_or(io::ErrorKind::InvalidData)?;
                    self.extensions += line.len() - digits.len();
                    match size(digits) {
                        _ if self.extensions > MOST_EXTENSIONS => return broken(),
                        Some(0) => Rest::LastLine,
                        Some(size) => Rest::Chunk(size),
                        None => return broken(),
                    }
                }
                _ => return broken(),
            };
            self.unread.advance(end + 1);
            if matches!(self.rest, Rest::Chunk(_) | Rest::Nothing) {
                return Ok(());
            }
        }
    }

    /// Once all of them have come.
    fn read_trailers(&mut self) -> io::Result<()> {
        let mut room = [httparse::EMPTY_HEADER; 64];
        let (length, lines) = match httparse::parse_headers(&self.unread, &mut room) {
            // No line, and no CRLF either.
            Ok(httparse::Status::Complete((_, []))) | Err(_) => return broken(),
            Ok(httparse::Status::Complete(read)) => read,
            Ok(httparse::Status::Partial) if self.unread.len() > TRAILER_BYTES => return broken(),
            Ok(httparse::Status::Partial) => return Ok(()),
        };
        let mut trailers = HeaderMap::with_capacity(lines.len());
        for line in lines {
            let value = HeaderValue::from_bytes(line.value).map_err(|_| io::ErrorKind::InvalidData)?;
            let name =
                HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| io::ErrorKind::InvalidData)?;
            trailers.append(name, value);
        }
        self.trailers = Some(Box::new(trailers));
        self.unread.advance(length);
        self.rest = Rest::Nothing;
        Ok(())
    }
}

/// Can the end of a head be here, if this many bytes were searched before? A head that arrives byte by byte is not parsed for each.
fn may_end(head: &[u8], seen: usize) -> bool {
    let new = &head[seen.saturating_sub(2)..];
    seen == 0 || new.windows(2).any(|two| two == b"\n\n") || new.windows(3).any(|three| three == b"\n\r\n")
}

fn broken<T>() -> io::Result<T> {
    Err(io::ErrorKind::InvalidData.into())
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

/// A connection of varnishd is closed unless the header is plainly "keep-alive"; one of an origin only if it says `close`.
fn keeps_open(connection: &[u8], is_origin: bool) -> bool {
    if !is_origin {
        return connection.eq_ignore_ascii_case(b"keep-alive");
    }
    !connection.split(|b| *b == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// `Connection` says something of the connection alone, and names no header that is about it.
fn names_no_header(connection: &[u8]) -> bool {
    [&b"keep-alive"[..], b"close"].iter().any(|option| connection.eq_ignore_ascii_case(option))
}

/// [`response::unframe`] has something to do.
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

/// Before a line's extensions, where there may be some.
fn size_of(line: &[u8], has_extensions: bool) -> Option<&[u8]> {
    if !has_extensions {
        return Some(line);
    }
    let end = line.iter().position(|byte| *byte == b';').unwrap_or(line.len());
    let is_clean = !line[end..].contains(&b'\r');
    is_clean.then(|| line[..end].trim_ascii_end())
}

/// In hexadecimal digits and nothing else.
fn size(line: &[u8]) -> Option<u64> {
    let is_plain = !line.is_empty() && line.len() <= LONGEST_SIZE && line.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(line).ok().filter(|_| is_plain)?;
    u64::from_str_radix(text, 16).ok()
}

/// What the head says of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    /// With a length beside them, which says nothing then.
    Chunks {
        has_length: bool,
    },
    None,
    /// It has more than one reading, or none.
    Unclear,
}

impl Framing {
    fn of(headers: &HeaderMap, is_http11: bool) -> Self {
        let has_length = headers.contains_key(header::CONTENT_LENGTH);
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        match (codings.next(), codings.next()) {
            (None, _) if !has_length => Self::None,
            (None, _) => response::length(headers).map_or(Self::Unclear, Self::Length),
            (Some(coding), None)
                if is_http11 && coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") =>
            {
                Self::Chunks { has_length }
            }
            _ => Self::Unclear,
        }
    }
}

#[cfg(test)]
mod tests;
