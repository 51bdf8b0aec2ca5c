//! The numbers of several pods as those of one. Pods come, go and begin anew; the sum only grows, and only by what was counted
//! between two looks at the same pod.

use std::collections::BTreeMap;

use model::stats::{Counts, RouteStats, Stats};

#[derive(Debug, Default)]
pub(super) struct Summed {
    /// As they were at the last look, by uid.
    pods: BTreeMap<String, Stats>,
    sum: Stats,
}

impl Summed {
    /// All pods that were seen. Of one that is new nobody knows in which time it has counted what it has.
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
        // One's varnishd has begun anew.
        assert_eq!(look(vec![pod("b", 3), pod("c", 70_002)]), (30, 2));
        // Nobody is there for a moment.
        assert_eq!(look(vec![]), (30, 0));
        assert_eq!(look(vec![pod("b", 1_000)]), (30, 1));
    }
}
