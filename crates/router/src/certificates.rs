//! Which names of a listener have the same certificates.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use model::ListenerTls;
use model::host::HostPattern;

use crate::host::{HostTable, listener_pattern, normal_hostname};

/// Of a listener with certificates for single names; or what has changed of it since the one below.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    /// By name, the number of its set.
    sets: HostTable<u32>,
    numbers: HashMap<Box<[String]>, u32>,
    names: usize,
    /// Of the one below.
    removed: HashSet<Box<[u8]>, RandomState>,
}

impl Certificates {
    /// `None` where the listener has one set for all.
    pub(crate) fn new(listener: &model::Listener) -> Option<Self> {
        let tls = listener.tls.as_ref().filter(|tls| !tls.hosts.is_empty())?;
        let mut numbers = HashMap::new();
        let mut names: Vec<(HostPattern, u32)> = Vec::with_capacity(1 + tls.hosts.len());
        if !tls.certificates.is_empty() {
            names.push((listener_pattern(listener), number(&mut numbers, None, &tls.certificates)));
        }
        for (host, set) in &tls.hosts {
            let host = HostPattern::new(&normal_hostname(host)).owned().of_one_label();
            names.push((host, number(&mut numbers, None, set)));
        }
        Some(Self {
            sets: HostTable::new(names.iter().map(|(host, set)| (host.borrowed(), *set))),
            numbers,
            names: tls.hosts.len(),
            removed: HashSet::default(),
        })
    }

    /// What lies above it: exact names that have changed.
    pub(crate) fn under(&self, changed: &ListenerTls) -> Self {
        let mut numbers = HashMap::new();
        let hosts = changed.hosts.iter();
        let names: Vec<(String, u32)> =
            hosts.map(|(host, set)| (normal_hostname(host), number(&mut numbers, Some(self), set))).collect();
        Self {
            sets: HostTable::new(names.iter().map(|(host, set)| (HostPattern::new(host), *set))),
            numbers,
            names: names.len(),
            removed: changed.removed.iter().map(|name| normal_hostname(name).into_bytes().into()).collect(),
        }
    }

    /// How many have certificates of their own.
    pub(crate) fn names(&self) -> usize {
        self.names
    }

    /// The set of a name; `below`: where it is looked for otherwise.
    pub(crate) fn set_of(&self, name: &[u8], below: Option<&Self>) -> Option<u32> {
        let found = match below {
            None => self.sets.get(name),
            Some(below) => self.sets.get_exact(name).or_else(|| match self.removed.contains(name) {
                true => below.sets.get_wide(name),
                false => below.sets.get(name),
            }),
        };
        found.copied()
    }
}

/// The same for the same set, in both layers.
fn number(numbers: &mut HashMap<Box<[String]>, u32>, below: Option<&Certificates>, set: &[String]) -> u32 {
    if let Some(known) = below.and_then(|below| below.numbers.get(set)).or_else(|| numbers.get(set)) {
        return *known;
    }
    let next = (below.map_or(0, |below| below.numbers.len()) + numbers.len()) as u32;
    numbers.insert(set.into(), next);
    next
}
