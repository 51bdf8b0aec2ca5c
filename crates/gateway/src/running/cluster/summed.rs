//! The numbers of several pods as those of one. Pods come, go and restart; the sum only grows, and only by what was counted
//! between two looks at the same pod.

use std::collections::BTreeMap;

use dashboard::view::Stream;
use model::stats::{Counts, RouteStats, Stats};

#[derive(Debug, Default)]
pub(super) struct Summed {
    /// As they were at the last look, by uid.
    pods: BTreeMap<String, Stats>,
    sum: Stats,
}

impl Summed {
    /// All pods that were seen. Of a new one it is unknown in which time it has counted what it has.
    pub(super) fn take(&mut self, seen: Vec<(String, Stats)>) -> Stats {
        self.sum.in_flight = seen.iter().map(|(_, stats)| stats.in_flight).sum();
        self.sum.per_route = seen.iter().any(|(_, stats)| stats.per_route);
        for (uid, now) in &seen {
            let Some(before) = self.pods.get(uid) else { continue };
            self.sum.unrouted.add(&now.unrouted.since(&before.unrouted));
            for rule in &now.routes {
                let nothing = Counts::default();
                let was = before.routes.iter().find(|known| same(known, rule));
                let more = rule.counts.since(was.map_or(&nothing, |was| &was.counts));
                match self.sum.routes.iter_mut().find(|known| same(known, rule)) {
                    Some(known) => known.counts.add(&more),
                    None => self.sum.routes.push(RouteStats { counts: more, ..rule.clone() }),
                }
            }
        }
        self.pods = seen.into_iter().collect();
        self.sum.clone()
    }
}

/// The same for TCPRoutes and UDPRoutes.
#[derive(Debug, Default)]
pub(super) struct SummedStreams {
    pods: BTreeMap<String, Vec<Stream>>,
    sum: Vec<Stream>,
}

impl SummedStreams {
    pub(super) fn take(&mut self, seen: Vec<(String, Vec<Stream>)>) -> Vec<Stream> {
        self.sum.iter_mut().for_each(|known| known.open = 0);
        for (uid, now) in &seen {
            let before = self.pods.get(uid);
            for stream in now {
                let is_same = |other: &Stream| (&other.kind, &other.route) == (&stream.kind, &stream.route);
                let known = match self.sum.iter().position(&is_same) {
                    Some(at) => at,
                    None => {
                        let (kind, route) = (stream.kind.clone(), stream.route.clone());
                        self.sum.push(Stream { kind, route, ..Stream::default() });
                        self.sum.len() - 1
                    }
                };
                let known = &mut self.sum[known];
                known.open += stream.open;
                let Some(before) = before else { continue };
                let nothing = Stream::default();
                let was = before.iter().find(|was| is_same(was)).unwrap_or(&nothing);
                known.connections += stream.connections.saturating_sub(was.connections);
                known.bytes_in += stream.bytes_in.saturating_sub(was.bytes_in);
                known.bytes_out += stream.bytes_out.saturating_sub(was.bytes_out);
                known.lost += stream.lost.saturating_sub(was.lost);
            }
        }
        self.pods = seen.into_iter().collect();
        self.sum.clone()
    }
}

fn same(one: &RouteStats, other: &RouteStats) -> bool {
    (one.kind, one.rule) == (other.kind, other.rule) && one.route == other.route
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, requests: u64) -> (String, Stats) {
        let mut counts = Counts::default();
        counts.codes[1] = requests;
        let rule = RouteStats { route: "shop/web".to_owned(), counts, ..RouteStats::default() };
        (uid.to_owned(), Stats { in_flight: 1, per_route: true, routes: vec![rule], ..Stats::default() })
    }

    #[test]
    fn streams_of_pods_are_added_up() {
        let pod = |uid: &str, connections, open| {
            let kind = "UDPRoute".to_owned();
            (
                uid.to_owned(),
                vec![Stream { kind, route: "a/b".to_owned(), connections, open, ..Stream::default() }],
            )
        };
        let mut summed = SummedStreams::default();
        let mut look = |seen| {
            let all = summed.take(seen);
            all.iter().map(|one| (one.connections, one.open)).collect::<Vec<_>>()
        };
        assert_eq!(look(vec![pod("a", 1_000, 2), pod("b", 5, 1)]), [(0, 3)]);
        assert_eq!(look(vec![pod("a", 1_010, 4), pod("b", 6, 0)]), [(11, 4)]);
        // One has restarted, and one is new.
        assert_eq!(look(vec![pod("a", 3, 1), pod("c", 900, 7)]), [(11, 8)]);
        assert_eq!(look(vec![]), [(11, 0)]);
    }

    #[test]
    fn pods_that_come_and_go_make_no_spikes() {
        let mut summed = Summed::default();
        let mut look = |seen: Vec<(String, Stats)>| {
            let stats = summed.take(seen);
            (stats.total().requests(), stats.in_flight)
        };
        assert_eq!(look(vec![pod("a", 1_000_000), pod("b", 500)]), (0, 2));
        assert_eq!(look(vec![pod("a", 1_000_010), pod("b", 505)]), (15, 2));
        // One goes, and takes its million along.
        assert_eq!(look(vec![pod("b", 510)]), (20, 1));
        // One comes, and has counted for a while.
        assert_eq!(look(vec![pod("b", 515), pod("c", 70_000)]), (25, 2));
        // One's varnishd has restarted.
        assert_eq!(look(vec![pod("b", 3), pod("c", 70_002)]), (30, 2));
        // No pod is there for a moment.
        assert_eq!(look(vec![]), (30, 0));
        assert_eq!(look(vec![pod("b", 1_000)]), (30, 1));
    }
}
