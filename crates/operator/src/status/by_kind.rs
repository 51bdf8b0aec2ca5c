//! Writes the status of an object and reports its Events, for each kind in the table of kinds.

use std::fmt;

use kube::Api;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use serde_json::Value;
use translate::Key;

use super::conditions::News;
use super::{MANAGER, Writer};

macro_rules! api {
    (Cluster, $client:expr, $key:expr) => {
        Api::all($client.clone())
    };
    (Namespaced, $client:expr, $key:expr) => {
        Api::namespaced($client.clone(), &$key.namespace)
    };
}

macro_rules! by_kind {
    (
        custom { $($kind:ident: $type:ty, $field:ident, $name:literal, $group:ident, $versions:tt, $scope:ident,
            $describe:path, $rules:path $(, else $stand_in:ident $effect:literal)?;)* }
        builtin $builtin:tt
        other $other:tt
    ) => {
        /// A kind that is defined by a CustomResourceDefinition.
        // The table has kinds without a status, too: ReferenceGrants and GatewayClassParameters.
        #[allow(dead_code)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) enum Kind {
            $($kind,)*
        }

        impl fmt::Display for Kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$kind => $name,)*
                })
            }
        }

        impl Writer {
            pub(super) async fn patch(
                &self,
                kind: Kind,
                key: &Key,
                patch: &Patch<Value>,
            ) -> Result<(), kube::Error> {
                match kind {
                    $(Kind::$kind => {
                        let api: Api<PartialObjectMeta<$type>> = api!($scope, self.client, key);
                        patch_status(&api, key, patch).await
                    })*
                }
            }

            pub(super) async fn tell(&self, kind: Kind, key: &Key, news: &News) {
                match kind {
                    $(Kind::$kind => {
                        if let Some(object) = self.cluster.$field.get(key) {
                            self.events.tell(object.as_ref(), news.good, &news.reason, &news.note).await;
                        }
                    })*
                }
            }
        }
    };
}

translate::kinds!(by_kind);

async fn patch_status<T>(
    api: &Api<PartialObjectMeta<T>>,
    key: &Key,
    patch: &Patch<Value>,
) -> Result<(), kube::Error> {
    let parameters = match patch {
        Patch::Apply(_) => PatchParams::apply(MANAGER).force(),
        _ => PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() },
    };
    api.patch_status(&key.name, &parameters, patch).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use kube::Resource;

    macro_rules! plurals {
        (
            custom { $($kind:ident: $type:ty, $field:ident, $name:literal, $group:ident, $versions:tt, $scope:ident,
                $describe:path, $rules:path $(, else $stand_in:ident $effect:literal)?;)* }
            builtin $builtin:tt
            other $other:tt
        ) => {
            [$(<$type as Resource>::plural(&())),*]
        };
    }

    #[test]
    fn the_operator_may_read_every_kind_that_it_watches() {
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/varnish-gateway/templates/rbac.yaml");
        let rules = std::fs::read_to_string(rules).unwrap();
        let named: Vec<&str> = rules
            .lines()
            .filter_map(|line| line.trim().strip_prefix("resources: [")?.strip_suffix(']'))
            .flat_map(|names| names.split(", "))
            .collect();
        for plural in translate::kinds!(plurals) {
            assert!(named.contains(&plural.as_ref()), "{plural} is missing in rbac.yaml");
        }
    }
}
