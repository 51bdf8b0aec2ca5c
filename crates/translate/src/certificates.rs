//! The certificates of one Gateway: which Secrets its listeners may use, and which of them hold a good pair.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use certificate::Pem;
use gateway_api::gateways::{
    GatewayListeners, GatewayListenersTlsCertificateRefs as CertificateRef,
    GatewayTlsBackendClientCertificateRef as ClientCertificateRef,
};
use k8s_openapi::api::core::v1::Secret;

use crate::grants::{From, Grants, To};
use crate::listener::{Fault, GATEWAY_API_GROUP};
use crate::snapshot::{Key, Snapshot};

/// The type of Secrets that hold a pair, and their keys for it.
const SECRET_TYPE: &str = "kubernetes.io/tls";
const CHAIN: &str = "tls.crt";
const PRIVATE_KEY: &str = "tls.key";

/// What the certificateRefs of one listener come to.
#[derive(Debug, Default)]
pub(crate) struct ListenerCertificates {
    /// Secrets that are there and may be used, each once. The front keeps the last good pair of one
    /// that has broken.
    pub(crate) names: Vec<String>,
    /// At least one of them holds a good pair.
    pub(crate) usable: bool,
    /// References without a good pair, each with what to do.
    pub(crate) faults: Vec<Fault>,
}

/// What `tls.backend.clientCertificateRef` of a Gateway comes to.
#[derive(Debug, Default)]
pub(crate) struct ClientCertificate {
    /// The Secret, if it is there and may be used.
    pub(crate) name: Option<String>,
    /// Of the pair, if it is good.
    pub(crate) fingerprint: Option<String>,
    pub(crate) fault: Option<Fault>,
}

/// Who refers to a Secret.
#[derive(Debug, Clone, Copy)]
struct Owner<'o> {
    kind: &'static str,
    namespace: &'o str,
}

/// Everything that the listeners of one Gateway refer to. Each Secret is checked once.
#[derive(Debug)]
pub(crate) struct Certificates<'a> {
    gateway: &'a Key,
    grants: &'a Grants<'a>,
    snapshot: &'a Snapshot,
    checked: BTreeMap<Key, Result<Pem, Fault>>,
}

impl<'a> Certificates<'a> {
    pub(crate) fn new(gateway: &'a Key, grants: &'a Grants<'a>, snapshot: &'a Snapshot) -> Self {
        Self { gateway, grants, snapshot, checked: BTreeMap::new() }
    }

    /// Follows the references of a listener that ends TLS.
    /// `set`: the ListenerSet that it is of, if it is not the Gateway's own.
    pub(crate) fn of_listener(
        &mut self,
        listener: &GatewayListeners,
        set: Option<&Key>,
    ) -> ListenerCertificates {
        let owner = match set {
            Some(set) => Owner { kind: "ListenerSet", namespace: &set.namespace },
            None => Owner { kind: "Gateway", namespace: &self.gateway.namespace },
        };
        let refs = listener.tls.as_ref().and_then(|tls| tls.certificate_refs.as_deref()).unwrap_or_default();
        let mut found = ListenerCertificates::default();
        if refs.is_empty() {
            let message = "tls.certificateRefs names no certificate: name a Secret of type kubernetes.io/tls";
            found.faults.push(invalid(message.to_owned()));
        }
        for (index, reference) in refs.iter().enumerate() {
            let at = |fault: Fault| {
                let message = format!("tls.certificateRefs[{index}]: {}", fault.message);
                Fault { message, ..fault }
            };
            let secret = match self.secret(owner, reference) {
                Ok(secret) => secret,
                Err(fault) => {
                    found.faults.push(at(fault));
                    continue;
                }
            };
            let name = secret.to_string();
            if found.names.contains(&name) {
                continue;
            }
            found.names.push(name);
            match self.pair(&secret) {
                Ok(_) => found.usable = true,
                Err(fault) => found.faults.push(at(fault.clone())),
            }
        }
        found
    }

    /// Follows `tls.backend.clientCertificateRef`: what backends are shown.
    pub(crate) fn of_client(&mut self, reference: &ClientCertificateRef) -> ClientCertificate {
        let reference = CertificateRef {
            group: reference.group.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            namespace: reference.namespace.clone(),
        };
        let at = |fault: &Fault| Fault {
            reason: if fault.reason == "RefNotPermitted" {
                fault.reason
            } else {
                "InvalidClientCertificateRef"
            },
            message: format!("tls.backend.clientCertificateRef: {}", fault.message),
        };
        let owner = Owner { kind: "Gateway", namespace: &self.gateway.namespace };
        let secret = match self.secret(owner, &reference) {
            Ok(secret) => secret,
            Err(fault) => {
                return ClientCertificate { fault: Some(at(&fault)), ..ClientCertificate::default() };
            }
        };
        let name = Some(secret.to_string());
        match self.pair(&secret) {
            Ok(pem) => ClientCertificate { name, fingerprint: Some(pem.fingerprint()), fault: None },
            Err(fault) => ClientCertificate { name, fingerprint: None, fault: Some(at(fault)) },
        }
    }

    /// The good pairs among those of `names`.
    pub(crate) fn good<'n>(&self, names: impl Iterator<Item = &'n String>) -> BTreeMap<String, Pem> {
        let good: BTreeMap<String, &Pem> = self
            .checked
            .iter()
            .filter_map(|(secret, pair)| Some((secret.to_string(), pair.as_ref().ok()?)))
            .collect();
        names.filter_map(|name| Some((name.clone(), (*good.get(name)?).clone()))).collect()
    }

    /// The Secret that a reference means, if it is there and may be used.
    fn secret(&self, owner: Owner<'_>, reference: &CertificateRef) -> Result<Key, Fault> {
        let group = reference.group.as_deref().unwrap_or_default();
        let kind = reference.kind.as_deref().unwrap_or("Secret");
        if !group.is_empty() || kind != "Secret" {
            let of_group = if group.is_empty() { String::new() } else { format!(" of group {group}") };
            return Err(invalid(format!(
                "{kind} {}{of_group} cannot be a certificate here: refer to a Secret of the core group",
                reference.name
            )));
        }
        let secret = Key::new(reference.namespace.as_deref().unwrap_or(owner.namespace), &reference.name);
        // Before anything else: an owner that may not refer to a Secret must not learn whether it exists.
        self.permit(owner, &secret)?;
        self.found(secret)
    }

    /// What an Ingress names lies in its own namespace. The name, if the Secret is there and of the right type; and what is
    /// wrong with it, if so.
    pub(crate) fn of_ingress(&mut self, secret: &Key) -> (Option<String>, Option<Fault>) {
        match self.found(secret.clone()) {
            Ok(secret) => (Some(secret.to_string()), self.pair(&secret).as_ref().err().cloned()),
            Err(fault) => (None, Some(fault)),
        }
    }

    fn found(&self, secret: Key) -> Result<Key, Fault> {
        let Some(object) = self.snapshot.secrets.get(&secret) else {
            return Err(invalid(format!("Secret {secret} does not exist: create it, or correct the name")));
        };
        match object.type_.as_deref() {
            Some(SECRET_TYPE) => Ok(secret),
            other => Err(invalid(format!(
                "Secret {secret} is of type {}: use one of type {SECRET_TYPE}",
                other.unwrap_or("Opaque")
            ))),
        }
    }

    fn permit(&self, owner: Owner<'_>, secret: &Key) -> Result<(), Fault> {
        let from = From { group: GATEWAY_API_GROUP, kind: owner.kind, namespace: owner.namespace };
        let to = To { group: "", kind: "Secret", namespace: &secret.namespace, name: &secret.name };
        if self.grants.permit(from, to) {
            return Ok(());
        }
        Err(Fault {
            reason: "RefNotPermitted",
            message: format!(
                "no ReferenceGrant in namespace {} lets {}s of namespace {} refer to Secret {}: create one there",
                secret.namespace, owner.kind, owner.namespace, secret.name
            ),
        })
    }

    fn pair(&mut self, secret: &Key) -> &Result<Pem, Fault> {
        let object = self.snapshot.secrets.get(secret);
        let known = &self.snapshot.checked;
        self.checked.entry(secret.clone()).or_insert_with(|| match object {
            Some(object) => known.of(secret, object, || check(secret, object)),
            None => Err(incomplete(secret)),
        })
    }
}

fn check(secret: &Key, object: &Secret) -> Result<Pem, Fault> {
    let pem = pem(object).ok_or_else(|| incomplete(secret))?;
    match certificate::check(&pem) {
        Ok(()) => Ok(pem),
        Err(e) => Err(invalid(format!("Secret {secret} holds no usable pair: {e}"))),
    }
}

fn incomplete(secret: &Key) -> Fault {
    invalid(format!(
        "Secret {secret} lacks {CHAIN} or {PRIVATE_KEY}: put certificate chain and private key there, as PEM"
    ))
}

/// What was found of Secrets, for as long as they are the same objects: thousands are not checked again for one that is
/// new. It changes no result, only how long it takes. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Checked(Arc<Mutex<HashMap<Key, Found>>>);

/// Of which object, and what.
type Found = (Weak<Secret>, Result<Pem, Fault>);

impl Checked {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(
        &self,
        key: &Key,
        secret: &Arc<Secret>,
        check: impl FnOnce() -> Result<Pem, Fault>,
    ) -> Result<Pem, Fault> {
        let mut known = self.lock();
        // The weak reference keeps the place taken: no other object can be there.
        if let Some((of, found)) = known.get(key)
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(secret))
        {
            return found.clone();
        }
        let found = check();
        known.insert(key.clone(), (Arc::downgrade(secret), found.clone()));
        found
    }

    /// Forgets Secrets that no longer exist.
    pub(crate) fn tidy(&self) {
        self.lock().retain(|_, (secret, _)| secret.strong_count() > 0);
    }
}

fn pem(secret: &Secret) -> Option<Pem> {
    let data = secret.data.as_ref()?;
    Some(Pem { chain: data.get(CHAIN)?.0.clone(), key: data.get(PRIVATE_KEY)?.0.clone() })
}

fn invalid(message: String) -> Fault {
    Fault { reason: "InvalidCertificateRef", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_checked_once_and_again_when_it_is_another() {
        let (known, key) = (Checked::default(), Key::new("a", "b"));
        let (one, two) = (Arc::new(Secret::default()), Arc::new(Secret::default()));
        let mut checks = 0;
        for secret in [&one, &one, &two, &two, &one] {
            let found = known.of(&key, secret, || {
                checks += 1;
                Err(incomplete(&key))
            });
            assert!(found.is_err());
        }
        assert_eq!(checks, 3);
        drop((one, two));
        known.tidy();
        assert!(known.lock().is_empty());
    }
}
