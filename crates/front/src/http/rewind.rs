//! The first bytes of a plain connection: HTTP/2 with prior knowledge, or HTTP/1.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::h1::Wire;
use crate::HttpLimits;

/// What an HTTP/2 client says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// From the accepted connection to a first byte. Browsers connect before they have something to ask.
const FIRST_BYTE: Duration = Duration::from_secs(30);
/// For the rest of a preface.
const REST: Duration = Duration::from_secs(10);
const READ: usize = 2048;

/// A stream, with what was already read of it.
#[derive(Debug)]
pub(crate) struct Rewind<S> {
    stream: S,
    first: Vec<u8>,
    at: usize,
}

/// Reads until it is known which protocol it is: true for HTTP/2. `None`: the client is gone or silent, or speaks neither.
pub(crate) async fn sniff<S: AsyncRead + Unpin>(
    mut stream: S,
    limits: &HttpLimits,
) -> Option<(Rewind<S>, bool)> {
    let mut first = Vec::with_capacity(READ);
    let mut patience = FIRST_BYTE.min(limits.idle_timeout);
    let is_h2 = loop {
        match timeout(patience, stream.read_buf(&mut first)).await {
            Ok(Ok(1..)) => {}
            // Less than a preface, and nothing more: HTTP/1 has an answer to that.
            _ if !first.is_empty() => break false,
            _ => return None,
        }
        patience = REST.min(limits.head_timeout);
        let known = first.len().min(PREFACE.len());
        if first[..known] != PREFACE[..known] {
            if is_neither(&first) {
                return None;
            }
            break false;
        }
        if known == PREFACE.len() {
            break true;
        }
    };
    Some((Rewind { stream, first, at: 0 }, is_h2))
}

/// Methods that a request without a version may have. Such a request gets an answer.
const METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT"];

/// The first line is there, and no HTTP/1 client sends one like it: no common method and no `HTTP/`. The connection closes
/// without an answer, as RFC 9113, 3.4 wants it for an invalid preface: what an HTTP/2 client would read as frames must not come.
fn is_neither(first: &[u8]) -> bool {
    let rest = first.trim_ascii_start();
    let Some(end) = rest.iter().position(|b| *b == b'\n') else { return false };
    let line = rest[..end].trim_ascii_end();
    let method = line.split(|b| *b == b' ').next().unwrap_or_default();
    !METHODS.iter().any(|known| method.eq_ignore_ascii_case(known))
        && !line.windows(5).any(|five| five.eq_ignore_ascii_case(b"HTTP/"))
}

impl<S: Wire> Wire for Rewind<S> {
    fn reset_when_dropped(&self) {
        self.stream.reset_when_dropped();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewind<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = &this.first[this.at..];
        if rest.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, to);
        }
        let count = rest.len().min(to.remaining());
        to.put_slice(&rest[..count]);
        this.at += count;
        if this.at == this.first.len() {
            (this.first, this.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewind<S> {
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

    #[test]
    fn only_a_whole_first_line_without_method_and_version_is_neither_protocol() {
        for (first, expected) in [
            ("INVALID CONNECTION PREFACE\r\n\r\n", true),
            ("SSH-2.0-OpenSSH_9.2\r\n", true),
            ("{\"a\": 1}\n", true),
            ("\r\n\r\nHELO a\r\n", true),
            ("PRI * SMTP\r\n", true),
            ("INVALID CONNECTION PREFACE", false),
            ("", false),
            ("\r\n", false),
            (" \r\nGET / HTTP/1.1\r\n", false),
            ("GET /\r\n", false),
            ("get /\r\n", false),
            ("GET\r\n", false),
            ("BREW / HTTP/1.1\r\n", false),
            ("BREW / http/1.1\r\n", false),
            ("PRI * HTTP/2.0\n", false),
        ] {
            assert_eq!(is_neither(first.as_bytes()), expected, "{first:?}");
        }
    }
}
