//! Requirements for client certificates: `tls.frontend` of a Gateway, by port.
//!
//! Guarantees that a port whose CA certificates are all bad is not served at all: no client gets in unchecked.

use std::collections::BTreeMap;

use gateway_api::gateways::{
    Gateway as GatewayObject, GatewayTlsFrontendDefaultValidationMode as DefaultMode,
    GatewayTlsFrontendPerPortTlsValidationMode as PerPortMode,
};
use model::ClientValidation;

use crate::authorities::{self, Bundle, Reference, Refused};
use crate::grants::{From, Grants};
use crate::listener::{Fault, GATEWAY_API_GROUP, Listener, Protocol};
use crate::snapshot::{Key, Snapshot};

/// The validation of all ports.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    default: Option<Validation>,
    /// Without a validation: the port requires no client certificate, also if the default does.
    per_port: BTreeMap<u16, Option<Validation>>,
}

#[derive(Debug)]
struct Validation {
    bundles: Vec<Bundle>,
    insecure: bool,
    unresolved: Option<Fault>,
}

impl Clients {
    pub(crate) fn new(key: &Key, object: &GatewayObject, grants: &Grants<'_>, snapshot: &Snapshot) -> Self {
        let Some(frontend) = object.spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref()) else {
            return Self::default();
        };
        let find = |refs: Vec<Reference<'_>>, insecure: bool, field: &str| {
            Validation::new(key, &refs, insecure, field, grants, snapshot)
        };
        macro_rules! refs {
            ($validation:expr) => {
                $validation
                    .ca_certificate_refs
                    .iter()
                    .map(|one| Reference {
                        group: &one.group,
                        kind: &one.kind,
                        namespace: one.namespace.as_deref().unwrap_or(&key.namespace),
                        name: &one.name,
                    })
                    .collect()
            };
        }
        let default = frontend.default.validation.as_ref().map(|validation| {
            let insecure = validation.mode == Some(DefaultMode::AllowInsecureFallback);
            find(refs!(validation), insecure, "tls.frontend.default")
        });
        let per_port = frontend.per_port.iter().flatten().filter_map(|one| {
            let validation = one.tls.validation.as_ref().map(|validation| {
                let insecure = validation.mode == Some(PerPortMode::AllowInsecureFallback);
                find(refs!(validation), insecure, &format!("tls.frontend.perPort of port {}", one.port))
            });
            Some((u16::try_from(one.port).ok()?, validation))
        });
        Self { default, per_port: per_port.collect() }
    }

    fn validation_of(&self, port: u16) -> Option<&Validation> {
        match self.per_port.get(&port) {
            Some(validation) => validation.as_ref(),
            None => self.default.as_ref(),
        }
    }

    /// Adds problems of the CA certificates of a port to its HTTPS listeners.
    pub(crate) fn judge(&self, listeners: &mut [Listener<'_>]) {
        for listener in listeners.iter_mut().filter(|listener| listener.protocol == Protocol::Https) {
            if let Some(validation) = self.validation_of(listener.port)
                && let Some(fault) = &validation.unresolved
            {
                listener.distrust(fault.clone(), validation.bundles.is_empty());
            }
        }
    }

    /// For the ports of HTTPS listeners.
    pub(crate) fn by_port(&self, listeners: &[Listener<'_>]) -> BTreeMap<u16, ClientValidation> {
        let https = listeners.iter().filter(|listener| listener.protocol == Protocol::Https);
        https.filter_map(|listener| Some((listener.port, self.for_port(listener.port)?))).collect()
    }

    /// For one port that serves HTTPS.
    pub(crate) fn for_port(&self, port: u16) -> Option<ClientValidation> {
        let Validation { bundles, insecure, .. } = self.validation_of(port)?;
        let authorities = bundles.iter().map(|bundle| bundle.name.clone()).collect();
        Some(ClientValidation { authorities, insecure_fallback: *insecure })
    }

    pub(crate) fn authorities(&self) -> BTreeMap<String, String> {
        let all = self.default.iter().chain(self.per_port.values().flatten());
        all.flat_map(|validation| &validation.bundles)
            .map(|bundle| (bundle.name.clone(), bundle.pem.clone()))
            .collect()
    }

    /// Text for the status.
    pub(crate) fn insecure_ports(&self) -> Vec<String> {
        let default = self.default.as_ref().is_some_and(|validation| validation.insecure);
        let ports = self
            .per_port
            .iter()
            .filter(|(_, validation)| validation.as_ref().is_some_and(|validation| validation.insecure));
        let ports = ports.map(|(port, _)| format!("port {port}"));
        default
            .then(|| "all ports that tls.frontend.perPort does not list".to_owned())
            .into_iter()
            .chain(ports)
            .collect()
    }
}

impl Validation {
    fn new(
        gateway: &Key,
        refs: &[Reference<'_>],
        insecure: bool,
        field: &str,
        grants: &Grants<'_>,
        snapshot: &Snapshot,
    ) -> Self {
        let from = From { group: GATEWAY_API_GROUP, kind: "Gateway", namespace: &gateway.namespace };
        let mut found = Self { bundles: Vec::new(), insecure, unresolved: None };
        for (index, reference) in refs.iter().enumerate() {
            match authorities::find(*reference, from, grants, snapshot) {
                Ok(bundle) => found.bundles.push(bundle),
                Err(why) => {
                    let reason = match why {
                        Refused::Kind(_) => "InvalidCACertificateKind",
                        Refused::NotPermitted(_) => "RefNotPermitted",
                        Refused::Invalid(_) => "InvalidCACertificateRef",
                    };
                    let message = format!("{field}: caCertificateRefs[{index}]: {}", why.message());
                    let fault = found.unresolved.get_or_insert(Fault { reason, message: String::new() });
                    let then = if fault.message.is_empty() { "" } else { "; " };
                    fault.message = format!("{}{then}{message}", fault.message);
                }
            }
        }
        found
    }
}
