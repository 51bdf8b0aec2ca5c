//! Paths: exact, then regular expressions, then the longest prefix by whole path elements.
//!
//! Large configurations do not fit into the processor's caches, so a decision costs what its cache misses cost. Therefore
//! a path is looked for among the hashes of its host's paths, which lie side by side, and what a decision needs of a rule
//! is kept apart from all that comes later.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use model::matches::PathMatchType;

use crate::budget::LONGEST_VALUE;
use crate::decision::TooLong;
use crate::precedence;
use crate::rule::{Fate, Rule};

/// Rules of all hosts by the path they ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathIndex {
    /// Host by host: exact paths, prefixes, regular expressions; each by hash, then in order of precedence.
    entries: Box<[Entry]>,
    texts: Box<[u8]>,
    hasher: RandomState,
}

/// One rule of one host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Of the path.
    hash: u32,
    /// Position of the rule in the router.
    pub(crate) rule: u32,
    text_start: u32,
    text_length: u32,
    pub(crate) fate: Fate,
    /// Nothing but the path is asked for.
    any_request: bool,
}

/// Where the entries of one host are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostPaths {
    exact_start: u32,
    prefixes_start: u32,
    regexes_start: u32,
    end: u32,
    /// Longer starts of a path need not be looked for.
    longest_prefix: u32,
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

impl PathIndex {
    /// The best rule whose path fits and that `take` wants. A path that is too long for the host's regular expressions is
    /// refused: what they are to keep apart must not fall to a prefix.
    pub(crate) fn find(
        &self,
        host: &HostPaths,
        rules: &[Rule],
        path: &[u8],
        mut take: impl FnMut(&Rule) -> bool,
    ) -> Result<Option<&Entry>, TooLong> {
        let mut wanted = |entry: &&Entry| entry.any_request || take(&rules[entry.rule as usize]);
        let exact = self.with_path(host.exact_start, host.prefixes_start, path).find(&mut wanted);
        if exact.is_some() {
            return Ok(exact);
        }
        let regexes = &self.entries[host.regexes_start as usize..host.end as usize];
        if path.len() > LONGEST_VALUE && !regexes.is_empty() {
            return Err(TooLong::Url);
        }
        let mut fitting =
            regexes.iter().filter(|entry| rules[entry.rule as usize].path_pattern_matches(path));
        Ok(fitting.find(&mut wanted).or_else(|| {
            starts(path).filter(|start| start.len() <= host.longest_prefix as usize).find_map(|start| {
                self.with_path(host.prefixes_start, host.regexes_start, start).find(&mut wanted)
            })
        }))
    }

    /// The entries of exactly this path between two places.
    fn with_path(&self, from: u32, to: u32, path: &[u8]) -> impl Iterator<Item = &Entry> {
        let hash = hash(&self.hasher, path);
        let entries = &self.entries[from as usize..to as usize];
        let first = entries.partition_point(|entry| entry.hash < hash);
        let same_hash = entries[first..].iter().take_while(move |entry| entry.hash == hash);
        same_hash.filter(move |entry| self.text(entry) == path)
    }

    fn text(&self, entry: &Entry) -> &[u8] {
        &self.texts[entry.text_start as usize..][..entry.text_length as usize]
    }

    /// Positions of a host's rules, in no particular order.
    pub(crate) fn rules_of(&self, host: &HostPaths) -> impl Iterator<Item = u32> {
        self.entries[host.exact_start as usize..host.end as usize].iter().map(|entry| entry.rule)
    }
}

fn hash(hasher: &RandomState, path: &[u8]) -> u32 {
    hasher.hash_one(path) as u32
}

/// A [`PathIndex`] while hosts are added to it.
#[derive(Debug)]
pub(crate) struct Building<'r> {
    rules: &'r [Rule],
    entries: Vec<Entry>,
    texts: Vec<u8>,
    /// Many hosts have the same paths.
    text_starts: HashMap<&'r [u8], u32>,
    hasher: RandomState,
}

impl<'r> Building<'r> {
    pub(crate) fn new(rules: &'r [Rule]) -> Self {
        Self {
            rules,
            entries: Vec::new(),
            texts: Vec::new(),
            text_starts: HashMap::new(),
            hasher: RandomState::default(),
        }
    }

    /// Adds one host with its rules, by their positions in order of the file.
    pub(crate) fn add(&mut self, ids: &[u32]) -> HostPaths {
        let exact_start = self.entries.len();
        let prefixes_start = self.add_kind(ids, PathMatchType::Exact);
        let regexes_start = self.add_kind(ids, PathMatchType::PathPrefix);
        let end = self.add_kind(ids, PathMatchType::RegularExpression);
        let prefixes = &self.entries[prefixes_start..regexes_start];
        HostPaths {
            exact_start: exact_start as u32,
            prefixes_start: prefixes_start as u32,
            regexes_start: regexes_start as u32,
            end: end as u32,
            longest_prefix: prefixes.iter().map(|entry| entry.text_length).max().unwrap_or_default(),
        }
    }

    /// Adds the rules of one kind, and says where they end.
    fn add_kind(&mut self, ids: &[u32], kind: PathMatchType) -> usize {
        let rules = self.rules;
        let hashed = |id: &u32| {
            let rule = &rules[*id as usize];
            (rule.path.kind == kind).then(|| (*id, rule, hash(&self.hasher, text(rule))))
        };
        let mut sorted: Vec<_> = ids.iter().filter_map(hashed).collect();
        sorted.sort_by_cached_key(|(_, rule, hash)| (*hash, precedence::key(rule)));
        for (id, rule, hash) in sorted {
            let text = text(rule);
            let text_start = *self.text_starts.entry(text).or_insert_with(|| {
                self.texts.extend_from_slice(text);
                (self.texts.len() - text.len()) as u32
            });
            self.entries.push(Entry {
                hash,
                rule: id,
                text_start,
                text_length: text.len() as u32,
                fate: rule.fate(),
                any_request: !rule.looks_beyond_the_path(),
            });
        }
        self.entries.len()
    }

    pub(crate) fn finish(self) -> PathIndex {
        let Self { entries, texts, hasher, .. } = self;
        PathIndex { entries: entries.into(), texts: texts.into(), hasher }
    }
}

/// What a path is found by. Regular expressions are tried one by one.
fn text(rule: &Rule) -> &[u8] {
    match rule.path.kind {
        PathMatchType::Exact => rule.path.value.as_bytes(),
        PathMatchType::PathPrefix => normal_prefix(&rule.path.value),
        PathMatchType::RegularExpression => b"",
    }
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
