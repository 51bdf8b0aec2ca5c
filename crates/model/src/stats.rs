//! What ghost has counted for each rule of each route: its answer to [`crate::names::STATS_PATH`].
//!
//! Numbers only grow while varnishd's child lives, over reloads too. A child that restarts begins with zero.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::RouteKind;

/// `1xx` to `5xx`, and whatever is none of these: a WebSocket, an odd status of user VCL.
pub const CODES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];
/// What the cache did. `other`: it was not asked, since the gateway answered itself, or handed the connection on.
pub const CACHE_RESULTS: [&str; 5] = ["hit", "miss", "pass", "stale", "other"];
/// Why an answer that was to be kept was not: `size`, its Content-Length is over the limit; `outgrown`, it has no Content-Length, and
/// its fetch was ended at the limit; `index`, it has too many tags, or the index of objects is full.
pub const NOT_KEPT: [&str; 3] = ["size", "outgrown", "index"];
/// The ways that a request can take. `cache`: varnishd was asked. `direct`: the front sent it straight to an endpoint. `own`: the
/// gateway answered itself, for example with a redirect or 404, and no backend was asked.
pub const WAYS: [&str; 4] = ["cache", "direct", "own", "hot"];
/// Upper bounds of all but the last bucket, in microseconds.
pub const BOUNDS_MICROS: [u64; 12] = [
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];
pub const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// The bucket that a time falls into.
pub fn bucket(micros: u64) -> usize {
    BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BUCKETS - 1)
}

/// The position of a status in [`CODES`].
pub fn code(status: u16) -> usize {
    match status / 100 {
        class @ 1..=5 => usize::from(class) - 1,
        _ => CODES.len() - 1,
    }
}

/// The whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// False where `metrics.perRoute: false` has switched it off.
    pub per_route: bool,
    /// Requests that were routed and are in progress.
    pub in_flight: u64,
    /// WebSockets that are open, and those that there was no place for.
    pub upgraded: u64,
    pub upgrades_refused: u64,
    /// Endpoints that came with reloads, and that went with them.
    pub endpoints_added: u64,
    pub endpoints_removed: u64,
    /// Endpoints that the front avoids now since they failed, and how often it began to avoid one.
    pub endpoints_avoided: u64,
    pub ejections: u64,
    /// Requests that were refused because they have been through this Gateway before.
    pub loops: u64,
    /// Responses to unsafe methods that varnishd carried, and that other pods did not hear of.
    #[serde(default)]
    pub writes_lost: u64,
    /// By [`NOT_KEPT`].
    pub not_kept: [u64; NOT_KEPT.len()],
    /// About how many bytes the index of objects takes, how many it may take, and how many the bans of late take.
    pub index_bytes: u64,
    pub index_limit_bytes: u64,
    pub ban_bytes: u64,
    /// Requests that no route took.
    pub unrouted: Counts,
    /// In no order. Rules that no request has come to are left out.
    pub routes: Vec<RouteStats>,
    /// Requests by way: of each socket of a listener (`http-80`), and of each Service (`namespace/name:port`; empty for a backend
    /// that is not valid). In no order; without those that no request has come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<NamedFlow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<NamedFlow>,
}

/// Requests by the way that they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flow {
    /// By [`WAYS`].
    pub requests: [u64; WAYS.len()],
    /// Of these, responses with 5xx.
    pub errors: [u64; WAYS.len()],
    /// Requests of the cache way that the cache answered alone, fresh or stale: no backend was asked.
    pub hits: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFlow {
    pub name: String,
    #[serde(flatten)]
    pub flow: Flow,
}

impl Flow {
    pub fn total(&self) -> u64 {
        self.requests.iter().sum()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What was counted since then. Fewer requests than then mean that counting has started again.
    pub fn since(&self, before: &Self) -> Self {
        if self.total() < before.total() {
            return *self;
        }
        let less = |now: [u64; WAYS.len()], was: [u64; WAYS.len()]| {
            std::array::from_fn(|way| now[way].saturating_sub(was[way]))
        };
        Self {
            requests: less(self.requests, before.requests),
            errors: less(self.errors, before.errors),
            hits: self.hits.saturating_sub(before.hits),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.requests.iter_mut().zip(other.requests).for_each(|(to, from)| *to += from);
        self.errors.iter_mut().zip(other.errors).for_each(|(to, from)| *to += from);
        self.hits += other.hits;
    }
}

/// One rule of one route, over all its matches and hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteStats {
    #[serde(default, skip_serializing_if = "RouteKind::is_http_route")]
    pub kind: RouteKind,
    /// `namespace/name`
    pub route: String,
    /// The rule's position in the route, from 0.
    pub rule: u32,
    #[serde(flatten)]
    pub counts: Counts,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Answers to clients, by [`CODES`].
    pub codes: [u64; CODES.len()],
    /// The same ones by [`CACHE_RESULTS`].
    pub cache: [u64; CACHE_RESULTS.len()],
    /// The same ones by [`WAYS`].
    pub ways: [u64; WAYS.len()],
    /// Bytes of answers, heads and bodies.
    pub bytes: u64,
    /// From the request's head to the answer's last byte.
    pub seconds: Histogram,
    /// From the fetch's beginning to the head of the origin's answer.
    pub backend: Histogram,
    /// Fetches that failed without a response.
    pub backend_failures: u64,
}

/// Times by bucket: not cumulated; the last one is for all that is longer than the last bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    pub buckets: [u64; BUCKETS],
    pub sum_micros: u64,
}

impl Histogram {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn since(&self, before: &Self) -> Self {
        let mut more = self.clone();
        more.buckets.iter_mut().zip(before.buckets).for_each(|(now, was)| *now = now.saturating_sub(was));
        more.sum_micros = more.sum_micros.saturating_sub(before.sum_micros);
        more
    }

    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(to, from)| *to += from);
        self.sum_micros += other.sum_micros;
    }
}

impl Counts {
    pub fn requests(&self) -> u64 {
        self.codes.iter().sum()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What was counted since then. Fewer requests than then: the child has restarted, and all of it is new.
    pub fn since(&self, before: &Self) -> Self {
        let mut more = self.clone();
        if self.requests() < before.requests() {
            return more;
        }
        more.codes.iter_mut().zip(before.codes).for_each(|(now, was)| *now = now.saturating_sub(was));
        more.cache.iter_mut().zip(before.cache).for_each(|(now, was)| *now = now.saturating_sub(was));
        more.ways.iter_mut().zip(before.ways).for_each(|(now, was)| *now = now.saturating_sub(was));
        more.bytes = more.bytes.saturating_sub(before.bytes);
        more.seconds = more.seconds.since(&before.seconds);
        more.backend = more.backend.since(&before.backend);
        more.backend_failures = more.backend_failures.saturating_sub(before.backend_failures);
        more
    }

    pub fn add(&mut self, other: &Self) {
        self.codes.iter_mut().zip(other.codes).for_each(|(to, from)| *to += from);
        self.cache.iter_mut().zip(other.cache).for_each(|(to, from)| *to += from);
        self.ways.iter_mut().zip(other.ways).for_each(|(to, from)| *to += from);
        self.bytes += other.bytes;
        self.seconds.add(&other.seconds);
        self.backend.add(&other.backend);
        self.backend_failures += other.backend_failures;
    }
}

impl Stats {
    /// Adds what the front counted of requests that ghost did not see. The front knows all requests that are under way.
    pub fn add(&mut self, of_front: &Self) {
        self.per_route |= of_front.per_route;
        self.in_flight = self.in_flight.max(of_front.in_flight);
        self.upgraded += of_front.upgraded;
        self.upgrades_refused += of_front.upgrades_refused;
        self.endpoints_avoided += of_front.endpoints_avoided;
        self.ejections += of_front.ejections;
        self.loops += of_front.loops;
        self.unrouted.add(&of_front.unrouted);
        // The front counts all requests by socket and Service, those that ghost saw, too; unless varnishd has the ports, and it counts none.
        if !of_front.sockets.is_empty() {
            self.sockets.clone_from(&of_front.sockets);
            self.services.clone_from(&of_front.services);
        }
        let mut places: HashMap<(RouteKind, String, u32), usize> = HashMap::with_capacity(self.routes.len());
        for (at, route) in self.routes.iter().enumerate() {
            places.insert((route.kind, route.route.clone(), route.rule), at);
        }
        for route in &of_front.routes {
            match places.get(&(route.kind, route.route.clone(), route.rule)) {
                Some(at) => self.routes[*at].counts.add(&route.counts),
                None => self.routes.push(route.clone()),
            }
        }
    }

    /// Of all routes, and of requests that none took.
    pub fn total(&self) -> Counts {
        let mut total = self.unrouted.clone();
        self.routes.iter().for_each(|route| total.add(&route.counts));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_times_find_their_place() {
        assert_eq!([100, 204, 301, 404, 503].map(code), [0, 1, 2, 3, 4]);
        assert_eq!([0, 99, 600, 750].map(code), [5; 4]);
        assert_eq!([0, 1_000, 1_001, 10_000_000, 10_000_001].map(bucket), [0, 0, 1, 11, 12]);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut stats = Stats { per_route: true, in_flight: 1, ..Stats::default() };
        let mut counts = Counts { bytes: 7, ..Counts::default() };
        counts.codes[1] = 3;
        stats.routes.push(RouteStats {
            kind: RouteKind::Ingress,
            route: "shop/web".to_owned(),
            rule: 2,
            counts,
        });
        let flow = Flow { requests: [5, 2, 1, 0], errors: [0, 1, 0, 0], hits: 4 };
        stats.sockets.push(NamedFlow { name: "http-80".to_owned(), flow });
        let json = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<Stats>(&json).unwrap(), stats);
        assert_eq!(stats.total().requests(), 3);
    }

    #[test]
    fn flows_grow_and_begin_again() {
        let before = Flow { requests: [5, 2, 1, 0], errors: [0, 1, 0, 0], hits: 4 };
        let now = Flow { requests: [9, 2, 1, 0], errors: [1, 1, 0, 0], hits: 7 };
        assert_eq!(now.since(&before), Flow { requests: [4, 0, 0, 0], errors: [1, 0, 0, 0], hits: 3 });
        let restarted = Flow { requests: [0, 3, 0, 0], ..Flow::default() };
        assert_eq!(restarted.since(&before), restarted);
        let mut sum = before;
        sum.add(&restarted);
        assert_eq!((sum.total(), sum.requests), (11, [5, 5, 1, 0]));
    }

    #[test]
    fn what_the_front_counts_by_way_is_not_added_to_what_ghost_counts() {
        let named = |requests| {
            vec![NamedFlow {
                name: "http-80".to_owned(),
                flow: Flow { requests: [requests, 0, 0, 0], ..Flow::default() },
            }]
        };
        let mut of_ghost = Stats { sockets: named(3), services: named(2), ..Stats::default() };
        of_ghost.add(&Stats { sockets: named(5), ..Stats::default() });
        assert_eq!((of_ghost.sockets, of_ghost.services), (named(5), Vec::new()));
    }
}
