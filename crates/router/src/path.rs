//! Paths: exact, then regular expressions, then the longest prefix by whole path elements.
//!
//! One hash table holds the paths of all hosts. Large configurations do not fit into the processor's caches, so what a
//! decision reads of each is kept small and in few places: a decision at 100,000 routes costs what the misses cost.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use model::matches::PathMatchType;
use std::hash::{BuildHasher, Hasher};

use crate::precedence;
use crate::rule::{Fate, Rule};

/// Rules of all hosts by the path they ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathIndex {
    /// The first entry of every path; those of regular expressions are not here.
    table: HashTable<Slot>,
    entries: Box<[Entry]>,
    texts: Box<[u8]>,
    hasher: RandomState,
}

/// With half of the hash beside it, an entry that is not meant need hardly ever be looked at.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    entry: u32,
}

/// One rule under one path of one host, with all that most decisions need to know of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    host: u32,
    text_start: u32,
    text_length: u32,
    /// Position in the router.
    pub(crate) rule: u32,
    pub(crate) fate: Fate,
    kind: PathMatchType,
    /// Nothing but the path is asked for.
    any_request: bool,
    /// The next entry has another path.
    last: bool,
}

/// Where the rules of one host are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostPaths {
    host: u32,
    regexes_start: u32,
    regexes_end: u32,
    /// Longer paths, or starts of them, need not be looked up.
    longest_exact: u32,
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

/// What a path is found by. Regular expressions are tried one by one.
fn text(rule: &Rule) -> &[u8] {
    match rule.path.kind {
        PathMatchType::Exact => rule.path.value.as_bytes(),
        PathMatchType::RegularExpression => b"",
        PathMatchType::PathPrefix => normal_prefix(&rule.path.value),
    }
}

impl PathIndex {
    /// The best rule whose path fits and that `take` wants.
    pub(crate) fn find(
        &self,
        host: &HostPaths,
        rules: &[Rule],
        path: &[u8],
        mut take: impl FnMut(&Rule) -> bool,
    ) -> Option<&Entry> {
        let mut wanted = |entry: &&Entry| entry.any_request || take(&rules[entry.rule as usize]);
        if path.len() <= host.longest_exact as usize
            && let Some(found) = self.with_path(host.host, PathMatchType::Exact, path).find(&mut wanted)
        {
            return Some(found);
        }
        let regexes = &self.entries[host.regexes_start as usize..host.regexes_end as usize];
        let mut fitting = regexes.iter().filter(|e| rules[e.rule as usize].path_pattern_matches(path));
        fitting.find(&mut wanted).or_else(|| {
            let starts = starts(path).filter(|start| start.len() <= host.longest_prefix as usize);
            starts.flat_map(|start| self.with_path(host.host, PathMatchType::PathPrefix, start)).find(wanted)
        })
    }

    /// The entries of exactly this path, in order of precedence.
    fn with_path(&self, host: u32, kind: PathMatchType, path: &[u8]) -> impl Iterator<Item = &Entry> {
        let hash = hash(&self.hasher, host, kind, path);
        let is_meant = |slot: &Slot| {
            slot.hash == hash as u32 && {
                let entry = &self.entries[slot.entry as usize];
                entry.host == host && entry.kind == kind && self.text(entry) == path
            }
        };
        let first = self.table.find(hash, is_meant).map_or(self.entries.len(), |slot| slot.entry as usize);
        let mut ended = false;
        self.entries[first..].iter().take_while(move |entry| !std::mem::replace(&mut ended, entry.last))
    }

    fn text(&self, entry: &Entry) -> &[u8] {
        let start = entry.text_start as usize;
        &self.texts[start..start + entry.text_length as usize]
    }

    /// Positions of a host's rules, in no particular order.
    pub(crate) fn rules_of(&self, host: &HostPaths) -> impl Iterator<Item = u32> {
        self.entries.iter().filter(|entry| entry.host == host.host).map(|entry| entry.rule)
    }
}

/// A path and what is left of it when elements are taken from its end, down to the empty start that every path has.
fn starts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = path.starts_with(b"/").then_some(path);
    std::iter::successors(whole, |start| start.iter().rposition(|b| *b == b'/').map(|slash| &start[..slash]))
}

fn hash(hasher: &RandomState, host: u32, kind: PathMatchType, path: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64(u64::from(host) << 8 | kind as u64);
    hasher.write(path);
    hasher.finish()
}

/// A [`PathIndex`] while hosts are added to it.
#[derive(Debug, Default)]
pub(crate) struct Building {
    hosts: u32,
    entries: Vec<Entry>,
    texts: Vec<u8>,
}

impl Building {
    /// Adds one host with its rules, by their positions in order of the file.
    pub(crate) fn add(&mut self, rules: &[Rule], mut ids: Vec<u32>) -> HostPaths {
        ids.sort_by_cached_key(|id| {
            let rule = &rules[*id as usize];
            (rule.path.kind, text(rule), precedence::key(rule))
        });
        let host = self.hosts;
        self.hosts += 1;
        let start = self.entries.len();
        let groups = ids.chunk_by(|a, b| {
            let [a, b] = [a, b].map(|id| &rules[*id as usize]);
            a.path.kind == b.path.kind && text(a) == text(b)
        });
        for same_path in groups {
            let text = text(&rules[same_path[0] as usize]);
            let text_start = self.texts.len() as u32;
            self.texts.extend_from_slice(text);
            self.entries.extend(same_path.iter().map(|id| {
                let rule = &rules[*id as usize];
                Entry {
                    host,
                    text_start,
                    text_length: text.len() as u32,
                    rule: *id,
                    fate: rule.fate(),
                    kind: rule.path.kind,
                    any_request: !rule.looks_beyond_the_path(),
                    last: same_path.last() == Some(id),
                }
            }));
        }
        let all = &self.entries[start..];
        let of_kind = |kind| all.iter().filter(move |entry| entry.kind == kind);
        let longest = |kind| of_kind(kind).map(|entry| entry.text_length).max().unwrap_or(0);
        let before = all.partition_point(|entry| entry.kind < PathMatchType::RegularExpression);
        let regexes_start = start + before;
        HostPaths {
            host,
            regexes_start: regexes_start as u32,
            regexes_end: (regexes_start + of_kind(PathMatchType::RegularExpression).count()) as u32,
            longest_exact: longest(PathMatchType::Exact),
            longest_prefix: longest(PathMatchType::PathPrefix),
        }
    }

    pub(crate) fn finish(self) -> PathIndex {
        let Self { entries, texts, .. } = self;
        let (entries, texts) = (entries.into_boxed_slice(), texts.into_boxed_slice());
        let mut index =
            PathIndex { table: HashTable::new(), entries, texts, hasher: RandomState::default() };
        let hashed = |entry: u32| {
            let entry = &index.entries[entry as usize];
            hash(&index.hasher, entry.host, entry.kind, index.text(entry))
        };
        let mut table = HashTable::with_capacity(index.entries.len());
        let mut first = true;
        for (at, entry) in (0..).zip(&index.entries) {
            if first && entry.kind != PathMatchType::RegularExpression {
                let hash = hashed(at);
                table.insert_unique(hash, Slot { hash: hash as u32, entry: at }, |slot: &Slot| hashed(slot.entry));
            }
            first = entry.last;
        }
        index.table = table;
        index
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
