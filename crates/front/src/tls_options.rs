//! Versions and cipher suites that a listener or a BackendTLSPolicy asks for.

use std::sync::Arc;

use model::{TlsOptions, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// All TLS versions from the lowest allowed one.
pub(crate) fn versions(options: &TlsOptions) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match options.min_version {
        Some(TlsVersion::Tls13) => &BOTH[..1],
        Some(TlsVersion::Tls12) | None => &BOTH,
    }
}

/// Only the allowed cipher suites, in the gateway's own order.
pub(crate) fn provider(all: &Arc<CryptoProvider>, options: &TlsOptions) -> Arc<CryptoProvider> {
    if options.cipher_suites.is_empty() {
        return Arc::clone(all);
    }
    let is_allowed = |suite: &SupportedCipherSuite| options.cipher_suites.contains(&name(suite));
    let cipher_suites = all.cipher_suites.iter().filter(|suite| is_allowed(suite)).copied().collect();
    Arc::new(CryptoProvider { cipher_suites, ..(**all).clone() })
}

/// As IANA's registry has it. rustls marks those of TLS 1.3.
fn name(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.strip_prefix("TLS13_").map_or_else(|| name.clone(), |rest| format!("TLS_{rest}"))
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;

    use super::*;

    #[test]
    fn suites_are_known_by_their_registered_names() {
        let all = Arc::new(aws_lc_rs::default_provider());
        let names = ["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
        let options =
            TlsOptions { cipher_suites: names.map(str::to_owned).to_vec(), ..TlsOptions::default() };
        let some = provider(&all, &options);
        assert_eq!(some.cipher_suites.iter().map(name).collect::<Vec<_>>(), names);
        assert_eq!(provider(&all, &TlsOptions::default()).cipher_suites.len(), all.cipher_suites.len());
    }
}
