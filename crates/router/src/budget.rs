//! How many patterns a configuration may have: by memory, and by what one request can cost.
//!
//! Takes the conditions of rules in order of precedence; guarantees that what was accepted stays within the limits; a rule that
//! exceeds one is refused as a whole and changes nothing. Never knows where the rules come from: `translate` asks to write
//! statuses, and the router asks again when it compiles a file.

use std::collections::{BTreeMap, HashMap, HashSet};

use model::matches::{PathMatch, PathMatchType, ValueMatch, ValueMatchType};

use crate::path::normal_prefix;
use crate::pattern::{self, check};

/// Bytes of all compiled patterns of routes of one Gateway. The same text counts once.
pub const MOST_BYTES: usize = 32 << 20;
/// The same for the bypass of cache policies, apart: routes must not take the cache away from others.
pub const MOST_BYPASS_BYTES: usize = 16 << 20;
/// How many patterns one request may have to be matched against, whatever its host, path and headers.
pub const MOST_MATCHED: usize = 32;
/// How many patterns one host may have: a request looks at the first bytes of its path for each of them.
pub const MOST_OF_HOST: usize = 2000;
/// Longer values are not matched: the request is refused.
pub const LONGEST_VALUE: usize = 8 << 10;
/// Paths are distinguished by so many bytes of their beginnings.
const LONGEST_BEGINNING: usize = 64;

/// Why a rule is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error(transparent)]
    Pattern(#[from] pattern::Error),
    #[error(
        "the regular expressions of this Gateway take {MOST_BYTES} bytes already: use simpler ones, Exact or PathPrefix, or \
         another Gateway"
    )]
    Bytes,
    #[error(
        "the regular expressions in cache policies of this Gateway take {MOST_BYPASS_BYTES} bytes already: use simpler ones, or \
         another Gateway"
    )]
    BypassBytes,
    #[error(
        "a request for {host} would have to be matched against more than {MOST_MATCHED} regular expressions: give them \
         different beginnings (`/shop/.*` and `/blog/.*` are never both matched to the end), use Exact or PathPrefix, or \
         another host"
    )]
    Matched { host: String },
    #[error(
        "{host} would have more than {MOST_OF_HOST} regular expressions: use Exact or PathPrefix, or another host"
    )]
    Host { host: String },
}

/// What one match of a rule asks for.
#[derive(Debug, Clone, Copy)]
pub struct Conditions<'a> {
    pub path: Option<&'a PathMatch>,
    pub headers: &'a [ValueMatch],
    pub query_params: &'a [ValueMatch],
}

impl<'a> Conditions<'a> {
    /// Their texts.
    pub fn patterns(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let path = self.path.filter(|path| path.kind == PathMatchType::RegularExpression);
        let values = patterns(self.headers).chain(patterns(self.query_params));
        path.map(|path| path.value.as_str()).into_iter().chain(values)
    }

    /// How often a request may have to be matched. Query parameters are matched as written and decoded.
    fn weight(&self) -> usize {
        self.patterns().count() + patterns(self.query_params).count()
    }

    /// Only paths that begin so come to these patterns.
    fn beginning(&self) -> Result<Vec<u8>, pattern::Error> {
        Ok(match self.path {
            None => Vec::new(),
            // The router may normalise it, as the Gateway is set: it may begin with anything.
            Some(PathMatch { kind: PathMatchType::Exact | PathMatchType::PathPrefix, value })
                if ["//", "/.", "%", "\\"].iter().any(|part| value.contains(part)) =>
            {
                Vec::new()
            }
            Some(PathMatch { kind: PathMatchType::Exact, value }) => value.as_bytes().to_vec(),
            Some(PathMatch { kind: PathMatchType::PathPrefix, value }) => normal_prefix(value).to_vec(),
            Some(PathMatch { kind: PathMatchType::RegularExpression, value }) => {
                check(value)?.prefix.to_vec()
            }
        })
    }
}

fn patterns(values: &[ValueMatch]) -> impl Iterator<Item = &str> {
    values.iter().filter(|v| v.kind == ValueMatchType::RegularExpression).map(|v| v.value.as_str())
}

/// What one Gateway has accepted.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    routes: Memory,
    bypasses: Memory,
    hosts: HashMap<String, Load>,
}

impl Budget {
    /// Accepts all matches of a rule for all of its hosts, or nothing.
    pub fn add(&mut self, hosts: &[&str], matches: &[Conditions<'_>]) -> Result<(), Excess> {
        let mut loads = Vec::new();
        for conditions in matches.iter().filter(|conditions| conditions.weight() > 0) {
            let mut beginning = conditions.beginning()?;
            beginning.truncate(LONGEST_BEGINNING);
            loads.push((beginning, conditions.weight()));
        }
        if loads.is_empty() {
            return Ok(());
        }
        let memory = self.routes.with(matches.iter().flat_map(Conditions::patterns))?;
        if memory.bytes > MOST_BYTES {
            return Err(Excess::Bytes);
        }
        for (number, host) in hosts.iter().enumerate() {
            let load = self.hosts.entry((*host).to_owned()).or_default();
            if let Err(why) = load.add(&loads) {
                for accepted in &hosts[..number] {
                    if let Some(load) = self.hosts.get_mut(*accepted) {
                        load.remove(&loads);
                    }
                }
                return Err(why((*host).to_owned()));
            }
        }
        self.routes.add(memory);
        Ok(())
    }

    /// Forgets the matches of a rule that was accepted for these hosts. The bytes of its patterns go on counting.
    pub fn remove(&mut self, hosts: &[&str], matches: &[Conditions<'_>]) {
        let loads: Vec<_> = matches
            .iter()
            .filter(|conditions| conditions.weight() > 0)
            .filter_map(|conditions| {
                let mut beginning = conditions.beginning().ok()?;
                beginning.truncate(LONGEST_BEGINNING);
                Some((beginning, conditions.weight()))
            })
            .collect();
        for host in hosts {
            if let Some(load) = self.hosts.get_mut(*host) {
                load.remove(&loads);
                if load.patterns == 0 {
                    self.hosts.remove(*host);
                }
            }
        }
    }

    /// Accepts the patterns of a cache policy, or none of them.
    pub fn add_bypass<'p>(&mut self, patterns: impl Iterator<Item = &'p str>) -> Result<(), Excess> {
        let memory = self.bypasses.with(patterns)?;
        if memory.bytes > MOST_BYPASS_BYTES {
            return Err(Excess::BypassBytes);
        }
        self.bypasses.add(memory);
        Ok(())
    }
}

#[derive(Debug, Clone, Default)]
struct Memory {
    bytes: usize,
    texts: HashSet<Box<str>>,
}

impl Memory {
    /// All bytes with these patterns, and which are new.
    fn with<'p>(&self, patterns: impl Iterator<Item = &'p str>) -> Result<Self, pattern::Error> {
        let mut new = Self { bytes: self.bytes, texts: HashSet::new() };
        for text in patterns {
            if !self.texts.contains(text) && new.texts.insert(text.into()) {
                new.bytes += check(text)?.bytes;
            }
        }
        Ok(new)
    }

    fn add(&mut self, new: Self) {
        self.bytes = new.bytes;
        self.texts.extend(new.texts);
    }
}

/// How often requests of one host may have to be matched, by the beginnings of their paths.
#[derive(Debug, Clone, Default)]
struct Load {
    beginnings: BTreeMap<Vec<u8>, Weights>,
    /// Of all of them.
    patterns: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Weights {
    /// Of the rules with just this beginning.
    own: usize,
    /// And of those whose beginning is shorter and the same so far: a path may come to all of them.
    all: usize,
}

impl Load {
    /// Where it is too much nothing has changed.
    fn add(&mut self, loads: &[(Vec<u8>, usize)]) -> Result<(), fn(String) -> Excess> {
        let patterns = self.patterns + loads.iter().map(|(_, weight)| weight).sum::<usize>();
        if patterns > MOST_OF_HOST {
            return Err(|host| Excess::Host { host });
        }
        for (number, (beginning, weight)) in loads.iter().enumerate() {
            if self.put(beginning, *weight) > MOST_MATCHED {
                self.remove(&loads[..=number]);
                return Err(|host| Excess::Matched { host });
            }
        }
        Ok(())
    }

    /// The largest weight that a path with this beginning has now.
    fn put(&mut self, beginning: &[u8], weight: usize) -> usize {
        if !self.beginnings.contains_key(beginning) {
            let shorter = (0..beginning.len()).filter_map(|end| self.beginnings.get(&beginning[..end]));
            let all = shorter.map(|weights| weights.own).sum();
            self.beginnings.insert(beginning.to_vec(), Weights { own: 0, all });
        }
        self.patterns += weight;
        let mut largest = 0;
        for (text, weights) in self.beginnings.range_mut(beginning.to_vec()..) {
            if !text.starts_with(beginning) {
                break;
            }
            weights.all += weight;
            if text.len() == beginning.len() {
                weights.own += weight;
            }
            largest = largest.max(weights.all);
        }
        largest
    }

    fn remove(&mut self, loads: &[(Vec<u8>, usize)]) {
        for (beginning, weight) in loads {
            self.patterns -= weight;
            for (text, weights) in self.beginnings.range_mut(beginning.clone()..) {
                if !text.starts_with(beginning) {
                    break;
                }
                weights.all -= weight;
                if text.len() == beginning.len() {
                    weights.own -= weight;
                }
            }
        }
        self.beginnings.retain(|_, weights| weights.own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(value: &str) -> PathMatch {
        PathMatch { kind: PathMatchType::RegularExpression, value: value.to_owned() }
    }

    fn add(budget: &mut Budget, host: &str, path: &PathMatch) -> Result<(), Excess> {
        let conditions = Conditions { path: Some(path), headers: &[], query_params: &[] };
        budget.add(&[host], &[conditions])
    }

    #[test]
    fn one_path_comes_to_a_limited_number_of_patterns() {
        let mut budget = Budget::default();
        for n in 0..MOST_MATCHED {
            add(&mut budget, "a.test", &regex(&format!(".*/x{n}"))).unwrap();
        }
        let more = add(&mut budget, "a.test", &regex("/more/.*"));
        assert_eq!(more, Err(Excess::Matched { host: "a.test".to_owned() }));
        // Hosts do not share, and a rule without patterns costs nothing.
        add(&mut budget, "b.test", &regex("/more/.*")).unwrap();
        add(&mut budget, "a.test", &PathMatch::everything()).unwrap();
    }

    #[test]
    fn patterns_with_different_beginnings_do_not_add_up() {
        let mut budget = Budget::default();
        for n in 0..10 * MOST_MATCHED {
            add(&mut budget, "a.test", &regex(&format!("/tenant-{n:04}/.*"))).unwrap();
        }
        for n in 1..MOST_MATCHED {
            add(&mut budget, "a.test", &regex(&format!(".*/x{n}"))).unwrap();
        }
        assert!(add(&mut budget, "a.test", &regex(".*/last")).is_err());
        assert!(add(&mut budget, "a.test", &regex("/tenant-0001/[a-z]+")).is_err());
        add(&mut budget, "a.test", &regex("/tenant-new/.*")).unwrap();
    }

    #[test]
    fn paths_of_more_than_one_spelling_are_no_way_around() {
        let headers = [ValueMatch {
            name: "x".to_owned(),
            value: ".*".to_owned(),
            kind: ValueMatchType::RegularExpression,
        }];
        let mut budget = Budget::default();
        let mut with = |value: String| {
            let path = PathMatch { kind: PathMatchType::PathPrefix, value };
            budget.add(&["a.test"], &[Conditions { path: Some(&path), headers: &headers, query_params: &[] }])
        };
        for n in 0..MOST_MATCHED {
            with(format!("/{n}/../x")).unwrap();
        }
        for path in ["/a/../x", "/x//", "/%78", "/x\\y", "/x"] {
            assert!(with(path.to_owned()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_host_has_a_limited_number_of_patterns() {
        let mut budget = Budget::default();
        for n in 0..MOST_OF_HOST {
            add(&mut budget, "a.test", &regex(&format!("/tenant-{n:04}/.*"))).unwrap();
        }
        let more = add(&mut budget, "a.test", &regex("/more/.*"));
        assert_eq!(more, Err(Excess::Host { host: "a.test".to_owned() }));
        add(&mut budget, "b.test", &regex("/more/.*")).unwrap();
    }

    #[test]
    fn headers_and_query_parameters_count() {
        let value = |n: usize| ValueMatch {
            name: format!("x-{n}"),
            value: format!(".*{n}"),
            kind: ValueMatchType::RegularExpression,
        };
        let values: Vec<_> = (0..=MOST_MATCHED).map(value).collect();
        let mut budget = Budget::default();
        let mut with = |headers, query_params| {
            budget.add(&["a.test"], &[Conditions { path: None, headers, query_params }])
        };
        assert!(with(&values[..], &[]).is_err());
        assert!(with(&[], &values[..MOST_MATCHED / 2 + 1]).is_err());
        with(&values[..MOST_MATCHED / 2], &values[..MOST_MATCHED / 4]).unwrap();
        assert!(with(&values[..1], &[]).is_err());
    }

    #[test]
    fn a_refused_rule_changes_nothing() {
        let mut budget = Budget::default();
        for n in 0..MOST_MATCHED {
            add(&mut budget, "full.test", &regex(&format!(".*/x{n}"))).unwrap();
        }
        let before = format!("{:?}", budget.hosts.get("full.test"));
        let paths = [regex("/a.*"), regex("/b.*")];
        let conditions =
            paths.each_ref().map(|path| Conditions { path: Some(path), headers: &[], query_params: &[] });
        assert!(budget.add(&["free.test", "full.test"], &conditions).is_err());
        assert!(budget.hosts["free.test"].beginnings.is_empty());
        assert_eq!(format!("{:?}", budget.hosts.get("full.test")), before);
        assert!(!budget.routes.texts.contains("/a.*"));
    }

    #[test]
    fn memory_is_limited_and_the_same_text_counts_once() {
        let mut budget = Budget::default();
        let large = |n: usize| regex(&format!("/{n:04}/(a|b|c)*a(a|b|c){{10}}"));
        let bytes = check(&large(1).value).unwrap().bytes;
        // As if there were many already: compiling 32 MiB takes its time.
        budget.routes.bytes = MOST_BYTES - 3 * bytes - 1;
        let mut accepted = 0;
        while add(&mut budget, &format!("{accepted}.test"), &large(accepted)).is_ok() {
            accepted += 1;
        }
        assert_eq!(accepted, 3);
        for n in 0..100 {
            add(&mut budget, &format!("again-{n}.test"), &large(0)).unwrap();
        }
        let excess = add(&mut budget, "new.test", &large(accepted));
        assert_eq!(excess, Err(Excess::Bytes));
        // Cache policies have a budget of their own.
        budget.add_bypass([".*session=.*"].into_iter()).unwrap();
    }
}
