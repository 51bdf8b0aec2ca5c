//! Which endpoint a connection or session goes to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use router::random;

use super::Stream;
use super::avoid::Avoided;
use super::counters::StreamCounters;
use crate::{BackendGroup, Loss};

/// How many endpoints of a group are tried.
const TRIES: usize = 3;

/// The backends of one listener, ready for use.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) stream: Stream,
    pub(crate) counters: Arc<StreamCounters>,
    /// The gateway is stopping: there shall be no new sessions.
    pub(crate) drains: bool,
    avoided: Avoided,
    told: AtomicBool,
}

impl Target {
    pub(crate) fn new(stream: Stream, counters: Arc<StreamCounters>) -> Self {
        Self { stream, counters, drains: false, avoided: Avoided::default(), told: AtomicBool::new(false) }
    }

    /// The same, for a gateway that is stopping.
    pub(crate) fn draining(&self) -> Self {
        Self { drains: true, ..Self::new(self.stream.clone(), Arc::clone(&self.counters)) }
    }

    /// A group by weight, and its endpoints in the order in which to try them.
    pub(crate) fn pick(&self) -> Result<(&BackendGroup, Vec<SocketAddr>), Loss> {
        if self.drains {
            return Err(Loss::Draining);
        }
        if self.stream.route.is_empty() {
            return Err(Loss::NoRoute);
        }
        let groups = &self.stream.backends.groups;
        let at = random::by_weight(groups.iter().map(|group| group.weight), random::next());
        let group = at.and_then(|at| groups.get(at)).ok_or(Loss::NoEndpoint)?;
        let count = group.endpoints.len();
        let first = random::below(count as u64, random::next()) as usize;
        let wanted = if self.avoided.is_empty() { count.min(TRIES) } else { count };
        let mut endpoints: Vec<SocketAddr> =
            group.endpoints.iter().cycle().skip(first).take(wanted).copied().collect();
        self.avoided.put_last(&mut endpoints);
        endpoints.truncate(TRIES);
        Ok((group, endpoints))
    }

    /// True once: a group without endpoints is reported once, however many datagrams come.
    pub(crate) fn tells_of_none(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn refused(&self, endpoint: SocketAddr) {
        self.avoided.add(endpoint);
    }

    pub(crate) fn answered(&self, endpoint: SocketAddr) {
        self.avoided.remove(endpoint);
    }

    /// Does the route still lead to it?
    pub(crate) fn has(&self, route: &str, endpoint: SocketAddr) -> bool {
        let used = self.stream.backends.groups.iter().filter(|group| group.weight > 0);
        self.stream.route == route && used.flat_map(|group| &group.endpoints).any(|one| *one == endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backends;

    fn target(groups: &[(u32, &[u16])]) -> Target {
        let groups = groups.iter().map(|(weight, ports)| BackendGroup {
            weight: *weight,
            endpoints: ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect(),
            ..BackendGroup::default()
        });
        let backends = Arc::new(Backends { groups: groups.collect() });
        Target::new(Stream { route: "d/r".to_owned(), backends }, Arc::default())
    }

    #[test]
    fn weights_split_groups_and_endpoints_share_evenly() {
        let target = target(&[(9, &[1]), (0, &[2]), (1, &[3, 4])]);
        let mut counts = [0; 5];
        for _ in 0..10_000 {
            counts[usize::from(target.pick().unwrap().1[0].port())] += 1;
        }
        assert!((8_700..9_300).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts[2], 0);
        assert!(counts[3..].iter().all(|count| (350..650).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_endpoint_that_refused_is_the_last_to_be_tried_and_the_only_one_is_still_tried() {
        let both = target(&[(1, &[1, 2])]);
        both.refused(([127, 0, 0, 1], 1).into());
        assert!((0..100).all(|_| both.pick().unwrap().1[0].port() == 2));
        let only = target(&[(1, &[1])]);
        only.refused(([127, 0, 0, 1], 1).into());
        assert_eq!(only.pick().unwrap().1.len(), 1);
    }

    #[test]
    fn without_route_weight_or_endpoint_there_is_nothing() {
        assert_eq!(target(&[]).pick().err(), Some(Loss::NoEndpoint));
        assert_eq!(target(&[(0, &[1])]).pick().err(), Some(Loss::NoEndpoint));
        assert!(target(&[(1, &[])]).pick().unwrap().1.is_empty());
        let nobody = Target::new(Stream::default(), Arc::default());
        assert_eq!(nobody.pick().err(), Some(Loss::NoRoute));
    }

    #[test]
    fn endpoints_without_weight_or_of_another_route_are_gone() {
        let target = target(&[(1, &[1]), (0, &[2])]);
        let of = |port: u16| ([127, 0, 0, 1], port).into();
        assert!(target.has("d/r", of(1)));
        assert!(!target.has("d/other", of(1)));
        assert!(!target.has("d/r", of(2)));
        assert!(!target.has("d/r", of(3)));
    }
}
