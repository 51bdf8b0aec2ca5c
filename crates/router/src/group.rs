//! Backend groups: the two levels of the choice.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::{Balancing, Protocol, ghost};

use crate::edit::Edits;
use crate::random;
use crate::upstream::Mirror;

/// The endpoints of one Service.
#[derive(Debug, Clone)]
pub struct Group {
    name: Box<str>,
    pub(crate) weight: u32,
    endpoints: Box<[SocketAddr]>,
    /// Whose turn it is, where they take turns.
    turn: Option<Arc<AtomicU64>>,
    tls: Option<Arc<str>>,
    protocol: Protocol,
    /// Of its backendRef alone.
    edits: Option<Box<Edits>>,
    /// Tells these filters from others, in cache keys.
    filters: u64,
    /// Of its backendRef alone.
    mirrors: Box<[Mirror]>,
}

/// The turns of Services, by name: all rules that lead to one take the same turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(HashMap<Box<str>, Arc<AtomicU64>>);

impl Turns {
    /// Each begins anywhere: of many gateways that start together, not all should go to the same endpoint.
    fn for_service(&mut self, name: &str) -> Arc<AtomicU64> {
        let begin = || Arc::new(AtomicU64::new(random::next() >> 1));
        if name.is_empty() {
            return begin();
        }
        Arc::clone(self.0.entry(name.into()).or_insert_with(begin))
    }

    pub(crate) fn take_over(&mut self, older: &Self) {
        for (name, turn) in &mut self.0 {
            if let Some(older) = older.0.get(name) {
                *turn = Arc::clone(older);
            }
        }
    }
}

/// What filters say, as a number.
fn of_filters(filters: &model::filters::Filters) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{filters:?}").hash(&mut hasher);
    hasher.finish()
}

impl Group {
    pub(crate) fn new(from: &ghost::Group, prefix: Option<&str>, turns: &mut Turns) -> Self {
        let name = from.name.as_deref().unwrap_or_default();
        let takes_turns = from.balancing == Some(Balancing::RoundRobin);
        Self {
            turn: takes_turns.then(|| turns.for_service(name)),
            name: name.into(),
            weight: from.weight,
            endpoints: from.endpoints.iter().map(|e| SocketAddr::new(e.address, e.port)).collect(),
            tls: from.tls.as_deref().map(Arc::from),
            protocol: from.protocol,
            edits: from.filters.as_ref().map(|filters| Box::new(Edits::new(filters, prefix))),
            filters: from.filters.as_deref().map_or(0, of_filters),
            mirrors: from.mirrors.iter().map(|mirror| Mirror::new(mirror, turns)).collect(),
        }
    }

    /// The profile by which the front verifies the endpoints; `None` for HTTP in the clear.
    pub fn tls(&self) -> Option<&Arc<str>> {
        self.tls.as_ref()
    }

    /// What its endpoints speak.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// varnishd speaks neither TLS nor HTTP/2 to backends, and knows nothing of filters and mirrors of a backendRef.
    pub(crate) fn needs_front(&self) -> bool {
        self.tls.is_some()
            || self.protocol == Protocol::Http2
            || self.edits.is_some()
            || !self.mirrors.is_empty()
    }

    /// What the filters of its backendRef change, after those of the rule.
    pub fn edits(&self) -> Option<&Edits> {
        self.edits.as_deref()
    }

    /// Zero for none. Two backendRefs to one Service with other filters get other answers of it.
    pub(crate) fn filters(&self) -> u64 {
        self.filters
    }

    /// What gets copies of the requests that the group gets, besides the mirrors of the rule.
    pub fn mirrors(&self) -> &[Mirror] {
        &self.mirrors
    }

    /// `namespace/name:port` of the Service; empty where the backendRef is not valid.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn weight(&self) -> u32 {
        self.weight
    }

    pub fn endpoints(&self) -> &[SocketAddr] {
        &self.endpoints
    }

    /// Its endpoints take turns. The others are picked at random.
    pub fn takes_turns(&self) -> bool {
        self.turn.is_some()
    }

    /// Goes on with the turns of an older configuration, so that a change of endpoints does not restart them.
    pub(crate) fn take_over(&mut self, older: &Turns) {
        if self.turn.is_some()
            && let Some(turn) = older.0.get(&self.name)
        {
            self.turn = Some(Arc::clone(turn));
        }
        self.mirrors.iter_mut().for_each(|mirror| mirror.take_over(older));
    }

    /// The position of one endpoint: the next one's, or by `random`, each as likely as the other. Not `avoid`, if there is
    /// any other.
    pub fn pick(&self, random: u64, avoid: Option<usize>) -> Option<usize> {
        if let Some(turn) = &self.turn {
            return self.next(turn, avoid);
        }
        let avoid = avoid.filter(|at| *at < self.endpoints.len() && self.endpoints.len() > 1);
        let choices = self.endpoints.len() - usize::from(avoid.is_some());
        if choices == 0 {
            return None;
        }
        let at = random::below(choices as u64, random) as usize;
        Some(if avoid.is_some_and(|avoid| at >= avoid) { at + 1 } else { at })
    }
}

impl Group {
    fn next(&self, turn: &AtomicU64, avoid: Option<usize>) -> Option<usize> {
        let endpoints = self.endpoints.len() as u64;
        let next = || turn.fetch_add(1, Ordering::Relaxed).checked_rem(endpoints).map(|at| at as usize);
        let at = next()?;
        // Another endpoint; the next pick is yet another endpoint.
        if Some(at) == avoid { next() } else { Some(at) }
    }
}

/// Position of the group that takes the request, by weight. `None` where nothing has weight.
pub(crate) fn by_weight(groups: &[Group], random: u64) -> Option<usize> {
    random::by_weight(groups.iter().map(|group| group.weight), random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weight: u32, endpoints: usize) -> Group {
        let endpoints = (0..endpoints).map(|i| SocketAddr::from(([127, 0, 0, 1], i as u16))).collect();
        let empty = Group::new(&ghost::Group::default(), None, &mut Turns::default());
        Group { weight, endpoints, ..empty }
    }

    #[test]
    fn endpoints_take_turns_over_rules_and_reloads() {
        let of = |endpoints: u16| ghost::Group {
            name: Some("d/shop:80".to_owned()),
            balancing: Some(Balancing::RoundRobin),
            weight: 1,
            endpoints: (0..endpoints)
                .map(|port| ghost::Endpoint { address: [127, 0, 0, 1].into(), port })
                .collect(),
            ..ghost::Group::default()
        };
        let mut turns = Turns::default();
        let (one, other) = (Group::new(&of(3), None, &mut turns), Group::new(&of(3), None, &mut turns));
        let first = one.pick(0, None).unwrap();
        assert_eq!(other.pick(0, None), Some((first + 1) % 3));
        assert_eq!(one.pick(0, None), Some((first + 2) % 3));
        // The second try goes to the one after.
        assert_eq!(one.pick(0, Some(first)), Some((first + 1) % 3));
        let mut newer = Group::new(&of(3), None, &mut Turns::default());
        newer.take_over(&turns);
        assert_eq!(newer.pick(0, None), Some((first + 2) % 3));
        assert_eq!(Group::new(&of(0), None, &mut turns).pick(0, None), None);
        assert_eq!(Group::new(&of(1), None, &mut turns).pick(0, Some(0)), Some(0));
    }

    #[test]
    fn the_second_try_avoids_the_first_endpoint() {
        let three = group(1, 3);
        for random in [0, u64::MAX / 3, u64::MAX / 2, u64::MAX] {
            for avoid in 0..3 {
                assert_ne!(three.pick(random, Some(avoid)), Some(avoid));
            }
        }
        assert_eq!(group(1, 1).pick(5, Some(0)), Some(0));
        assert_eq!(group(1, 0).pick(5, None), None);
    }
}
