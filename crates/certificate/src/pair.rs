//! The checked pair.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error as TlsError, InconsistentKeys};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::name::{self, Cover};
use crate::{Error, Pem, Subject};

/// A pair that was checked.
#[derive(Clone)]
pub struct Pair {
    pem: Pem,
    key: Arc<CertifiedKey>,
    names: Vec<String>,
    not_before: i64,
    not_after: i64,
    in_order: bool,
    /// Thousands of names may have the same pair, and ask for each.
    fingerprint: String,
}

impl Pair {
    pub fn new(pem: &Pem) -> Result<Self, Error> {
        let chain = pem.certificates()?;
        let parsed = parse(&chain)?;
        let [first, rest @ ..] = parsed.as_slice() else {
            return Err(Error::Chain("holds no certificate".to_owned()));
        };
        let subject = Subject::of(first);
        let (not_before, not_after) = (subject.not_before, subject.not_after);
        let names = name::names(subject);
        let in_order = parsed.iter().zip(rest).all(|(this, next)| this.issuer() == next.subject());
        let key = any_supported_type(&pem.private_key()?).map_err(|_| {
            Error::Key(
                "is no key that can be used; RSA (2048 bits and more), ECDSA and Ed25519 can".to_owned(),
            )
        })?;
        drop(parsed);
        let key = Arc::new(fit(chain, &key)?);
        let fingerprint = pem.fingerprint();
        Ok(Self { pem: pem.clone(), key, names, not_before, not_after, in_order, fingerprint })
    }

    /// What it was made of.
    pub fn pem(&self) -> &Pem {
        &self.pem
    }

    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// The DNS names it is for, lower case; wildcards as `*.example.com`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How it covers `name`, which is lower case.
    pub fn cover(&self, name: &str) -> Option<Cover> {
        name::cover(&self.names, name)
    }

    /// Seconds since 1970.
    pub fn not_before(&self) -> i64 {
        self.not_before
    }

    /// Seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// Is each certificate signed by the next? If not, some clients will not find the way to their CA.
    pub fn in_order(&self) -> bool {
        self.in_order
    }

    /// See [`Pem::fingerprint`].
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }
}

fn parse<'a>(chain: &'a [CertificateDer<'static>]) -> Result<Vec<X509Certificate<'a>>, Error> {
    let count = chain.len();
    (1..)
        .zip(chain)
        .map(|(position, der)| match X509Certificate::from_der(der) {
            Ok(([], certificate)) => Ok(certificate),
            _ => Err(Error::Chain(format!(
                "holds something that is no certificate, at place {position} of {count}"
            ))),
        })
        .collect()
}

fn fit(chain: Vec<CertificateDer<'static>>, key: &Arc<dyn SigningKey>) -> Result<CertifiedKey, Error> {
    let certified = CertifiedKey::new(chain, Arc::clone(key));
    match certified.keys_match() {
        Ok(()) | Err(TlsError::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(TlsError::InconsistentKeys(_)) => Err(Error::Pair(misfit(&certified))),
        Err(e) => Err(Error::Chain(format!("holds a first certificate that cannot be served: {e}"))),
    }
}

fn misfit(certified: &CertifiedKey) -> String {
    let belongs = |der: &CertificateDer<'static>| {
        CertifiedKey::new(vec![der.clone()], Arc::clone(&certified.key)).keys_match().is_ok()
    };
    match certified.cert.iter().position(belongs) {
        Some(at) => format!(
            "the key belongs to certificate {} of {}; the server's own certificate must be the first",
            at + 1,
            certified.cert.len()
        ),
        None => "the key is of another certificate".to_owned(),
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Eq for Pair {}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pem.fmt(f)
    }
}
