//! Paths: exact, then regular expressions, then the longest prefix by whole path elements.

use model::matches::PathMatchType;

use crate::dictionary::Dictionary;
use crate::precedence;
use crate::rule::{Fate, Rule};

/// Rules of all hosts by the path they ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathIndex {
    /// Each host has a space for exact paths and one for prefixes.
    paths: Dictionary<Ranked>,
    /// Of each path that several rules ask for, all but the best.
    others: Box<[RuleRef]>,
    regexes: Box<[RuleRef]>,
}

/// The rules that ask for one path, in order of precedence.
#[derive(Debug, Clone, Copy)]
struct Ranked {
    best: RuleRef,
    others: Span,
}

/// What most decisions need to know of a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleRef {
    /// Position in the router.
    pub(crate) id: u32,
    pub(crate) fate: Fate,
    /// Nothing but the path is asked for.
    any_request: bool,
}

/// Where the rules of one host are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostPaths {
    host: u32,
    regexes: Span,
    /// Longer paths, or starts of them, need not be looked up.
    longest_exact: u32,
    longest_prefix: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.start as usize..self.end as usize]
    }

    /// Appends, and says where.
    fn append<T>(all: &mut Vec<T>, more: impl Iterator<Item = T>) -> Self {
        let start = all.len() as u32;
        all.extend(more);
        Self { start, end: all.len() as u32 }
    }
}

/// Path and query of a URL.
pub(crate) fn split(url: &[u8]) -> (&[u8], &[u8]) {
    match url.iter().position(|b| *b == b'?') {
        Some(at) => (&url[..at], &url[at + 1..]),
        None => (url, b""),
    }
}

/// `/shop/` and `/shop` are one prefix, and `/` is the empty one.
pub(crate) fn normal_prefix(value: &str) -> &[u8] {
    let value = value.as_bytes();
    value.strip_suffix(b"/").unwrap_or(value)
}

/// A path and what is left of it when elements are taken from its end, down to the empty start that every path has.
fn starts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = path.starts_with(b"/").then_some(path);
    std::iter::successors(whole, |start| start.iter().rposition(|b| *b == b'/').map(|slash| &start[..slash]))
}

fn exact_space(host: u32) -> u32 {
    host << 1
}

fn prefix_space(host: u32) -> u32 {
    host << 1 | 1
}

impl PathIndex {
    /// The best rule whose path fits and that `take` wants.
    pub(crate) fn find(
        &self,
        host: &HostPaths,
        rules: &[Rule],
        path: &[u8],
        mut take: impl FnMut(&Rule) -> bool,
    ) -> Option<RuleRef> {
        let mut wanted = |rule: &RuleRef| rule.any_request || take(&rules[rule.id as usize]);
        if path.len() <= host.longest_exact as usize
            && let Some(found) = self.first(exact_space(host.host), path, &mut wanted)
        {
            return Some(found);
        }
        for rule in host.regexes.of(&self.regexes) {
            if rules[rule.id as usize].path_pattern_matches(path) && wanted(rule) {
                return Some(*rule);
            }
        }
        starts(path)
            .filter(|start| start.len() <= host.longest_prefix as usize)
            .find_map(|start| self.first(prefix_space(host.host), start, &mut wanted))
    }

    fn first(&self, space: u32, path: &[u8], wanted: &mut impl FnMut(&RuleRef) -> bool) -> Option<RuleRef> {
        let Ranked { best, others } = self.paths.get(space, path)?;
        if wanted(best) {
            return Some(*best);
        }
        others.of(&self.others).iter().copied().find(wanted)
    }

    /// Positions of a host's rules, in no particular order.
    pub(crate) fn rules_of(&self, host: &HostPaths) -> impl Iterator<Item = u32> {
        let spaces = [exact_space(host.host), prefix_space(host.host)];
        let ranked =
            self.paths.iter().filter(move |(space, ..)| spaces.contains(space)).map(|(.., ranked)| ranked);
        let by_path = ranked.flat_map(|r| std::iter::once(&r.best).chain(r.others.of(&self.others)));
        by_path.chain(host.regexes.of(&self.regexes)).map(|rule| rule.id)
    }
}

/// A [`PathIndex`] while hosts are added to it.
#[derive(Debug)]
pub(crate) struct Building<'r> {
    rules: &'r [Rule],
    hosts: u32,
    paths: Vec<(u32, &'r [u8], Ranked)>,
    others: Vec<RuleRef>,
    regexes: Vec<RuleRef>,
}

impl<'r> Building<'r> {
    pub(crate) fn new(rules: &'r [Rule]) -> Self {
        Self { rules, hosts: 0, paths: Vec::new(), others: Vec::new(), regexes: Vec::new() }
    }

    /// Adds one host with its rules, by their positions in order of the file.
    pub(crate) fn add(&mut self, ids: &[u32]) -> HostPaths {
        let rules = self.rules;
        let place = |id: &u32| place(&rules[*id as usize]);
        let mut ids = ids.to_vec();
        ids.sort_by_cached_key(|id| (place(id), precedence::key(&rules[*id as usize])));
        let mut host = HostPaths { host: self.hosts, ..HostPaths::default() };
        self.hosts += 1;
        for same_path in ids.chunk_by(|a, b| place(a) == place(b)) {
            let mut refs = same_path.iter().map(|id| RuleRef::new(*id, &rules[*id as usize]));
            let (kind, path) = place(&same_path[0]);
            let (space, longest) = match kind {
                PathMatchType::Exact => (exact_space(host.host), &mut host.longest_exact),
                PathMatchType::PathPrefix => (prefix_space(host.host), &mut host.longest_prefix),
                PathMatchType::RegularExpression => {
                    host.regexes = Span::append(&mut self.regexes, refs);
                    continue;
                }
            };
            *longest = (*longest).max(path.len() as u32);
            let Some(best) = refs.next() else { continue };
            let others = Span::append(&mut self.others, refs);
            self.paths.push((space, path, Ranked { best, others }));
        }
        host
    }

    pub(crate) fn finish(self) -> PathIndex {
        let Self { paths, others, regexes, .. } = self;
        PathIndex { paths: Dictionary::new(paths), others: others.into(), regexes: regexes.into() }
    }
}

impl RuleRef {
    fn new(id: u32, rule: &Rule) -> Self {
        Self { id, fate: rule.fate(), any_request: !rule.looks_beyond_the_path() }
    }
}

/// What a rule is found by. Regular expressions are in one place, and tried one by one.
fn place(rule: &Rule) -> (PathMatchType, &[u8]) {
    let text = match rule.path.kind {
        PathMatchType::Exact => rule.path.value.as_bytes(),
        PathMatchType::PathPrefix => normal_prefix(&rule.path.value),
        PathMatchType::RegularExpression => b"",
    };
    (rule.path.kind, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_go_by_whole_elements() {
        let all = |path: &'static str| {
            starts(path.as_bytes()).map(|s| std::str::from_utf8(s).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(all("/shop/cart"), ["/shop/cart", "/shop", ""]);
        assert_eq!(all("/shop/"), ["/shop/", "/shop", ""]);
        assert_eq!(all("/shopping"), ["/shopping", ""]);
        assert_eq!(all("/"), ["/", ""]);
        assert_eq!(all("/a//b"), ["/a//b", "/a/", "/a", ""]);
        assert!(all("").is_empty());
        assert!(all("*").is_empty());
    }
}
