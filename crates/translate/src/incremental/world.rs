//! A snapshot with some routes of another one, and all that their translation reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::VarnishCachePolicy;
use gateway_api::experimental::httproutes::HttpRoute;
use gateway_api::gateways::Gateway;
use model::RouteKind;
use model::routing::Routing;
use router::budget::Budget;

use super::ingresses;
use crate::attach::gateway_of;
use crate::backend_tls_policy::services;
use crate::cache_policy::is_policy;
use crate::grpc_route;
use crate::listener_set;
use crate::patterns::{self, MOST_BYTES_OF_POLICIES, Meter};
use crate::snapshot::{Key, Objects, Snapshot};

/// HTTPRoutes and GRPCRoutes, there or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Routes {
    pub(super) http: BTreeSet<Key>,
    pub(super) grpc: BTreeSet<Key>,
}

impl Routes {
    pub(super) fn len(&self) -> usize {
        self.http.len() + self.grpc.len()
    }

    /// Those that are there, as HTTPRoutes.
    pub(super) fn objects<'a>(
        &'a self,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = (RouteKind, &'a Key, Arc<HttpRoute>)> {
        let http = self
            .http
            .iter()
            .filter_map(|key| Some((RouteKind::HttpRoute, key, Arc::clone(snapshot.http_routes.get(key)?))));
        let grpc = self.grpc.iter().filter_map(|key| {
            let route = grpc_route::as_http(snapshot.grpc_routes.get(key)?);
            Some((RouteKind::GrpcRoute, key, Arc::new(route)))
        });
        http.chain(grpc)
    }

    /// Is there room for their patterns?
    pub(super) fn fit(&self, routing: &Routing, budget: &mut Budget) -> bool {
        patterns::fits(routing, &self.http, RouteKind::HttpRoute, budget)
            && patterns::fits(routing, &self.grpc, RouteKind::GrpcRoute, budget)
    }
}

/// Which policy or set belongs to which object, for kinds that rarely change.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Cache policies by the HTTPRoute that they are for, whole or in part.
    policies_by_route: BTreeMap<Key, BTreeSet<Key>>,
    policies_by_gateway: BTreeMap<Key, BTreeSet<Key>>,
    /// BackendTLSPolicies.
    pub(super) tls_by_service: BTreeMap<Key, BTreeSet<Key>>,
    sets_by_gateway: BTreeMap<Key, BTreeSet<Key>>,
    /// Those that cache policies name, there or not.
    pub(super) ingresses_with_policies: BTreeSet<Key>,
    /// No cache policy closes a whole namespace, and there is room for the patterns of all of them together: none decides about another.
    pub(super) is_plain: bool,
}

impl Tables {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut tables = Self { is_plain: true, ..Self::default() };
        let mut meter = Meter::new(MOST_BYTES_OF_POLICIES);
        let mut budget = Budget::default();
        for (key, policy) in &snapshot.cache_policies {
            for pattern in patterns_of(policy) {
                // A pattern that is invalid on its own is refused without regard to the others.
                let _ = meter.check(key, pattern);
            }
            tables.is_plain &= budget.add_bypass(patterns_of(policy)).is_ok();
            let Some(target) = &policy.spec.target_ref else { continue };
            let named = Key::new(key.namespace.as_str(), target.name.as_str());
            match target.kind.as_str() {
                "" => tables.is_plain = false,
                "Gateway" => drop(tables.policies_by_gateway.entry(named).or_default().insert(key.clone())),
                "Ingress" => drop(tables.ingresses_with_policies.insert(named)),
                "GRPCRoute" => {}
                _ => drop(tables.policies_by_route.entry(named).or_default().insert(key.clone())),
            }
        }
        tables.is_plain &= Meter::new(MOST_BYTES_OF_POLICIES).join(&meter);
        for (key, policy) in &snapshot.backend_tls_policies {
            for target in &policy.spec.target_refs {
                let service = Key::new(key.namespace.as_str(), target.name.as_str());
                tables.tls_by_service.entry(service).or_default().insert(key.clone());
            }
        }
        for (key, set) in &snapshot.listener_sets {
            if let Some(gateway) = listener_set::gateway(key, set) {
                tables.sets_by_gateway.entry(gateway).or_default().insert(key.clone());
            }
        }
        tables
    }

    /// The cache policies that are for these routes, or that the routes name.
    pub(super) fn policies_of(&self, routes: &Routes, snapshot: &Snapshot) -> BTreeSet<Key> {
        let own = routes.http.iter().filter_map(|key| self.policies_by_route.get(key)).flatten().cloned();
        let there = routes.http.iter().filter_map(|key| Some((key, snapshot.http_routes.get(key)?)));
        own.chain(there.flat_map(|(key, route)| named_policies(key, route))).collect()
    }
}

/// Regular expressions of a cache policy.
pub(super) fn patterns_of(policy: &VarnishCachePolicy) -> impl Iterator<Item = &str> {
    let headers = policy.spec.bypass.iter().flat_map(|bypass| &bypass.headers);
    headers.filter_map(|header| header.value_regex.as_deref())
}

/// The cache policies that rules of a route name.
pub(super) fn named_policies(key: &Key, route: &HttpRoute) -> BTreeSet<Key> {
    let filters = route.spec.rules.iter().flatten().flat_map(|rule| rule.filters.iter().flatten());
    let references = filters.filter_map(|filter| filter.extension_ref.as_ref());
    let policies = references.filter(|reference| is_policy(&reference.group, &reference.kind));
    policies.map(|reference| Key::new(key.namespace.as_str(), reference.name.as_str())).collect()
}

/// The Gateways that a route's parentRefs lead to, there or not.
pub(super) fn gateways_of(key: &Key, route: &HttpRoute, snapshot: &Snapshot) -> BTreeSet<Key> {
    let parents = route.spec.parent_refs.iter().flatten();
    parents.filter_map(|parent| gateway_of(parent, &key.namespace, snapshot)).collect()
}

/// These routes and the others that the statuses of these policies speak of. `None`: those are of other kinds, or too many.
///
/// `made`: Gateways that no snapshot of some routes has.
pub(super) fn around(
    snapshot: &Snapshot,
    routes: &Routes,
    policies: &BTreeSet<Key>,
    made: &Objects<Gateway>,
) -> Option<Routes> {
    let mut around = routes.clone();
    if policies.is_empty() {
        return Some(around);
    }
    for key in policies {
        let Some(policy) = snapshot.cache_policies.get(key) else { continue };
        let Some(target) = &policy.spec.target_ref else { continue };
        match target.kind.as_str() {
            "Ingress" => return None,
            "Gateway" if made.contains_key(&Key::new(key.namespace.as_str(), target.name.as_str())) => {
                return None;
            }
            "Gateway" | "GRPCRoute" => {}
            _ => drop(around.http.insert(Key::new(key.namespace.as_str(), target.name.as_str()))),
        }
    }
    let namespaces: BTreeSet<&str> = policies.iter().map(|policy| policy.namespace.as_str()).collect();
    let near = snapshot.http_routes.iter().filter(|(key, _)| namespaces.contains(key.namespace.as_str()));
    let naming = near.filter(|(key, route)| !named_policies(key, route).is_disjoint(policies));
    around.http.extend(naming.map(|(key, _)| key.clone()));
    let is_of_made = |(_, key, route): (_, &Key, Arc<HttpRoute>)| {
        gateways_of(key, &route, snapshot).iter().any(|gateway| made.contains_key(gateway))
    };
    let fits = around.len() <= super::changes::most(snapshot) && !around.objects(snapshot).any(is_of_made);
    fits.then_some(around)
}

/// Puts the objects of these keys into the world, as far as they are there.
macro_rules! take {
    ($snapshot:ident, $world:ident, $field:ident, $keys:expr) => {
        for key in $keys {
            if let Some(object) = $snapshot.$field.get(key) {
                $world.$field.insert(key.clone(), Arc::clone(object));
            }
        }
    };
}

/// All that translations of any object may read, and none of the objects that are translated one by one.
fn empty(snapshot: &Snapshot) -> Snapshot {
    Snapshot {
        gateway_classes: snapshot.gateway_classes.clone(),
        reference_grants: snapshot.reference_grants.clone(),
        parameters: snapshot.parameters.clone(),
        namespaces: snapshot.namespaces.clone(),
        secrets: snapshot.secrets.clone(),
        config_maps: snapshot.config_maps.clone(),
        default_data_path: snapshot.default_data_path,
        reads_varnishd_log: snapshot.reads_varnishd_log,
        ingress_settings: snapshot.ingress_settings.clone(),
        controllers: snapshot.controllers.clone(),
        checked: snapshot.checked.clone(),
        ..Snapshot::default()
    }
}

/// The snapshot that has no other routes, and what they refer to. `policies`: cache policies that are there in any case, with their
/// Gateways.
pub(super) fn of(
    snapshot: &Snapshot,
    routes: &Routes,
    policies: &BTreeSet<Key>,
    tables: &Tables,
) -> Snapshot {
    let mut world = empty(snapshot);
    take!(snapshot, world, http_routes, &routes.http);
    take!(snapshot, world, grpc_routes, &routes.grpc);
    let (mut gateways, mut wanted, mut used) = (BTreeSet::new(), policies.clone(), BTreeSet::new());
    for (_, key, route) in routes.objects(snapshot) {
        gateways.extend(gateways_of(key, &route, snapshot));
        used.extend(services(key, &route));
    }
    for target in policies.iter().filter_map(|key| {
        let target = snapshot.cache_policies.get(key)?.spec.target_ref.as_ref()?;
        (target.kind == "Gateway").then(|| Key::new(key.namespace.as_str(), target.name.as_str()))
    }) {
        gateways.insert(target);
    }
    wanted.extend(tables.policies_of(routes, snapshot));
    wanted.extend(gateways.iter().filter_map(|key| tables.policies_by_gateway.get(key)).flatten().cloned());
    let tls: BTreeSet<&Key> =
        used.iter().filter_map(|service| tables.tls_by_service.get(service)).flatten().collect();
    for policy in &tls {
        let targets =
            snapshot.backend_tls_policies.get(*policy).into_iter().flat_map(|one| &one.spec.target_refs);
        used.extend(targets.map(|target| Key::new(policy.namespace.as_str(), target.name.as_str())));
    }
    take!(snapshot, world, gateways, &gateways);
    take!(snapshot, world, services, &used);
    take!(snapshot, world, cache_policies, &wanted);
    take!(snapshot, world, backend_tls_policies, tls);
    take!(
        snapshot,
        world,
        listener_sets,
        gateways.iter().filter_map(|key| tables.sets_by_gateway.get(key)).flatten()
    );
    let former =
        gateways.iter().filter_map(|key| Some((key.clone(), snapshot.former_parameters.get(key)?.clone())));
    world.former_parameters = former.collect();
    world
}

/// The snapshot that has no other Ingresses, and what they refer to. `varnishes`: the Gateways that Ingresses may choose.
pub(super) fn of_ingresses(
    snapshot: &Snapshot,
    ingresses: &BTreeSet<Key>,
    varnishes: &BTreeSet<Key>,
    tables: &Tables,
) -> Snapshot {
    let mut world = Snapshot { ingress_classes: snapshot.ingress_classes.clone(), ..empty(snapshot) };
    take!(snapshot, world, ingresses, ingresses);
    let there = world.ingresses.iter();
    let used: BTreeSet<Key> = there.flat_map(|(key, ingress)| ingresses::services(key, ingress)).collect();
    // One that has the name of a class may be in the way of the class's own.
    let is_in_the_way = |key: &Key| snapshot.ingress_classes.contains_key(&Key::cluster(&key.name));
    let gateways: BTreeSet<&Key> =
        varnishes.iter().chain(snapshot.gateways.keys().filter(|key| is_in_the_way(key))).collect();
    take!(snapshot, world, gateways, gateways.iter().copied());
    take!(snapshot, world, services, &used);
    let policies = gateways.iter().filter_map(|key| tables.policies_by_gateway.get(*key)).flatten();
    take!(snapshot, world, cache_policies, policies);
    let sets = gateways.iter().filter_map(|key| tables.sets_by_gateway.get(*key)).flatten();
    take!(snapshot, world, listener_sets, sets);
    // Of classes, too.
    world.former_parameters = snapshot.former_parameters.clone();
    world
}
