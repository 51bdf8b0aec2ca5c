//! TLS profiles of backends: how their certificates are verified.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use certificate::{Authorities, Pair};
use model::TlsOptions;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::verify::{Expected, Verifier};
use crate::tls_options;

/// The name of HTTP/2 in ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";

/// By the authority that varnishd sends. Connections of varnishd's pool stay with the profile that they began with: a name
/// that changes with the profile's content makes a changed profile count at once.
pub type Profiles = BTreeMap<String, BackendTls>;

/// How one kind of backend is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendTls {
    /// Sent as SNI; the name to verify, where `names` is empty.
    pub hostname: String,
    /// One of them must be in the certificate. The hostname then does not count.
    pub names: Vec<BackendName>,
    pub trust: Trust,
    /// The client certificate for backends that request one.
    pub client: Option<Arc<Pair>>,
    /// Say that we speak HTTP/1.1.
    pub alpn: bool,
    /// For the TCP connection.
    pub connect_timeout: Duration,
    pub options: TlsOptions,
}

/// A subjectAltName.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendName {
    Dns(String),
    Uri(String),
}

/// Who vouches for a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The CAs of the operating system, as they are at the first use.
    System,
    Authorities(Arc<Authorities>),
}

/// A profile, ready for use.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) of: BackendTls,
    pub(crate) config: Arc<ClientConfig>,
    /// For backends that speak HTTP/2.
    pub(crate) http2: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl Ready {
    pub(crate) fn new(profile: &BackendTls) -> Result<Self, String> {
        let name = ServerName::try_from(profile.hostname.clone())
            .map_err(|_| format!("{} is not a hostname", profile.hostname))?;
        let provider = provider();
        let verifier = Verifier::new(
            profile.trust.roots()?,
            profile.trust.pinned(),
            expected(profile, &name),
            &provider,
        );
        let config = ClientConfig::builder_with_provider(tls_options::provider(&provider, &profile.options))
            .with_protocol_versions(tls_options::versions(&profile.options))
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &profile.client {
            Some(pair) => {
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified_key())))
            }
            None => config.with_no_client_auth(),
        };
        if profile.alpn {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        let mut http2 = config.clone();
        http2.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(Self { of: profile.clone(), config: Arc::new(config), http2: Arc::new(http2), name })
    }
}

fn expected(profile: &BackendTls, name: &ServerName<'static>) -> Expected {
    if profile.names.is_empty() {
        Expected::Hostname(name.clone())
    } else {
        Expected::OneOf(profile.names.clone())
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())))
}

impl Trust {
    fn roots(&self) -> Result<Arc<RootCertStore>, String> {
        static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
        match self {
            Self::Authorities(authorities) => Ok(authorities.roots()),
            Self::System => {
                let roots = SYSTEM.get_or_init(|| {
                    let mut roots = RootCertStore::empty();
                    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                    Arc::new(roots)
                });
                if roots.is_empty() {
                    return Err("the system has no CA certificates: install ca-certificates".to_owned());
                }
                Ok(Arc::clone(roots))
            }
        }
    }

    fn pinned(&self) -> Option<Arc<Authorities>> {
        match self {
            Self::System => None,
            Self::Authorities(authorities) => Some(Arc::clone(authorities)),
        }
    }
}
