//! Hostnames of listeners and routes: which hosts each stands for, and which of two is closer to a host.
//!
//! Certificates have rules of their own (RFC 6125) and do not use this.

use std::fmt;

use crate::names::ANY_HOST;

/// A hostname as listeners, routes and Ingresses have it. `N` is its text: `String`, or `&str` for a borrowed pattern. Texts are
/// [`normal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern<N = String> {
    /// Every host.
    Any,
    /// `*.example.com` has the parent `example.com`. It stands for names below the parent, never for the parent itself.
    Wildcard {
        parent: N,
        /// Only names of exactly one label more, as in an Ingress. The Gateway API's wildcards stand for any number.
        one_label: bool,
    },
    Exact(N),
}

/// How closely a pattern names a host. A greater one is closer: exact, then the longest wildcard, then every host. Of two wildcards of
/// one length, the one for a single label is closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Closeness {
    Any,
    Wildcard { length: usize, one_label: bool },
    Exact,
}

/// A hostname in the form that all comparisons use: lower case, without the final dot of a full name.
pub fn normal(hostname: &str) -> String {
    hostname.strip_suffix('.').unwrap_or(hostname).to_ascii_lowercase()
}

/// The names that may be the parent of a wildcard for `host`, the longest first. A wildcard stands for at least one label.
pub fn parents(host: &[u8]) -> impl Iterator<Item = &[u8]> {
    host.iter().enumerate().skip(1).filter(|(_, b)| **b == b'.').map(|(at, _)| &host[at + 1..])
}

/// What stands before `parent` in a name below it, without the dot between them.
fn below<'n>(name: &'n [u8], parent: &str) -> Option<&'n [u8]> {
    name.strip_suffix(parent.as_bytes())?.strip_suffix(b".").filter(|labels| !labels.is_empty())
}

impl<'n> HostPattern<&'n str> {
    /// Of a [`normal`] text: `*` or nothing for every host, `*.example.com`, or a name.
    pub fn new(hostname: &'n str) -> Self {
        match hostname.strip_prefix("*.") {
            _ if hostname.is_empty() || hostname == ANY_HOST => Self::Any,
            Some(parent) => Self::Wildcard { parent, one_label: false },
            None => Self::Exact(hostname),
        }
    }

    /// Of an optional one: none stands for every host.
    pub fn of_optional(hostname: Option<&'n str>) -> Self {
        hostname.map_or(Self::Any, Self::new)
    }

    pub fn owned(self) -> HostPattern {
        match self {
            Self::Any => HostPattern::Any,
            Self::Wildcard { parent, one_label } => {
                HostPattern::Wildcard { parent: parent.to_owned(), one_label }
            }
            Self::Exact(name) => HostPattern::Exact(name.to_owned()),
        }
    }

    /// How close it is to the hosts that it stands for.
    pub fn closeness(self) -> Closeness {
        match self {
            Self::Any => Closeness::Any,
            Self::Wildcard { parent, one_label } => Closeness::Wildcard { length: parent.len(), one_label },
            Self::Exact(_) => Closeness::Exact,
        }
    }

    /// Does it stand for this host? The host is [`normal`], and has no port.
    pub fn matches(self, host: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Wildcard { parent, one_label } => {
                below(host, parent).is_some_and(|labels| !one_label || !labels.contains(&b'.'))
            }
            Self::Exact(name) => name.as_bytes() == host,
        }
    }

    /// Does it stand for every host of `inner`? Of two patterns with a host in common, one always contains the other.
    pub fn contains(self, inner: Self) -> bool {
        match (self, inner) {
            (Self::Any, _) => true,
            (_, Self::Any) => false,
            (_, Self::Exact(name)) => self.matches(name.as_bytes()),
            (Self::Exact(_), Self::Wildcard { .. }) => false,
            (Self::Wildcard { parent: outer, one_label: narrow }, Self::Wildcard { parent, one_label }) => {
                if narrow {
                    one_label && outer == parent
                } else {
                    outer == parent || below(parent.as_bytes(), outer).is_some()
                }
            }
        }
    }
}

impl<N> HostPattern<N> {
    /// The same hostname, where a wildcard stands for exactly one label.
    pub fn of_one_label(self) -> Self {
        match self {
            Self::Wildcard { parent, .. } => Self::Wildcard { parent, one_label: true },
            other => other,
        }
    }

    /// The same hostname, where a wildcard stands for any number of labels.
    pub fn of_any_depth(self) -> Self {
        match self {
            Self::Wildcard { parent, .. } => Self::Wildcard { parent, one_label: false },
            other => other,
        }
    }
}

impl HostPattern {
    pub fn borrowed(&self) -> HostPattern<&str> {
        match self {
            Self::Any => HostPattern::Any,
            Self::Wildcard { parent, one_label } => HostPattern::Wildcard { parent, one_label: *one_label },
            Self::Exact(name) => HostPattern::Exact(name),
        }
    }
}

impl<N: fmt::Display> fmt::Display for HostPattern<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str(ANY_HOST),
            Self::Wildcard { parent, .. } => write!(f, "*.{parent}"),
            Self::Exact(name) => write!(f, "{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pattern over names of up to three labels, and all hosts that tell them apart.
    fn patterns_and_hosts() -> (Vec<HostPattern>, Vec<String>) {
        let mut names: Vec<String> = ["a", "b", "ab"].map(str::to_owned).to_vec();
        for _ in 0..2 {
            let longer: Vec<String> = names
                .iter()
                .flat_map(|tail| ["a", "b", "ab"].map(|label| format!("{label}.{tail}")))
                .collect();
            names.extend(longer);
        }
        names.sort();
        names.dedup();
        let wildcards =
            names.iter().map(|parent| HostPattern::Wildcard { parent: parent.clone(), one_label: false });
        let patterns: Vec<HostPattern> = std::iter::once(HostPattern::Any)
            .chain(names.iter().cloned().map(HostPattern::Exact))
            .chain(wildcards.clone())
            .chain(wildcards.map(HostPattern::of_one_label))
            .collect();
        let deeper: Vec<String> =
            names.iter().flat_map(|name| [format!("b.{name}"), format!("b.b.{name}")]).collect();
        names.extend(deeper);
        (patterns, names)
    }

    /// The meaning of a pattern, in the most obvious way.
    fn serves(pattern: &HostPattern, host: &str) -> bool {
        match pattern {
            HostPattern::Any => true,
            HostPattern::Exact(name) => name == host,
            HostPattern::Wildcard { parent, one_label } => {
                let (labels, of_parent) = (host.split('.').count(), parent.split('.').count());
                host.ends_with(&format!(".{parent}"))
                    && if *one_label { labels == of_parent + 1 } else { labels > of_parent }
            }
        }
    }

    #[test]
    fn a_pattern_contains_another_exactly_when_it_serves_all_its_hosts() {
        let (patterns, hosts) = patterns_and_hosts();
        for outer in &patterns {
            for inner in &patterns {
                let all = hosts.iter().filter(|host| serves(inner, host)).all(|host| serves(outer, host));
                let contains = outer.borrowed().contains(inner.borrowed());
                // No list of hosts tells `*` from all wildcards together.
                if *inner != HostPattern::Any {
                    assert_eq!(contains, all, "{outer:?} and {inner:?}");
                }
                let both = hosts.iter().any(|host| serves(inner, host) && serves(outer, host));
                let nested = contains || inner.borrowed().contains(outer.borrowed());
                assert_eq!(both, nested, "{outer:?} and {inner:?} overlap only where one contains the other");
            }
        }
    }

    #[test]
    fn the_closest_pattern_is_the_one_with_the_fewest_hosts() {
        let (patterns, hosts) = patterns_and_hosts();
        for host in &hosts {
            let mut near: Vec<_> =
                patterns.iter().filter(|one| one.borrowed().matches(host.as_bytes())).collect();
            near.sort_by_key(|one| one.borrowed().closeness());
            for pair in near.windows(2) {
                assert!(pair[0].borrowed().contains(pair[1].borrowed()), "{host}: {pair:?}");
                assert_ne!(
                    pair[0].borrowed().closeness(),
                    pair[1].borrowed().closeness(),
                    "{host}: {pair:?}"
                );
            }
        }
    }

    #[test]
    fn texts_become_patterns_and_patterns_texts() {
        for text in ["*", "*.example.com", "example.com"] {
            assert_eq!(HostPattern::new(text).to_string(), text);
            assert_eq!(HostPattern::new(text).owned().borrowed(), HostPattern::new(text));
        }
        assert_eq!(HostPattern::new(""), HostPattern::Any);
        assert_eq!(HostPattern::of_optional(None), HostPattern::Any);
        assert_eq!(normal("Shop.Example.COM."), "shop.example.com");
    }

    #[test]
    fn a_star_stands_for_at_least_one_label() {
        for host in ["example.com", ".example.com", "badexample.com", ""] {
            assert!(!HostPattern::new("*.example.com").matches(host.as_bytes()), "{host}");
        }
        let all: Vec<&[u8]> = parents(b"a.b.example.com").collect();
        assert_eq!(all, [b"b.example.com".as_slice(), b"example.com", b"com"]);
        assert_eq!(parents(b".com").next(), None);
    }
}
