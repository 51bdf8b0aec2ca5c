//! Is this the backend that was meant?

use std::sync::Arc;

use certificate::{Authorities, Subject};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::profile::BackendName;

/// Which name must be in the certificate.
#[derive(Debug)]
pub(crate) enum Expected {
    Hostname(ServerName<'static>),
    OneOf(Vec<BackendName>),
}

/// CA, dates and names; names may be URIs, which rustls' own verifier does not know.
#[derive(Debug)]
pub(crate) struct Verifier {
    roots: Arc<RootCertStore>,
    pinned: Option<Arc<Authorities>>,
    expected: Expected,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(crate) fn new(
        roots: Arc<RootCertStore>,
        pinned: Option<Arc<Authorities>>,
        expected: Expected,
        provider: &CryptoProvider,
    ) -> Self {
        Self { roots, pinned, expected, algorithms: provider.signature_verification_algorithms }
    }

    fn trusted(
        &self,
        certificate: &ParsedCertificate<'_>,
        der: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        // A self-signed certificate is its own CA, if the policy names it.
        if self.pinned.as_ref().is_some_and(|authorities| authorities.contains(der)) {
            return in_time(der, now);
        }
        verify_server_cert_signed_by_trust_anchor(
            certificate,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )
    }

    fn named(&self, certificate: &ParsedCertificate<'_>, der: &CertificateDer<'_>) -> Result<(), Error> {
        match &self.expected {
            Expected::Hostname(name) => verify_server_name(certificate, name),
            Expected::OneOf(names) => {
                let subject = Subject::read(der).ok_or(CertificateError::BadEncoding)?;
                if names.iter().any(|name| has(&subject, certificate, name)) {
                    return Ok(());
                }
                Err(CertificateError::NotValidForName.into())
            }
        }
    }
}

fn has(subject: &Subject, certificate: &ParsedCertificate<'_>, name: &BackendName) -> bool {
    match name {
        BackendName::Uri(uri) => subject.uris.contains(uri),
        BackendName::Dns(name) => match name.strip_prefix("*.") {
            Some(parent) => subject.dns.iter().any(|own| {
                own.split_once('.').is_some_and(|(_, own_parent)| own_parent.eq_ignore_ascii_case(parent))
            }),
            None => ServerName::try_from(name.as_str())
                .is_ok_and(|name| verify_server_name(certificate, &name).is_ok()),
        },
    }
}

fn in_time(der: &[u8], now: UnixTime) -> Result<(), Error> {
    let subject = Subject::read(der).ok_or(CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < subject.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > subject.not_after {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        self.trusted(&certificate, end_entity, intermediates, now)?;
        self.named(&certificate, end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
