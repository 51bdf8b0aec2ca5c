//! Certificates for tests, all of one CA.

use std::sync::Arc;

use certificate::{Pair, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

pub(crate) struct Authority {
    pub(crate) pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "Test CA");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    pub(crate) fn ecdsa(&self, names: &[&str]) -> Arc<Pair> {
        Arc::new(Pair::new(&self.pem_of(names, &PKCS_ECDSA_P256_SHA256)).unwrap())
    }

    pub(crate) fn rsa(&self, names: &[&str]) -> Arc<Pair> {
        Arc::new(Pair::new(&self.pem_of(names, &PKCS_RSA_SHA256)).unwrap())
    }

    pub(crate) fn pem_of(&self, names: &[&str], algorithm: &'static SignatureAlgorithm) -> Pem {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        Pem { chain: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        roots
    }
}
