//! What a certificate says of its owner.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// The owner of a certificate, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub common_name: Option<String>,
    /// Lower case, wildcards as `*.example.com`.
    pub dns: Vec<String>,
    /// As they stand there, such as `spiffe://cluster.local/ns/a/sa/b`.
    pub uris: Vec<String>,
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
}

impl Subject {
    /// None for what is no certificate.
    pub fn read(der: &[u8]) -> Option<Self> {
        match X509Certificate::from_der(der) {
            Ok(([], certificate)) => Some(Self::of(&certificate)),
            _ => None,
        }
    }

    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let mut common_names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        let mut subject = Self {
            common_name: common_names.next().map(str::to_owned),
            dns: Vec::new(),
            uris: Vec::new(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        };
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(name) => subject.dns.push(name.to_ascii_lowercase()),
                    GeneralName::URI(uri) => subject.uris.push((*uri).to_owned()),
                    _ => {}
                }
            }
        }
        subject
    }
}
