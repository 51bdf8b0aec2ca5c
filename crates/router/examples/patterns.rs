//! What the worst patterns that are accepted cost: memory, time to compile, and the worst request. Times are CPU time of this
//! thread, so a busy machine changes them little: `cargo run --release -p router --example patterns`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "it reports, and stops where it cannot"
)]

use model::ghost::{Config, Route, Vhost};
use model::matches::{PathMatch, PathMatchType};
use model::{BypassHeader, CachePolicy};
use router::budget::{LONGEST_VALUE, MOST_MATCHED, MOST_OF_HOST};
use router::{Problem, Request, Router, pattern};

const COMPILED: u32 = 20;
/// The kernel counts CPU time by its ticks, so single requests are too short to be measured.
const REQUESTS: u32 = 100;
const ROUNDS: usize = 11;

fn main() {
    println!("compiling, mean of {COMPILED}");
    let words: Vec<String> = (0..100).map(|n| format!("{:x}word{n}ending", n * 7919 % 101)).collect();
    let classes: String = (0..12).map(|n| format!("([a-z0-9]{{{n},40}}[^b-y]|.)")).collect();
    for text in [
        ".*session=.*",
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        &format!("(?i)/({})/.*", words.join("|")),
        "/[01]*1[01]{11}",
        "/(a|b|c)*a(a|b|c){10}",
        "[01]*1[01]{6000}",
        "(.*a.{9}|.*b.{9}|.*c.{9})*",
        ".*(a|b|c|d|e|f|g|h).{60}",
        "((a{100}){100}){100}",
        "(((((a?){30}){30}){30}){30}){30}",
        "(.?){3000}",
        "([a-c]?[b-d]?[c-e]?){400}",
        "(x+x+)+y(.{1,60}z){8}",
        &classes,
    ] {
        // Results are remembered by text, so each time it is another one that means the same.
        let start = cpu();
        let mut same = text.to_owned();
        let mut cost = pattern::check(&same);
        for _ in 1..COMPILED {
            same.push_str("(?:)");
            cost = pattern::check(&same);
        }
        let took = (cpu() - start) / 1e6 / f64::from(COMPILED);
        let shown: String = text.chars().take(50).collect();
        match cost {
            Ok(cost) => println!("{shown:52} {:6} bytes {took:8.2} ms", cost.bytes),
            Err(_) => println!("{shown:52}      refused {took:8.2} ms"),
        }
    }

    let regex = |n: usize| Route {
        route_name: format!("d/{n}"),
        path_match: Some(PathMatch {
            kind: PathMatchType::RegularExpression,
            value: format!("/[01]*1[01]{{11}}|/x{{{n}}}y"),
        }),
        ..Route::default()
    };
    let bypass = |n: usize| BypassHeader {
        name: "Cookie".to_owned(),
        value_regex: Some(format!("[01]*1[01]{{11}}|x{{{n}}}yz")),
    };
    let policy = CachePolicy { bypass_headers: (0..16).map(bypass).collect(), ..CachePolicy::default() };
    let last =
        Route { route_name: "d/last".to_owned(), cache_policy: Some(Box::new(policy)), ..Route::default() };
    // One more than is accepted.
    let routes = (0..=MOST_MATCHED).map(regex).chain([last]).collect();
    let vhosts = [("*".to_owned(), Vhost { routes, ..Vhost::default() })].into();
    let compiled = Router::compile(&Config { version: 2, vhosts, ..Config::default() }).expect("version");
    println!(
        "worst request: {MOST_MATCHED} patterns of the host, 16 of the policy, {LONGEST_VALUE} bytes each"
    );
    left_out(&compiled.problems);
    let mut random = 1_u64;
    let mut bits = |length: usize| -> Vec<u8> {
        let bit = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b'0' + (random >> 60) as u8 % 2
        };
        (0..length).map(bit).collect()
    };
    // Its end is no 0 or 1: all patterns look at every byte, and none of them matches.
    let end = |mut value: Vec<u8>| {
        value.truncate(LONGEST_VALUE - 1);
        value.push(b'!');
        value
    };
    let url = end([b"/".to_vec(), bits(LONGEST_VALUE)].concat());
    let request = Worst { url, cookie: end(bits(LONGEST_VALUE)) };
    measure(&compiled.router, &request);

    let beginning = |n: usize| Route {
        route_name: format!("d/{n}"),
        path_match: Some(PathMatch {
            kind: PathMatchType::RegularExpression,
            value: format!("/tenant-{n:04}/[a-z0-9]{{1,30}}"),
        }),
        ..Route::default()
    };
    let last = Route { route_name: "d/last".to_owned(), ..Route::default() };
    let routes = (0..=MOST_OF_HOST).map(beginning).chain([last]).collect();
    let vhosts = [("*".to_owned(), Vhost { routes, ..Vhost::default() })].into();
    let compiled = Router::compile(&Config { version: 2, vhosts, ..Config::default() }).expect("version");
    println!("most patterns: {MOST_OF_HOST} of the host, with different beginnings");
    left_out(&compiled.problems);
    measure(&compiled.router, &Worst { url: b"/tenant-none/x".to_vec(), cookie: Vec::new() });
}

/// Only the one that is too much.
fn left_out(problems: &[Problem]) {
    let [one] = problems else { panic!("{} problems, as {:?}", problems.len(), problems.first()) };
    println!("left out: {one}");
}

fn measure(router: &Router, request: &Worst) {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = cpu();
            for _ in 0..REQUESTS {
                let decision = router.decide(request, 0);
                let rule = decision.rule().expect("the last rule takes it");
                let bypassed = rule.cache().is_some_and(|cache| cache.is_bypassed_by(request));
                assert!(!bypassed && rule.route_name() == "d/last");
            }
            (cpu() - start) / 1e6 / f64::from(REQUESTS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "CPU of a request: median {:.3} ms, most {:.3} ms ({ROUNDS} rounds of {REQUESTS})",
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

/// Nanoseconds of this thread on a processor.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

struct Worst {
    url: Vec<u8>,
    cookie: Vec<u8>,
}

impl Request for Worst {
    fn socket(&self) -> &[u8] {
        b"http-80"
    }
    fn host(&self) -> &[u8] {
        b"a.test"
    }
    fn method(&self) -> &[u8] {
        b"GET"
    }
    fn url(&self) -> &[u8] {
        &self.url
    }
    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        name == "Cookie" && seen(&self.cookie)
    }
}
