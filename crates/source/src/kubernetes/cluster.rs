//! Everything that `translate` reads, from a whole cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{DataPath, GatewayClassParameters, VarnishCacheInvalidation, VarnishCachePolicy};
use gateway_api::backendtlspolicies::BackendTlsPolicy;
use gateway_api::experimental::httproutes::HttpRoute;
use gateway_api::gatewayclasses::GatewayClass;
use gateway_api::gateways::Gateway;
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::{Api, Client, Resource};
use serde_json::Value;
use tokio::sync::watch;
use translate::snapshot::{Checked, Controllers, IngressSettings};
use translate::{Key, Snapshot};

use super::named::Named;
use super::read::Unread;
use super::secrets::Secrets;
use super::store::{Namespaces, Scope, Signal, Store, list, never_same};
use crate::stand_in;

/// All watches of an operator's input.
#[derive(Debug)]
pub struct Cluster {
    pub gateway_classes: Store<GatewayClass>,
    pub gateways: Store<Gateway>,
    pub http_routes: Store<HttpRoute>,
    pub tls_routes: Store<TlsRoute>,
    pub backend_tls_policies: Store<BackendTlsPolicy>,
    reference_grants: Store<ReferenceGrant>,
    pub parameters: Store<GatewayClassParameters>,
    pub cache_policies: Store<VarnishCachePolicy>,
    /// They say nothing about routing: whoever carries them out watches [`Cluster::invalidations_changed`].
    pub cache_invalidations: Store<VarnishCacheInvalidation>,
    services: Store<Service>,
    secrets: Secrets,
    namespaces: Store<Namespace>,
    pub ingresses: Store<Ingress>,
    ingress_classes: Store<IngressClass>,
    ingress_settings: IngressSettings,
    default_data_path: Option<DataPath>,
    /// Who we are.
    pub controllers: Controllers,
    checked: Checked,
    config_maps: Named<ConfigMap>,
    /// Those with CA certificates that are of another type.
    authorities: Named<Secret>,
    changed: Signal,
    touched: Signal,
    invalidations_changed: Signal,
}

/// An object with a value that we do not know.
#[derive(Debug, Clone)]
pub struct Unreadable {
    pub kind: &'static str,
    pub key: Key,
    pub unread: Arc<Unread>,
    /// Its last good version counts. Otherwise a stand-in does, where its absence would open something.
    pub is_kept: bool,
}

impl Cluster {
    pub fn watch(
        client: &Client,
        namespaces: &Namespaces,
        controllers: Controllers,
        ingress_settings: IngressSettings,
        default_data_path: Option<DataPath>,
    ) -> Self {
        let (changed, touched) = (Signal::default(), Signal::default());
        let invalidations_changed = Signal::default();
        let scope = Scope::default();
        macro_rules! of_cluster {
            ($same:expr) => {
                Store::watch(Api::all(client.clone()), &scope, $same, changed.clone(), touched.clone())
            };
        }
        macro_rules! all {
            ($same:expr) => {
                Store::watch_each(namespaces.apis(client), &scope, $same, changed.clone(), touched.clone())
            };
        }
        Self {
            gateway_classes: of_cluster!(same_generation),
            gateways: all!(same_generation),
            http_routes: all!(same_generation),
            tls_routes: all!(same_generation),
            backend_tls_policies: all!(same_generation),
            reference_grants: all!(same_generation),
            parameters: of_cluster!(same_generation),
            cache_policies: all!(same_generation),
            cache_invalidations: Store::watch_each(
                namespaces.apis(client),
                &scope,
                never_same,
                invalidations_changed.clone(),
                Signal::default(),
            ),
            services: all!(same_service),
            secrets: Secrets::watch(client, namespaces, changed.clone()),
            namespaces: of_cluster!(same_namespace),
            ingresses: all!(same_generation),
            ingress_classes: of_cluster!(same_generation),
            ingress_settings,
            default_data_path,
            controllers,
            checked: Checked::default(),
            config_maps: Named::new(client.clone(), namespaces, same_config_map, changed.clone()),
            authorities: Named::new(client.clone(), namespaces, same_secret, changed.clone()),
            changed,
            touched,
            invalidations_changed,
        }
    }

    /// Until every kind that routing depends on was listed once, or is known to be missing.
    pub async fn synced(&self) {
        self.gateway_classes.synced().await;
        self.gateways.synced().await;
        self.http_routes.synced().await;
        self.tls_routes.synced().await;
        self.backend_tls_policies.synced().await;
        self.reference_grants.synced().await;
        self.parameters.synced().await;
        self.cache_policies.synced().await;
        self.services.synced().await;
        self.secrets.synced().await;
        self.namespaces.synced().await;
        self.ingresses.synced().await;
        self.ingress_classes.synced().await;
    }

    /// Raised whenever a new snapshot may differ from the last.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Raised also for statuses.
    pub fn touched(&self) -> watch::Receiver<u64> {
        self.touched.subscribe()
    }

    /// Raised for VarnishCacheInvalidations, their statuses too.
    pub fn invalidations_changed(&self) -> watch::Receiver<u64> {
        self.invalidations_changed.subscribe()
    }

    pub async fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            gateway_classes: self.gateway_classes.usable(|_| None),
            gateways: self.gateways.usable(|_| None),
            http_routes: self.http_routes.usable(http_route),
            tls_routes: self.tls_routes.usable(tls_route),
            backend_tls_policies: self.backend_tls_policies.usable(backend_tls_policy),
            reference_grants: self.reference_grants.usable(|_| None),
            parameters: self.parameters.usable(|_| None),
            cache_policies: self.cache_policies.usable(cache_policy),
            services: self.services.usable(|_| None),
            namespaces: self.namespaces.usable(|_| None),
            ingresses: self.ingresses.usable(ingress),
            ingress_classes: self.ingress_classes.usable(|_| None),
            ingress_settings: self.ingress_settings.clone(),
            default_data_path: self.default_data_path,
            controllers: self.controllers.clone(),
            checked: self.checked.clone(),
            ..Snapshot::default()
        };
        self.config_maps.want(&config_maps(&snapshot)).await;
        snapshot.config_maps = self.config_maps.objects();
        self.secrets.want(&translate::referenced_secrets(&snapshot)).await;
        snapshot.secrets = self.secrets.objects();
        self.authorities.want(&authorities(&snapshot, "Secret").collect()).await;
        snapshot.secrets.extend(self.authorities.objects());
        snapshot
    }

    /// Objects that hold something newer than we know.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let mut all = Vec::new();
        macro_rules! add {
            ($($kind:literal in $store:ident),+) => {$(
                for (key, unread) in self.$store.unread() {
                    let is_kept = self.$store.is_kept(&key);
                    all.push(Unreadable { kind: $kind, key, unread, is_kept });
                }
            )+};
        }
        add!(
            "GatewayClass" in gateway_classes, "Gateway" in gateways, "HTTPRoute" in http_routes,
            "TLSRoute" in tls_routes, "BackendTLSPolicy" in backend_tls_policies,
            "ReferenceGrant" in reference_grants, "GatewayClassParameters" in parameters,
            "VarnishCachePolicy" in cache_policies
        );
        all
    }

    /// Kinds that the cluster does not have.
    pub fn missing(&self) -> Vec<&'static str> {
        [
            ("GatewayClass", self.gateway_classes.is_missing()),
            ("Gateway", self.gateways.is_missing()),
            ("HTTPRoute", self.http_routes.is_missing()),
            ("TLSRoute", self.tls_routes.is_missing()),
            ("BackendTLSPolicy", self.backend_tls_policies.is_missing()),
            ("ReferenceGrant", self.reference_grants.is_missing()),
            ("GatewayClassParameters", self.parameters.is_missing()),
            ("VarnishCachePolicy", self.cache_policies.is_missing()),
            ("VarnishCacheInvalidation", self.cache_invalidations.is_missing()),
        ]
        .into_iter()
        .filter_map(|(kind, missing)| missing.then_some(kind))
        .collect()
    }
}

fn http_route(unread: &Unread) -> Option<HttpRoute> {
    Some(stand_in::http_route(&unread.raw, &unread.reason()))
}

fn tls_route(unread: &Unread) -> Option<TlsRoute> {
    Some(stand_in::tls_route(&unread.raw, &unread.reason()))
}

fn cache_policy(unread: &Unread) -> Option<VarnishCachePolicy> {
    Some(stand_in::cache_policy(&unread.raw, &unread.reason()))
}

fn backend_tls_policy(unread: &Unread) -> Option<BackendTlsPolicy> {
    stand_in::backend_tls_policy(&unread.raw, &unread.reason())
}

fn ingress(unread: &Unread) -> Option<Ingress> {
    Some(stand_in::ingress(&unread.raw, &unread.reason()))
}

/// What a cluster with these objects gives at once. For tests and tools. Objects without readable metadata, which no API
/// server has, are left out.
pub fn snapshot_of(objects: &[Value]) -> Snapshot {
    macro_rules! all {
        ($type:ty, $stand_in:expr) => {
            list::<$type>(objects, $stand_in)
        };
    }
    Snapshot {
        gateway_classes: all!(GatewayClass, |_| None),
        gateways: all!(Gateway, |_| None),
        http_routes: all!(HttpRoute, http_route),
        tls_routes: all!(TlsRoute, tls_route),
        backend_tls_policies: all!(BackendTlsPolicy, backend_tls_policy),
        reference_grants: all!(ReferenceGrant, |_| None),
        parameters: all!(GatewayClassParameters, |_| None),
        cache_policies: all!(VarnishCachePolicy, cache_policy),
        cache_invalidations: all!(VarnishCacheInvalidation, |_| None),
        services: all!(Service, |_| None),
        endpoint_slices: all!(EndpointSlice, |_| None),
        secrets: all!(Secret, |_| None),
        config_maps: all!(ConfigMap, |_| None),
        namespaces: all!(Namespace, |_| None),
        ingresses: all!(Ingress, ingress),
        ingress_classes: all!(IngressClass, |_| None),
        ..Snapshot::default()
    }
}

/// The ConfigMaps that anything in a snapshot refers to.
fn config_maps(snapshot: &Snapshot) -> BTreeSet<Key> {
    let mut names: BTreeSet<Key> = authorities(snapshot, "ConfigMap").collect();
    for parameters in snapshot.parameters.values() {
        let Some(reference) = &parameters.spec.user_vcl_config_map_ref else { continue };
        match &reference.namespace {
            Some(namespace) => drop(names.insert(Key::new(namespace, &reference.name))),
            // Each Gateway's own.
            None => {
                names.extend(snapshot.gateways.keys().map(|key| Key::new(&key.namespace, &reference.name)));
                // And that of an IngressClass's Varnish.
                let ingress = parameters.spec.ingress.as_ref().and_then(|ingress| ingress.namespace.as_ref());
                let namespace = ingress.unwrap_or(&snapshot.ingress_settings.namespace);
                names.insert(Key::new(namespace, &reference.name));
            }
        }
    }
    names
}

/// The objects of a kind that hold CA certificates for policies and Gateways.
fn authorities<'a>(snapshot: &'a Snapshot, kind: &'a str) -> impl Iterator<Item = Key> + 'a {
    let of_policies = snapshot.backend_tls_policies.iter().flat_map(move |(key, policy)| {
        let refs = policy.spec.validation.ca_certificate_refs.iter().flatten();
        refs.filter(move |one| one.group.is_empty() && one.kind == kind)
            .map(|one| Key::new(&key.namespace, &one.name))
    });
    let of_gateways = snapshot.gateways.iter().flat_map(move |(key, gateway)| {
        let frontend = gateway.spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref());
        let default = frontend.and_then(|frontend| frontend.default.validation.as_ref());
        let default = default.into_iter().flat_map(|validation| {
            validation
                .ca_certificate_refs
                .iter()
                .map(|one| (&one.group, &one.kind, &one.namespace, &one.name))
        });
        let per_port = frontend.into_iter().flat_map(|frontend| frontend.per_port.iter().flatten());
        let per_port = per_port.filter_map(|port| port.tls.validation.as_ref()).flat_map(|validation| {
            validation
                .ca_certificate_refs
                .iter()
                .map(|one| (&one.group, &one.kind, &one.namespace, &one.name))
        });
        default
            .chain(per_port)
            .filter(move |(group, of_kind, _, _)| group.is_empty() && *of_kind == kind)
            .map(|(_, _, namespace, name)| Key::new(namespace.as_ref().unwrap_or(&key.namespace), name))
    });
    of_policies.chain(of_gateways)
}

/// The API server counts changes of what is not status in `generation`.
fn same_generation<T: Resource>(a: &T, b: &T) -> bool {
    let (a, b) = (a.meta(), b.meta());
    a.generation == b.generation
        && a.uid == b.uid
        && a.labels == b.labels
        && a.annotations == b.annotations
        && a.finalizers == b.finalizers
        && a.deletion_timestamp == b.deletion_timestamp
}

fn same_service(a: &Service, b: &Service) -> bool {
    a.spec == b.spec && a.metadata.uid == b.metadata.uid
}

fn same_namespace(a: &Namespace, b: &Namespace) -> bool {
    a.metadata.labels == b.metadata.labels
}

pub(super) fn same_secret(a: &Secret, b: &Secret) -> bool {
    a.data == b.data && a.type_ == b.type_
}

pub(super) fn same_config_map(a: &ConfigMap, b: &ConfigMap) -> bool {
    a.data == b.data && a.binary_data == b.binary_data
}

pub(super) fn same_slice(a: &EndpointSlice, b: &EndpointSlice) -> bool {
    a.address_type == b.address_type
        && a.endpoints == b.endpoints
        && a.ports == b.ports
        && a.metadata.labels == b.metadata.labels
}
