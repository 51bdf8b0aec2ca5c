//! How one Varnish serves Ingresses.

use api::{HostlessRules, ImplementationSpecific, IngressMerge, IngressParameters};

use crate::parameters::Layers;

const HTTPS_PORT: u16 = 443;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) merge: IngressMerge,
    pub(crate) hostless_rules: HostlessRules,
    pub(crate) implementation_specific: ImplementationSpecific,
    pub(crate) ready_without_routes: bool,
    pub(crate) https_port: u16,
}

impl Options {
    /// Each is a field of its own: a Gateway that sets one keeps the others of its class.
    pub(crate) fn new(layers: Layers<'_>) -> Self {
        Self {
            merge: field(layers, |p| p.merge.as_ref()).copied().unwrap_or_default(),
            hostless_rules: field(layers, |p| p.hostless_rules.as_ref()).copied().unwrap_or_default(),
            implementation_specific: field(layers, |p| p.implementation_specific.as_ref())
                .copied()
                .unwrap_or_default(),
            ready_without_routes: field(layers, |p| p.ready_without_routes.as_ref()).copied().unwrap_or(true),
            https_port: port(field(layers, |p| p.https_port.as_ref()).copied()).unwrap_or(HTTPS_PORT),
        }
    }
}

/// A TCP port.
pub(super) fn port(number: Option<i32>) -> Option<u16> {
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
}

fn field<'a, T>(layers: Layers<'a>, of: impl Fn(&'a IngressParameters) -> Option<&'a T>) -> Option<&'a T> {
    layers.field(|spec| spec.ingress.as_ref().and_then(&of))
}
