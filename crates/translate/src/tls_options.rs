//! `tls.options` of listeners and `options` of BackendTLSPolicies: the keys that we define. Others are refused, since ignoring
//! an unknown option could make TLS less secure than the user configured.

use std::collections::BTreeMap;

use model::{TlsOptions, TlsVersion};

/// `1.2` or `1.3`.
const MIN_VERSION: &str = "gateway.varnish-software.com/tls-min-version";
/// Names of IANA's registry, separated by commas.
const CIPHER_SUITES: &str = "gateway.varnish-software.com/tls-cipher-suites";

/// The suites of TLS 1.3, then those of TLS 1.2.
const KNOWN_SUITES: [(&str, TlsVersion); 9] = [
    ("TLS_AES_256_GCM_SHA384", TlsVersion::Tls13),
    ("TLS_AES_128_GCM_SHA256", TlsVersion::Tls13),
    ("TLS_CHACHA20_POLY1305_SHA256", TlsVersion::Tls13),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", TlsVersion::Tls12),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", TlsVersion::Tls12),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", TlsVersion::Tls12),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", TlsVersion::Tls12),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", TlsVersion::Tls12),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", TlsVersion::Tls12),
];

/// What the options at `at` ask for, or what is wrong with the first that cannot be carried out.
pub(crate) fn read(at: &str, options: Option<&BTreeMap<String, String>>) -> Result<TlsOptions, String> {
    let mut read = TlsOptions::default();
    for (key, value) in options.into_iter().flatten() {
        match key.as_str() {
            MIN_VERSION => {
                read.min_version = Some(match value.trim() {
                    "1.2" => TlsVersion::Tls12,
                    "1.3" => TlsVersion::Tls13,
                    other => {
                        return Err(format!(
                            "{at}: {key}: `{other}` is not a supported version of TLS: use 1.2 or 1.3"
                        ));
                    }
                });
            }
            CIPHER_SUITES => read.cipher_suites = suites(at, key, value)?,
            _ => {
                return Err(format!(
                    "{at}: {key} is not supported: remove it; known are {MIN_VERSION} and {CIPHER_SUITES}"
                ));
            }
        }
    }
    let fits =
        |name: &String| read.min_version.is_none_or(|least| version(name).is_some_and(|of| of >= least));
    if !read.cipher_suites.is_empty() && !read.cipher_suites.iter().any(fits) {
        return Err(format!(
            "{at}: {CIPHER_SUITES} has no suite of TLS 1.3, which {MIN_VERSION} asks for: add one"
        ));
    }
    Ok(read)
}

fn suites(at: &str, key: &str, value: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if version(name).is_none() {
            let known: Vec<&str> = KNOWN_SUITES.iter().map(|(name, _)| *name).collect();
            return Err(format!("{at}: {key}: `{name}` is not supported: use {}", known.join(", ")));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() {
        return Err(format!("{at}: {key} names no cipher suite: add one, or remove the option"));
    }
    Ok(names)
}

fn version(suite: &str) -> Option<TlsVersion> {
    KNOWN_SUITES.iter().find(|(name, _)| *name == suite).map(|(_, version)| *version)
}
