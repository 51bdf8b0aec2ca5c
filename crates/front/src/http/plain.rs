//! Requests without a body to origins that speak HTTP/1.1 in the clear: most requests are of this kind.
//!
//! A request goes out in one write, and a short answer comes back in one read, on the client's own task. hyper's client has a task
//! for each connection, and channels between the two: that costs as much as all the rest of the front. All other requests (with
//! a body, by TLS, those that may become a tunnel) go by hyper ([`super::attempt`]).

use std::io;
use std::task::{Context, Poll};

use http::header::{self, HeaderMap};
use http::response::Parts;
use http::{Method, Request};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::body::ClientBody;
use super::pool::{self, Key};
use super::reply::{self, NoAnswer, Peer};
use super::stream::{Hints, early};

pub(crate) type Reply = reply::Reply<TcpStream>;

impl Peer for TcpStream {
    type Home = Key;
    const IS_ORIGIN: bool = true;

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn keep(self, home: Key, is_bodiless: bool) {
        pool::keep_plain(home, self, is_bodiless);
    }
}

/// The request as it is sent. `None` where hyper must send it.
pub(crate) fn head(request: &Request<ClientBody>, host: Option<&str>) -> Option<Vec<u8>> {
    if !request.body().is_empty() {
        return None;
    }
    let mut head = Vec::with_capacity(1024);
    head.extend_from_slice(request.method().as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(request.uri().path_and_query()?.as_str().as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    // Names and values were checked when they were read, or made: no line end is in them.
    for (name, value) in request.headers() {
        let is_framing =
            *name == header::TRANSFER_ENCODING || *name == header::CONTENT_LENGTH && value != "0";
        // Without a body there is nothing to frame.
        if !is_framing {
            line(name.as_str(), value.as_bytes());
        }
    }
    if let Some(host) = host {
        line("host", host.as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    Some(head)
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Not a byte of the request went out.
    NotSent,
    Read(NoAnswer),
}

/// Sends the head and reads that of the answer. Dropped before its end, it closes the connection.
pub(crate) async fn exchange(
    mut stream: TcpStream,
    head: &[u8],
    method: &Method,
    hints: Option<&Hints>,
    key: Key,
) -> Result<(Parts, Reply), Unanswered> {
    let written = stream.write(head).await.map_err(|_| Unanswered::NotSent)?;
    if written < head.len() {
        stream.write_all(&head[written..]).await.map_err(|_| Unanswered::Read(NoAnswer::Closed))?;
    }
    let hint = |headers: &HeaderMap| {
        if let Some(Hints(to)) = hints {
            // Those beyond the most are left out.
            let _ = to.try_send(early(headers));
        }
    };
    let is_head = *method == Method::HEAD;
    Reply::read(stream, key, is_head, hint).await.map_err(Unanswered::Read)
}
