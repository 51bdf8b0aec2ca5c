//! What a decision costs, and whether it grows with the number of routes.
//!
//! Every route is asked for once before any is asked for again, in random order, so that large tables are read from
//! memory and not from the caches that the previous request left warm. The bytes of a request are in the cache, as they
//! are for a carrier that has just parsed them, and a request starts only when the one before is decided.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a benchmark reports, and stops where it cannot"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use model::ghost::{Config, Endpoint, Group, Route, Vhost};
use model::matches::{PathMatch, PathMatchType};
use router::{Action, Request, Router};

/// Requests that are written down together, before the clock starts.
const BATCH: usize = 64;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    let sizes = [
        ("10 routes", SMALL),
        ("1000 routes, 100 hosts", Size { hosts: 100, ..SMALL }),
        ("100000 routes, 10000 hosts", LARGE),
        ("100000 routes, 10000 hosts, no path twice", LARGE_OF_OWN_PATHS),
        ("10000 routes, 1 host", Size { routes_per_host: 10_000, ..SMALL }),
    ];
    for (name, size) in sizes {
        let router = size.router();
        let mut group = criterion.benchmark_group(format!("lookup, {name}"));
        for (kind, find) in [("prefix", Find::Prefix), ("exact", Find::Exact), ("miss", Find::Nothing)] {
            let mut requests = size.requests(find);
            group.bench_function(kind, |b| b.iter_custom(|n| decide(&router, &mut requests, n)));
        }
        group.finish();
    }
    compile(&mut criterion);
    criterion.final_summary();
    ratio();
}

fn compile(criterion: &mut Criterion) {
    let config = Size { hosts: 1000, ..SMALL }.config();
    let mut group = criterion.benchmark_group("compile");
    group.throughput(Throughput::Elements(10_000)).sample_size(10);
    group.bench_function("10000 routes", |b| b.iter(|| Router::compile(&config).is_ok()));
    group.finish();
}

/// The promise of the router: at most 2. Small and large take turns, so that a busy machine slows both.
fn ratio() {
    let mut measured = [SMALL, LARGE, LARGE_OF_OWN_PATHS]
        .map(|size| (size.router(), size.requests(Find::Prefix), Vec::new()));
    let n = 100_000;
    for _ in 0..30 {
        for (router, requests, times) in &mut measured {
            times.push(decide(router, requests, n));
        }
    }
    let [small, large, own_paths] = measured.map(|(_, _, times)| {
        let least: Duration = times.into_iter().min().unwrap_or_default();
        least.as_secs_f64() * 1e9 / n as f64
    });
    println!("lookup, best of 30: 10 routes {small:.1} ns, 100000 routes {large:.1} ns");
    println!("ratio lookup 100000/10 routes: {:.2}", large / small);
    println!("the same where no path comes twice: {:.2}", own_paths / small);
}

/// The time that `n` decisions take.
fn decide(router: &Router, requests: &mut Requests, n: u64) -> Duration {
    let mut left = n as usize;
    let mut took = Duration::ZERO;
    let nothing = black_box(0);
    while left > 0 {
        requests.write(left.min(BATCH));
        let start = Instant::now();
        let mut at = 0;
        while let Some(request) = requests.get(at) {
            let decision = router.route(&request, at as u64).decision;
            let answer = match decision.action() {
                Action::Forward { group } => group,
                Action::Redirect
                | Action::Preflight
                | Action::NotFound
                | Action::NoBackend
                | Action::Unavailable
                | Action::Misdirected
                | Action::Refused(_)
                | Action::Loop
                | Action::TooLong(_) => 7,
            };
            // Keeps the processor from working on the next request already.
            at += 1 + (answer & nothing);
        }
        took += start.elapsed();
        left -= at;
    }
    took
}

#[derive(Debug, Clone, Copy)]
struct Size {
    hosts: usize,
    routes_per_host: usize,
    /// Usually hosts have paths in common, such as `/` and `/api`.
    own_paths: bool,
}

const SMALL: Size = Size { hosts: 1, routes_per_host: 10, own_paths: false };
const LARGE: Size = Size { hosts: 10_000, ..SMALL };
const LARGE_OF_OWN_PATHS: Size = Size { own_paths: true, ..LARGE };

/// What a request meets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Find {
    Prefix,
    Exact,
    Nothing,
}

impl Size {
    fn router(self) -> Router {
        let compiled = Router::compile(&self.config()).expect("the version is ours");
        assert!(compiled.problems.is_empty());
        compiled.router
    }

    /// On each host every other route is exact.
    fn config(self) -> Config {
        let vhost = |host| Vhost {
            routes: (0..self.routes_per_host).map(|nth| self.route(host, nth)).collect(),
            ..Vhost::default()
        };
        let vhosts = (0..self.hosts).map(|host| (hostname(host), vhost(host))).collect();
        let listener = model::Listener {
            name: "web".to_owned(),
            socket: "http-80".to_owned(),
            hostname: None,
            tls: None,
        };
        Config { listeners: vec![listener], vhosts, ..Config::default() }
    }

    fn route(self, host: usize, nth: usize) -> Route {
        let kind = if nth.is_multiple_of(2) { PathMatchType::PathPrefix } else { PathMatchType::Exact };
        let endpoint =
            |last| Endpoint { address: [10, (host >> 8) as u8, host as u8, last].into(), port: 8080 };
        Route {
            path_match: Some(PathMatch { kind, value: self.path(host, nth) }),
            backends: [Group {
                weight: 1,
                endpoints: vec![endpoint(1), endpoint(2)],
                name: Some(format!("shop-{host}/service-{nth}:8080")),
                ..Group::default()
            }]
            .into(),
            listener_names: vec!["web".to_owned()],
            route_name: format!("shop-{host}/route-{nth}"),
            ..Route::default()
        }
    }

    fn path(self, host: usize, nth: usize) -> String {
        if self.own_paths {
            format!("/api/shop-{host}/service-{nth}")
        } else {
            format!("/api/v1/service-{nth}")
        }
    }

    /// Every route of the kind once, in random order; small sizes begin again until there are as many.
    fn requests(self, find: Find) -> Requests {
        let routes = self.hosts * self.routes_per_host;
        let kind = if find == Find::Exact { 1 } else { 0 };
        let mut order: Vec<_> = (0..50_000).map(|at| (at * 2 % routes + kind) as u32).collect();
        let mut random = 1u64;
        for at in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            order.swap(at, (random >> 33) as usize % (at + 1));
        }
        Requests { size: self, find, order, next: 0, text: String::new(), ends: Vec::new() }
    }
}

fn hostname(host: usize) -> String {
    format!("shop-{host}.example.com")
}

/// Written down just before they are asked, so that they are in the cache and take no room from the router there.
#[derive(Debug)]
struct Requests {
    size: Size,
    find: Find,
    order: Vec<u32>,
    next: usize,
    text: String,
    /// Where host and URL end.
    ends: Vec<(usize, usize)>,
}

impl Requests {
    fn write(&mut self, length: usize) {
        let Self { size, find, order, next, text, ends } = self;
        text.clear();
        ends.clear();
        for _ in 0..length {
            let route = order[*next] as usize;
            *next = (*next + 1) % order.len();
            let (host, nth) = (route / size.routes_per_host, route % size.routes_per_host);
            text.push_str(&hostname(host));
            let host_end = text.len();
            text.push_str(&size.path(host, nth));
            text.push_str(match find {
                Find::Prefix => "/cart/items?id=1",
                Find::Exact => "?id=1",
                Find::Nothing => "x/cart/items?id=1",
            });
            ends.push((host_end, text.len()));
        }
    }

    fn get(&self, at: usize) -> Option<Get<'_>> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let &(host_end, end) = self.ends.get(at)?;
        Some(Get { host: &self.text[start..host_end], url: &self.text[host_end..end] })
    }
}

#[derive(Debug, Clone, Copy)]
struct Get<'a> {
    host: &'a str,
    url: &'a str,
}

impl Request for Get<'_> {
    fn socket(&self) -> &[u8] {
        b"http-80"
    }
    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }
    fn method(&self) -> &[u8] {
        b"GET"
    }
    fn url(&self) -> &[u8] {
        self.url.as_bytes()
    }
    fn any_header(&self, _: &str, _: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        false
    }
}
