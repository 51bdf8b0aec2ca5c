//! One HTTP/2 stream as a stream of bytes: a WebSocket of RFC 8441.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug)]
pub(crate) struct H2Io {
    receive: RecvStream,
    send: SendStream<Bytes>,
    unread: Bytes,
}

impl H2Io {
    pub(crate) fn new(receive: RecvStream, send: SendStream<Bytes>) -> Self {
        Self { receive, send, unread: Bytes::new() }
    }
}

impl AsyncRead for H2Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(self.receive.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(data) => self.unread = data.map_err(io::Error::other)?,
            }
        }
        let count = self.unread.len().min(to.remaining());
        to.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        // The window opens as fast as the other side takes what came.
        let _ = self.receive.flow_control().release_capacity(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for H2Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send.reserve_capacity(bytes.len());
        let room = match self.send.capacity() {
            0 => match ready!(self.send.poll_capacity(cx)) {
                Some(room) => room.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            room => room,
        };
        let count = room.min(bytes.len());
        let part = Bytes::copy_from_slice(&bytes[..count]);
        self.send.send_data(part, false).map_err(io::Error::other)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.send.send_data(Bytes::new(), true).map_err(io::Error::other))
    }
}
