//! Which names a certificate is for.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// How a certificate covers a name; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cover {
    Wildcard,
    Exact,
}

/// The DNS names of the subjectAltName extension, lower case; without any, the common name (for old certificates).
pub(crate) fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        for name in &extension.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push(name.to_ascii_lowercase());
            }
        }
    }
    if names.is_empty() {
        let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        names.extend(common.map(str::to_ascii_lowercase));
    }
    names
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
