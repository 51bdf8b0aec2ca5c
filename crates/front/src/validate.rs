//! Certificates that clients show.

use std::sync::Arc;

use certificate::{Authorities, Subject};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::proxy;

/// How a port validates client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientValidation {
    pub authorities: Arc<Authorities>,
    pub mode: ClientMode,
}

/// What happens to clients without a valid certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientMode {
    /// AllowValidOnly: they are refused.
    ValidOnly,
    /// AllowInsecureFallback: they are served, and varnishd learns that they are not verified.
    InsecureFallback,
}

/// The validation of one port, ready for use.
#[derive(Debug)]
pub(crate) struct Clients {
    mode: ClientMode,
    strict: Arc<dyn ClientCertVerifier>,
}

impl Clients {
    pub(crate) fn new(validation: &ClientValidation, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let roots = validation.authorities.roots();
        let strict = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
        Ok(Self { mode: validation.mode, strict: strict.map_err(|e| e.to_string())? })
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        match self.mode {
            ClientMode::ValidOnly => Arc::clone(&self.strict),
            ClientMode::InsecureFallback => Arc::new(Lenient(Arc::clone(&self.strict))),
        }
    }

    /// What varnishd gets of a client's certificate chain.
    pub(crate) fn describe(&self, chain: &[CertificateDer<'_>]) -> Option<proxy::ClientCertificate> {
        let [end_entity, intermediates @ ..] = chain else { return None };
        let verified = match self.mode {
            ClientMode::ValidOnly => true,
            ClientMode::InsecureFallback => {
                self.strict.verify_client_cert(end_entity, intermediates, UnixTime::now()).is_ok()
            }
        };
        let common_name = Subject::read(end_entity).and_then(|subject| subject.common_name);
        Some(proxy::ClientCertificate { verified, common_name })
    }
}

/// Takes every certificate or none; only that the client has its key must be true.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Clients that hold a certificate of another CA are to show it too.
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
