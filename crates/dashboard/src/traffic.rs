//! Numbers of the last minutes, second by second: what was counted, less what was counted before.

use std::collections::{HashMap, VecDeque};

use chaperone::stats::Sample;
use model::RouteKind;
use model::stats::{BOUNDS_MICROS, BUCKETS, Counts, Stats, WAYS};
use serde::{Deserialize, Serialize};

use crate::flows::{Flows, Picture};
use crate::view::{Second, SecondOf};

/// Seconds that are kept.
pub(crate) const KEPT: usize = 180;
/// Rules whose numbers are kept. The quietest are forgotten first.
const MOST: usize = 500;
/// Seconds that say how busy a rule is now.
const NOW: usize = 5;

/// A rule: kind, `namespace/name`, position.
pub(crate) type Rule = (RouteKind, String, u32);

/// One second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests a second.
    pub rate: f64,
    /// Answers with 5xx a second.
    pub errors: f64,
    /// Share of requests that the cache answered; none without requests.
    pub hits: Option<f64>,
    /// Milliseconds to the answer's last byte: the mean, and what 95 of 100 stay below.
    pub mean: Option<f64>,
    pub p95: Option<f64>,
    /// Requests per second by way.
    #[serde(default)]
    pub ways: ByWay,
}

/// Requests per second by way: one field for each of [`WAYS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ByWay {
    pub cache: f64,
    pub direct: f64,
    pub own: f64,
    #[serde(default)]
    pub hot: f64,
}

/// The same, as columns: a plot is a column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    pub rate: Vec<f64>,
    pub errors: Vec<f64>,
    pub hits: Vec<Option<f64>>,
    pub mean: Vec<Option<f64>>,
    pub p95: Vec<Option<f64>>,
}

#[derive(Debug, Default)]
struct Series {
    points: VecDeque<Counted>,
}

/// What is kept of one second: 96 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    requests: u32,
    errors: u32,
    /// Of these the cache could have answered some…
    asked: u32,
    /// … and did.
    hits: u32,
    sum_micros: u64,
    buckets: [u32; BUCKETS],
    ways: [u32; WAYS.len()],
    seconds: f32,
}

/// Of one varnishd.
#[derive(Debug, Default)]
pub struct Traffic {
    before: Option<Sample>,
    total: Series,
    rules: HashMap<Rule, Series>,
    flows: Flows,
    pub(crate) in_flight: u64,
    per_route: bool,
}

impl Traffic {
    /// The next sample. `None`: varnishd is not there, and nothing is served.
    pub fn take(&mut self, sample: Option<&Sample>) {
        let Some(sample) = sample else {
            self.before = None;
            self.in_flight = 0;
            self.total.push(Counted::silent(1.0));
            self.flows.silent(1.0);
            self.rules.values_mut().for_each(|series| series.push(Counted::silent(1.0)));
            return;
        };
        self.in_flight = sample.stats.in_flight;
        self.per_route = sample.stats.per_route;
        // Without a sample before it, it is unknown in which time these were counted.
        let Some(before) = self.before.replace(sample.clone()) else { return };
        let seconds = sample.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
        self.flows.take(&before.stats, &sample.stats, seconds);
        let (was, nothing) = (by_rule(&before.stats), Counts::default());
        let since = |rule: &Rule, now: &Counts| {
            Counted::between(was.get(rule).copied().unwrap_or(&nothing), now, seconds)
        };
        let mut counted: HashMap<Rule, Counted> = by_rule(&sample.stats)
            .into_iter()
            .map(|(rule, now)| {
                let second = since(&rule, now);
                (rule, second)
            })
            .collect();
        // Rule by rule: one that goes takes what it had counted along.
        let mut total = Counted::between(&before.stats.unrouted, &sample.stats.unrouted, seconds);
        counted.values().for_each(|second| total.add(&Counted { seconds: 0.0, ..*second }));
        self.total.push(total);
        for (rule, series) in &mut self.rules {
            series.push(counted.remove(rule).unwrap_or_else(|| Counted::silent(seconds)));
        }
        for (rule, second) in counted {
            self.rules.entry(rule).or_default().push(second);
        }
        self.forget_the_quietest();
    }

    fn forget_the_quietest(&mut self) {
        if self.rules.len() <= MOST {
            return;
        }
        let mut busy: Vec<_> = self.rules.iter().map(|(rule, series)| (series.busy(), rule)).collect();
        busy.select_nth_unstable_by(MOST, |((now, all), one), ((other_now, other_all), other)| {
            other_now.total_cmp(now).then(other_all.cmp(all)).then(one.cmp(other))
        });
        let quiet: Vec<Rule> = busy.into_iter().skip(MOST).map(|(_, rule)| rule.clone()).collect();
        for rule in quiet {
            self.rules.remove(&rule);
        }
    }

    pub(crate) fn total(&self) -> Columns {
        self.total.columns()
    }

    pub(crate) fn columns(&self, rule: &Rule) -> Option<Columns> {
        self.rules.get(rule).map(Series::columns)
    }

    /// Where the requests of the last seconds came from, and where they went.
    pub(crate) fn picture(&self) -> Picture {
        self.flows.picture()
    }

    /// Is counting switched off?
    pub(crate) fn is_uncounted(&self) -> bool {
        self.before.is_some() && !self.per_route
    }

    /// The last seconds as one, with the busiest rules.
    pub fn second(&self, gateway: &str, seconds: usize, most: usize) -> Second {
        let rules = self.busiest(seconds, most).into_iter().map(|((kind, route, rule), point)| SecondOf {
            kind: kind.name().to_owned(),
            route: route.clone(),
            rule: *rule,
            point,
        });
        Second {
            gateway: gateway.to_owned(),
            total: self.total.over(seconds),
            in_flight: self.in_flight,
            in_front: false,
            uncounted: self.is_uncounted(),
            streams: Vec::new(),
            rules: rules.collect(),
            picture: self.picture(),
        }
    }

    /// Over the last seconds, those with requests, the busiest first.
    fn busiest(&self, seconds: usize, most: usize) -> Vec<(&Rule, Point)> {
        let mut all: Vec<_> = self
            .rules
            .iter()
            .map(|(rule, series)| (rule, series.over(seconds)))
            .filter(|(_, point)| point.rate > 0.0)
            .collect();
        all.sort_by(|(one, a), (other, b)| b.rate.total_cmp(&a.rate).then_with(|| one.cmp(other)));
        all.truncate(most);
        all
    }
}

fn by_rule(stats: &Stats) -> HashMap<Rule, &Counts> {
    stats.routes.iter().map(|rule| ((rule.kind, rule.route.clone(), rule.rule), &rule.counts)).collect()
}

impl Series {
    fn push(&mut self, second: Counted) {
        self.points.push_back(second);
        if self.points.len() > KEPT {
            self.points.pop_front();
        }
    }

    /// Requests a second of late, and all that are kept.
    fn busy(&self) -> (f64, u64) {
        let all = self.points.iter().map(|second| u64::from(second.requests)).sum();
        (self.over(NOW).rate, all)
    }

    fn columns(&self) -> Columns {
        let mut columns = Columns::default();
        for second in &self.points {
            let point = second.point();
            columns.rate.push(point.rate);
            columns.errors.push(point.errors);
            columns.hits.push(point.hits);
            columns.mean.push(point.mean);
            columns.p95.push(point.p95);
        }
        columns
    }

    /// All of the last points as one.
    fn over(&self, points: usize) -> Point {
        let mut sum = Counted::default();
        for second in self.points.iter().rev().take(points) {
            sum.add(second);
        }
        sum.point()
    }
}

impl Counted {
    fn silent(seconds: f64) -> Self {
        Self { seconds: seconds as f32, ..Self::default() }
    }

    fn between(before: &Counts, now: &Counts, seconds: f64) -> Self {
        let more = now.since(before);
        let capped = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let [hit, miss, pass, stale, _] = more.cache;
        Self {
            requests: capped(more.requests()),
            errors: capped(more.codes[4]),
            asked: capped(hit + miss + pass + stale),
            hits: capped(hit + stale),
            sum_micros: more.seconds.sum_micros,
            buckets: more.seconds.buckets.map(capped),
            ways: more.ways.map(capped),
            seconds: seconds as f32,
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.errors = self.errors.saturating_add(other.errors);
        self.asked = self.asked.saturating_add(other.asked);
        self.hits = self.hits.saturating_add(other.hits);
        self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(to, from)| *to = to.saturating_add(from));
        self.ways.iter_mut().zip(other.ways).for_each(|(to, from)| *to = to.saturating_add(from));
        self.seconds += other.seconds;
    }

    fn point(&self) -> Point {
        let seconds = f64::from(self.seconds).max(0.001);
        let measured: u64 = self.buckets.iter().map(|count| u64::from(*count)).sum();
        Point {
            rate: round(f64::from(self.requests) / seconds),
            errors: round(f64::from(self.errors) / seconds),
            hits: (self.asked > 0).then(|| round(f64::from(self.hits) / f64::from(self.asked))),
            mean: (measured > 0).then(|| round(self.sum_micros as f64 / measured as f64 / 1000.0)),
            p95: below(&self.buckets, 0.95).map(round),
            ways: {
                let [cache, direct, own, hot] = self.ways.map(|count| round(f64::from(count) / seconds));
                ByWay { cache, direct, own, hot }
            },
        }
    }
}

pub(crate) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The time in milliseconds that this share stays below, as if times were spread evenly within their bucket.
fn below(buckets: &[u32; BUCKETS], share: f64) -> Option<f64> {
    let count: f64 = buckets.iter().map(|count| f64::from(*count)).sum();
    let wanted = share * count;
    let mut seen = 0.0;
    for (place, here) in buckets.iter().enumerate() {
        let here = f64::from(*here);
        if seen + here >= wanted && here > 0.0 {
            let from = if place == 0 { 0.0 } else { BOUNDS_MICROS[place - 1] as f64 };
            // For requests beyond the last bound it is unknown how long they took.
            let to = BOUNDS_MICROS.get(place).map_or(from, |bound| *bound as f64);
            return Some((from + (to - from) * (wanted - seen) / here) / 1000.0);
        }
        seen += here;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use model::stats::RouteStats;

    use super::*;

    fn sample(at: Instant, rules: &[(&str, u64)]) -> Sample {
        let routes = rules.iter().map(|(name, requests)| {
            let mut counts = Counts::default();
            counts.codes[1] = *requests;
            counts.cache[0] = *requests / 2;
            counts.cache[1] = *requests - *requests / 2;
            counts.seconds.buckets[1] = *requests;
            counts.seconds.sum_micros = *requests * 3000;
            RouteStats { route: (*name).to_owned(), counts, ..RouteStats::default() }
        });
        let stats = Stats { per_route: true, routes: routes.collect(), ..Stats::default() };
        Sample { at, stats: Arc::new(stats) }
    }

    fn rule(name: &str) -> Rule {
        (RouteKind::HttpRoute, name.to_owned(), 0)
    }

    #[test]
    fn rates_are_differences_over_time() {
        let (mut traffic, begin) = (Traffic::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        traffic.take(Some(&sample(at(0), &[("a/b", 100)])));
        assert!(traffic.total().rate.is_empty(), "what was before nobody saw");
        traffic.take(Some(&sample(at(2), &[("a/b", 140)])));
        let point = traffic.total.over(1);
        assert_eq!((point.rate, point.hits, point.mean), (20.0, Some(0.5), Some(3.0)));
        assert_eq!(point.p95, Some(4.8));
        assert_eq!(traffic.columns(&rule("a/b")).unwrap().rate, [20.0]);
        // A new child counts from zero; a rule that is new has no past.
        traffic.take(Some(&sample(at(3), &[("a/b", 4), ("a/c", 1)])));
        assert_eq!(traffic.columns(&rule("a/b")).unwrap().rate, [20.0, 4.0]);
        let busy: Vec<_> = traffic.busiest(1, 10).into_iter().map(|(rule, _)| rule.1.as_str()).collect();
        assert_eq!(busy, ["a/b", "a/c"]);
        // One that goes takes its numbers along; what is left is no news.
        traffic.take(Some(&sample(at(4), &[("a/c", 3)])));
        assert_eq!(traffic.total.over(1).rate, 2.0);
        traffic.take(None);
        assert_eq!(traffic.total.over(1).rate, 0.0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut traffic, begin) = (Traffic::default(), Instant::now());
        let names: Vec<String> = (0..MOST + 50).map(|n| format!("a/{n}")).collect();
        for second in 0..KEPT as u64 + 20 {
            let rules: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), second)).collect();
            traffic.take(Some(&sample(begin + Duration::from_secs(second), &rules)));
        }
        assert_eq!(traffic.total().rate.len(), KEPT);
        assert_eq!(traffic.rules.len(), MOST);
        // Most fall silent and are forgotten; who takes their places comes with what is new alone.
        let last = KEPT as u64 + 19;
        for second in last + 1..last + 2 * KEPT as u64 {
            let more = |n| if n < MOST - 10 { last } else { second };
            let rules: Vec<_> = names.iter().enumerate().map(|(n, name)| (name.as_str(), more(n))).collect();
            traffic.take(Some(&sample(begin + Duration::from_secs(second), &rules)));
        }
        let rates = traffic.rules.values().flat_map(|series| series.columns().rate);
        assert!(rates.fold(0.0, f64::max) <= 1.0);
        assert!(traffic.rules.values().all(|series| series.points.len() <= KEPT));
    }

    #[test]
    fn the_busiest_rule_is_seen_however_many_were_asked_for_before() {
        let (mut traffic, begin) = (Traffic::default(), Instant::now());
        let names: Vec<String> = (0..4 * MOST).map(|n| format!("a/{n}")).collect();
        for second in 0..10 {
            // All of them once, then one alone.
            let requests = |n| if second < 3 { second } else { 3 + if n == 1_777 { 5 * second } else { 0 } };
            let rules: Vec<_> =
                names.iter().enumerate().map(|(n, name)| (name.as_str(), requests(n))).collect();
            traffic.take(Some(&sample(begin + Duration::from_secs(second), &rules)));
        }
        assert_eq!(traffic.rules.len(), MOST);
        let busiest = traffic.busiest(2, 10);
        assert_eq!(busiest.len(), 1);
        assert_eq!((busiest[0].0.1.as_str(), busiest[0].1.rate), ("a/1777", 5.0));
    }
}
