//! Ingresses: which are ours, which Varnish serves each, what several of them may share, and their part of the routing.
//!
//! Takes what the snapshot has, oldest first: an Ingress that is in conflict with one before it is rejected as a whole, and
//! takes nothing from other Ingresses. So the outcome depends on ages and names, never on the order of events, and a rejected
//! Ingress is taken in as soon as the conflict is gone. Its hosts that no other Ingress has are closed: requests for its paths
//! get 503, and no wider rule serves them.

mod attach;
mod class;
mod closed;
mod made;
mod options;
mod rules;
mod tls;
mod varnish;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::IngressMerge;
use k8s_openapi::api::networking::v1::Ingress;
use model::matches::PathMatch;
use model::names::ANY_HOST;
use model::routing::{Route, Routing, Vhost};
use model::{RouteKind, SharedMap};

pub(crate) use self::made::Made;
pub use self::made::{OWNER_KIND, owner};
pub(crate) use self::options::Options;

use self::class::Ours;
use self::rules::Rules;
use self::tls::Claim;
use self::varnish::Varnishes;
use crate::gateway::Gateway;
use crate::listener::Fault;
use crate::patterns::{MOST_BYTES_OF_ROUTES, Meter};
use crate::refused;
use crate::snapshot::{Key, Snapshot};
use crate::status::{ACCEPTED, Condition, GatewayClassStatus, IngressStatus, RESOLVED_REFS};

/// Adds all Ingresses to the Varnishes that serve them. Returns their statuses, and the Varnishes whose Ingresses do not decide about each
/// other.
pub(crate) fn translate(
    snapshot: &Snapshot,
    made: &Made,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
) -> (SharedMap<Key, IngressStatus>, BTreeSet<Key>) {
    let ours = class::ours(snapshot);
    let varnishes = Varnishes::new(gateways, made, snapshot);
    let mut merged: BTreeMap<Key, Merged<'_>> = BTreeMap::new();
    let mut statuses = SharedMap::new();
    let mut patterns = Meter::new(MOST_BYTES_OF_ROUTES);
    for one in &ours {
        let generation = one.object.metadata.generation.unwrap_or_default();
        let taken = varnishes.choose(one).and_then(|varnish| {
            let gateway = gateways.get(&varnish).ok_or_else(|| gone(&varnish))?;
            let merged = merged.entry(varnish.clone()).or_default();
            let taken = merged.take(one, gateway, snapshot, &mut patterns);
            if taken.is_err() {
                merged.closed.push(*one);
            }
            taken.map(|()| varnish)
        });
        let status = match taken {
            Ok(_) if refused::why(&one.object.metadata).is_some() => {
                let why = refused::why(&one.object.metadata).unwrap_or_default();
                let message = format!("The Ingress cannot be used, so requests for its hosts get 503: {why}");
                let rejected = Condition::new(ACCEPTED, false, "Invalid", message, generation);
                IngressStatus { varnish_service: None, conditions: vec![rejected] }
            }
            Ok(varnish) => {
                let message = format!("Served by Varnish Service {varnish}");
                let accepted = Condition::new(ACCEPTED, true, "Accepted", message, generation);
                IngressStatus { varnish_service: Some(varnish), conditions: vec![accepted] }
            }
            Err(fault) => {
                let rejected = Condition::new(ACCEPTED, false, fault.reason, fault.message, generation);
                IngressStatus { varnish_service: None, conditions: vec![rejected] }
            }
        };
        statuses.insert(one.key.clone(), status);
    }
    let mut plain = BTreeSet::new();
    for (varnish, merged) in merged {
        let Some(gateway) = gateways.get_mut(&varnish) else { continue };
        if merged.is_plain(gateway) {
            plain.insert(varnish);
        }
        let closed = merged.closed_hosts(gateway);
        let faults = merged.write(gateway);
        for (key, hosts) in closed {
            let names = closed::write(&mut gateway.routing, &hosts);
            let rejected = statuses.get_mut(key).and_then(|status| status.conditions.first_mut());
            if let (Some(rejected), false) = (rejected, names.is_empty()) {
                rejected.message.push_str(&closed::told(&names));
            }
        }
        for (key, faults) in faults {
            let Some(status) = statuses.get_mut(key) else { continue };
            let generation = generation(snapshot.ingresses.get(key).map(AsRef::as_ref));
            let Some(first) = faults.first() else { continue };
            let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
            let message = messages.join("; ");
            status.conditions.push(Condition::new(RESOLVED_REFS, false, first.reason, message, generation));
        }
    }
    for gateway in gateways.values_mut().filter(|gateway| gateway.is_varnish_service()) {
        gateway.routing.unready_without_routes = !gateway.ingress_options().ready_without_routes;
        if !gateway.routing.has_routes() {
            // 503 for every request.
            gateway.routing.default = Some(Route { kind: RouteKind::Ingress, ..Route::default() });
        }
    }
    (statuses, plain)
}

/// Of IngressClasses with parameters: whether they have a Varnish.
pub(crate) fn class_statuses(
    snapshot: &Snapshot,
    made: &Made,
    gateways: &BTreeMap<&Key, Gateway<'_>>,
) -> SharedMap<Key, GatewayClassStatus> {
    let status = |(name, meant): (&String, &Result<Key, String>)| {
        let key = Key::cluster(name.as_str());
        let generation = snapshot
            .ingress_classes
            .get(&key)
            .and_then(|class| class.metadata.generation)
            .unwrap_or_default();
        let conditions = match meant {
            Err(why) => {
                let message = format!("spec.parameters {why}");
                vec![Condition::new(ACCEPTED, false, "InvalidParameters", message, generation)]
            }
            Ok(varnish) => match gateways.get(varnish) {
                Some(gateway) if made.gateways.contains_key(varnish) => gateway.status().conditions,
                Some(gateway) if gateway.is_varnish_service() => Vec::new(),
                _ => {
                    let message = format!("spec.parameters names {varnish}, which is no Varnish Service");
                    vec![Condition::new(ACCEPTED, false, "InvalidParameters", message, generation)]
                }
            },
        };
        (key, GatewayClassStatus { conditions })
    };
    made.by_class.iter().map(status).collect()
}

/// The Secrets that Ingresses of ours name, each in the Ingress's own namespace.
pub(crate) fn secrets(snapshot: &Snapshot) -> impl Iterator<Item = Key> {
    class::ours(snapshot).into_iter().flat_map(|one| {
        let tls = one.object.spec.iter().flat_map(|spec| spec.tls.iter().flatten());
        let names = tls.filter_map(|tls| tls.secret_name.as_deref()).filter(|name| !name.is_empty());
        names.map(move |name| Key::new(one.key.namespace.as_str(), name))
    })
}

fn generation(ingress: Option<&Ingress>) -> i64 {
    ingress.and_then(|ingress| ingress.metadata.generation).unwrap_or_default()
}

fn gone(varnish: &Key) -> Fault {
    Fault {
        reason: "NoVarnishService",
        message: format!("Varnish Service {varnish} is not there: create it, or choose another"),
    }
}

/// All Ingresses that one Varnish has taken in.
#[derive(Debug, Default)]
struct Merged<'a> {
    taken: Vec<(&'a Key, Rules)>,
    /// Who has a host. With `same-namespace` several of one namespace may: the first.
    hosts: HashMap<String, &'a Key>,
    default: Option<&'a Key>,
    tls: Vec<Claim<'a>>,
    /// Those that were rejected.
    closed: Vec<Ours<'a>>,
}

impl<'a> Merged<'a> {
    /// Takes it in, or says why not. Then nothing has changed.
    fn take(
        &mut self,
        ours: &Ours<'a>,
        gateway: &Gateway<'_>,
        snapshot: &Snapshot,
        patterns: &mut Meter,
    ) -> Result<(), Fault> {
        let options = gateway.ingress_options();
        let routing = &gateway.routing;
        let wide = is_wide(gateway);
        // A host of one Ingress only may have the routes of another host of it.
        let alone = has_hosts_alone(gateway);
        let shares = |host: &str| alone && host != ANY_HOST && !routing.vhosts.contains_key(host);
        let mut rules = rules::read(ours, options, snapshot, shares, patterns)?;
        let names = tls::names(ours, &rules.hosts);
        rules.unresolved.extend(tls::without_secret(ours, &rules.hosts, &gateway.routing.listeners));
        for rules::Host { name: host, .. } in &rules.hosts {
            self.free(ours.key, host, options)?;
            let has_certificate = || names.iter().any(|(name, _)| name == host);
            let listeners = &gateway.routing.listeners;
            if !wide && attach::attach(listeners, host).is_empty() && !has_certificate() {
                return Err(Fault {
                    reason: "NoMatchingListener",
                    message: format!(
                        "No listener of Gateway {} takes the host {host}: change the hostname of one of them",
                        gateway.key
                    ),
                });
            }
        }
        if rules.default.is_some()
            && let Some(other) = self.default
        {
            return Err(Fault {
                reason: "DefaultBackendConflict",
                message: format!(
                    "Ingress {other} goes first (by age, then by name) and has a default backend already, and a Varnish \
                     Service has one: remove one of them, or choose another Varnish Service"
                ),
            });
        }
        for rules::Host { name, .. } in &rules.hosts {
            self.hosts.entry(name.clone()).or_insert(ours.key);
        }
        if rules.default.is_some() {
            self.default = Some(ours.key);
        }
        let claims = names.into_iter().map(|(host, secret)| Claim { ingress: ours.key, host, secret });
        self.tls.extend(claims);
        self.taken.push((ours.key, rules));
        Ok(())
    }

    /// Do its Ingresses not decide about each other? One comes or goes, and the others are as they were, if it has hosts and certificates
    /// of its own.
    fn is_plain(&self, gateway: &Gateway<'_>) -> bool {
        let is_owners = |claim: &Claim<'_>| self.hosts.get(&claim.host) == Some(&claim.ingress);
        // One without entries has an owner, and is not in the routing.
        let mut hosts = self.taken.iter().flat_map(|(_, rules)| &rules.hosts);
        let is_routed = |host: &rules::Host| host.is_copy || !host.entries.is_empty();
        self.closed.is_empty()
            && has_hosts_alone(gateway)
            && self.tls.iter().all(is_owners)
            && hosts.all(is_routed)
    }

    fn free(&self, key: &Key, host: &str, options: &Options) -> Result<(), Fault> {
        let Some(other) = self.hosts.get(host) else { return Ok(()) };
        let shared = options.merge == IngressMerge::SameNamespace && other.namespace == key.namespace;
        if shared {
            return Ok(());
        }
        let what =
            if host == ANY_HOST { "rules without a host".to_owned() } else { format!("the host {host}") };
        let remedy = match options.merge {
            IngressMerge::DistinctHosts if other.namespace == key.namespace => {
                "put all its paths into one Ingress, or set ingress.merge: same-namespace in GatewayClassParameters"
            }
            _ => "take another host, or remove it from one of them",
        };
        Err(Fault {
            reason: "HostConflict",
            message: format!(
                "Ingress {other} goes first (by age, then by name) and has {what} already: {remedy}"
            ),
        })
    }

    /// Hosts of rejected Ingresses that no other Ingress has, or only one that they may share them with. Where nothing was taken
    /// in, every request gets 503 already.
    fn closed_hosts(&self, gateway: &Gateway<'_>) -> Vec<(&'a Key, Vec<rules::Host>)> {
        if self.taken.is_empty() && !gateway.routing.has_routes() {
            return Vec::new();
        }
        let options = gateway.ingress_options();
        let of_ingress = |ours: &Ours<'a>| {
            let mut hosts = closed::hosts(ours, options);
            hosts.retain(|host| self.free(ours.key, &host.name, options).is_ok());
            (ours.key, hosts)
        };
        self.closed.iter().map(of_ingress).collect()
    }

    /// Writes everything into the Varnish's routing, and returns the faults of each Ingress.
    fn write(mut self, gateway: &mut Gateway<'_>) -> BTreeMap<&'a Key, Vec<Fault>> {
        let mut faults: BTreeMap<&Key, Vec<Fault>> = BTreeMap::new();
        // The owner of a host owns the name in TLS: no other namespace gives a certificate for it.
        let hosts = &self.hosts;
        let claims = std::mem::take(&mut self.tls);
        self.tls = tls::own(claims, hosts, &gateway.routing, |ingress, message| {
            faults.entry(ingress).or_default().push(Fault { reason: "HostConflict", message });
        });
        for (key, fault) in tls::write(gateway, &self.tls) {
            faults.entry(key).or_default().push(fault);
        }
        for (key, rules) in &mut self.taken {
            if !rules.unresolved.is_empty() {
                faults.entry(*key).or_default().append(&mut rules.unresolved);
            }
        }
        if gateway.ingress_options().merge == IngressMerge::SameNamespace {
            for (key, fault) in repeated(&self.taken) {
                faults.entry(key).or_default().push(fault);
            }
        }
        let default = self.taken.iter().find_map(|(_, rules)| rules.default.clone());
        // As when it was taken in.
        let alone = has_hosts_alone(gateway);
        let routing = &mut gateway.routing;
        for (_, rules) in &mut self.taken {
            if alone {
                share(&mut rules.hosts, routing);
            }
        }
        for rules::Host { name: host, entries, .. } in
            self.taken.into_iter().flat_map(|(_, rules)| rules.hosts)
        {
            // A host without paths is the default backend's, whatever wildcard holds it.
            let entries = match (entries.is_empty(), &default) {
                (false, _) => entries,
                (true, Some(default)) => vec![everything(default, &host)],
                (true, None) => continue,
            };
            for attached in attach::attach(&routing.listeners, &host) {
                let with = |entry: Route| Route {
                    hostname: attached.host.clone(),
                    listeners: attached.sockets.clone(),
                    listener_names: attached.names.clone(),
                    ..entry
                };
                let routes = &mut routing.vhosts.or_default(&attached.host).routes;
                routes.extend(entries.iter().cloned().map(with));
            }
        }
        routing.default = default;
        faults
    }
}

/// Do all its listeners take all hosts?
fn is_wide(gateway: &Gateway<'_>) -> bool {
    gateway.routing.listeners.iter().all(|listener| listener.hostname.is_none())
}

/// Does a host belong to one Ingress alone, by all listeners?
fn has_hosts_alone(gateway: &Gateway<'_>) -> bool {
    gateway.ingress_options().merge == IngressMerge::DistinctHosts && is_wide(gateway)
}

/// Where several may have one host: paths that an older one has for another backend.
fn repeated<'a>(taken: &[(&'a Key, Rules)]) -> Vec<(&'a Key, Fault)> {
    let mut first: HashMap<(&str, &PathMatch), (&Key, &Route)> = HashMap::new();
    let mut faults = Vec::new();
    let hosts = taken.iter().flat_map(|(key, rules)| rules.hosts.iter().map(move |host| (*key, host)));
    for (key, host) in hosts {
        for entry in &host.entries {
            let Some(path) = &entry.path_match else { continue };
            let (owner, older) = *first.entry((&host.name, path)).or_insert((key, entry));
            if owner != key && rules::leads_elsewhere(older, entry) {
                let here = format!("spec.rules[{}]", entry.rule_index);
                let fault = rules::twice(&here, entry, &format!("Ingress {owner}"));
                faults.extend(fault.map(|fault| (key, fault)));
            }
        }
    }
    faults
}

/// Takes the hosts away that have the same paths and backends as the first, and names it instead: files with thousands of
/// hosts stay small.
fn share(hosts: &mut Vec<rules::Host>, routing: &mut Routing) {
    let same =
        |one: &Route, two: &Route| one.path_match == two.path_match && !rules::leads_elsewhere(one, two);
    let Some((first, others)) = hosts.split_first_mut() else { return };
    if first.entries.is_empty() || routing.vhosts.contains_key(&first.name) {
        return;
    }
    for host in others.iter_mut().filter(|host| !host.is_copy) {
        let pairs = || host.entries.iter().zip(&first.entries);
        host.is_copy = host.entries.len() == first.entries.len()
            && pairs().all(|(a, b)| same(a, b))
            && host.name != ANY_HOST
            && !routing.vhosts.contains_key(&host.name);
    }
    let first = first.name.clone();
    for host in hosts.extract_if(.., |host| host.is_copy) {
        routing.vhosts.insert(host.name, Vhost { same_as: Some(first.clone()), ..Vhost::default() });
    }
}

fn everything(default: &Route, host: &str) -> Route {
    Route { hostname: host.to_owned(), path_match: Some(PathMatch::everything()), ..default.clone() }
}
