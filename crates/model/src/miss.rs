//! Which group of which rule a connection of varnishd to the front is for.

use std::fmt;

/// Written as the authority of the connection's PROXY header. The front's table and ghost's may be one reload apart: rule and group are
/// known by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissFor<'a> {
    /// What the rule is known by in cache keys.
    pub rule: &'a str,
    /// The host of the rule, as its route writes it: rules of one Ingress may differ in nothing else.
    pub host: &'a str,
    /// The position of the group in its rule. Several groups may have one name.
    pub position: usize,
    /// `namespace/name:port` of the Service.
    pub group: &'a str,
}

impl fmt::Display for MissFor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}\n{}", self.rule, self.host, self.position, self.group)
    }
}

impl<'a> MissFor<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.rsplitn(4, '\n');
        let (group, position) = (parts.next()?, parts.next()?);
        let (host, rule) = (parts.next()?, parts.next()?);
        Some(Self { rule, host, position: position.parse().ok()?, group })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let miss =
            MissFor { rule: "Ingress shop/web#a b", host: "*.shop.test", position: 3, group: "shop/web:80" };
        assert_eq!(MissFor::parse(&miss.to_string()), Some(miss));
        let nameless = MissFor { rule: "", host: "", position: 0, group: "" };
        assert_eq!(MissFor::parse(&nameless.to_string()), Some(nameless));
        for bad in ["", "profile", "a\nb", "a\nb\nc", "a\nb\nc\nd"] {
            assert_eq!(MissFor::parse(bad), None, "{bad:?}");
        }
    }
}
