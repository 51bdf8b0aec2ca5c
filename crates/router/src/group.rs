//! Backend groups: the two levels of the choice.

use std::net::SocketAddr;

use model::ghost;

/// The endpoints of one Service.
#[derive(Debug, Clone)]
pub struct Group {
    name: Box<str>,
    pub(crate) weight: u32,
    endpoints: Box<[SocketAddr]>,
}

impl Group {
    pub(crate) fn new(from: &ghost::Group) -> Self {
        Self {
            name: from.name.as_deref().unwrap_or_default().into(),
            weight: from.weight,
            endpoints: from.backends.iter().map(|e| SocketAddr::new(e.address, e.port)).collect(),
        }
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

    /// The position of one endpoint, each as likely as the other; not `avoid`, if there is any other.
    pub fn pick(&self, random: u64, avoid: Option<usize>) -> Option<usize> {
        let avoid = avoid.filter(|at| *at < self.endpoints.len() && self.endpoints.len() > 1);
        let choices = self.endpoints.len() - usize::from(avoid.is_some());
        if choices == 0 {
            return None;
        }
        let at = scale(random, choices as u64) as usize;
        Some(if avoid.is_some_and(|avoid| at >= avoid) { at + 1 } else { at })
    }
}

/// Position of the group that takes the request, by weight. `None` where nothing has weight.
pub(crate) fn by_weight(groups: &[Group], random: u64) -> Option<usize> {
    let total: u64 = groups.iter().map(|g| u64::from(g.weight)).sum();
    if total == 0 {
        return None;
    }
    let mut left = scale(random, total);
    for (at, group) in groups.iter().enumerate() {
        match left.checked_sub(u64::from(group.weight)) {
            Some(rest) => left = rest,
            None => return Some(at),
        }
    }
    None
}

/// A random number below `limit`.
fn scale(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weight: u32, endpoints: usize) -> Group {
        let endpoints = (0..endpoints).map(|i| SocketAddr::from(([127, 0, 0, 1], i as u16))).collect();
        Group { name: "".into(), weight, endpoints }
    }

    #[test]
    fn weights_split_and_zero_gets_nothing() {
        let groups = [group(0, 1), group(1, 1), group(0, 1), group(3, 1), group(0, 1)];
        let mut hits = [0; 5];
        for i in 0..4000u64 {
            hits[by_weight(&groups, i << 52).unwrap()] += 1;
        }
        assert_eq!(hits, [0, 1024, 0, 2976, 0]);
        assert_eq!(by_weight(&groups, u64::MAX), Some(3));
        assert_eq!(by_weight(&[group(0, 1)], 7), None);
        assert_eq!(by_weight(&[], 7), None);
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
