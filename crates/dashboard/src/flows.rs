//! Where the requests of the last seconds came from and where they went: sockets, ways, Services.

use std::collections::{HashMap, VecDeque};

use model::stats::{Flow, NamedFlow, Stats};
use serde::{Deserialize, Serialize};

use crate::traffic::round;

/// Seconds that the picture is the mean of. One alone jumps too much to be read.
const OVER: usize = 5;
/// Sockets and Services that are shown; the others are summed up.
const MOST: usize = 8;

/// Requests of one Gateway by socket, way and Service, per second: the mean of the last seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Of listeners (`http-80`), the busiest first.
    pub sockets: Vec<NamedRates>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_sockets: Option<Others>,
    /// `namespace/name:port`, the busiest first. The name is empty for a backend that is not valid.
    pub services: Vec<NamedRates>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_services: Option<Others>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NamedRates {
    pub name: String,
    #[serde(flatten)]
    pub rates: Rates,
}

/// Those that are not listed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Others {
    pub count: usize,
    #[serde(flatten)]
    pub rates: Rates,
}

/// One field for each of [`model::stats::WAYS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    pub cache: Rate,
    pub direct: Rate,
    pub own: Rate,
    #[serde(default)]
    pub hot: Rate,
    /// Of the cache way: those that the cache answered alone.
    pub hits: f64,
}

/// Per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub requests: f64,
    /// Of these, responses with 5xx.
    pub errors: f64,
}

/// What was counted in each of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Flows(VecDeque<Second>);

#[derive(Debug, Default)]
struct Second {
    seconds: f64,
    sockets: Vec<NamedFlow>,
    services: Vec<NamedFlow>,
}

impl Flows {
    pub(crate) fn take(&mut self, before: &Stats, now: &Stats, seconds: f64) {
        self.push(Second {
            seconds,
            sockets: since(&before.sockets, &now.sockets),
            services: since(&before.services, &now.services),
        });
    }

    /// Nothing is served.
    pub(crate) fn silent(&mut self, seconds: f64) {
        self.push(Second { seconds, ..Second::default() });
    }

    fn push(&mut self, second: Second) {
        self.0.push_back(second);
        if self.0.len() > OVER {
            self.0.pop_front();
        }
    }

    pub(crate) fn picture(&self) -> Picture {
        let seconds = self.0.iter().map(|second| second.seconds).sum::<f64>().max(0.001);
        let (sockets, other_sockets) = busiest(self.0.iter().flat_map(|second| &second.sockets), seconds);
        let (services, other_services) = busiest(self.0.iter().flat_map(|second| &second.services), seconds);
        Picture { sockets, other_sockets, services, other_services }
    }
}

/// Those with requests since then.
fn since(before: &[NamedFlow], now: &[NamedFlow]) -> Vec<NamedFlow> {
    let was: HashMap<&str, &Flow> = before.iter().map(|one| (one.name.as_str(), &one.flow)).collect();
    let nothing = Flow::default();
    let more = now.iter().filter_map(|one| {
        let flow = one.flow.since(was.get(one.name.as_str()).copied().unwrap_or(&nothing));
        (!flow.is_empty()).then(|| NamedFlow { name: one.name.clone(), flow })
    });
    more.collect()
}

fn busiest<'s>(
    seconds: impl Iterator<Item = &'s NamedFlow>,
    length: f64,
) -> (Vec<NamedRates>, Option<Others>) {
    let mut sums: HashMap<&str, Flow> = HashMap::new();
    for one in seconds {
        sums.entry(&one.name).or_default().add(&one.flow);
    }
    let mut all: Vec<(&str, Flow)> = sums.into_iter().collect();
    all.sort_by(|(one, a), (other, b)| b.total().cmp(&a.total()).then_with(|| one.cmp(other)));
    let rest = all.split_off(all.len().min(MOST));
    let mut others = Flow::default();
    rest.iter().for_each(|(_, flow)| others.add(flow));
    let shown = all
        .into_iter()
        .map(|(name, flow)| NamedRates { name: name.to_owned(), rates: Rates::new(&flow, length) });
    let others = Others { count: rest.len(), rates: Rates::new(&others, length) };
    (shown.collect(), Some(others).filter(|others| others.count > 0))
}

impl Rates {
    fn new(flow: &Flow, seconds: f64) -> Self {
        let per_second = |count: u64| round(count as f64 / seconds);
        let rate =
            |way| Rate { requests: per_second(flow.requests[way]), errors: per_second(flow.errors[way]) };
        Self { cache: rate(0), direct: rate(1), own: rate(2), hot: rate(3), hits: per_second(flow.hits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, [cache, direct, own]: [u64; 3], errors: [u64; 3], hits: u64) -> NamedFlow {
        let requests = [cache, direct, own, 0];
        let errors = [errors[0], errors[1], errors[2], 0];
        NamedFlow { name: name.to_owned(), flow: Flow { requests, errors, hits } }
    }

    fn stats(sockets: Vec<NamedFlow>, services: Vec<NamedFlow>) -> Stats {
        Stats { sockets, services, ..Stats::default() }
    }

    #[test]
    fn rates_are_the_mean_of_the_last_seconds() {
        let mut flows = Flows::default();
        let empty = stats(vec![], vec![]);
        let first = stats(
            vec![named("http-80", [10, 4, 1], [0, 2, 0], 8)],
            vec![named("a/b:80", [2, 4, 0], [0; 3], 0)],
        );
        flows.take(&empty, &first, 1.0);
        flows.silent(1.0);
        let picture = flows.picture();
        let [socket] = picture.sockets.as_slice() else { panic!("{picture:?}") };
        let rates = socket.rates;
        assert_eq!((rates.cache.requests, rates.direct.requests, rates.own.requests), (5.0, 2.0, 0.5));
        assert_eq!((rates.direct.errors, rates.hits), (1.0, 4.0));
        for _ in 0..OVER {
            flows.take(&first, &first, 1.0);
        }
        assert_eq!(flows.picture(), Picture::default(), "it was long ago");
    }

    #[test]
    fn with_thousands_of_services_the_others_are_summed_up() {
        let mut flows = Flows::default();
        let services =
            (0..5_000).map(|n| named(&format!("a/{n:04}:80"), [0, 1 + n / 4_995 * 10, 0], [0; 3], 0));
        flows.take(&stats(vec![], vec![]), &stats(vec![], services.collect()), 1.0);
        let picture = flows.picture();
        let names: Vec<&str> = picture.services.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), MOST);
        assert_eq!(names[..2], ["a/4995:80", "a/4996:80"]);
        let others = picture.other_services.unwrap();
        assert_eq!((others.count, others.rates.direct.requests), (5_000 - MOST, 4_992.0));
    }
}
