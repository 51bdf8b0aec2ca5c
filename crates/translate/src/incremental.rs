//! Translates only the objects that have changed.
//!
//! Takes one [`Snapshot`] after the other. Guarantees the plans and statuses that [`crate::translate`] has for the newest one; a change of
//! routes, of Ingresses, of plain Services, or of cache policies for routes costs only what has changed. Never decides anything itself:
//! changed routes are translated by the same code, in a snapshot of their own ([`world`]), as they were and as they are, and the
//! difference is merged into the previous plans and statuses.
//!
//! That is right only where no other object depends on the changed routes. Whether it is so is decided before ([`changes`],
//! [`Last::is_apart`]) and after ([`Last::carry_over`]); for Ingresses, in [`ingresses`]. Where it is not so, everything is translated again.

mod changes;
mod ingresses;
mod splice;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gateway_api::experimental::httproutes::HttpRoute;
use gateway_api::gateways::Gateway;

use self::changes::Changes;
use self::splice::Splice;
use self::world::{Routes, Tables};
use crate::hostname;
use crate::http_route::Irregular;
use crate::notice::Notice;
use crate::patterns::{self, Budgets, Meter};
use crate::snapshot::{Key, Objects, Snapshot};
use crate::{GatewayPlan, Statuses, Translation, backend_tls_policy, external_name, translate_noting};

/// What a full translation knows, and the translation of a single route does not.
#[derive(Debug)]
pub(crate) struct Noted {
    /// Of all namespaces.
    pub(crate) patterns: Meter,
    pub(crate) irregular: Irregular,
    pub(crate) budgets: Budgets,
    /// Gateways that serve Ingresses, which share hosts with routes in ways of their own.
    pub(crate) for_ingresses: BTreeSet<Key>,
    /// Of those: the ones whose Ingresses do not decide about each other.
    pub(crate) plain_varnishes: BTreeSet<Key>,
}

/// Plans and statuses for the newest snapshot.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// One that has not changed is the same object as before.
    pub gateways: BTreeMap<Key, Arc<GatewayPlan>>,
    /// As in [`Translation`].
    pub made: Objects<Gateway>,
    pub statuses: Statuses,
    /// Of what was translated this time.
    pub notices: Vec<Notice>,
    pub extent: Extent,
}

/// How much was translated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Extent {
    /// Nothing that counts has changed.
    #[default]
    Nothing,
    /// So many routes and Ingresses.
    Routes(usize),
    Everything,
}

/// Translates snapshots that follow each other.
#[derive(Debug, Default)]
pub struct Incremental {
    last: Option<Last>,
}

/// The last translation.
#[derive(Debug)]
struct Last {
    snapshot: Snapshot,
    outcome: Outcome,
    noted: Noted,
    tables: Tables,
}

impl Incremental {
    /// The same as [`crate::translate`] of this snapshot.
    pub fn update(&mut self, snapshot: &Snapshot) -> &Outcome {
        let last = match self.last.take() {
            None => Last::whole(snapshot, &Outcome::default()),
            Some(mut last) => match last.advance(snapshot) {
                Some(()) => last,
                None => Last::whole(snapshot, &last.outcome),
            },
        };
        &self.last.insert(last).outcome
    }

    /// Translates everything once more, and says whether the changes have led to the same. Where they have not, the next
    /// [`Self::update`] has what is right.
    pub fn verify(&mut self) -> bool {
        let Some(last) = &self.last else { return true };
        let whole = Last::whole(&last.snapshot, &last.outcome);
        let (was, is) = (&last.outcome, &whole.outcome);
        let same = was.gateways == is.gateways && was.statuses == is.statuses && was.made == is.made;
        // Either way the state that was kept beside the outcome starts over.
        self.last = same.then_some(whole);
        same
    }
}

impl Last {
    /// `before`: what may be shared. It need not be right.
    fn whole(snapshot: &Snapshot, before: &Outcome) -> Self {
        let (Translation { gateways, made, statuses, notices }, noted) = translate_noting(snapshot);
        let shared = |(key, plan): (Key, GatewayPlan)| {
            let plan = match before.gateways.get(&key) {
                Some(old) => Arc::new(with_shared_hosts(plan, old)),
                None => Arc::new(plan),
            };
            let same = before.gateways.get(&key).filter(|old| ***old == *plan);
            (key, same.cloned().unwrap_or(plan))
        };
        let outcome = Outcome {
            gateways: gateways.into_iter().map(shared).collect(),
            made,
            statuses: statuses.sharing(&before.statuses),
            notices,
            extent: Extent::Everything,
        };
        Self { tables: Tables::new(snapshot), snapshot: snapshot.clone(), outcome, noted }
    }

    /// From the last snapshot to this one. `None`: everything must be translated; what is here may be half changed.
    fn advance(&mut self, new: &Snapshot) -> Option<()> {
        let changes = Changes::between(&self.snapshot, new)?;
        self.outcome.notices.clear();
        self.outcome.extent = Extent::Nothing;
        if changes.is_empty() {
            self.snapshot = new.clone();
            return Some(());
        }
        let tables = match changes.policies.is_empty() {
            true => None,
            false => Some(Tables::new(new)),
        };
        if !self.tables.is_plain || tables.as_ref().is_some_and(|tables| !tables.is_plain) {
            return None;
        }
        let routes = changes.routes(&self.snapshot, new)?;
        let ingresses = changes.ingresses(new)?;
        if routes.len() > 0 || !changes.policies.is_empty() {
            self.follow_routes(new, &routes, &changes.policies, tables.as_ref())?;
        }
        if !ingresses.is_empty() {
            let before = std::mem::take(&mut self.tables);
            ingresses::carry_over(self, new, &ingresses, [&before, tables.as_ref().unwrap_or(&before)])?;
            self.tables = before;
        }
        if let Some(tables) = tables {
            self.tables = tables;
        }
        self.snapshot = new.clone();
        self.outcome.extent = Extent::Routes(routes.len() + ingresses.len());
        Some(())
    }

    /// Puts what these routes and cache policies are now in the place of what they were. `tables`: new ones.
    fn follow_routes(
        &mut self,
        new: &Snapshot,
        routes: &Routes,
        changed_policies: &BTreeSet<Key>,
        tables: Option<&Tables>,
    ) -> Option<()> {
        let old = &self.snapshot;
        let after_tables = tables.unwrap_or(&self.tables);
        self.is_apart(routes, old)?;
        self.is_apart(routes, new)?;
        // The policies whose statuses speak of the routes.
        let mut policies = self.tables.policies_of(routes, old);
        policies.extend(after_tables.policies_of(routes, new));
        policies.extend(changed_policies.iter().cloned());

        let worlds = [
            world::of(old, routes, &BTreeSet::new(), &self.tables),
            world::of(new, routes, &policies, after_tables),
        ];
        let [before, after] = [translate_noting(&worlds[0]), translate_noting(&worlds[1])];
        is_same_for_backends(&worlds, [&before.0, &after.0])?;
        let around = world::around(new, routes, &policies, &self.outcome.made)?;
        let statuses = match around == *routes {
            true => after.0.statuses.cache_policies.clone(),
            false => {
                translate_noting(&world::of(new, &around, &policies, after_tables)).0.statuses.cache_policies
            }
        };
        self.carry_over(new, routes, (before, after))?;
        splice::statuses(&mut self.outcome.statuses.cache_policies, &policies, &statuses);
        Some(())
    }

    /// Decides by the objects whether anything else depends on these routes. `None`: it may.
    fn is_apart(&self, routes: &Routes, snapshot: &Snapshot) -> Option<()> {
        for (kind, key, route) in routes.objects(snapshot) {
            for gateway in world::gateways_of(key, &route, snapshot) {
                let entangled = self.noted.for_ingresses.contains(&gateway)
                    || self.outcome.made.contains_key(&gateway)
                    || matches!(self.noted.budgets.get(&gateway), Some(None));
                if entangled {
                    return None;
                }
            }
            for service in backend_tls_policy::services(key, &route) {
                let is_external =
                    snapshot.services.get(&service).is_some_and(|one| external_name::host(one).is_some());
                if is_external {
                    return None;
                }
            }
            let mut others: Box<dyn Iterator<Item = &Option<Vec<String>>>> = match kind {
                model::RouteKind::GrpcRoute => {
                    Box::new(snapshot.http_routes.values().map(|route| &route.spec.hostnames))
                }
                _ => Box::new(snapshot.grpc_routes.values().map(|route| &route.spec.hostnames)),
            };
            // A host belongs to one kind of routes: the older has it.
            if others.any(|others| overlap(&route, others)) {
                return None;
            }
        }
        Some(())
    }

    /// Puts what the routes came to in the place of what they were.
    fn carry_over(
        &mut self,
        snapshot: &Snapshot,
        routes: &Routes,
        (before, after): ((Translation, Noted), (Translation, Noted)),
    ) -> Option<()> {
        let ((before, noted_before), (after, noted_after)) = (before, after);
        if !noted_before.irregular.is_empty() || !noted_after.irregular.is_empty() {
            return None;
        }
        // What is left in a namespace may decide about the patterns of others.
        if !self.noted.patterns.join(&noted_before.patterns)
            || !self.noted.patterns.join(&noted_after.patterns)
        {
            return None;
        }
        for (gateway, plan) in &before.gateways {
            patterns::give_back(&plan.routing, self.noted.budgets.get_mut(gateway)?.as_mut()?);
        }
        for (gateway, accepted) in &noted_after.budgets {
            let budget = self.noted.budgets.get_mut(gateway)?.as_mut()?;
            let plan = after.gateways.get(gateway)?;
            if accepted.is_none() || !routes.fit(&plan.routing, budget) {
                return None;
            }
        }
        let Outcome { gateways, statuses, .. } = &mut self.outcome;
        let splice = Splice { snapshot, routes, irregular: &self.noted.irregular };
        let keys: BTreeSet<&Key> = before.gateways.keys().chain(after.gateways.keys()).collect();
        for key in keys {
            let plan = gateways.get_mut(key)?;
            let [old, new] =
                [&before, &after].map(|one| one.gateways.get(key).map(|plan| &plan.routing.vhosts));
            if let Some(hosts) = splice.hosts(key, &plan.routing.vhosts, old, new)? {
                let mut changed = plan.as_ref().clone();
                changed.routing.vhosts = hosts;
                *plan = Arc::new(changed);
            }
        }
        splice::counts(&mut statuses.gateways, &before.statuses.gateways, &after.statuses.gateways)?;
        splice::counts(
            &mut statuses.listener_sets,
            &before.statuses.listener_sets,
            &after.statuses.listener_sets,
        )?;
        splice::statuses(&mut statuses.http_routes, &routes.http, &after.statuses.http_routes);
        splice::statuses(&mut statuses.grpc_routes, &routes.grpc, &after.statuses.grpc_routes);
        self.outcome.notices = after.notices;
        Some(())
    }
}

/// Do the routes lead to the same Services with a BackendTLSPolicy as before, on the same Gateways? Then the policies' statuses and the
/// Gateways' profiles are as they were. `None`: they may not be.
fn is_same_for_backends(worlds: &[Snapshot; 2], results: [&Translation; 2]) -> Option<()> {
    if worlds.iter().all(|world| world.backend_tls_policies.is_empty()) {
        return Some(());
    }
    let [before, after] = [0, 1].map(|at| {
        let profiles: BTreeMap<&Key, _> = results[at]
            .gateways
            .iter()
            .filter(|(_, plan)| !plan.routing.backend_tls.is_empty())
            .map(|(key, plan)| (key, (&plan.routing.backend_tls, &plan.routing.authorities)))
            .collect();
        (backend_tls_policy::used(&worlds[at], &results[at].statuses), profiles)
    });
    (before == after).then_some(())
}

/// The plan, with hosts that are those of the old one wherever they are equal.
fn with_shared_hosts(mut plan: GatewayPlan, old: &GatewayPlan) -> GatewayPlan {
    plan.routing.vhosts = plan.routing.vhosts.sharing(&old.routing.vhosts);
    plan
}

/// May a route have a host that one with these hostnames has, too?
fn overlap(route: &HttpRoute, others: &Option<Vec<String>>) -> bool {
    let names = |of: &Option<Vec<String>>| -> Vec<Option<String>> {
        let names: Vec<_> = of.iter().flatten().filter_map(|name| hostname::normal(Some(name))).collect();
        if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() }
    };
    let others = names(others);
    names(&route.spec.hostnames)
        .iter()
        .any(|own| others.iter().any(|other| hostname::intersect(own.as_deref(), other.as_deref()).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_outcome_is_found_and_replaced() {
        let snapshot = Snapshot::default();
        let mut incremental = Incremental::default();
        assert!(incremental.verify(), "nothing was translated yet");
        incremental.update(&snapshot);
        assert!(incremental.verify());
        assert_eq!(incremental.update(&snapshot).extent, Extent::Nothing);
        let last = incremental.last.as_mut().unwrap();
        last.outcome.statuses.ingresses.insert(Key::new("a", "forgotten"), crate::IngressStatus::default());
        assert!(!incremental.verify());
        let outcome = incremental.update(&snapshot);
        assert_eq!(outcome.extent, Extent::Everything);
        assert!(outcome.statuses.ingresses.is_empty());
    }
}
