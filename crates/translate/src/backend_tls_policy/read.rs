//! What one policy asks of a backend.

use gateway_api::backendtlspolicies::{
    BackendTlsPolicy, BackendTlsPolicyValidation,
    BackendTlsPolicyValidationSubjectAltNamesType as SubjectAltNameType,
};
use model::{BackendTls, SubjectAltName, TlsOptions};

use crate::authorities::{self, Bundle, Reference, Refused};
use crate::grants::{From, Grants};
use crate::listener::{Fault, GATEWAY_API_GROUP};
use crate::refused;
use crate::snapshot::{Key, Snapshot};
use crate::tls_options;

/// The supported value of `wellKnownCACertificates`.
const SYSTEM: &str = "System";

/// `spec.validation`, with all references followed.
#[derive(Debug)]
pub(super) struct Validation {
    /// Without client certificate, which is the Gateway's. An error: nothing may be sent to these backends.
    pub(super) tls: Result<BackendTls, Fault>,
    pub(super) bundles: Vec<Bundle>,
    /// What keeps `ResolvedRefs` from being true, if so.
    pub(super) unresolved: Option<Fault>,
}

impl Validation {
    pub(super) fn new(
        key: &Key,
        policy: &BackendTlsPolicy,
        grants: &Grants<'_>,
        snapshot: &Snapshot,
    ) -> Self {
        let spec = &policy.spec.validation;
        if let Some(why) = refused::why(&policy.metadata) {
            let message = format!("The policy cannot be used, so requests to its targets get 500: {why}");
            let tls = Err(Fault { reason: "Invalid", message });
            return Self { tls, bundles: Vec::new(), unresolved: None };
        }
        let mut bundles: Vec<Bundle> = Vec::new();
        let mut refused = Vec::new();
        let from = From { group: GATEWAY_API_GROUP, kind: "BackendTLSPolicy", namespace: &key.namespace };
        let refs = spec.ca_certificate_refs.as_deref().unwrap_or_default();
        for (index, reference) in refs.iter().enumerate() {
            let reference = Reference {
                group: &reference.group,
                kind: &reference.kind,
                namespace: &key.namespace,
                name: &reference.name,
            };
            match authorities::find(reference, from, grants, snapshot) {
                Ok(bundle) if bundles.contains(&bundle) => {}
                Ok(bundle) => bundles.push(bundle),
                Err(why) => refused.push((index, why)),
            }
        }
        let unresolved = refused.first().map(|(_, first)| Fault {
            reason: if matches!(first, Refused::Kind(_)) { "InvalidKind" } else { "InvalidCACertificateRef" },
            message: refused
                .iter()
                .map(|(index, why)| format!("spec.validation.caCertificateRefs[{index}]: {}", why.message()))
                .collect::<Vec<_>>()
                .join("; "),
        });
        let tls = tls(spec, &bundles, unresolved.as_ref()).and_then(|tls| {
            let options = tls_options::read("spec.options", policy.spec.options.as_ref())
                .map_err(|message| Fault { reason: "Invalid", message })?;
            Ok(BackendTls { options, ..tls })
        });
        Self { tls, bundles, unresolved }
    }
}

fn tls(
    spec: &BackendTlsPolicyValidation,
    bundles: &[Bundle],
    unresolved: Option<&Fault>,
) -> Result<BackendTls, Fault> {
    let well_known = spec.well_known_ca_certificates.as_deref().filter(|name| !name.is_empty());
    let invalid = |message: String| Fault { reason: "Invalid", message };
    match well_known {
        Some(SYSTEM) | None => {}
        Some(other) => {
            return Err(invalid(format!(
                "spec.validation.wellKnownCACertificates: {other} is not known here: use {SYSTEM}, or caCertificateRefs"
            )));
        }
    }
    let system = well_known.is_some();
    if bundles.is_empty() && !system {
        let why = unresolved.map_or("none is named", |fault| fault.message.as_str());
        return Err(Fault {
            reason: "NoValidCACertificate",
            message: format!("No CA certificate can be used, so requests get 500: {why}"),
        });
    }
    if !is_hostname(&spec.hostname) {
        return Err(invalid(format!(
            "spec.validation.hostname: {} is not a DNS name: write one, without wildcard, port and scheme",
            spec.hostname
        )));
    }
    let mut names = Vec::new();
    for name in spec.subject_alt_names.iter().flatten() {
        let (text, field) = match name.r#type {
            SubjectAltNameType::Hostname => (&name.hostname, "hostname"),
            SubjectAltNameType::Uri => (&name.uri, "uri"),
        };
        let Some(text) = text.clone().filter(|text| !text.is_empty()) else {
            return Err(invalid(format!(
                "spec.validation.subjectAltNames: an entry lacks its {field}: set it"
            )));
        };
        names.push(match name.r#type {
            SubjectAltNameType::Hostname => SubjectAltName::Dns(text.to_ascii_lowercase()),
            SubjectAltNameType::Uri => SubjectAltName::Uri(text),
        });
    }
    Ok(BackendTls {
        hostname: spec.hostname.to_ascii_lowercase(),
        names,
        authorities: bundles.iter().map(|bundle| bundle.name.clone()).collect(),
        system,
        client_certificate: None,
        options: TlsOptions::default(),
    })
}

/// As rustls takes it for SNI.
fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253
        && text.split('.').all(label)
        && !text.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()))
}
