//! Informs the other pods of the Gateway about changes by unsafe methods: best effort, without the API server.
//!
//! Takes what the front has invalidated ([`front::Write`]), and sends it to every peer in batches, by a POST to its health port. A
//! message is signed with a key that is derived from the secret that all pods of a Gateway mount; messages without a valid signature,
//! old ones and our own are ignored. Guarantees that no response waits for a peer, and that a peer that is slow or gone delays no other.
//! Never forwards messages of peers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use front::{SessionKey, Write};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use local_http::client;
use model::invalidation::{Invalidation, MOST_AT_ONCE, Order};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::event::Reporter;
use crate::{State, invalidate};

/// Where a chaperone receives messages of its peers.
pub(crate) const PATH: &str = "/peers/invalidate";
const SIGNATURE: &str = "x-varnish-gateway-signature";
/// The seconds since 1970, and their signature. A message without a good one is not read: strangers must not keep the places of peers busy by
/// messages that come slowly.
const GREETING: &str = "x-varnish-gateway-greeting";
const PURPOSE: &[u8] = b"varnish-gateway peers";

/// Writes of this time go into one message.
const GATHER: Duration = Duration::from_millis(50);
/// A message that a peer has not accepted within this time is given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Seconds. Clocks of pods differ, so older messages are accepted up to this age; a recorded message cannot be replayed after it.
const OLDEST: u64 = 60;
const MOST_PEERS: usize = 256;
const LARGEST: usize = 1 << 20;
/// Of a peer's response, of which the status alone counts.
const LARGEST_ANSWER: usize = 64 << 10;
/// Of writes in one message, the last one excepted. JSON may double what they take, and one write has less than 128 KiB.
const MOST_BYTES: usize = LARGEST / 4;
/// Messages that are carried out at once; others wait, or are refused with their connection.
const AT_ONCE: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
struct Message {
    /// The process that sends it.
    from: u64,
    /// Seconds since 1970.
    at: u64,
    order: Order,
}

/// The key of signatures, and the name of the sender.
#[derive(Debug)]
pub struct Peers {
    key: SessionKey,
    own: u64,
    room: Semaphore,
}

impl Peers {
    /// `secret` is a file that all pods of the Gateway have. Without one there are no peers.
    pub fn of_secret(secret: Option<&Path>) -> Option<Arc<Self>> {
        let secret = std::fs::read(secret?).ok().filter(|secret| !secret.is_empty())?;
        let key = SessionKey::for_purpose(&secret, PURPOSE);
        Some(Arc::new(Self { key, own: router::random::next(), room: Semaphore::new(AT_ONCE) }))
    }

    fn signature(&self, body: &[u8]) -> String {
        self.key.sign(&[body]).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn greeting(&self, now: u64) -> String {
        format!("{now} {}", self.signature(format!("greeting {now}").as_bytes()))
    }

    /// Has a peer said so lately?
    fn is_greeting(&self, text: &str, now: u64) -> bool {
        let at = text.split_once(' ').and_then(|(at, _)| at.parse::<u64>().ok());
        at.is_some_and(|at| at.abs_diff(now) <= OLDEST && is_same(&self.greeting(at), text))
    }

    /// The order in a message that a peer has signed lately; an empty one where it is our own.
    fn read(&self, body: &[u8], signature: &str, now: u64) -> Option<Order> {
        if !is_same(&self.signature(body), signature) {
            return None;
        }
        let message: Message = serde_json::from_slice(body).ok()?;
        let is_new = message.at.abs_diff(now) <= OLDEST;
        is_new.then_some(if message.from == self.own { Order::default() } else { message.order })
    }

    /// Carries out the invalidations in a message of a peer.
    pub(crate) async fn hear(
        &self,
        request: Request<Incoming>,
        state: &watch::Receiver<State>,
    ) -> StatusCode {
        let tally = Arc::clone(&state.borrow().tally);
        let signature = request.headers().get(SIGNATURE).and_then(|value| value.to_str().ok());
        let greeting = request.headers().get(GREETING).and_then(|value| value.to_str().ok());
        let is_peer = greeting.is_some_and(|text| self.is_greeting(text, now()));
        let Some(signature) = signature.filter(|_| is_peer).map(str::to_owned) else {
            tally.peers_refused.fetch_add(1, Ordering::Relaxed);
            return StatusCode::FORBIDDEN;
        };
        let Ok(_place) = self.room.try_acquire() else { return StatusCode::SERVICE_UNAVAILABLE };
        let body = timeout(PATIENCE, Limited::new(request.into_body(), LARGEST).collect());
        let Ok(Ok(body)) = body.await else { return StatusCode::BAD_REQUEST };
        let Some(order) = self.read(&body.to_bytes(), &signature, now()) else {
            tally.peers_refused.fetch_add(1, Ordering::Relaxed);
            return StatusCode::FORBIDDEN;
        };
        tally.peers_heard.fetch_add(order.invalidations.len() as u64, Ordering::Relaxed);
        if !order.invalidations.is_empty() {
            invalidate(state, &order.invalidations).await;
        }
        StatusCode::NO_CONTENT
    }

    /// Sends writes to peers until it is dropped.
    pub async fn tell(&self, reporter: Reporter, addresses: watch::Receiver<Vec<SocketAddr>>) {
        let state = reporter.state();
        let tally = Arc::clone(&state.borrow().tally);
        let mut writes = loop {
            if let Some(http) = tally.http() {
                break http.writes();
            }
            sleep(Duration::from_millis(200)).await;
        };
        loop {
            let Some(order) = gather(&mut writes).await else { return std::future::pending().await };
            let all = addresses.borrow().clone();
            let count = order.invalidations.len() as u64;
            let message = Message { from: self.own, at: now(), order };
            let Ok(body) = serde_json::to_vec(&message) else { continue };
            let signed = [self.greeting(message.at), self.signature(&body)];
            let body = Bytes::from(body);
            let mut sending = JoinSet::new();
            for address in all.into_iter().take(MOST_PEERS) {
                let (body, signed) = (body.clone(), signed.clone());
                sending.spawn(async move {
                    let sent = timeout(PATIENCE, send(address, body, &signed)).await;
                    matches!(sent, Ok(Ok(StatusCode::NO_CONTENT)))
                });
            }
            while let Some(sent) = sending.join_next().await {
                let counter = if sent.unwrap_or(false) { &tally.peers_told } else { &tally.peers_not_told };
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

/// Takes the same time for each wrong guess of the right length.
fn is_same(expected: &str, given: &str) -> bool {
    let differs = expected.bytes().zip(given.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    expected.len() == given.len() && std::hint::black_box(differs) == 0
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// About what it takes in a message.
fn size(write: &Write) -> usize {
    let texts = write.url.iter().chain(&write.named).chain(&write.groups);
    write.host.len() + write.owner.len() + 64 + texts.map(|text| text.len() + 3).sum::<usize>()
}

/// What comes within [`GATHER`] after the first, by host; and what origins named, by their namespace, whose objects alone it ends.
async fn gather(writes: &mut mpsc::Receiver<impl Into<Write>>) -> Option<Order> {
    let mut all: Vec<Write> = vec![writes.recv().await?.into()];
    sleep(GATHER).await;
    let mut bytes = all.iter().map(size).sum::<usize>();
    while all.len() < MOST_AT_ONCE
        && bytes < MOST_BYTES
        && let Ok(more) = writes.try_recv()
    {
        let more = more.into();
        bytes += size(&more);
        all.push(more);
    }
    let mut by_host: BTreeMap<(String, Option<String>), Invalidation> = BTreeMap::new();
    for Write { host, url, owner, named, groups } in all {
        for (owner, paths, tags) in
            [(None, url.into_iter().collect(), Vec::new()), (Some(owner), named, groups)]
        {
            let of_host = by_host.entry((host.clone(), owner.clone())).or_insert_with(|| Invalidation {
                hostname: Some(host.clone()),
                owner,
                ..Invalidation::default()
            });
            of_host.paths.extend(paths);
            of_host.tags.extend(tags);
        }
    }
    let is_some = |one: &Invalidation| !one.paths.is_empty() || !one.tags.is_empty();
    let each = by_host.into_values().filter(is_some).map(|mut one| {
        for list in [&mut one.paths, &mut one.tags] {
            list.sort_unstable();
            list.dedup();
        }
        one
    });
    Some(Order { invalidations: each.collect() })
}

async fn send(
    address: SocketAddr,
    body: Bytes,
    [greeting, signature]: &[String; 2],
) -> Result<StatusCode, Failed> {
    let stream = TcpStream::connect(address).await?;
    let request = Request::post(PATH)
        .header(hyper::header::HOST, address.to_string())
        .header(GREETING, greeting)
        .header(SIGNATURE, signature)
        .body(Full::new(body))?;
    Ok(client::exchange(stream, request, LARGEST_ANSWER).await?.status())
}

/// The reason does not matter: the sender does not get it.
struct Failed;

impl<E: std::error::Error> From<E> for Failed {
    fn from(_: E) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(secret: &str) -> Arc<Peers> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), secret).unwrap();
        Peers::of_secret(Some(file.path())).unwrap()
    }

    #[test]
    fn only_messages_of_peers_are_taken_and_only_new_ones() {
        let (here, there, stranger) = (peers("secret"), peers("secret"), peers("other"));
        let order = Order {
            invalidations: vec![Invalidation { paths: vec!["/a".to_owned()], ..Invalidation::default() }],
        };
        let message = |from: u64, at: u64| Message { from, at, order: order.clone() };
        let read = |message: &Message, signer: &Peers| {
            let body = serde_json::to_vec(message).unwrap();
            here.read(&body, &signer.signature(&body), 1000)
        };
        let good = message(there.own, 1000);
        assert_eq!(read(&good, &there), Some(order.clone()));
        assert_eq!(read(&good, &stranger), None);
        assert_eq!(read(&message(here.own, 1000), &here), Some(Order::default()), "our own");
        for at in [900, 1100] {
            assert_eq!(read(&message(there.own, at), &there), None);
        }
        let body = serde_json::to_vec(&good).unwrap();
        for signature in ["", "00", &"0".repeat(64), &there.signature(b"")] {
            assert_eq!(here.read(&body, signature, 1000), None, "{signature}");
        }
        let greeting = there.greeting(1000);
        assert!(here.is_greeting(&greeting, 1000) && here.is_greeting(&greeting, 1050));
        assert!(!here.is_greeting(&greeting, 1100) && !here.is_greeting(&stranger.greeting(1000), 1000));
        for text in ["", "1000", "1000 ", "x y", &greeting.replace("1000", "1001"), &format!("+{greeting}")] {
            assert!(!here.is_greeting(text, 1000), "{text}");
        }
        assert!(Peers::of_secret(None).is_none());
        assert!(Peers::of_secret(Some(Path::new("/nowhere"))).is_none());
    }

    #[tokio::test]
    async fn writes_are_gathered_by_host_and_namespace() {
        let (sender, mut writes) = mpsc::channel(8);
        let write = |host: &str, owner: &str, url: &str| Write {
            host: host.to_owned(),
            url: Some(url.to_owned()),
            owner: owner.to_owned(),
            named: vec!["/named".to_owned()],
            groups: vec!["all".to_owned()],
        };
        for (host, owner, url) in [("b", "x", "/2"), ("a", "x", "/1"), ("b", "y", "/1"), ("b", "x", "/2")] {
            sender.try_send(write(host, owner, url)).unwrap();
        }
        sender.try_send(Write { named: Vec::new(), groups: Vec::new(), ..write("c", "x", "/3") }).unwrap();
        let order = gather(&mut writes).await.unwrap();
        let all: Vec<_> = order
            .invalidations
            .iter()
            .map(|one| {
                let owner = one.owner.as_deref().unwrap_or("-");
                format!(
                    "{} {owner}: {} {}",
                    one.hostname.as_deref().unwrap(),
                    one.paths.join(" "),
                    one.tags.join(" ")
                )
            })
            .collect();
        let expected =
            ["a -: /1 ", "a x: /named all", "b -: /1 /2 ", "b x: /named all", "b y: /named all", "c -: /3 "];
        assert_eq!(all, expected);
    }
}
