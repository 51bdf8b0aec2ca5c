//! The bytes of a Secret, and the sections in them.

use std::fmt;

use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::{Error, MAXIMUM};

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

    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        certificates(&self.chain, "tls.crt", Error::Chain)
    }

    pub(crate) fn private_key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        if self.key.len() > MAXIMUM {
            return Err(Error::TooLarge("tls.key"));
        }
        // In a form of its own, or by a header of the old one.
        let encrypted = || {
            contains(&self.key, b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
                || contains(&self.key, b"Proc-Type: 4,ENCRYPTED")
        };
        PrivateKeyDer::from_pem_slice(&self.key).map_err(|e| {
            Error::Key(match e {
                pem::Error::NoItemsFound | pem::Error::Base64Decode(_) if encrypted() => {
                    "is encrypted; store it without a passphrase".to_owned()
                }
                pem::Error::NoItemsFound => absent(&self.key, "PRIVATE KEY"),
                e => why(&e, "PRIVATE KEY"),
            })
        })
    }
}

pub(crate) fn certificates(
    bytes: &[u8],
    file: &'static str,
    error: fn(String) -> Error,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    if bytes.len() > MAXIMUM {
        return Err(Error::TooLarge(file));
    }
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|e| error(why(&e, "CERTIFICATE")))?;
    if chain.is_empty() {
        return Err(error(absent(bytes, "CERTIFICATE")));
    }
    Ok(chain)
}

fn absent(bytes: &[u8], label: &str) -> String {
    if bytes.is_empty() {
        return "is empty".to_owned();
    }
    let what = match <(SectionKind, Vec<u8>)>::from_pem_slice(bytes) {
        Ok((SectionKind::Certificate, _)) => "a certificate, but ",
        Ok((SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey, _)) => {
            "a private key, but "
        }
        _ => "",
    };
    format!("holds {what}no -----BEGIN {label}-----; is it PEM?")
}

fn why(error: &pem::Error, label: &str) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            format!("ends before its -----END {label}-----; is it cut off?")
        }
        pem::Error::Base64Decode(_) => "has lines that are not base64; is it damaged?".to_owned(),
        _ => "is not PEM".to_owned(),
    }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
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
