//! Certificates for tests, all of one CA.

use std::sync::Arc;

use certificate::{Authorities, Pair, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SanType, SignatureAlgorithm, date_time_ymd,
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
        self.sign(&params(names), &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn rsa(&self, names: &[&str]) -> Arc<Pair> {
        self.sign(&params(names), &PKCS_RSA_SHA256)
    }

    fn sign(&self, params: &CertificateParams, algorithm: &'static SignatureAlgorithm) -> Arc<Pair> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        pair(&params.signed_by(&key, &self.issuer).unwrap().pem(), &key)
    }

    pub(crate) fn named(&self, common_name: &str) -> Arc<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        self.sign(&params, &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn expired(&self, names: &[&str]) -> Arc<Pair> {
        let mut params = params(names);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(&params, &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn with_uris(&self, names: &[&str], uris: &[&str]) -> Arc<Pair> {
        let mut params = params(names);
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
        self.sign(&params, &PKCS_ECDSA_P256_SHA256)
    }

    /// With CA:TRUE, as `openssl req -x509` makes it; and its certificate.
    pub(crate) fn self_signed(names: &[&str]) -> (Arc<Pair>, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = params(names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        (pair(&certificate, &key), certificate)
    }

    pub(crate) fn authorities(&self) -> Arc<Authorities> {
        Arc::new(Authorities::new(self.pem.as_bytes()).unwrap())
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        roots
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn pair(certificate: &str, key: &KeyPair) -> Arc<Pair> {
    let pem = Pem { chain: certificate.as_bytes().to_vec(), key: key.serialize_pem().into_bytes() };
    Arc::new(Pair::new(&pem).unwrap())
}
