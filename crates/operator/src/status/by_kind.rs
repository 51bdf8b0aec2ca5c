//! Writing a status and telling its Events, for each kind out of the table of kinds.

use api::{GatewayClassParameters, TcpRoute, UdpRoute, VarnishCachePolicy};
use gateway_api::backendtlspolicies::BackendTlsPolicy;
use gateway_api::experimental::grpcroutes::GrpcRoute;
use gateway_api::experimental::httproutes::HttpRoute;
use gateway_api::gatewayclasses::GatewayClass;
use gateway_api::gateways::Gateway;
use gateway_api::listenersets::ListenerSet;
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::TlsRoute;
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
        custom { $($kind:ident: $type:ident, $field:ident, $name:literal, $group:ident, $versions:tt, $scope:ident,
            $describe:path, $rules:path $(, else $stand_in:ident $effect:literal)?;)* }
        builtin $builtin:tt
        other $other:tt
    ) => {
        impl Writer {
            pub(super) async fn patch(
                &self,
                kind: &'static str,
                key: &Key,
                patch: &Patch<Value>,
            ) -> Result<(), kube::Error> {
                match kind {
                    $($name => {
                        let api: Api<PartialObjectMeta<$type>> = api!($scope, self.client, key);
                        patch_status(&api, key, patch).await
                    })*
                    _ => Ok(()),
                }
            }

            pub(super) async fn tell(&self, kind: &'static str, key: &Key, news: &News) {
                match kind {
                    $($name => {
                        if let Some(object) = self.cluster.$field.get(key) {
                            self.events.tell(object.as_ref(), news.good, &news.reason, &news.note).await;
                        }
                    })*
                    _ => {}
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
