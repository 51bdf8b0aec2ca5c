//! Which names a certificate is for.

use crate::Subject;

/// How a certificate covers a name; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cover {
    Wildcard,
    Exact,
}

/// The DNS names of the subjectAltName extension; without any, the common name (for old certificates).
pub(crate) fn names(subject: Subject) -> Vec<String> {
    if !subject.dns.is_empty() {
        return subject.dns;
    }
    subject.common_name.iter().map(|name| name.to_ascii_lowercase()).collect()
}

/// A certificate's wildcard stands for one label (RFC 6125), unlike the Gateway API's. `name` is lower case.
pub(crate) fn cover(names: &[String], name: &str) -> Option<Cover> {
    let parent = name.split_once('.').map(|(_, parent)| parent);
    names
        .iter()
        .filter_map(|own| {
            if own == name {
                return Some(Cover::Exact);
            }
            let wild = own.strip_prefix("*.")?;
            (parent == Some(wild)).then_some(Cover::Wildcard)
        })
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let names = ["*.example.com".to_owned(), "shop.example.com".to_owned()];
        assert_eq!(cover(&names, "shop.example.com"), Some(Cover::Exact));
        assert_eq!(cover(&names, "other.example.com"), Some(Cover::Wildcard));
        assert_eq!(cover(&names, "a.b.example.com"), None);
        assert_eq!(cover(&names, "example.com"), None);
        assert_eq!(cover(&names, ""), None);
    }
}
