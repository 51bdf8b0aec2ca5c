//! What TCPRoutes and UDPRoutes do of late: the counters of some looks, and rates out of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::view::{Stream, StreamSecond};

/// Looks that are remembered, one a second.
const KEPT: usize = 60;
/// Routes of a look that are remembered.
const MOST: usize = 500;

/// Counters of one Gateway, as they were at some moments.
#[derive(Debug, Default)]
pub struct StreamTraffic {
    looks: VecDeque<(Instant, Vec<Stream>)>,
}

impl StreamTraffic {
    /// Counters of now, which only grow.
    pub fn take(&mut self, at: Instant, mut now: Vec<Stream>) {
        now.truncate(MOST);
        self.looks.push_back((at, now));
        if self.looks.len() > KEPT {
            self.looks.pop_front();
        }
    }

    /// Over the last seconds, the busiest first. Routes that have nothing to show are there, too.
    pub fn seconds(&self, seconds: u64, most: usize) -> Vec<StreamSecond> {
        let Some((at, now)) = self.looks.back() else { return Vec::new() };
        // A look is not always a second after the other.
        let window = Duration::from_secs(seconds) + Duration::from_millis(500);
        let first = self.looks.iter().find(|(then, _)| at.saturating_duration_since(*then) <= window);
        let (then, before) = first.map_or((*at, &[][..]), |(then, before)| (*then, before.as_slice()));
        let time = at.saturating_duration_since(then).as_secs_f64();
        let rate = |more: u64| if time > 0.0 { more as f64 / time } else { 0.0 };
        let mut all: Vec<StreamSecond> = now
            .iter()
            .map(|now| {
                let nothing = Stream::default();
                let was = before.iter().find(|was| (&was.kind, &was.route) == (&now.kind, &now.route));
                let was = was.unwrap_or(&nothing);
                StreamSecond {
                    kind: now.kind.clone(),
                    route: now.route.clone(),
                    connections: rate(now.connections.saturating_sub(was.connections)),
                    open: now.open,
                    bytes_in: rate(now.bytes_in.saturating_sub(was.bytes_in)),
                    bytes_out: rate(now.bytes_out.saturating_sub(was.bytes_out)),
                    lost: rate(now.lost.saturating_sub(was.lost)),
                }
            })
            .collect();
        let bytes = |one: &StreamSecond| one.bytes_in + one.bytes_out;
        all.sort_by(|one, other| bytes(other).total_cmp(&bytes(one)));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(route: &str, connections: u64, bytes_in: u64) -> Stream {
        Stream {
            kind: "TCPRoute".to_owned(),
            route: route.to_owned(),
            connections,
            bytes_in,
            ..Stream::default()
        }
    }

    #[test]
    fn rates_are_of_the_seconds_that_were_asked_for() {
        let (mut traffic, begin) = (StreamTraffic::default(), Instant::now());
        assert_eq!(traffic.seconds(5, 10), []);
        for second in 0..2 * KEPT as u64 {
            let now = vec![stream("d/quiet", 7, 1000), stream("d/busy", 2 * second, 100 * second)];
            traffic.take(begin + Duration::from_secs(second), now);
        }
        assert_eq!(traffic.looks.len(), KEPT);
        let all = traffic.seconds(5, 10);
        let shown: Vec<_> =
            all.iter().map(|one| (one.route.as_str(), one.connections, one.bytes_in)).collect();
        assert_eq!(shown, [("d/busy", 2.0, 100.0), ("d/quiet", 0.0, 0.0)]);
        assert_eq!(traffic.seconds(5, 1).len(), 1);
    }

    #[test]
    fn one_look_has_no_rates_and_a_counter_that_begins_anew_is_no_spike() {
        let (mut traffic, begin) = (StreamTraffic::default(), Instant::now());
        traffic.take(begin, vec![stream("d/a", 1_000, 1_000)]);
        assert_eq!(traffic.seconds(5, 1)[0].connections, 0.0);
        traffic.take(begin + Duration::from_secs(1), vec![stream("d/a", 3, 3)]);
        assert_eq!(traffic.seconds(5, 1)[0].connections, 0.0);
    }
}
