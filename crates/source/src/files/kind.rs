//! The kinds that are read, and what their `apiVersion` may say.

use std::fmt;

use super::schema::spelling;

const GATEWAY: &str = "gateway.networking.k8s.io";
const VARNISH: &str = "gateway.varnish-software.com";

/// Every kind that a snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    GatewayClass,
    Gateway,
    HttpRoute,
    TlsRoute,
    BackendTlsPolicy,
    ReferenceGrant,
    Parameters,
    CachePolicy,
    CacheInvalidation,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    Namespace,
    Ingress,
    IngressClass,
}

/// What `apiVersion` and `kind` of a document turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recognised {
    Known(Kind),
    /// The kind is read, but not in this version.
    WrongVersion(Kind),
    /// A kind of somebody else. The kind of ours that has the same name, if there is one.
    Unknown(Option<Kind>),
}

impl Kind {
    pub(crate) const ALL: [Self; 16] = [
        Self::GatewayClass,
        Self::Gateway,
        Self::HttpRoute,
        Self::TlsRoute,
        Self::BackendTlsPolicy,
        Self::ReferenceGrant,
        Self::Parameters,
        Self::CachePolicy,
        Self::CacheInvalidation,
        Self::Service,
        Self::EndpointSlice,
        Self::Secret,
        Self::ConfigMap,
        Self::Namespace,
        Self::Ingress,
        Self::IngressClass,
    ];

    /// Name, group, versions (the preferred one first), and whether its objects live in a namespace.
    const fn facts(self) -> (&'static str, &'static str, &'static [&'static str], bool) {
        match self {
            Self::GatewayClass => ("GatewayClass", GATEWAY, &["v1", "v1beta1"], false),
            Self::Gateway => ("Gateway", GATEWAY, &["v1", "v1beta1"], true),
            Self::HttpRoute => ("HTTPRoute", GATEWAY, &["v1", "v1beta1"], true),
            Self::TlsRoute => ("TLSRoute", GATEWAY, &["v1"], true),
            Self::BackendTlsPolicy => ("BackendTLSPolicy", GATEWAY, &["v1"], true),
            Self::ReferenceGrant => ("ReferenceGrant", GATEWAY, &["v1", "v1beta1"], true),
            Self::Parameters => ("GatewayClassParameters", VARNISH, &["v1alpha1"], false),
            Self::CachePolicy => ("VarnishCachePolicy", VARNISH, &["v1alpha1"], true),
            Self::CacheInvalidation => ("VarnishCacheInvalidation", VARNISH, &["v1alpha1"], true),
            Self::Service => ("Service", "", &["v1"], true),
            Self::EndpointSlice => ("EndpointSlice", "discovery.k8s.io", &["v1"], true),
            Self::Secret => ("Secret", "", &["v1"], true),
            Self::ConfigMap => ("ConfigMap", "", &["v1"], true),
            Self::Namespace => ("Namespace", "", &["v1"], false),
            Self::Ingress => ("Ingress", "networking.k8s.io", &["v1"], true),
            Self::IngressClass => ("IngressClass", "networking.k8s.io", &["v1"], false),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.facts().0
    }

    pub(crate) const fn namespaced(self) -> bool {
        self.facts().3
    }

    /// The `apiVersion` that an object of this kind is stored under.
    pub(crate) fn api_version(self) -> String {
        let (_, group, versions, _) = self.facts();
        let version = versions.first().copied().unwrap_or_default();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }

    /// Every `apiVersion` that is read, as words: `` `g/v1` or `g/v1beta1` ``.
    pub(crate) fn api_versions(self) -> String {
        let (_, group, versions, _) = self.facts();
        let named = versions.iter().map(|version| match group {
            "" => format!("`{version}`"),
            group => format!("`{group}/{version}`"),
        });
        named.collect::<Vec<_>>().join(" or ")
    }

    /// The kind that this word stands for, even if it is misspelt.
    pub(crate) fn meant(name: &str) -> Option<Self> {
        let exact = Self::ALL.into_iter().find(|kind| kind.name() == name);
        if name == "TCPRoute" {
            // Near to TLSRoute, and a kind of its own.
            return None;
        }
        exact.or_else(|| {
            let names = Self::ALL.map(|kind| kind.name().to_owned());
            let closest = spelling::closest(name, names.iter())?;
            Self::ALL.into_iter().find(|kind| kind.name() == closest)
        })
    }

    /// Is any kind of its group read?
    pub(crate) fn has_group_of(api_version: &str) -> bool {
        let (group, _) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self::ALL.into_iter().any(|kind| kind.facts().1 == group)
    }

    pub(crate) fn recognise(api_version: &str, name: &str) -> Recognised {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let namesake = Self::ALL.into_iter().find(|kind| kind.name() == name);
        let Some(kind) = namesake else { return Recognised::Unknown(None) };
        let (_, own_group, versions, _) = kind.facts();
        if group != own_group {
            // `apiVersion: v1` on a Gateway is a slip; `networking.istio.io/v1` is somebody else's Gateway.
            return if group.is_empty() {
                Recognised::WrongVersion(kind)
            } else {
                Recognised::Unknown(namesake)
            };
        }
        if versions.contains(&version) { Recognised::Known(kind) } else { Recognised::WrongVersion(kind) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_group_and_version() {
        let recognise = |version, name| Kind::recognise(version, name);
        assert_eq!(
            recognise("gateway.networking.k8s.io/v1", "HTTPRoute"),
            Recognised::Known(Kind::HttpRoute)
        );
        assert_eq!(
            recognise("gateway.networking.k8s.io/v1beta1", "Gateway"),
            Recognised::Known(Kind::Gateway)
        );
        assert_eq!(recognise("v1", "Service"), Recognised::Known(Kind::Service));
        assert_eq!(
            recognise("gateway.networking.k8s.io/v1alpha2", "HTTPRoute"),
            Recognised::WrongVersion(Kind::HttpRoute)
        );
        assert_eq!(recognise("v1", "HTTPRoute"), Recognised::WrongVersion(Kind::HttpRoute));
        assert_eq!(recognise("serving.knative.dev/v1", "Service"), Recognised::Unknown(Some(Kind::Service)));
        assert_eq!(recognise("apps/v1", "Deployment"), Recognised::Unknown(None));
    }

    #[test]
    fn a_misspelt_kind_is_guessed_and_another_is_not() {
        assert_eq!(Kind::meant("HTTPRoute"), Some(Kind::HttpRoute));
        assert_eq!(Kind::meant("HttpRoutes"), Some(Kind::HttpRoute));
        assert_eq!(Kind::meant("Gatewya"), Some(Kind::Gateway));
        assert_eq!(Kind::meant("Deployment"), None);
        assert_eq!(Kind::meant("GRPCRoute"), None);
        assert_eq!(Kind::meant("TCPRoute"), None);
        assert_eq!(Kind::meant(""), None);
    }

    #[test]
    fn versions_are_named_in_words() {
        assert_eq!(Kind::Secret.api_versions(), "`v1`");
        assert_eq!(
            Kind::Gateway.api_versions(),
            "`gateway.networking.k8s.io/v1` or `gateway.networking.k8s.io/v1beta1`"
        );
        assert_eq!(Kind::EndpointSlice.api_version(), "discovery.k8s.io/v1");
    }
}
