//! One connection to varnishd, by its unix socket: a request without a body goes out in one write, and a small answer comes back in
//! one read.
//!
//! varnishd is a peer that we know, and asked for each hit: it is spoken to without hyper, whose connections are tasks of their
//! own. Bytes that varnishd would not send are an error, and the connection is closed.

use std::io;
use std::task::{Context, Poll};

use http::response::Parts;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::kept;
use super::reply::{self, Peer};
pub(crate) use super::reply::{HOT, NoAnswer, RESULT};

pub(crate) type Reply = reply::Reply<UnixStream>;

impl Peer for UnixStream {
    /// The start of varnishd that it belongs to.
    type Home = u64;
    const IS_ORIGIN: bool = false;

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn keep(self, home: u64, _is_bodiless: bool) {
        kept::keep(home, self);
    }
}

/// Sends one request head and reads the head of its answer. Dropped before its end, it closes the connection.
pub(crate) async fn exchange(
    mut stream: UnixStream,
    request: &[u8],
    is_head: bool,
    home: u64,
) -> Result<(Parts, Reply), NoAnswer> {
    stream.write_all(request).await.map_err(|_| NoAnswer::Closed)?;
    Reply::read(stream, home, is_head, |_| {}).await
}
