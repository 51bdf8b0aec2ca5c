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

/// Reads until it is known which protocol it is: true for HTTP/2. `None`: the client is gone, or silent.
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
            break false;
        }
        if known == PREFACE.len() {
            break true;
        }
    };
    Some((Rewind { stream, first, at: 0 }, is_h2))
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
