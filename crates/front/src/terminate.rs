//! How TLS is ended for one host.

use std::sync::Arc;

use certificate::Pair;
use model::TlsOptions;
use model::host::normal;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureAlgorithm};

use crate::ClientValidation;
use crate::tls_options;
use crate::validate::Clients;

/// What all hosts share. A ticket holds the name that it was made for, and rustls takes it for that name only; so one
/// key for tickets serves all hosts, and it outlives changed certificates.
#[derive(Debug)]
pub(crate) struct Terminator {
    provider: Arc<CryptoProvider>,
    tickets: Arc<dyn ProducesTickets>,
}

impl Terminator {
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        Ok(Self { provider: Arc::new(aws_lc_rs::default_provider()), tickets: aws_lc_rs::Ticketer::new()? })
    }

    /// Where clients are validated, no session is taken up: the validation counts each time, and a ticket from a port
    /// without it opens nothing.
    pub(crate) fn server(
        &self,
        certificates: &[Arc<Pair>],
        alpn: &[&str],
        validation: Option<&ClientValidation>,
        options: &TlsOptions,
    ) -> Result<Server, String> {
        let clients = validation.map(|validation| Clients::new(validation, &self.provider)).transpose()?;
        let builder = ServerConfig::builder_with_provider(tls_options::provider(&self.provider, options))
            .with_protocol_versions(tls_options::versions(options))
            .map_err(|e| e.to_string())?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(clients.verifier()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(Certificates(certificates.to_vec())));
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if clients.is_some() {
            config.send_tls13_tickets = 0;
        } else {
            config.ticketer = Arc::clone(&self.tickets);
        }
        Ok(Server { config: Arc::new(config), clients })
    }
}

/// How TLS is ended for one host.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) clients: Option<Clients>,
}

/// The certificates of one host.
#[derive(Debug)]
struct Certificates(Vec<Arc<Pair>>);

impl ResolvesServerCert for Certificates {
    /// Of those that the client can verify and that cover the name: one that is valid now, then the best cover, then ECDSA, then
    /// the first.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let [first, others @ ..] = self.0.as_slice() else { return None };
        if others.is_empty() {
            return Some(first.certified_key());
        }
        let name = hello.server_name().map(normal);
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
        let rank = |pair: &Pair| {
            let key = pair.certified_key();
            let usable = key.key.choose_scheme(hello.signature_schemes()).is_some();
            let cover = name.as_deref().and_then(|name| pair.cover(name));
            let valid = (pair.not_before()..=pair.not_after()).contains(&now);
            (usable, cover.is_some(), valid, cover, key.key.algorithm() == SignatureAlgorithm::ECDSA)
        };
        let mut best = (first, rank(first));
        for pair in others {
            let rank = rank(pair);
            if rank > best.1 {
                best = (pair, rank);
            }
        }
        Some(best.0.certified_key())
    }
}
