//! The way to varnishd, for requests that the cache may answer.
//!
//! Each client has connections of its own, which are introduced with PROXY v2: ghost knows by them who the client is. What
//! goes there is what the client sent; ghost makes of it what the gateway says, as it does for its own sockets.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Http;
use super::body::ClientBody;
use super::origin::copy;
use super::pool::{self, Lease, Sender};
use super::request::Client;

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

/// Asks varnishd. The request, which has no body, comes back where varnishd is not there.
pub(crate) async fn ask(
    client: &Arc<Client>,
    mut request: Request<ClientBody>,
) -> Result<(Response<Incoming>, Lease), Request<ClientBody>> {
    let mut gone = pin!(client.http.cache_gone.notified());
    // Before the look at whether it runs: what ends after it is noticed.
    gone.as_mut().enable();
    if !client.http.cache_runs.load(Ordering::Relaxed) {
        return Err(request);
    }
    loop {
        let kept = kept(client).await;
        let is_kept = kept.is_some();
        let sender = match kept {
            Some(sender) => Some(sender),
            None => timeout(CONNECT, connect(client)).await.ok().flatten(),
        };
        let Some(mut sender) = sender else { return Err(request) };
        let spare = copy(&request);
        let sent = tokio::select! {
            biased;
            sent = sender.send_request(request) => sent,
            () = &mut gone => return Err(spare),
        };
        match sent {
            Ok(response) => return Ok((response, Lease::of_client(sender, client))),
            // varnishd closes idle connections after some seconds; or its child has died.
            Err(_) if is_kept => request = spare,
            Err(_) => return Err(spare),
        }
    }
}

async fn kept(client: &Client) -> Option<Sender> {
    loop {
        let mut sender = client.take_cache_connection()?;
        if pool::is_usable(&mut sender).await {
            return Some(sender);
        }
    }
}

async fn connect(client: &Client) -> Option<Sender> {
    let http = &client.http;
    let path = if client.is_tls { &http.tls_socket } else { &http.plain_socket };
    let mut stream = UnixStream::connect(path).await.ok()?;
    stream.write_all(&client.introduction.encode()).await.ok()?;
    pool::open(stream).await
}
