//! HTTP, carried by the front: HTTP/1.1 on hyper, HTTP/2 on h2.
//!
//! Takes the connection of a client, and the router's table that is swapped with every reload. A request is read once,
//! at the entrance ([`request`]), and written again, never copied as it came. Requests that may be answered by the cache go to
//! varnishd with what the client sent ([`cache`]); all others go straight to an endpoint ([`origin`]). What breaks off on
//! one side breaks off on the other.

mod accept_key;
mod ahead;
mod attempt;
mod body;
mod cache;
mod content;
mod cors;
mod deadline;
mod details;
mod exchange;
mod fits;
mod grpc;
mod h1;
mod h2;
mod h2_io;
mod health;
mod heard;
pub(crate) mod hints;
mod hot;
mod kept;
mod line;
pub(crate) mod misses;
mod multiplexed;
mod origin;
mod plain;
mod pool;
mod post;
mod ranges;
mod reason;
mod record;
mod reply;
mod request;
mod resets;
mod response;
mod rewind;
mod stream;
mod survey;
mod table;
mod tallies;
mod tunnel;
mod tunnels;
mod uncached;
mod upload;
mod upstream;
mod varnishd;
mod watched;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use model::stats::Stats;
use router::counters::{Registry, Way};
use router::{NormalHost, Router};
use tokio::sync::{Notify, mpsc, watch};

use self::health::Health;
use self::table::Table;
use self::tallies::Tallies;
use crate::{BackendSide, HotLimits, Observer, Refusal};

pub use self::hot::{Hot, NotHot};
pub(crate) use self::line::Line;
pub(crate) use self::pool::{dial, is_exhausted, served_first};
pub use self::reason::Reason;
pub(crate) use self::request::Client;
pub use self::uncached::Uncached;
pub use self::upstream::mirror::Mirrored;
pub use self::upstream::session::SessionKey;
pub use model::event::Write;

/// Writes that wait to be sent to peers, and those of one namespace among them: a flood of them leaves places for others.
const MOST_WRITES: usize = 1024;
const MOST_WRITES_OF_NAMESPACE: usize = 256;

/// A write that peers must learn of, and its place in the queue.
#[derive(Debug)]
pub struct Told {
    pub write: Write,
    _place: Vec<upstream::upload::Taken>,
}

impl From<Told> for Write {
    fn from(told: Told) -> Self {
        told.write
    }
}

/// What all requests of one Gateway share. It outlives varnishd.
#[derive(Debug)]
pub struct Http {
    table: ArcSwapOption<Table>,
    /// How backends with TLS are verified.
    backends: Arc<BackendSide>,
    registry: Registry,
    /// Which endpoints to avoid.
    health: Health,
    /// varnishd's unix socket.
    pub(crate) cache_socket: PathBuf,
    /// Which start of varnishd's child runs, of all in this process; 0 where none does.
    cache_start: AtomicU64,
    /// It has ended: requests that wait for it do not wait longer.
    cache_gone: Notify,
    /// Keep-alive connections are closed with their next response.
    draining: AtomicBool,
    in_flight: AtomicU64,
    loops: AtomicU64,
    tunnels: AtomicU64,
    tunnels_refused: AtomicU64,
    /// Requests for the cache that went to the origin, since varnishd was not there.
    pub(crate) fallbacks: AtomicU64,
    fallback_rooms: cache::Rooms,
    /// Responses to unsafe methods that were sent although ghost had not answered.
    pub(crate) not_invalidated: AtomicU64,
    pub(crate) uncached: uncached::Recent,
    /// Sends writes to the task that informs peers, if there is one.
    told: OnceLock<mpsc::Sender<Told>>,
    /// Places in that queue.
    writes: upstream::upload::Rooms,
    /// Clients that wait for what varnishd fetches, and take hints.
    hints: hints::Waiting,
    /// Responses to POST that varnishd is about to store.
    posts: post::Waiting,
    /// Writes that were dropped and not sent to peers, since too many waited.
    pub(crate) not_told: AtomicU64,
    tunnel_idle: Duration,
    tunnel_total: Duration,
    tallies: Tallies,
    upstream: upstream::Shared,
    /// For the tokens of sessions.
    session_key: SessionKey,
    /// Where requests are logged or recorded.
    observer: Option<Arc<Observer>>,
    /// A rule needs the front for its misses.
    takes_misses: watch::Sender<bool>,
    /// Where responses may be answered from memory.
    hot: Option<Hot>,
}

impl Http {
    /// Without routes: until there are some, clients get 503.
    pub fn new(
        backends: Arc<BackendSide>,
        cache_socket: PathBuf,
        tunnel_idle: Duration,
        tunnel_total: Duration,
    ) -> Self {
        Self {
            table: ArcSwapOption::empty(),
            backends,
            registry: Registry::new(),
            health: Health::default(),
            cache_socket,
            cache_start: AtomicU64::new(0),
            cache_gone: Notify::new(),
            draining: AtomicBool::new(false),
            in_flight: AtomicU64::new(0),
            loops: AtomicU64::new(0),
            tunnels: AtomicU64::new(0),
            tunnels_refused: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
            fallback_rooms: cache::Rooms::default(),
            not_invalidated: AtomicU64::new(0),
            uncached: uncached::Recent::default(),
            told: OnceLock::new(),
            writes: upstream::upload::Rooms::new(MOST_WRITES, MOST_WRITES_OF_NAMESPACE),
            hints: hints::Waiting::default(),
            posts: post::Waiting::default(),
            not_told: AtomicU64::new(0),
            tunnel_idle,
            tunnel_total,
            tallies: Tallies::default(),
            upstream: upstream::Shared::default(),
            session_key: SessionKey::default(),
            observer: None,
            takes_misses: watch::Sender::new(false),
            hot: None,
        }
    }

    /// Finished requests are reported there.
    #[must_use]
    pub fn observed_by(mut self, observer: Option<Arc<Observer>>) -> Self {
        self.observer = observer;
        self
    }

    /// Sessions go on in other pods, and after a restart, that have the same key.
    #[must_use]
    pub fn with_session_key(mut self, key: SessionKey) -> Self {
        self.session_key = key;
        self
    }

    /// Responses of varnishd are kept in memory within these limits, as long as the page says that nothing of them was invalidated.
    #[must_use]
    pub fn with_hot(mut self, page: Arc<page::Page>, limits: HotLimits) -> Self {
        self.hot = Hot::new(page, limits);
        self
    }

    /// It is unknown which objects of this host have ended: all hot ones do. Those of other hosts, and so of other tenants, stay.
    fn end_hot(&self, host: &http::header::HeaderValue) {
        if let Some(hot) = &self.hot {
            hot.end_host(host.as_bytes());
        }
    }

    /// What is kept in memory, where something may be.
    pub fn hot(&self) -> Option<&Hot> {
        self.hot.as_ref()
    }

    pub fn observer(&self) -> Option<&Arc<Observer>> {
        self.observer.as_ref()
    }

    pub(crate) fn logs(&self) -> bool {
        self.observer.as_ref().is_some_and(|observer| observer.access_log().is_some())
    }

    /// Finished requests by the way they went. Each counts once.
    pub fn by_way(&self, way: Way) -> u64 {
        self.tallies.by_way(way)
    }

    /// Requests that were refused, failed or broke off.
    pub fn by_reason(&self, reason: Reason) -> u64 {
        self.tallies.by_reason(reason)
    }

    /// Receives what unsafe methods change from now on. Only the receiver of the first call gets them.
    pub fn writes(&self) -> mpsc::Receiver<Told> {
        let (sender, receiver) = mpsc::channel(MOST_WRITES);
        let _ = self.told.set(sender);
        receiver
    }

    /// Writes that were dropped and not sent to peers, since too many waited.
    pub fn writes_not_told(&self) -> u64 {
        self.not_told.load(Ordering::Relaxed)
    }

    /// The last request for this URL that the cache was asked for and did not answer alone, where it is known.
    pub fn last_uncached(&self, host: &str, url: &str) -> Option<Uncached> {
        self.uncached.find(NormalHost::new(host.as_bytes()).as_bytes(), url.as_bytes())
    }

    /// Responses to unsafe methods that were sent although ghost had not invalidated all that they name.
    pub fn not_invalidated(&self) -> u64 {
        self.not_invalidated.load(Ordering::Relaxed)
    }

    /// Requests for the cache that went to their origins because varnishd did not run.
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Requests that were sent once more.
    pub fn retries(&self) -> u64 {
        self.upstream.retries.load(Ordering::Relaxed)
    }

    /// Requests that were not sent once more, since their group had as many retries as it may have.
    pub fn retries_over_budget(&self) -> u64 {
        self.upstream.over_budget.load(Ordering::Relaxed)
    }

    /// Requests that were not sent once more, since their body was too large to be kept.
    pub fn retries_without_body(&self) -> u64 {
        self.upstream.not_kept.load(Ordering::Relaxed)
    }

    /// Bytes of request bodies that are kept for another try.
    pub fn kept_upload_bytes(&self) -> usize {
        self.upstream.kept_bytes()
    }

    /// Copies of requests for mirrors, by result.
    pub fn mirrored(&self, what: Mirrored) -> u64 {
        self.upstream.mirrors.counted(what)
    }

    /// From now on requests go by this table. Those that have begun keep theirs.
    pub fn route_by(&self, router: Arc<Router>) {
        let old = self.table.load_full();
        let known = old.as_ref().and_then(|old| old.router().base());
        let is_new = |base: &&Arc<Router>| !known.is_some_and(|known| Arc::ptr_eq(known, base));
        let rules =
            router.base().filter(is_new).into_iter().flat_map(|base| base.rules()).chain(router.rules());
        let is_needed = |rule: &router::Rule| {
            rule.cache().is_some_and(|cache| cache.keeps_posts())
                || (0..rule.groups().len()).any(|group| rule.needs_front(group))
        };
        if rules.into_iter().any(is_needed) {
            self.takes_misses.send_replace(true);
        }
        let table = Table::new(router, &self.registry, &self.health, &self.session_key, old.as_deref());
        self.table.store(Some(Arc::new(table)));
        drop(old);
        self.health.prune();
    }

    /// Returns once a rule needs the front for its misses: the socket for backends must be open then.
    pub async fn takes_misses(&self) {
        let _ = self.takes_misses.subscribe().wait_for(|takes| *takes).await;
    }

    /// Endpoints that get no requests for now, since they failed several times in a row.
    pub fn avoided_endpoints(&self) -> Vec<SocketAddr> {
        self.health.avoided()
    }

    /// Stops the clock of endpoints that are avoided, and advances it. For tests, which must not depend on time.
    #[doc(hidden)]
    pub fn advance_health(&self, by: Duration) {
        self.health.clock.advance(by);
    }

    /// Whether varnishd's child runs. While it does not, its socket takes connections that nothing answers.
    pub fn cache_runs(&self, runs: bool) {
        static STARTS: AtomicU64 = AtomicU64::new(1);
        let start = if runs { STARTS.fetch_add(1, Ordering::Relaxed) } else { 0 };
        self.cache_start.store(start, Ordering::Relaxed);
        if !runs {
            self.cache_gone.notify_waiters();
        }
    }

    /// The start of varnishd's child that runs. Connections of another start are not used again.
    fn cache_start(&self) -> Option<u64> {
        Some(self.cache_start.load(Ordering::Relaxed)).filter(|start| *start != 0)
    }

    /// Every response from now on closes its connection, or not any more.
    pub fn drain(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Requests that are not over yet.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// What was counted of requests that varnishd did not see.
    pub fn stats(&self) -> Stats {
        let of_routes = self.table.load().as_ref().map(|table| table.stats()).unwrap_or_default();
        Stats {
            in_flight: self.in_flight(),
            loops: self.loops.load(Ordering::Relaxed),
            upgraded: self.tunnels.load(Ordering::Relaxed),
            upgrades_refused: self.tunnels_refused.load(Ordering::Relaxed),
            endpoints_avoided: self.health.avoided().len() as u64,
            ejections: self.health.ejections(),
            ..of_routes
        }
    }
}

/// Serves one client that speaks HTTP, until one of the two is done. Returns the limit that closed the connection, if any did.
pub(crate) async fn serve<S>(
    stream: S,
    client: Client,
    alpn: Option<&[u8]>,
    shutdown: watch::Receiver<crate::Shutdown>,
) -> Option<Refusal>
where
    S: h1::Wire,
{
    let client = Arc::new(client);
    let speaks_h2 = match alpn {
        Some(alpn) => alpn == b"h2",
        None => {
            let (stream, is_h2) = rewind::sniff(stream, &client.limits).await?;
            if is_h2 {
                return Box::pin(h2::serve(stream, client, shutdown)).await;
            }
            h1::serve(stream, client, shutdown).await;
            return None;
        }
    };
    if speaks_h2 {
        return Box::pin(h2::serve(stream, client, shutdown)).await;
    }
    h1::serve(stream, client, shutdown).await;
    None
}
