//! The way to varnishd, for requests that the cache may answer.
//!
//! Connections are shared by all clients of a thread ([`kept`]): each request says in a header of our own whose it is. What goes there
//! otherwise is what the client sent; ghost makes of it what the gateway says, as it does for its own sockets. Its answer says what
//! the cache did, and the front counts it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, response};
use model::names::CLIENT_HEADER;
use model::stats::CACHE_RESULTS;
use router::counters::OTHER;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::request::Client;
use super::varnishd::{NoAnswer, RESULT, Reply, exchange};
use super::{Http, kept};

/// For the connection to varnishd. After it the request goes to its origin.
const CONNECT: Duration = Duration::from_millis(250);
/// Requests to one group that go past a cache that is not there, at once. The cache would have kept most of them from it.
const ROOM: usize = 128;
const MOST_ROOMS: usize = 1024;

/// Places on the way past the cache, by group.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<HashMap<Box<str>, Arc<Semaphore>>>);

impl Http {
    /// A place for one request that goes to its origin since varnishd is not there; `None` where there is none.
    pub(crate) fn fall_back(&self, group: &str) -> Option<OwnedSemaphorePermit> {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
        let room = {
            let mut rooms = self.fallback_rooms.0.lock().unwrap_or_else(PoisonError::into_inner);
            match rooms.get(group) {
                Some(room) => Arc::clone(room),
                None => {
                    // Groups come and go with routes.
                    if rooms.len() >= MOST_ROOMS {
                        rooms.retain(|_, room| room.available_permits() < ROOM);
                    }
                    let room = Arc::new(Semaphore::new(ROOM));
                    rooms.insert(group.into(), Arc::clone(&room));
                    room
                }
            }
        };
        room.try_acquire_owned().ok()
    }
}

/// What varnishd is sent: what the client sent, and who the client is.
fn head(client: &Client, parts: &Parts, url: &[u8]) -> Option<Vec<u8>> {
    let identity = client.identity.as_ref()?;
    let mut head = Vec::with_capacity(1024);
    head.extend_from_slice(parts.method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(url);
    head.extend_from_slice(b" HTTP/1.1\r\n");
    let mut line = |name: &str, value: &HeaderValue| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    };
    // Names and values were checked when they were read: no line end is in them. Our own names were taken away at the entrance.
    for (name, value) in &parts.headers {
        line(name.as_str(), value);
    }
    line(CLIENT_HEADER, identity);
    head.extend_from_slice(b"\r\n");
    Some(head)
}

/// Asks varnishd. None where it is not there: the request, which has no body, may go to its origin.
pub(crate) async fn ask(client: &Client, parts: &Parts, url: &[u8]) -> Option<(response::Parts, Reply)> {
    let http = &client.http;
    let home = http.cache_start()?;
    let request = head(client, parts, url)?;
    let is_head = parts.method == Method::HEAD;
    if let Some(stream) = kept::take(home) {
        match exchange(stream, &request, is_head, home).await {
            Ok(answer) => return Some(answer),
            // varnishd closes idle connections after some seconds; or its child has died.
            Err(NoAnswer::Closed) => {}
            Err(NoAnswer::Broken) => return None,
        }
    }
    let mut gone = pin!(http.cache_gone.notified());
    // Before the look at whether it runs: what ends after it is noticed. A new connection may wait for a child that never takes it.
    gone.as_mut().enable();
    let home = http.cache_start()?;
    let asked = async {
        let stream = timeout(CONNECT, UnixStream::connect(&http.cache_socket)).await.ok()?.ok()?;
        exchange(stream, &request, is_head, home).await.ok()
    };
    tokio::select! {
        biased;
        answer = asked => answer,
        () = &mut gone => None,
    }
}

/// What ghost says that the cache did, as a position in [`CACHE_RESULTS`]. Clients do not see it.
pub(crate) fn take_result(headers: &mut HeaderMap) -> u8 {
    let said = headers.remove(RESULT);
    let position = said.and_then(|said| CACHE_RESULTS.iter().position(|known| said == *known));
    position.and_then(|position| u8::try_from(position).ok()).unwrap_or(OTHER)
}
