//! A client of rustls, with the knobs that the tests turn.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use certificate::Pair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Authority;

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) config: ClientConfig,
}

impl Client {
    /// Trusts the authority and offers no ALPN.
    pub(crate) fn new(authority: &Authority) -> Self {
        Self::with_versions(authority, rustls::ALL_VERSIONS)
    }

    pub(crate) fn with_versions(
        authority: &Authority,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(authority.roots())
            .with_no_client_auth();
        Self { config }
    }

    /// Trusts everything, and verifies these signatures only.
    pub(crate) fn with_schemes(schemes: &[SignatureScheme]) -> Self {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Credulous(schemes.to_vec())))
            .with_no_client_auth();
        Self { config }
    }

    /// Shows this certificate to servers that ask.
    pub(crate) fn showing(mut self, pair: &Pair) -> Self {
        self.config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(pair.certified_key()));
        self
    }

    pub(crate) fn alpn(mut self, protocols: &[&str]) -> Self {
        self.config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    pub(crate) fn without_name(mut self) -> Self {
        self.config.enable_sni = false;
        self
    }

    pub(crate) async fn connect(&self, address: SocketAddr, name: &str) -> io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(Arc::new(self.config.clone()))
            .connect(ServerName::try_from(name.to_owned()).unwrap(), TcpStream::connect(address).await?)
            .await
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[derive(Debug)]
struct Credulous(Vec<SignatureScheme>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
