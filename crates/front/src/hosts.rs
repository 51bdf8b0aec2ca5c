//! The name that a client asks for → what to do with it.

use std::collections::HashMap;

/// What is found by name: an exact hostname before the longest wildcard before none.
#[derive(Debug)]
pub(crate) struct Hosts<T> {
    exact: HashMap<String, T>,
    /// By what follows `*.`
    wild: HashMap<String, T>,
    /// The same of wildcards that stand for exactly one label. They go before others of their length.
    narrow: HashMap<String, T>,
    any: Option<T>,
}

/// A hostname as the configuration has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Name {
    pub(crate) hostname: Option<String>,
    pub(crate) one_label: bool,
}

impl<T> Hosts<T> {
    /// Of two with the same hostname the first stays.
    pub(crate) fn new(hosts: impl IntoIterator<Item = (Name, T)>) -> Self {
        let mut table =
            Self { exact: HashMap::new(), wild: HashMap::new(), narrow: HashMap::new(), any: None };
        for (Name { hostname, one_label }, value) in hosts {
            let hostname = hostname.map(|name| normal(&name)).filter(|name| !name.is_empty() && name != "*");
            match hostname {
                None => {
                    table.any.get_or_insert(value);
                }
                Some(name) => {
                    let (map, key) = match name.strip_prefix("*.") {
                        Some(parent) if one_label => (&mut table.narrow, parent.to_owned()),
                        Some(parent) => (&mut table.wild, parent.to_owned()),
                        None => (&mut table.exact, name),
                    };
                    map.entry(key).or_insert(value);
                }
            }
        }
        table
    }

    pub(crate) fn find(&self, name: Option<&str>) -> Option<&T> {
        let named = name.and_then(|name| self.find_named(&normal(name)));
        named.or(self.any.as_ref())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.wild.values()).chain(self.narrow.values()).chain(&self.any)
    }

    fn find_named(&self, name: &str) -> Option<&T> {
        if let Some(found) = self.exact.get(name) {
            return Some(found);
        }
        if let Some((_, parent)) = name.split_once('.')
            && let Some(found) = self.narrow.get(parent)
        {
            return Some(found);
        }
        if self.wild.is_empty() {
            return None;
        }
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(found) = self.wild.get(parent) {
                return Some(found);
            }
            rest = parent;
        }
        None
    }
}

/// Lower case, without the dot of a full name.
pub(crate) fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Hosts<String> {
        Hosts::new(names.iter().map(|name| (named(name), (*name).to_owned())))
    }

    fn named(name: &str) -> Name {
        Name { hostname: (name != "any").then(|| name.to_owned()), one_label: false }
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
        assert_eq!(found(&some, ".example.com"), "*.example.com");
        assert_eq!(found(&some, ""), "nothing");
        assert!(some.find(None).is_none());
    }

    #[test]
    fn a_wildcard_of_one_label_takes_no_deeper_names() {
        let narrow = |name: &str| Name { one_label: true, ..named(name) };
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
