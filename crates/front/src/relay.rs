//! Bytes between two streams, both ways, until both ends are done.
//!
//! An idle connection holds no buffer: bytes pass through one that each thread has, and only what the other side would not
//! take at once is put aside.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

/// Four TLS records; what rustls takes at once.
const SCRATCH: usize = 64 << 10;

/// How long a client may be silent after the other side is done with it.
const LINGER: Duration = Duration::from_secs(10);
/// How long a client may go on sending, in all, once nothing takes what it sends. An upload to a side that has only finished
/// its answer is not limited by this.
const LINGER_TOTAL: Duration = Duration::from_secs(30);

/// How often the bytes of a long connection are counted.
const REPORT: Duration = Duration::from_secs(10);

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// Whatever comes first; nothing at the end.
pub(crate) async fn read_some<R: AsyncRead + Unpin>(source: &mut R) -> io::Result<Vec<u8>> {
    poll_fn(|cx| {
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *source).poll_read(cx, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().to_vec()))
        })
    })
    .await
}

/// Copies until both sides have ended. A side's end is handed on (for TLS with close_notify); an error of the client ends all,
/// and an upstream that breaks off is a client's connection that breaks off.
pub(crate) async fn relay<C, U>(
    client: &mut C,
    upstream: &mut U,
    from_client: &AtomicU64,
    to_client: &AtomicU64,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let mut up = Pump::new(from_client);
    let mut down = Pump::new(to_client);
    poll_fn(|cx| {
        if let Poll::Ready(Err(e)) = up.poll_forgiving(cx, client, upstream) {
            return Poll::Ready(Err(e));
        }
        match ready!(down.poll(cx, upstream, client)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(Broken::Source(e) | Broken::Sink(e)) => Poll::Ready(Err(e)),
        }
    })
    .await?;
    // In a box: most connections do not linger.
    Box::pin(linger(&mut up, client, upstream, LINGER, LINGER_TOTAL)).await
}

/// What the client still sends, once it has its answer. It may be silent for `silence`, and send for `total` what nothing takes.
async fn linger<C, U>(
    up: &mut Pump<'_>,
    client: &mut C,
    upstream: &mut U,
    silence: Duration,
    total: Duration,
) -> io::Result<()>
where
    C: AsyncRead + Unpin,
    U: AsyncWrite + Unpin,
{
    let mut end = None;
    loop {
        let before = up.moved;
        if up.discard {
            end.get_or_insert_with(|| Instant::now() + total);
        }
        let left = end.map_or(silence, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        let rest = poll_fn(|cx| up.poll_forgiving(cx, client, upstream));
        match timeout(silence.min(left), rest).await {
            Ok(result) => return result,
            Err(_) if up.moved == before => return Ok(()),
            Err(_) => {}
        }
    }
}

/// As [`relay`], until nothing has moved for `idle` (or a quarter more).
pub(crate) async fn relay_until_idle<C, U>(
    client: &mut C,
    upstream: &mut U,
    from_client: &AtomicU64,
    to_client: &AtomicU64,
    idle: Duration,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    relay_reported(client, upstream, idle, |up, down| {
        from_client.fetch_add(up, Ordering::Relaxed);
        to_client.fetch_add(down, Ordering::Relaxed);
    })
    .await
}

/// As [`relay_until_idle`]. `report` gets the bytes from the client and to it since the last report: every few seconds, and at
/// the end.
pub(crate) async fn relay_reported<C, U>(
    client: &mut C,
    upstream: &mut U,
    idle: Duration,
    report: impl Fn(u64, u64),
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
    let moved = || {
        let (up, down) = (up.swap(0, Ordering::Relaxed), down.swap(0, Ordering::Relaxed));
        if up + down > 0 {
            report(up, down);
        }
        up + down > 0
    };
    let silence = async {
        let mut since = Instant::now();
        loop {
            sleep((idle / 4).min(REPORT)).await;
            if moved() {
                since = Instant::now();
            } else if since.elapsed() >= idle {
                return;
            }
        }
    };
    let ended = tokio::select! {
        ended = relay(client, upstream, &up, &down) => ended,
        () = silence => Ok(()),
    };
    moved();
    ended
}

enum Broken {
    Source(io::Error),
    Sink(io::Error),
}

/// One direction.
struct Pump<'a> {
    counter: &'a AtomicU64,
    moved: u64,
    /// Read, but not taken yet; `aside[taken..]` is left.
    aside: Vec<u8>,
    taken: usize,
    to_flush: bool,
    ended: bool,
    done: bool,
    /// The sink is gone: read on, so that the source can finish, and throw it away.
    discard: bool,
}

impl<'a> Pump<'a> {
    fn new(counter: &'a AtomicU64) -> Self {
        Self {
            counter,
            moved: 0,
            aside: Vec::new(),
            taken: 0,
            to_flush: true,
            ended: false,
            done: false,
            discard: false,
        }
    }

    /// For bytes from the client: it may disappear without closing, and varnishd may have stopped reading.
    fn poll_forgiving<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut R,
        sink: &mut W,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            match ready!(self.poll(cx, source, sink)) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(Broken::Source(e)) if e.kind() == ErrorKind::UnexpectedEof => self.ended = true,
                Err(Broken::Source(e)) => return Poll::Ready(Err(e)),
                Err(Broken::Sink(_)) if self.ended => {
                    self.done = true;
                }
                Err(Broken::Sink(_)) => {
                    self.discard = true;
                    self.aside = Vec::new();
                    self.taken = 0;
                }
            }
        }
    }

    /// Ready once the source has ended and the sink knows.
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, source: &mut R, sink: &mut W) -> Poll<Result<(), Broken>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        while !self.done {
            while self.taken < self.aside.len() {
                match ready!(Pin::new(&mut *sink).poll_write(cx, &self.aside[self.taken..])) {
                    Ok(0) => return Poll::Ready(Err(Broken::Sink(ErrorKind::WriteZero.into()))),
                    Ok(count) => self.taken += count,
                    Err(e) => return Poll::Ready(Err(Broken::Sink(e))),
                }
            }
            if !self.aside.is_empty() {
                self.aside = Vec::new();
                self.taken = 0;
            }
            if self.ended {
                if !self.discard {
                    ready!(Pin::new(&mut *sink).poll_shutdown(cx)).map_err(Broken::Sink)?;
                }
                self.done = true;
                break;
            }
            match self.poll_through(cx, source, sink) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    if self.to_flush && !self.discard {
                        ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(Broken::Sink)?;
                        self.to_flush = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// One read, and a write of it.
    fn poll_through<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut R,
        sink: &mut W,
    ) -> Poll<Result<(), Broken>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(source).poll_read(cx, &mut buffer)).map_err(Broken::Source)?;
            let bytes = buffer.filled();
            if bytes.is_empty() {
                self.ended = true;
                return Poll::Ready(Ok(()));
            }
            self.moved += bytes.len() as u64;
            self.counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if self.discard {
                return Poll::Ready(Ok(()));
            }
            self.to_flush = true;
            let written = match Pin::new(sink).poll_write(cx, bytes) {
                Poll::Ready(result) => result.map_err(Broken::Sink)?,
                Poll::Pending => 0,
            };
            if let Some(rest) = bytes.get(written..) {
                self.aside.extend_from_slice(rest);
            }
            Poll::Ready(Ok(()))
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    /// A client that goes on sending, and its connection's end. `taken`: does the other side still take it?
    async fn lingers(taken: bool) -> Duration {
        let (mut client, mut far_client) = duplex(64);
        let (mut upstream, far_upstream) = duplex(1 << 20);
        let mut kept = Some(far_upstream);
        if !taken {
            kept = None;
        }
        let sending = tokio::spawn(async move {
            for _ in 0..40 {
                if far_client.write_all(b"x").await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(25)).await;
            }
        });
        let count = AtomicU64::new(0);
        let mut up = Pump::new(&count);
        let began = Instant::now();
        let (silence, total) = (Duration::from_millis(200), Duration::from_millis(300));
        linger(&mut up, &mut client, &mut upstream, silence, total).await.unwrap();
        let lasted = began.elapsed();
        drop((client, kept));
        sending.await.unwrap();
        lasted
    }

    #[tokio::test]
    async fn what_nothing_takes_is_not_read_for_ever() {
        let lasted = lingers(false).await;
        assert!(lasted < Duration::from_millis(900), "{lasted:?}");
    }

    #[tokio::test]
    async fn an_upload_to_a_side_that_reads_on_goes_on() {
        let lasted = lingers(true).await;
        assert!(lasted >= Duration::from_millis(950), "{lasted:?}");
    }
}
