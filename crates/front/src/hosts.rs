//! The name that a client asks for in its TLS handshake → what to do with it.

use std::collections::BTreeMap;

use model::host::{HostPattern, normal};
use router::HostTable;

/// Values by hostname: an exact one before the longest wildcard before none.
#[derive(Debug)]
pub(crate) struct Hosts<T>(HostTable<T>);

impl<T> Hosts<T> {
    /// Of two with the same hostname the first stays.
    pub(crate) fn new(hosts: impl IntoIterator<Item = (HostPattern, T)>) -> Self {
        let mut first = BTreeMap::new();
        for (pattern, value) in hosts {
            first.entry(pattern).or_insert(value);
        }
        let (patterns, values): (Vec<_>, Vec<_>) = first.into_iter().unzip();
        Self(HostTable::new(patterns.iter().map(HostPattern::borrowed).zip(values)))
    }

    pub(crate) fn find(&self, name: Option<&str>) -> Option<&T> {
        match name {
            Some(name) => self.0.get(normal(name).as_bytes()),
            None => self.0.any(),
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Hosts<String> {
        Hosts::new(names.iter().map(|name| (named(name), (*name).to_owned())))
    }

    fn named(name: &str) -> HostPattern {
        HostPattern::new(&normal(if name == "any" { "" } else { name })).owned()
    }

    fn found(hosts: &Hosts<String>, name: &str) -> String {
        hosts.find(Some(name)).cloned().unwrap_or_else(|| "nothing".to_owned())
    }

    #[test]
    fn exact_goes_before_the_longest_wildcard_before_none() {
        let all = hosts(&["any", "*.com", "*.example.com", "shop.example.com", "*.shop.example.com"]);
        assert_eq!(found(&all, "shop.example.com"), "shop.example.com");
        assert_eq!(found(&all, "SHOP.example.com."), "shop.example.com");
        assert_eq!(found(&all, "a.shop.example.com"), "*.shop.example.com");
        assert_eq!(found(&all, "a.b.c.example.com"), "*.example.com");
        assert_eq!(found(&all, "example.com"), "*.com");
        assert_eq!(found(&all, "com"), "any");
        assert_eq!(found(&all, "example.org"), "any");
        assert_eq!(all.find(None).map(String::as_str), Some("any"));
    }

    #[test]
    fn without_a_host_for_every_name_unknown_names_find_nothing() {
        let some = hosts(&["*.example.com", "shop.example.org"]);
        assert_eq!(found(&some, "example.com"), "nothing");
        assert_eq!(found(&some, "shop.example.org.evil.test"), "nothing");
        // As in the router: a star stands for a label, and an empty one is none.
        assert_eq!(found(&some, ".example.com"), "nothing");
        assert_eq!(found(&some, ""), "nothing");
        assert!(some.find(None).is_none());
    }

    #[test]
    fn a_wildcard_of_one_label_takes_no_deeper_names() {
        let narrow = |name: &str| named(name).of_one_label();
        let both =
            Hosts::new([(narrow("*.example.com"), 1), (named("*.com"), 2), (named("*.example.com"), 3)]);
        assert_eq!(both.find(Some("a.example.com")), Some(&1));
        assert_eq!(both.find(Some("a.b.example.com")), Some(&3));
        let alone = Hosts::new([(narrow("*.example.com"), 1)]);
        assert_eq!(alone.find(Some("a.b.example.com")), None);
        assert_eq!(alone.find(Some("example.com")), None);
    }

    #[test]
    fn the_first_of_two_stays() {
        let two =
            Hosts::new([(named("a.test"), 1), (named("A.test"), 2), (named("any"), 3), (named("any"), 4)]);
        assert_eq!(two.find(Some("a.test")), Some(&1));
        assert_eq!(two.find(None), Some(&3));
    }
}
