//! The kinds that are read, and what their `apiVersion` may say.

use std::fmt;

use super::schema::spelling;

const GATEWAY: &str = "gateway.networking.k8s.io";
const VARNISH: &str = "gateway.varnish-software.com";
const CORE: &str = "";
const NETWORKING: &str = "networking.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";

/// Whether the objects of a kind live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Namespaced,
}

/// What the table of kinds says of one.
struct Facts {
    name: &'static str,
    group: &'static str,
    /// The preferred one first.
    versions: &'static [&'static str],
    scope: Scope,
    /// What the object does that takes the place of a refused one, where there is one.
    effect_of_stand_in: Option<&'static str>,
}

macro_rules! kinds {
    ($($class:ident { $($kind:ident: $type:ty, $field:ident, $name:literal, $group:ident, [$($version:literal),+], $scope:ident,
        $describe:path, $rules:path $(, when $same:ident)? $(, else $stand_in:ident $effect:literal)?;)* })*) => {
        /// Every kind that a snapshot holds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Kind {
            $($($kind,)*)*
        }

        impl Kind {
            pub(crate) const ALL: &[Self] = &[$($(Self::$kind,)*)*];

            const fn facts(self) -> Facts {
                match self {
                    $($(Self::$kind => Facts {
                        name: $name,
                        group: $group,
                        versions: &[$($version),+],
                        scope: Scope::$scope,
                        effect_of_stand_in: [$(Some($effect),)? None][0],
                    },)*)*
                }
            }
        }
    };
}

translate::kinds!(kinds);

/// What `apiVersion` and `kind` of a document turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recognised {
    Known(Kind),
    /// The kind is read, but not in this version.
    WrongVersion(Kind),
    /// A kind of another project. The kind of ours that has the same name, if there is one.
    Unknown(Option<Kind>),
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        self.facts().name
    }

    pub(crate) const fn namespaced(self) -> bool {
        matches!(self.facts().scope, Scope::Namespaced)
    }

    /// What the object does that takes the place of a refused one; none: a refused object is merely absent.
    pub(crate) const fn effect_of_stand_in(self) -> Option<&'static str> {
        self.facts().effect_of_stand_in
    }

    /// The `apiVersion` that an object of this kind is stored under.
    pub(crate) fn api_version(self) -> String {
        let Facts { group, versions, .. } = self.facts();
        let version = versions.first().copied().unwrap_or_default();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }

    /// Every `apiVersion` that is read, as words: `` `g/v1` or `g/v1beta1` ``.
    pub(crate) fn api_versions(self) -> String {
        let Facts { group, versions, .. } = self.facts();
        let named = versions.iter().map(|version| match group {
            "" => format!("`{version}`"),
            group => format!("`{group}/{version}`"),
        });
        named.collect::<Vec<_>>().join(" or ")
    }

    /// The kind that this word stands for, even if it is misspelt.
    pub(crate) fn meant(name: &str) -> Option<Self> {
        let exact = Self::ALL.iter().copied().find(|kind| kind.name() == name);
        exact.or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name().to_owned()).collect();
            let closest = spelling::closest(name, names.iter())?;
            Self::ALL.iter().copied().find(|kind| kind.name() == closest)
        })
    }

    /// Is any kind of its group read?
    pub(crate) fn has_group_of(api_version: &str) -> bool {
        let (group, _) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self::ALL.iter().copied().any(|kind| kind.facts().group == group)
    }

    pub(crate) fn recognise(api_version: &str, name: &str) -> Recognised {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let namesake = Self::ALL.iter().copied().find(|kind| kind.name() == name);
        let Some(kind) = namesake else { return Recognised::Unknown(None) };
        let Facts { group: own_group, versions, .. } = kind.facts();
        if group != own_group {
            // `apiVersion: v1` on a Gateway is a slip; `networking.istio.io/v1` is another project's Gateway.
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
        assert_eq!(Kind::meant("GRPCRoute"), Some(Kind::GrpcRoute));
        assert_eq!(Kind::meant("TCPRoute"), Some(Kind::TcpRoute));
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
