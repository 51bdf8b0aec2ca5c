//! Certificate authorities to trust.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::Error;
use crate::pem::certificates;

/// CAs as a ConfigMap or Secret holds them in `ca.crt`, checked.
#[derive(Clone)]
pub struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
}

impl Authorities {
    /// One PEM text with one CA or more.
    pub fn new(pem: &[u8]) -> Result<Self, Error> {
        let certificates = certificates(pem, "ca.crt", Error::Authorities)?;
        let count = certificates.len();
        let mut roots = RootCertStore::empty();
        for (position, der) in (1..).zip(&certificates) {
            roots.add(der.clone()).map_err(|_| {
                Error::Authorities(format!(
                    "holds something that is no certificate, at place {position} of {count}"
                ))
            })?;
        }
        Ok(Self { certificates, roots: Arc::new(roots) })
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }

    /// Is this certificate itself one of them?
    pub fn contains(&self, der: &[u8]) -> bool {
        self.certificates.iter().any(|certificate| certificate.as_ref() == der)
    }
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Self) -> bool {
        self.certificates == other.certificates
    }
}

impl Eq for Authorities {}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("count", &self.roots.len()).finish_non_exhaustive()
    }
}
