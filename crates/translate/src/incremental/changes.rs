//! What two snapshots differ in.

use std::collections::BTreeSet;

use gateway_api::experimental::httproutes::HttpRoute;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ingresses;
use super::world::{Routes, named_policies, patterns_of};
use crate::backend_tls_policy::services;
use crate::external_name;
use crate::grpc_route;
use crate::snapshot::{Key, Objects, Snapshot};
use crate::tls_route;

/// The names of objects that are others, no more, or new, of kinds whose changes can be followed one by one.
#[derive(Debug, Default)]
pub(super) struct Changes {
    routes: Routes,
    services: BTreeSet<Key>,
    ingresses: BTreeSet<Key>,
    /// Cache policies.
    pub(super) policies: BTreeSet<Key>,
}

/// So many routes are translated one by one; for more, everything is.
pub(super) fn most(snapshot: &Snapshot) -> usize {
    (snapshot.http_routes.len() + snapshot.grpc_routes.len()) / 4 + 64
}

/// Do two versions of an object differ in nothing but what the API server writes by itself?
fn same_metadata(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    let plain = |of: &ObjectMeta| ObjectMeta { resource_version: None, managed_fields: None, ..of.clone() };
    plain(a) == plain(b)
}

/// Keys of objects with another `spec` or other metadata. Statuses do not count.
macro_rules! changed {
    ($old:expr, $new:expr) => {
        $old.differences($new, |a, b| {
            std::sync::Arc::ptr_eq(a, b) || (a.spec == b.spec && same_metadata(&a.metadata, &b.metadata))
        })
    };
}

fn any_changed<T>(old: &Objects<T>, new: &Objects<T>, same: impl Fn(&T, &T) -> bool) -> bool {
    old.differences(new, |a, b| std::sync::Arc::ptr_eq(a, b) || same(a, b)).next().is_some()
}

impl Changes {
    /// `None`: something else has changed, too.
    pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Option<Self> {
        // All fields, so that a new one is not forgotten.
        let Snapshot {
            gateway_classes,
            gateways,
            listener_sets,
            http_routes,
            grpc_routes,
            tls_routes,
            tcp_routes,
            udp_routes,
            backend_tls_policies,
            reference_grants,
            parameters,
            cache_policies,
            services,
            namespaces,
            ingresses,
            ingress_classes,
            secrets,
            config_maps,
            // Not read by a translation.
            cache_invalidations: _,
            endpoint_slices: _,
            former_parameters,
            default_data_path,
            reads_varnishd_log,
            ingress_settings,
            controllers,
            checked: _,
        } = old;
        let others = changed!(gateways, &new.gateways).next().is_some()
            || changed!(gateway_classes, &new.gateway_classes).next().is_some()
            || changed!(listener_sets, &new.listener_sets).next().is_some()
            || changed!(tls_routes, &new.tls_routes).next().is_some()
            || changed!(tcp_routes, &new.tcp_routes).next().is_some()
            || changed!(udp_routes, &new.udp_routes).next().is_some()
            || changed!(backend_tls_policies, &new.backend_tls_policies).next().is_some()
            || changed!(reference_grants, &new.reference_grants).next().is_some()
            || changed!(parameters, &new.parameters).next().is_some()
            || changed!(ingress_classes, &new.ingress_classes).next().is_some()
            || any_changed(namespaces, &new.namespaces, |a, b| same_metadata(&a.metadata, &b.metadata))
            || any_changed(secrets, &new.secrets, |a, b| a.data == b.data && a.type_ == b.type_)
            || any_changed(config_maps, &new.config_maps, |a, b| {
                a.data == b.data && a.binary_data == b.binary_data
            })
            || *former_parameters != new.former_parameters
            || *default_data_path != new.default_data_path
            || *reads_varnishd_log != new.reads_varnishd_log
            || *ingress_settings != new.ingress_settings
            || *controllers != new.controllers;
        if others {
            return None;
        }
        let routes = Routes {
            http: changed!(http_routes, &new.http_routes).map(|(key, ..)| key.clone()).collect(),
            grpc: changed!(grpc_routes, &new.grpc_routes).map(|(key, ..)| key.clone()).collect(),
        };
        let services = changed!(services, &new.services).map(|(key, ..)| key.clone()).collect();
        let policies = changed!(cache_policies, &new.cache_policies).map(|(key, ..)| key.clone()).collect();
        let ingresses = changed!(ingresses, &new.ingresses).map(|(key, ..)| key.clone()).collect();
        Some(Self { routes, services, ingresses, policies })
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { routes, services, ingresses, policies } = self;
        routes.len() == 0 && services.is_empty() && ingresses.is_empty() && policies.is_empty()
    }

    /// The routes to translate again. `None`: the change concerns more than routes.
    pub(super) fn routes(&self, old: &Snapshot, new: &Snapshot) -> Option<Routes> {
        let mut routes = self.routes.clone();
        if !self.services.is_empty() {
            self.services_concern_routes_alone(old, new)?;
            let leads = |key: &Key, route: &HttpRoute| !services(key, route).is_disjoint(&self.services);
            let http = new.http_routes.iter().filter(|(key, route)| leads(key, route));
            routes.http.extend(http.map(|(key, _)| key.clone()));
            let grpc = new.grpc_routes.iter().filter(|(key, route)| leads(key, &grpc_route::as_http(route)));
            routes.grpc.extend(grpc.map(|(key, _)| key.clone()));
        }
        for key in &self.policies {
            for policy in [old, new].into_iter().filter_map(|snapshot| snapshot.cache_policies.get(key)) {
                if patterns_of(policy).next().is_some() {
                    return None;
                }
                let Some(target) = &policy.spec.target_ref else { continue };
                match target.kind.as_str() {
                    "" | "Gateway" | "Ingress" => return None,
                    "GRPCRoute" => {}
                    _ => drop(routes.http.insert(Key::new(key.namespace.as_str(), target.name.as_str()))),
                }
            }
        }
        if !self.policies.is_empty() {
            let naming = new
                .http_routes
                .iter()
                .filter(|(key, route)| !named_policies(key, route).is_disjoint(&self.policies));
            routes.http.extend(naming.map(|(key, _)| key.clone()));
        }
        (routes.len() <= most(new)).then_some(routes)
    }

    /// The Ingresses to translate again. `None`: too many.
    pub(super) fn ingresses(&self, new: &Snapshot) -> Option<BTreeSet<Key>> {
        let mut ingresses = self.ingresses.clone();
        if !self.services.is_empty() {
            let leads = |key: &Key, ingress: &Ingress| {
                ingresses::services(key, ingress).any(|service| self.services.contains(&service))
            };
            let naming = new.ingresses.iter().filter(|(key, ingress)| leads(key, ingress));
            ingresses.extend(naming.map(|(key, _)| key.clone()));
        }
        (ingresses.len() <= new.ingresses.len() / 4 + 64).then_some(ingresses)
    }

    /// Names of hosts elsewhere are limited by Gateway, and policies for Services speak of them. Ingresses are looked at by
    /// [`Self::ingresses`].
    fn services_concern_routes_alone(&self, old: &Snapshot, new: &Snapshot) -> Option<()> {
        for key in &self.services {
            let is_external = |snapshot: &Snapshot| {
                snapshot.services.get(key).is_some_and(|service| external_name::host(service).is_some())
            };
            let is_target = new.backend_tls_policies.iter().any(|(policy, object)| {
                policy.namespace == key.namespace
                    && object.spec.target_refs.iter().any(|target| target.name == key.name)
            });
            let is = |route: &Key, namespace: &Option<String>, name: &str| {
                namespace.as_ref().unwrap_or(&route.namespace) == &key.namespace && name == key.name
            };
            let of_tls = new.tls_routes.iter().any(|(route, object)| {
                tls_route::backend_refs(object).any(|one| is(route, &one.namespace, &one.name))
            });
            let of_tcp = new.tcp_routes.iter().any(|(route, object)| {
                let mut refs = object.spec.rules.iter().flat_map(|rule| &rule.backend_refs);
                refs.any(|one| is(route, &one.namespace, &one.name))
            });
            let of_udp = new.udp_routes.iter().any(|(route, object)| {
                let mut refs = object.spec.rules.iter().flat_map(|rule| &rule.backend_refs);
                refs.any(|one| is(route, &one.namespace, &one.name))
            });
            if is_external(old) || is_external(new) || is_target || of_tls || of_tcp || of_udp {
                return None;
            }
        }
        Some(())
    }
}
