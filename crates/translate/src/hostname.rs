//! Hostnames of listeners and routes: exact, wildcard of any depth, or none for every host.

use model::host::{self, HostPattern};
use model::names::ANY_HOST;

/// The hostname in the form that all comparisons use; an empty one stands for none.
pub(crate) fn normal(hostname: Option<&str>) -> Option<String> {
    hostname.filter(|name| !name.is_empty()).map(host::normal)
}

/// The hosts that listener and route have in common, written as a key of the host table; `None` where they share
/// none. Both are normal. Of two hostnames that overlap, one always contains the other: the narrower is the answer.
pub(crate) fn intersect<'a>(listener: Option<&'a str>, route: Option<&'a str>) -> Option<&'a str> {
    let (listener, route) = (listener.unwrap_or(ANY_HOST), route.unwrap_or(ANY_HOST));
    let (of_listener, of_route) = (HostPattern::new(listener), HostPattern::new(route));
    if of_listener.contains(of_route) {
        return Some(route);
    }
    of_route.contains(of_listener).then_some(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrower_of_two_overlapping_names_is_left() {
        for (listener, route, expected) in [
            (None, None, Some("*")),
            (Some("shop.example.com"), None, Some("shop.example.com")),
            (None, Some("*.example.com"), Some("*.example.com")),
            (Some("shop.example.com"), Some("shop.example.com"), Some("shop.example.com")),
            (Some("shop.example.com"), Some("cart.example.com"), None),
            (Some("*.example.com"), Some("shop.example.com"), Some("shop.example.com")),
            (Some("*.example.com"), Some("a.shop.example.com"), Some("a.shop.example.com")),
            (Some("shop.example.com"), Some("*.example.com"), Some("shop.example.com")),
            (Some("*.example.com"), Some("*.shop.example.com"), Some("*.shop.example.com")),
            (Some("*.shop.example.com"), Some("*.example.com"), Some("*.shop.example.com")),
            (Some("*.example.com"), Some("*.example.com"), Some("*.example.com")),
            (Some("*.example.com"), Some("example.com"), None),
            (Some("example.com"), Some("*.example.com"), None),
            (Some("*.example.com"), Some("badexample.com"), None),
            (Some("*.example.com"), Some("*.badexample.com"), None),
            (Some("*.example.com"), Some("*.example.net"), None),
        ] {
            assert_eq!(intersect(listener, route), expected, "{listener:?} and {route:?}");
        }
    }

    #[test]
    fn names_compare_without_case_and_an_empty_one_is_none() {
        assert_eq!(normal(Some("Shop.Example.COM")).as_deref(), Some("shop.example.com"));
        assert_eq!(normal(Some("")), None);
        assert_eq!(normal(None), None);
    }

    /// What the spec says of a name and a request's host, in the most obvious way.
    fn serves(name: &str, host: &str) -> bool {
        match name.strip_prefix("*.") {
            _ if name == ANY_HOST => true,
            Some(parent) => host.ends_with(&format!(".{parent}")) && host.len() > parent.len() + 1,
            None => name == host,
        }
    }

    /// All names of up to three labels over a small alphabet, which hold every way in which two can overlap.
    fn names() -> Vec<String> {
        let mut all: Vec<String> = vec![];
        let mut last = vec![String::new()];
        for _ in 0..3 {
            last = last
                .iter()
                .flat_map(|tail| {
                    ["a", "b", "ab"].iter().map(move |label| {
                        if tail.is_empty() { (*label).to_owned() } else { format!("{label}.{tail}") }
                    })
                })
                .collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn a_host_is_in_the_intersection_exactly_when_both_sides_serve_it() {
        let hosts = names();
        let patterns: Vec<Option<String>> = std::iter::once(None)
            .chain(hosts.iter().cloned().map(Some))
            .chain(hosts.iter().map(|name| Some(format!("*.{name}"))))
            .collect();
        // One label deeper than the patterns, so that wildcards of full depth have something to hold.
        let requests: Vec<String> =
            hosts.iter().cloned().chain(hosts.iter().map(|h| format!("b.{h}"))).collect();
        for listener in &patterns {
            for route in &patterns {
                let both = intersect(listener.as_deref(), route.as_deref());
                assert_eq!(
                    both,
                    intersect(route.as_deref(), listener.as_deref()),
                    "the order does not matter"
                );
                for host in &requests {
                    let expected = serves(listener.as_deref().unwrap_or(ANY_HOST), host)
                        && serves(route.as_deref().unwrap_or(ANY_HOST), host);
                    let found = both.is_some_and(|name| serves(name, host));
                    assert_eq!(found, expected, "{listener:?} and {route:?} give {both:?}, asked for {host}");
                }
            }
        }
    }
}
