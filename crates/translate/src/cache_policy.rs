//! VarnishCachePolicies: each finds its target, and the entries of routing.json that it is for.
//!
//! The policy that a rule names itself, by a filter of type ExtensionRef, goes before all others. The policy of a rule replaces that of its route, which replaces that of the Gateway, as a whole. Of several policies for
//! one target the oldest counts, also if it cannot be used: it is unknown which responses it must not mix, so its target is
//! not cached at all. If the target of a policy cannot be read, nothing that it may target is cached.

mod read;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use api::{AncestorRef, PolicyTargetRef, VarnishCachePolicy};
use gateway_api::experimental::httproutes::HttpRoute;
use model::names::API_GROUP;
use model::routing::Route;
use model::{CachePolicy, RouteKind, SharedMap};
use router::budget::Budget;

use crate::attach::gateway_of;
use crate::gateway::Gateway;
use crate::listener::{Fault, GATEWAY_API_GROUP};
use crate::patterns::{MOST_BYTES_OF_POLICIES, Meter};
use crate::refused;
use crate::snapshot::{Key, Snapshot, oldest_first};
use crate::status::{ACCEPTED, AncestorStatus, Condition, IngressStatus, PolicyStatus};

/// The API server takes no more.
const MOST_ANCESTORS: usize = 16;

/// What a policy is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Target {
    Gateway(Key),
    Route(Key),
    /// By its name.
    Rule(Key, String),
    Ingress(Key),
    /// A GRPCRoute, of which nothing is ever cached.
    Calls(Key),
    /// The rule at this position, which names the policy itself.
    Naming(Key, u32),
    /// Every possible target in this namespace, because targetRef cannot be read. Empty: in all namespaces.
    Namespace(String),
}

/// Writes all policies into the routing of our Gateways, and returns their statuses.
pub(crate) fn translate(
    snapshot: &Snapshot,
    ingresses: &SharedMap<Key, IngressStatus>,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
) -> SharedMap<Key, PolicyStatus> {
    let mut in_force: BTreeMap<Target, (&Key, Option<CachePolicy>)> = BTreeMap::new();
    let mut doubtful = BTreeSet::new();
    let mut statuses = SharedMap::new();
    let mut patterns = Meter::new(MOST_BYTES_OF_POLICIES);
    // Those with patterns, oldest first.
    let mut limited: Vec<(&Key, &VarnishCachePolicy)> = Vec::new();
    let mut naming = naming(snapshot);
    let policies = oldest_first(&snapshot.cache_policies, |policy| &policy.metadata);
    let policies = policies.into_iter().flat_map(|(key, policy)| {
        let own = policy.spec.target_ref.as_ref().map(|reference| target(key, reference));
        let targets = own.into_iter().chain(naming.remove(key).unwrap_or_default());
        targets.map(move |target| (key, policy, target))
    });
    let mut known: Option<(&Key, Result<CachePolicy, Fault>)> = None;
    for (key, policy, target) in policies {
        let ancestors = match ancestors(&target, snapshot, ingresses, gateways) {
            Ok(ancestors) if ancestors.is_empty() && !matches!(target, Target::Namespace(_)) => continue,
            Ok(ancestors) => ancestors,
            Err(fault) => {
                if let Some(status) = not_found(key, policy, &fault) {
                    add_status(&mut statuses, key, status);
                }
                continue;
            }
        };
        let usable = match refused::why(&policy.metadata) {
            Some(why) => Err(refusal(&target, why)),
            None => find(&target, snapshot).and_then(|()| match &known {
                Some((of, read)) if *of == key => read.clone(),
                _ => {
                    let read = read::policy(key, &policy.spec, &mut patterns);
                    known.insert((key, read)).1.clone()
                }
            }),
        };
        let verdict = usable.and_then(|read| {
            match in_force.get(&target) {
                Some((older, _)) => Err(Fault {
                    reason: "Conflicted",
                    message: format!(
                        "VarnishCachePolicy {older} is older and has the same target: remove one of them, or change its \
                         targetRef"
                    ),
                }),
                None => Ok(read),
            }
        });
        let status = |gateway: Key| {
            let is_by_varnishd = gateways.get(&gateway).is_some_and(|gateway| !gateway.routing.http_in_front);
            AncestorStatus {
                ancestor_ref: match &target {
                    // The Ingress may be served by a Varnish without a Gateway object.
                    Target::Ingress(key) => reference("Ingress", key, None),
                    _ => reference("Gateway", &gateway, None),
                },
                conditions: conditions(policy, &target, &verdict, is_by_varnishd),
            }
        };
        let ancestors = ancestors.into_iter().take(MOST_ANCESTORS).map(status).collect();
        add_status(&mut statuses, key, PolicyStatus { ancestors });
        match verdict {
            Ok(read) => {
                let is_new = limited.last().is_none_or(|(last, _)| *last != key);
                if is_new && bypass_patterns(&read).next().is_some() {
                    limited.push((key, policy));
                }
                in_force.insert(target, (key, Some(read)));
            }
            // It is unknown what it was to keep apart: its target bypasses the cache, even if a wider policy applies.
            Err(fault) if fault.reason == "Invalid" => drop(in_force.entry(target).or_insert((key, None))),
            Err(fault) => match target {
                // It may be meant for any of them.
                Target::Rule(route, _) if fault.reason == "TargetNotFound" => drop(doubtful.insert(route)),
                _ => {}
            },
        }
    }
    if !in_force.is_empty() || !doubtful.is_empty() {
        let force = Force::new(&in_force, &doubtful);
        for gateway in gateways.values_mut() {
            let refused = force.exceeding(gateway, &limited);
            force.write(gateway, &refused);
            for (key, why) in refused {
                let policy = limited.iter().find(|(limited, _)| *limited == key);
                let (Some(status), Some((_, policy))) = (statuses.get_mut(key), policy) else { continue };
                tell_excess(status, gateway.key, policy, &why);
            }
        }
    }
    statuses
}

/// The rules that name a policy by a filter of type ExtensionRef, by policy.
fn naming(snapshot: &Snapshot) -> BTreeMap<Key, Vec<Target>> {
    let mut naming: BTreeMap<Key, Vec<Target>> = BTreeMap::new();
    for (key, route) in &snapshot.http_routes {
        for (index, rule) in (0..).zip(route.spec.rules.iter().flatten()) {
            let references = rule.filters.iter().flatten().filter_map(|filter| filter.extension_ref.as_ref());
            for reference in references.filter(|reference| is_policy(&reference.group, &reference.kind)) {
                let policy = Key::new(key.namespace.as_str(), reference.name.as_str());
                let (target, targets) =
                    (Target::Naming(key.clone(), index), naming.entry(policy).or_default());
                // A rule that names it twice is refused.
                if targets.last() != Some(&target) {
                    targets.push(target);
                }
            }
        }
    }
    naming
}

/// Does an ExtensionRef mean a VarnishCachePolicy?
pub(crate) fn is_policy(group: &str, kind: &str) -> bool {
    group == API_GROUP && kind == "VarnishCachePolicy"
}

/// Why a rule cannot use the policy that it names, if so: its requests get 500.
pub(crate) fn check(key: &Key, snapshot: &Snapshot) -> Result<(), Fault> {
    let Some(policy) = snapshot.cache_policies.get(key) else {
        return Err(Fault {
            reason: "BackendNotFound",
            message: format!(
                "VarnishCachePolicy {key} does not exist: create it in the route's namespace, or correct the name"
            ),
        });
    };
    let read = match refused::why(&policy.metadata) {
        Some(why) => Err(why.to_owned()),
        None => read::policy(key, &policy.spec, &mut Meter::new(MOST_BYTES_OF_POLICIES))
            .map(drop)
            .map_err(|fault| fault.message),
    };
    read.map_err(|why| Fault {
        reason: "UnsupportedValue",
        message: format!("VarnishCachePolicy {key} cannot be used: {why}"),
    })
}

/// A policy may have several targets: a problem with one of them is reported for its Gateway.
fn add_status(statuses: &mut SharedMap<Key, PolicyStatus>, key: &Key, status: PolicyStatus) {
    let Some(there) = statuses.get_mut(key) else {
        statuses.insert(key.clone(), status);
        return;
    };
    for ancestor in status.ancestors {
        let is_bad = ancestor.conditions.iter().any(|condition| !condition.status);
        let place = there.ancestors.iter().position(|one| one.ancestor_ref == ancestor.ancestor_ref);
        match place {
            Some(at) if is_bad => there.ancestors[at] = ancestor,
            None if there.ancestors.len() < MOST_ANCESTORS => there.ancestors.push(ancestor),
            Some(_) | None => {}
        }
    }
}

fn bypass_patterns(policy: &CachePolicy) -> impl Iterator<Item = &str> {
    policy.bypass_headers.iter().filter_map(|header| header.value_regex.as_deref())
}

/// Says of a policy that its target is not cached on this Gateway.
fn tell_excess(status: &mut PolicyStatus, gateway: &Key, policy: &VarnishCachePolicy, why: &str) {
    let message =
        format!("spec.bypass.headers: {why}; until then its target is not cached on Gateway {gateway}");
    let generation = policy.metadata.generation.unwrap_or_default();
    for ancestor in &mut status.ancestors {
        let reference = &ancestor.ancestor_ref;
        // An Ingress has one Varnish.
        let is_ingress = reference.kind.as_deref() == Some("Ingress");
        let is_gateway = reference.name == gateway.name
            && reference.namespace.as_deref() == Some(gateway.namespace.as_str());
        if is_ingress || is_gateway {
            ancestor.conditions =
                vec![Condition::new(ACCEPTED, false, "TooManyPatterns", message.as_str(), generation)];
        }
    }
}

/// The message for a stand-in.
fn refusal(target: &Target, why: &str) -> Fault {
    let closed = match target {
        Target::Namespace(namespace) if namespace.is_empty() => {
            "nothing is cached in any namespace".to_owned()
        }
        Target::Namespace(namespace) => {
            format!("nothing that a policy of namespace {namespace} may target is cached")
        }
        _ => "its target is not cached".to_owned(),
    };
    Fault { reason: "Invalid", message: format!("The policy cannot be used, so {closed}: {why}") }
}

fn target(key: &Key, reference: &PolicyTargetRef) -> Target {
    let target = Key::new(key.namespace.as_str(), reference.name.as_str());
    match (reference.kind.as_str(), &reference.section_name) {
        ("", _) => Target::Namespace(key.namespace.clone()),
        ("Gateway", _) => Target::Gateway(target),
        ("Ingress", _) => Target::Ingress(target),
        ("GRPCRoute", _) => Target::Calls(target),
        (_, None) => Target::Route(target),
        (_, Some(rule)) => Target::Rule(target, rule.clone()),
    }
}

/// Our Gateways that the target is, or is attached to. None: it belongs to another controller.
fn ancestors(
    target: &Target,
    snapshot: &Snapshot,
    ingresses: &SharedMap<Key, IngressStatus>,
    gateways: &BTreeMap<&Key, Gateway<'_>>,
) -> Result<BTreeSet<Key>, Fault> {
    let missing = |kind: &str, key: &Key| Fault {
        reason: "TargetNotFound",
        message: format!(
            "spec.targetRef names {kind} {key}, which does not exist: create it in the policy's namespace, or correct \
             the reference"
        ),
    };
    match target {
        Target::Gateway(key) if gateways.contains_key(key) => Ok([key.clone()].into()),
        Target::Gateway(key) if snapshot.gateways.contains_key(key) => Ok(BTreeSet::new()),
        Target::Gateway(key) => Err(missing("Gateway", key)),
        Target::Ingress(key) if ingresses.contains_key(key) => Ok([key.clone()].into()),
        Target::Ingress(key) if snapshot.ingresses.contains_key(key) => Ok(BTreeSet::new()),
        Target::Ingress(key) => Err(missing("Ingress", key)),
        Target::Calls(key) => Err(Fault {
            reason: "Invalid",
            message: format!(
                "spec.targetRef names GRPCRoute {key}, and calls of gRPC are never cached: remove the policy, or name a Gateway, an \
                 HTTPRoute or an Ingress"
            ),
        }),
        Target::Route(key) | Target::Rule(key, _) | Target::Naming(key, _) => {
            let route = snapshot.http_routes.get(key).ok_or_else(|| missing("HTTPRoute", key))?;
            Ok(parents(key, route, snapshot).filter(|gateway| gateways.contains_key(gateway)).collect())
        }
        Target::Namespace(namespace) => {
            let within = |key: &Key| namespace.is_empty() || key.namespace == *namespace;
            let routes = snapshot.http_routes.iter().filter(|(key, _)| within(key));
            let of_routes = routes.flat_map(|(key, route)| parents(key, route, snapshot));
            let own = gateways.keys().map(|key| (*key).clone()).filter(within);
            Ok(of_routes.filter(|gateway| gateways.contains_key(gateway)).chain(own).collect())
        }
    }
}

fn parents(key: &Key, route: &HttpRoute, snapshot: &Snapshot) -> impl Iterator<Item = Key> {
    route.spec.parent_refs.iter().flatten().filter_map(|parent| gateway_of(parent, &key.namespace, snapshot))
}

/// Whether the rule is there, where the target is one.
fn find(target: &Target, snapshot: &Snapshot) -> Result<(), Fault> {
    let Target::Rule(key, rule) = target else { return Ok(()) };
    let Some(route) = snapshot.http_routes.get(key) else { return Ok(()) };
    let rules = route.spec.rules.iter().flatten();
    let names: Vec<&str> = rules.filter_map(|rule| rule.name.as_deref()).collect();
    if names.contains(&rule.as_str()) {
        return Ok(());
    }
    let there = if names.is_empty() { "none of them has a name".to_owned() } else { names.join(", ") };
    Err(Fault {
        reason: "TargetNotFound",
        message: format!(
            "HTTPRoute {key} has no rule named {rule} (rules: {there}), so those of its rules that have no policy of \
             their own are not cached: correct spec.targetRef.sectionName, or name the rule"
        ),
    })
}

fn conditions(
    policy: &VarnishCachePolicy,
    target: &Target,
    verdict: &Result<CachePolicy, Fault>,
    is_by_varnishd: bool,
) -> Vec<Condition> {
    let generation = policy.metadata.generation.unwrap_or_default();
    match verdict {
        Ok(read) => {
            let mut message = match target {
                Target::Naming(route, _) => {
                    format!("The policy applies to rules that name it, of HTTPRoute {route}")
                }
                _ => "The policy applies to its target".to_owned(),
            };
            if read.keep_posts && is_by_varnishd {
                message.push_str(
                    "; POST in spec.methods has no effect on this Gateway, whose HTTP goes through varnishd (dataPath: \
                     Varnish, user VCL, or logs of varnishd)",
                );
            }
            vec![Condition::new(ACCEPTED, true, "Accepted", message, generation)]
        }
        Err(fault) => vec![Condition::new(ACCEPTED, false, fault.reason, &fault.message, generation)],
    }
}

/// A target that does not exist has no Gateway: the status names the target itself.
fn not_found(key: &Key, policy: &VarnishCachePolicy, fault: &Fault) -> Option<PolicyStatus> {
    let target = policy.spec.target_ref.as_ref()?;
    let generation = policy.metadata.generation.unwrap_or_default();
    let named = Key::new(key.namespace.as_str(), target.name.as_str());
    Some(PolicyStatus {
        ancestors: vec![AncestorStatus {
            ancestor_ref: reference(&target.kind, &named, target.section_name.clone()),
            conditions: vec![Condition::new(ACCEPTED, false, fault.reason, &fault.message, generation)],
        }],
    })
}

fn reference(kind: &str, key: &Key, section_name: Option<String>) -> AncestorRef {
    AncestorRef {
        group: Some(if kind == "Ingress" { "networking.k8s.io" } else { GATEWAY_API_GROUP }.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(key.namespace.clone()),
        name: key.name.clone(),
        section_name,
    }
}

/// All policies in force, by what they are for as routing.json names it.
struct Force<'a> {
    gateways: HashMap<&'a Key, Directions<'a>>,
    routes: HashMap<String, OfRoute<'a>>,
    ingresses: HashMap<String, Directions<'a>>,
    /// Nothing of theirs is cached. An empty one stands for all.
    closed: HashSet<&'a str>,
}

/// The policy and its name. `None`: bypasses the cache.
type Directions<'a> = Option<(&'a Key, &'a CachePolicy)>;

#[derive(Default)]
struct OfRoute<'a> {
    whole: Option<Directions<'a>>,
    rules: HashMap<&'a str, Directions<'a>>,
    /// By position, of those that name their policy.
    naming: HashMap<u32, Directions<'a>>,
    /// A policy is for a rule that is not there: it may be meant for any.
    is_doubtful: bool,
}

impl<'a> Force<'a> {
    fn new(
        in_force: &'a BTreeMap<Target, (&'a Key, Option<CachePolicy>)>,
        doubtful: &'a BTreeSet<Key>,
    ) -> Self {
        let mut force = Self {
            gateways: HashMap::new(),
            routes: HashMap::new(),
            ingresses: HashMap::new(),
            closed: HashSet::new(),
        };
        for route in doubtful {
            force.routes.entry(route.to_string()).or_default().is_doubtful = true;
        }
        for (target, (key, policy)) in in_force {
            let policy = policy.as_ref().map(|policy| (*key, policy));
            match target {
                Target::Gateway(key) => drop(force.gateways.insert(key, policy)),
                Target::Ingress(key) => drop(force.ingresses.insert(key.to_string(), policy)),
                Target::Route(key) => force.routes.entry(key.to_string()).or_default().whole = Some(policy),
                Target::Rule(key, rule) => {
                    force.routes.entry(key.to_string()).or_default().rules.insert(rule, policy);
                }
                Target::Naming(key, rule) => {
                    force.routes.entry(key.to_string()).or_default().naming.insert(*rule, policy);
                }
                Target::Namespace(namespace) => drop(force.closed.insert(namespace)),
                // Refused.
                Target::Calls(_) => {}
            }
        }
        force
    }

    /// The policy of an entry of a Gateway. `None`: keep the entry unchanged.
    fn directions(&self, gateway: &Key, route: &Route) -> Option<Directions<'a>> {
        let is_closed = |namespace: &str| self.closed.contains(namespace) || self.closed.contains("");
        let namespace = route.route_name.split('/').next().unwrap_or_default();
        if !self.closed.is_empty() && is_closed(namespace) {
            return Some(None);
        }
        let of_gateway =
            if is_closed(&gateway.namespace) { Some(None) } else { self.gateways.get(gateway).copied() };
        if route.kind == RouteKind::Ingress {
            // Without a policy the origin decides; the entry already says so.
            return self.ingresses.get(&route.route_name).copied().or(of_gateway);
        }
        // Calls of gRPC are never cached.
        if route.kind == RouteKind::GrpcRoute {
            return None;
        }
        // A redirect is made for each request: there is nothing to keep.
        if route.redirects() {
            return None;
        }
        let of_route = self.routes.get(&route.route_name);
        let of_rule = of_route.zip(route.rule_name.as_deref()).and_then(|(of, name)| of.rules.get(name));
        let doubt = of_route.filter(|of| of.is_doubtful).map(|_| None);
        let named = of_route.and_then(|of| of.naming.get(&route.rule_index));
        let policy = named.or(of_rule).copied().or(doubt).or_else(|| of_route?.whole).or(of_gateway);
        Some(policy.flatten())
    }

    /// The policies whose patterns a Gateway has no room for, and why. The oldest keep theirs.
    fn exceeding(
        &self,
        gateway: &Gateway<'_>,
        limited: &[(&'a Key, &VarnishCachePolicy)],
    ) -> BTreeMap<&'a Key, String> {
        if limited.is_empty() {
            return BTreeMap::new();
        }
        let routing = &gateway.routing;
        let routes = routing.vhosts.values().flat_map(|vhost| &vhost.routes).chain(&routing.default);
        let used: HashMap<&Key, &CachePolicy> =
            routes.filter_map(|route| self.directions(gateway.key, route).flatten()).collect();
        let mut budget = Budget::default();
        let excess = |(key, _): &(&'a Key, &VarnishCachePolicy)| {
            let policy = used.get(key)?;
            let excess = budget.add_bypass(bypass_patterns(policy)).err()?;
            Some((*key, excess.to_string()))
        };
        limited.iter().filter_map(excess).collect()
    }

    /// Fails closed: nothing is cached that a policy without room for its patterns is for.
    fn write(&self, gateway: &mut Gateway<'_>, refused: &BTreeMap<&Key, String>) {
        let routing = &mut gateway.routing;
        for route in
            routing.vhosts.values_mut().flat_map(|vhost| &mut vhost.routes).chain(&mut routing.default)
        {
            if let Some(policy) = self.directions(gateway.key, route) {
                let policy = policy.filter(|(key, _)| !refused.contains_key(key));
                route.cache_policy = policy.map(|(_, policy)| Box::new(policy.clone()));
            }
        }
    }
}
