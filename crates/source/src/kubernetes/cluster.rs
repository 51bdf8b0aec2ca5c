//! Everything that `translate` reads, from a whole cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{DataPath, VarnishCacheInvalidation};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, Resource};
use serde_json::Value;
use tokio::sync::watch;
use translate::snapshot::{Checked, Controllers, IngressSettings};
use translate::{Key, Snapshot};

use super::named::Named;
use super::read::Unread;
use super::scope::{Namespaces, Scope};
use super::secrets::Secrets;
use super::signal::Signal;
use super::store::{Store, list, never_same};
use crate::stand_in;

/// An object with a value that this release does not know.
#[derive(Debug, Clone)]
pub struct Unreadable {
    pub kind: &'static str,
    pub key: Key,
    pub unread: Arc<Unread>,
    /// Its last good version counts. Otherwise a stand-in does, where its absence would open something.
    pub is_kept: bool,
}

/// What takes the place of an unreadable object that never was readable.
macro_rules! stand_in {
    () => {
        |_| None
    };
    ($stand_in:ident) => {
        |unread: &Unread| stand_in::$stand_in(&unread.raw, &unread.reason())
    };
}

/// The watches of a kind: in all namespaces, or for the cluster.
macro_rules! watch {
    (Cluster, $client:expr, $namespaces:expr) => {
        vec![Api::all($client.clone())]
    };
    (Namespaced, $client:expr, $namespaces:expr) => {
        $namespaces.apis($client)
    };
}

macro_rules! cluster {
    (
        custom { $($kind:ident: $type:ty, $field:ident, $name:literal, $group:ident, $versions:tt, $scope:ident,
            $describe:path, $rules:path $(, else $stand_in:ident $effect:literal)?;)* }
        builtin { $($b_kind:ident: $b_type:ty, $b_field:ident, $b_name:literal, $b_group:ident, $b_versions:tt, $b_scope:ident,
            $b_describe:path, $b_rules:path, when $same:ident $(, else $b_stand_in:ident $b_effect:literal)?;)* }
        other { $($o_kind:ident: $o_type:ty, $o_field:ident, $o_name:literal, $o_group:ident, $o_versions:tt, $o_scope:ident,
            $o_describe:path, $o_rules:path;)* }
    ) => {
        /// All watches of an operator's input.
        #[derive(Debug)]
        pub struct Cluster {
            $(pub $field: Store<$type>,)*
            $(pub $b_field: Store<$b_type>,)*
            /// They say nothing about routing: the part that carries them out watches [`Cluster::invalidations_changed`].
            pub cache_invalidations: Store<VarnishCacheInvalidation>,
            secrets: Secrets,
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
                Self {
                    $($field: Store::watch_each(
                        watch!($scope, client, namespaces),
                        &scope,
                        same_generation,
                        changed.clone(),
                        touched.clone(),
                    ),)*
                    $($b_field: Store::watch_each(
                        watch!($b_scope, client, namespaces),
                        &scope,
                        $same,
                        changed.clone(),
                        touched.clone(),
                    ),)*
                    cache_invalidations: Store::watch_each(
                        namespaces.apis(client),
                        &scope,
                        never_same,
                        invalidations_changed.clone(),
                        Signal::default(),
                    ),
                    secrets: Secrets::watch(client, namespaces, changed.clone()),
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
                $(self.$field.synced().await;)*
                $(self.$b_field.synced().await;)*
                self.secrets.synced().await;
            }

            /// The objects of the kinds that are watched as they are.
            fn watched(&self) -> Snapshot {
                Snapshot {
                    $($field: self.$field.usable(stand_in!($($stand_in)?)),)*
                    $($b_field: self.$b_field.usable(stand_in!($($b_stand_in)?)),)*
                    ..Snapshot::default()
                }
            }

            /// Objects with fields or values of a newer release.
            pub fn unreadable(&self) -> Vec<Unreadable> {
                let mut all = Vec::new();
                $(for (key, unread) in self.$field.unread() {
                    let is_kept = self.$field.is_kept(&key);
                    all.push(Unreadable { kind: $name, key, unread, is_kept });
                })*
                all
            }

            /// Kinds that the cluster does not have.
            pub fn missing(&self) -> Vec<&'static str> {
                let watched = [
                    $(($name, self.$field.is_missing()),)*
                    ("VarnishCacheInvalidation", self.cache_invalidations.is_missing()),
                ];
                watched.into_iter().filter_map(|(kind, missing)| missing.then_some(kind)).collect()
            }
        }

        /// What a cluster with these objects gives at once. For tests and tools. Objects without readable metadata, which no API
        /// server has, are left out.
        pub fn snapshot_of(objects: &[Value]) -> Snapshot {
            Snapshot {
                $($field: list::<$type>(objects, stand_in!($($stand_in)?)),)*
                $($b_field: list::<$b_type>(objects, stand_in!($($b_stand_in)?)),)*
                $($o_field: list::<$o_type>(objects, |_| None),)*
                ..Snapshot::default()
            }
        }
    };
}

translate::kinds!(cluster);

impl Cluster {
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
            ingress_settings: self.ingress_settings.clone(),
            default_data_path: self.default_data_path,
            controllers: self.controllers.clone(),
            checked: self.checked.clone(),
            ..self.watched()
        };
        self.config_maps.want(&config_maps(&snapshot)).await;
        snapshot.config_maps = self.config_maps.objects();
        self.secrets.want(&translate::referenced_secrets(&snapshot)).await;
        snapshot.secrets = self.secrets.objects();
        self.authorities.want(&authorities(&snapshot, "Secret").collect()).await;
        snapshot.secrets.extend(self.authorities.objects());
        snapshot
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
