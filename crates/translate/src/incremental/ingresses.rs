//! Changed Ingresses, translated alone.
//!
//! Only those that no other object depends on: each has hosts of its own, and asks for nothing that Ingresses of one Varnish share (a default
//! backend, certificates, room for regular expressions). Functions here return `None` where that may not hold; then everything is translated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::networking::v1::Ingress;
use model::SharedMap;
use model::matches::PathMatchType;
use model::names::ANY_HOST;
use model::routing::Vhost;

use super::world::{self, Tables};
use super::{Last, splice};
use crate::snapshot::{Key, Snapshot};
use crate::status::IngressStatus;
use crate::{GatewayPlan, Translation, external_name, hostname, refused, translate_noting};

type Hosts = SharedMap<String, Vhost>;

/// Puts what these Ingresses are now in the place of what they were. `tables` are those of before and of now.
pub(super) fn carry_over(
    last: &mut Last,
    new: &Snapshot,
    changed: &BTreeSet<Key>,
    tables: [&Tables; 2],
) -> Option<()> {
    let worlds = [(&last.snapshot, tables[0]), (new, tables[1])].map(|(snapshot, tables)| {
        are_alone(changed, snapshot, tables)?;
        Some(world::of_ingresses(snapshot, changed, &last.noted.for_ingresses, tables))
    });
    let [Some(before), Some(after)] = worlds else { return None };
    let [before, after] = [translate_noting(&before).0, translate_noting(&after).0];
    differ_in_nothing_else(&before, &after)?;
    for statuses in [&before.statuses.ingresses, &after.statuses.ingresses] {
        if !statuses.values().all(is_accepted) {
            return None;
        }
    }
    // By themselves they were what they were among all others.
    let known = &last.outcome.statuses.ingresses;
    if changed.iter().any(|key| known.get(key) != before.statuses.ingresses.get(key)) {
        return None;
    }
    let mut plans = BTreeMap::new();
    for (key, was) in &before.gateways {
        let (old, now) = (&was.routing.vhosts, &after.gateways.get(key)?.routing.vhosts);
        if old.is_empty() && now.is_empty() {
            continue;
        }
        // Even with the same hosts: another age may decide about others.
        let is_plain =
            last.noted.plain_varnishes.contains(key) && matches!(last.noted.budgets.get(key), Some(Some(_)));
        if !is_plain || has_patterns(old) || has_patterns(now) {
            return None;
        }
        if old == now {
            continue;
        }
        let plan = last.outcome.gateways.get(key)?;
        let mut changed = GatewayPlan::clone(plan);
        changed.routing.vhosts = replaced(&plan.routing.vhosts, old, now)?;
        plans.insert(key.clone(), Arc::new(changed));
    }
    last.outcome.gateways.extend(plans);
    splice::statuses(&mut last.outcome.statuses.ingresses, changed, &after.statuses.ingresses);
    last.outcome.notices.extend(after.notices);
    Some(())
}

/// Do these Ingresses ask for nothing that they share with others, as far as the objects show?
fn are_alone(ingresses: &BTreeSet<Key>, snapshot: &Snapshot, tables: &Tables) -> Option<()> {
    let there = ingresses.iter().filter_map(|key| Some((key, snapshot.ingresses.get(key)?)));
    for (key, ingress) in there {
        let spec = ingress.spec.as_ref()?;
        let rules = spec.rules.as_deref().unwrap_or_default();
        let has_own_hosts = rules.iter().all(|rule| {
            let host = hostname::normal(rule.host.as_deref());
            let has_paths = rule.http.as_ref().is_some_and(|http| !http.paths.is_empty());
            has_paths && host.is_some_and(|host| host != ANY_HOST)
        });
        let is_special = |service: &Key| {
            tables.tls_by_service.contains_key(service)
                || snapshot.services.get(service).is_some_and(|one| external_name::host(one).is_some())
        };
        let is_alone = refused::why(&ingress.metadata).is_none()
            && spec.default_backend.is_none()
            && spec.tls.as_ref().is_none_or(Vec::is_empty)
            && has_own_hosts
            && !tables.ingresses_with_policies.contains(key)
            && !services(key, ingress).any(|service| is_special(&service));
        if !is_alone {
            return None;
        }
    }
    Some(())
}

/// The Services that an Ingress names.
pub(super) fn services<'a>(key: &'a Key, ingress: &'a Ingress) -> impl Iterator<Item = Key> + 'a {
    let spec = ingress.spec.iter();
    let backends = spec.flat_map(|spec| {
        let rules = spec.rules.iter().flatten().filter_map(|rule| rule.http.as_ref());
        let of_rules = rules.flat_map(|http| &http.paths).map(|path| &path.backend);
        spec.default_backend.iter().chain(of_rules)
    });
    backends
        .filter_map(|backend| backend.service.as_ref())
        .map(|service| Key::new(key.namespace.as_str(), service.name.as_str()))
}

/// Are plans and statuses the same, but for hosts and for Ingresses?
fn differ_in_nothing_else(before: &Translation, after: &Translation) -> Option<()> {
    let rest = |plan: &GatewayPlan| {
        let mut rest = plan.clone();
        rest.routing.vhosts = Hosts::new();
        // 503 for everything, where there are no hosts.
        rest.routing.default = None;
        rest
    };
    let same_plans = before.gateways.keys().eq(after.gateways.keys())
        && before.gateways.values().zip(after.gateways.values()).all(|(a, b)| rest(a) == rest(b));
    let (a, b) = (&before.statuses, &after.statuses);
    let same_statuses = a.gateways == b.gateways
        && a.listener_sets == b.listener_sets
        && a.ingress_classes == b.ingress_classes
        && a.gateway_classes == b.gateway_classes
        && a.cache_policies == b.cache_policies;
    (same_plans && same_statuses).then_some(())
}

/// By nothing but `Accepted`, which is true.
fn is_accepted(status: &IngressStatus) -> bool {
    matches!(&status.conditions[..], [accepted] if accepted.status)
}

fn has_patterns(hosts: &Hosts) -> bool {
    hosts.values().flat_map(|host| &host.routes).any(|route| {
        route.path_match.as_ref().is_some_and(|path| path.kind == PathMatchType::RegularExpression)
    })
}

/// All hosts, with `now` in the place of `old`. No other Ingress may have one of them, before and after.
fn replaced(all: &Hosts, old: &Hosts, now: &Hosts) -> Option<Hosts> {
    let mut replaced = all.clone();
    for (name, host) in old {
        if all.get(name) != Some(host) {
            return None;
        }
        replaced.remove(name);
    }
    for (name, host) in now {
        if replaced.insert(name.clone(), host.clone()).is_some() {
            return None;
        }
    }
    // The first and the last host of a Varnish change more than hosts.
    (!all.is_empty() && !replaced.is_empty()).then_some(replaced)
}
