//! A backend with TLS whose first byte is news: in TLS 1.3 it says only after the handshake whether it takes our certificate.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::AlertDescription as Alert;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Calls `first` when the stream says something.
pub(crate) struct Answering<S, F> {
    stream: S,
    first: Option<F>,
}

impl<S, F: FnOnce()> Answering<S, F> {
    pub(crate) fn new(stream: S, first: F) -> Self {
        Self { stream, first: Some(first) }
    }

    /// How it ended: why the backend refused us, where it did so instead of an answer. If it did not, it has heard us.
    pub(crate) fn refused(self, ended: &io::Result<()>) -> Option<String> {
        let first = self.first?;
        let refused = ended.as_ref().err().and_then(refusal);
        if refused.is_none() {
            first();
        }
        refused
    }
}

/// Alerts about our certificate, which come before a server reads a request.
fn refusal(error: &io::Error) -> Option<String> {
    let about_us = |alert: &Alert| {
        matches!(
            alert,
            Alert::CertificateRequired
                | Alert::NoCertificate
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::DecryptError
        )
    };
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) if about_us(alert) => Some(error.to_string()),
        _ => None,
    }
}

impl<S: AsyncRead + Unpin, F: FnOnce() + Unpin> AsyncRead for Answering<S, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before
            && let Some(first) = this.first.take()
        {
            first();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for Answering<S, F> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
