//! HTTP, carried by the front: HTTP/1.1 on hyper, HTTP/2 on h2.
//!
//! Takes the connection of a client, and the router's table that is swapped with every reload. A request is read once,
//! at the entrance ([`request`]), and written again, never copied as it came. Requests that may be answered by the cache go to
//! varnishd with what the client sent ([`cache`]); all others go straight to an endpoint ([`origin`]). What breaks off on
//! one side breaks off on the other.

mod body;
mod cache;
mod exchange;
mod h1;
mod h2;
mod h2_io;
mod health;
mod origin;
mod pool;
mod record;
mod request;
mod response;
mod rewind;
mod table;
mod tunnel;
mod watched;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use model::stats::Stats;
use router::Router;
use router::counters::Registry;
use tokio::sync::Notify;

use self::health::Health;
use self::table::Table;
use crate::BackendSide;

pub(crate) use self::pool::{dial, is_exhausted, relieve};
pub(crate) use self::request::Client;

/// What all requests of one Gateway share. It outlives varnishd.
#[derive(Debug)]
pub struct Http {
    table: ArcSwapOption<Table>,
    /// How backends with TLS are verified.
    backends: Arc<BackendSide>,
    registry: Registry,
    /// Which endpoints to avoid.
    health: Health,
    /// varnishd's unix sockets, for clients of plain HTTP and of HTTPS.
    pub(crate) plain_socket: PathBuf,
    pub(crate) tls_socket: PathBuf,
    /// varnishd's child runs.
    cache_runs: AtomicBool,
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
    tunnel_idle: Duration,
    tunnel_total: Duration,
}

impl Http {
    /// Without routes: until there are some, clients get 503.
    pub fn new(
        backends: Arc<BackendSide>,
        plain_socket: PathBuf,
        tls_socket: PathBuf,
        tunnel_idle: Duration,
        tunnel_total: Duration,
    ) -> Self {
        Self {
            table: ArcSwapOption::empty(),
            backends,
            registry: Registry::new(),
            health: Health::default(),
            plain_socket,
            tls_socket,
            cache_runs: AtomicBool::new(false),
            cache_gone: Notify::new(),
            draining: AtomicBool::new(false),
            in_flight: AtomicU64::new(0),
            loops: AtomicU64::new(0),
            tunnels: AtomicU64::new(0),
            tunnels_refused: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
            fallback_rooms: cache::Rooms::default(),
            tunnel_idle,
            tunnel_total,
        }
    }

    /// From now on requests go by this table. Those that have begun keep theirs.
    pub fn route_by(&self, router: Arc<Router>) {
        let old = self.table.load_full();
        self.table.store(Some(Arc::new(Table::new(router, &self.registry, &self.health, old.as_deref()))));
        drop(old);
        self.health.prune();
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
        self.cache_runs.store(runs, Ordering::Relaxed);
        if !runs {
            self.cache_gone.notify_waiters();
        }
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

/// Serves one client that speaks HTTP, until one of the two is done.
pub(crate) async fn serve<S>(
    stream: S,
    client: Client,
    alpn: Option<&[u8]>,
    shutdown: tokio::sync::watch::Receiver<crate::Shutdown>,
) where
    S: h1::Wire,
{
    let client = Arc::new(client);
    match alpn {
        Some(b"h2") => Box::pin(h2::serve(stream, client, shutdown)).await,
        Some(_) => h1::serve(stream, client, shutdown).await,
        None => match rewind::sniff(stream).await {
            Some((stream, true)) => Box::pin(h2::serve(stream, client, shutdown)).await,
            Some((stream, false)) => h1::serve(stream, client, shutdown).await,
            None => {}
        },
    }
}
