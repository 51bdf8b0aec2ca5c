//! Hosts that HTTPRoutes and GRPCRoutes have on a listener. The spec: a host belongs to routes of one of the two kinds; the older route
//! has it, and the other one is not accepted.

use std::collections::BTreeMap;

use model::host::HostPattern;
use model::names::ANY_HOST;

use crate::listener::RouteKind;
use crate::snapshot::Key;

/// By host: the first route of the kind that has it.
type Hosts = BTreeMap<String, Key>;

/// The hosts of one listener.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    http: Hosts,
    grpc: Hosts,
}

impl Claims {
    /// A route has hosts from now on.
    pub(crate) fn add<'h>(&mut self, kind: RouteKind, route: &Key, hosts: impl Iterator<Item = &'h str>) {
        let own = match kind {
            RouteKind::HttpRoute => &mut self.http,
            RouteKind::GrpcRoute => &mut self.grpc,
            _ => return,
        };
        for host in hosts {
            if !own.contains_key(host) {
                own.insert(host.to_owned(), route.clone());
            }
        }
    }

    /// The route of the other kind that has some of this host's hosts, with its kind and host.
    pub(crate) fn conflict<'c>(
        &'c self,
        kind: RouteKind,
        host: &str,
    ) -> Option<(RouteKind, &'c str, &'c Key)> {
        let (other, claimed) = match kind {
            RouteKind::HttpRoute => (RouteKind::GrpcRoute, &self.grpc),
            RouteKind::GrpcRoute => (RouteKind::HttpRoute, &self.http),
            _ => return None,
        };
        if claimed.is_empty() {
            return None;
        }
        let pattern = HostPattern::new(host);
        let found = match pattern {
            HostPattern::Any => claimed.first_key_value(),
            HostPattern::Wildcard { .. } => claimed.iter().find(|(of, _)| {
                let of = HostPattern::new(of);
                of.contains(pattern) || pattern.contains(of)
            }),
            HostPattern::Exact(name) => {
                // The host itself, each wildcard that it is under, and every host.
                let parents = name.match_indices('.').map(|(at, _)| format!("*{}", &name[at..]));
                let names = std::iter::once(name.to_owned()).chain(parents).chain([ANY_HOST.to_owned()]);
                names.into_iter().find_map(|name| claimed.get_key_value(&name))
            }
        };
        found.map(|(host, route)| (other, host.as_str(), route))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_overlap_belong_to_one_kind() {
        let conflict = |claimed: &str, host: &str| {
            let mut claims = Claims::default();
            claims.add(RouteKind::HttpRoute, &Key::new("a", "web"), [claimed].into_iter());
            assert!(claims.conflict(RouteKind::HttpRoute, host).is_none(), "one kind shares its hosts");
            claims.conflict(RouteKind::GrpcRoute, host).is_some()
        };
        for (one, other, expected) in [
            ("a.example.com", "a.example.com", true),
            ("a.example.com", "b.example.com", false),
            ("*.example.com", "b.example.com", true),
            ("*.example.com", "c.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.b.example.com", true),
            ("*", "b.example.com", true),
            ("*", "*.example.com", true),
            ("*", "*", true),
        ] {
            assert_eq!(conflict(one, other), expected, "{one} and {other}");
            assert_eq!(conflict(other, one), expected, "{other} and {one}");
        }
    }
}
