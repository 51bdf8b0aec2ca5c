//! PEM in, a checked pair of certificate chain and private key out. Pure: no clock, no IO.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

/// A pair as it stands in a Secret of type kubernetes.io/tls.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

impl Pem {
    /// Tells two chains apart; says nothing of the key.
    pub fn fingerprint(&self) -> String {
        Sha256::digest(&self.chain).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem").field("chain", &self.fingerprint()).finish_non_exhaustive()
    }
}

impl Serialize for Pem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.fingerprint())
    }
}

/// What is wrong with a pair.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the certificate is not PEM: {0}")]
    Chain(String),
    #[error("the key is not PEM: {0}")]
    Key(String),
    #[error("certificate and key do not fit: {0}")]
    Pair(String),
}

/// Can this pair be served?
pub fn check(pem: &Pem) -> Result<(), Error> {
    Pair::new(pem).map(|_| ())
}

/// A pair that was checked.
#[derive(Clone)]
pub struct Pair {
    pem: Pem,
    key: Arc<CertifiedKey>,
}

impl Pair {
    pub fn new(pem: &Pem) -> Result<Self, Error> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem.chain)
            .collect::<Result<_, _>>()
            .map_err(|e| Error::Chain(format!("{e:?}")))?;
        if chain.is_empty() {
            return Err(Error::Chain("it holds no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|e| Error::Key(format!("{e:?}")))?;
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
            .map_err(|e| Error::Pair(e.to_string()))?;
        Ok(Self { pem: pem.clone(), key: Arc::new(key) })
    }

    /// What it was made of.
    pub fn pem(&self) -> &Pem {
        &self.pem
    }

    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pem.fmt(f)
    }
}
