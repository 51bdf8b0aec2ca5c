//! How many regular expressions a namespace, an object and a Gateway may have.
//!
//! [`Meter`] is asked for each pattern while objects are read, before it is compiled. [`enforce`] takes the finished routing:
//! rules that exceed what a Gateway can match are dropped from it, and their status says so. The oldest keep theirs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::matches::{PathMatch, PathMatchType};
use model::names::ANY_HOST;
use model::routing::{Route, Routing};
use model::{RouteKind, SharedMap};
use router::budget::{Budget, Conditions};
use router::pattern::{self, check};

use crate::attach::gateway_of;
use crate::gateway::Gateway;
use crate::snapshot::{Key, Snapshot, age, oldest_first};
use crate::status::{ACCEPTED, Condition, IngressStatus, PARTIALLY_INVALID, RESOLVED_REFS, RouteStatus};

/// Different patterns of one object.
const MOST_OF_OBJECT: usize = 256;
/// Bytes of the compiled patterns of one object.
const MOST_BYTES_OF_OBJECT: usize = 2 << 20;
/// Bytes of all compiled patterns of one namespace: no tenant uses up what a Gateway has for all.
pub(crate) const MOST_BYTES_OF_ROUTES: usize = 8 << 20;
/// The same for its cache policies.
pub(crate) const MOST_BYTES_OF_POLICIES: usize = 2 << 20;

/// What namespaces and objects have used. The same text counts once for each of them. Patterns that are refused cost time to
/// compile, and count like the largest.
#[derive(Debug)]
pub(crate) struct Meter {
    most_of_namespace: usize,
    namespaces: HashMap<String, Used>,
    object: (Key, Used),
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    /// With the bytes of each.
    texts: HashMap<Box<str>, usize>,
}

impl Used {
    fn add(&mut self, pattern: &str, bytes: usize) {
        if !self.texts.contains_key(pattern) {
            self.texts.insert(pattern.into(), bytes);
            self.bytes += bytes;
        }
    }
}

impl Meter {
    pub(crate) fn new(most_of_namespace: usize) -> Self {
        Self { most_of_namespace, namespaces: HashMap::new(), object: (Key::default(), Used::default()) }
    }

    /// Can ghost use this regular expression of an object? If not, why.
    pub(crate) fn check(&mut self, object: &Key, pattern: &str) -> Result<(), String> {
        if self.object.0 != *object {
            self.object = (object.clone(), Used::default());
        }
        let of_object = &mut self.object.1;
        if !of_object.texts.contains_key(pattern)
            && (of_object.texts.len() >= MOST_OF_OBJECT || of_object.bytes >= MOST_BYTES_OF_OBJECT)
        {
            return Err(format!(
                "too many regular expressions in one object (at most {MOST_OF_OBJECT}, and {MOST_BYTES_OF_OBJECT} bytes \
                 when compiled)"
            ));
        }
        let of_namespace = self.namespaces.entry(object.namespace.clone()).or_default();
        if !of_namespace.texts.contains_key(pattern) && of_namespace.bytes >= self.most_of_namespace {
            return Err(format!(
                "too many regular expressions in namespace {} (at most {} bytes when compiled)",
                object.namespace, self.most_of_namespace
            ));
        }
        let checked = check(pattern);
        let bytes = checked.as_ref().map_or(pattern::LIMIT, |cost| cost.bytes);
        of_object.add(pattern, bytes);
        of_namespace.add(pattern, bytes);
        checked.map(drop).map_err(|error| error.to_string())
    }

    /// Adds what another one has used. False: some namespace may have been refused a pattern, by this one or by one that had used both.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        other.namespaces.iter().all(|(namespace, used)| {
            let own = self.namespaces.entry(namespace.clone()).or_default();
            for (text, bytes) in &used.texts {
                own.add(text, *bytes);
            }
            own.bytes < self.most_of_namespace
        })
    }
}

/// A rule with patterns, on one Gateway.
#[derive(Debug, Default)]
struct Rule {
    hosts: BTreeSet<String>,
    /// By their names.
    listeners: BTreeSet<String>,
    /// Those of its first host; on the others they are the same.
    matches: Vec<Route>,
}

/// Rules by their positions, by the name of their route.
type Rules = HashMap<String, BTreeMap<u32, Rule>>;

/// What Gateways have accepted. `None` for one that has refused something.
pub(crate) type Budgets = BTreeMap<Key, Option<Budget>>;

/// Drops what exceeds the budget of its Gateway.
pub(crate) fn enforce(
    snapshot: &Snapshot,
    gateways: &mut BTreeMap<&Key, Gateway<'_>>,
    http_routes: &mut SharedMap<Key, RouteStatus>,
    grpc_routes: &mut SharedMap<Key, RouteStatus>,
    ingresses: &mut SharedMap<Key, IngressStatus>,
) -> Budgets {
    let mut budgets = Budgets::new();
    for (gateway_key, gateway) in gateways {
        let mut budget = Budget::default();
        let mut within = true;
        let mut closed = Vec::new();
        let http =
            snapshot.http_routes.iter().map(|(key, route)| (key, &route.metadata, &route.spec.hostnames));
        let grpc =
            snapshot.grpc_routes.iter().map(|(key, route)| (key, &route.metadata, &route.spec.hostnames));
        for (kind, mut routes, statuses) in [
            (RouteKind::HttpRoute, http.collect::<Vec<_>>(), &mut *http_routes),
            (RouteKind::GrpcRoute, grpc.collect(), &mut *grpc_routes),
        ] {
            let rules = with_patterns(&gateway.routing, kind);
            if rules.is_empty() {
                continue;
            }
            routes.sort_by_cached_key(|(key, metadata, _)| age(key, metadata));
            for (key, metadata, hostnames) in routes {
                let Some(refused) = refuse(&rules, key, &mut budget) else { continue };
                within = false;
                let all_hosts = hostnames.as_ref().is_none_or(Vec::is_empty);
                let served = close(&mut gateway.routing, kind, key, &refused, all_hosts, &mut closed);
                let generation = metadata.generation.unwrap_or_default();
                let Some(status) = statuses.get_mut(key) else { continue };
                let accepted = tell_route(status, key, gateway_key, snapshot, &refused, served, generation);
                if accepted && !served {
                    detach(gateway, &rules, key);
                }
            }
        }
        let rules = with_patterns(&gateway.routing, RouteKind::Ingress);
        if !rules.is_empty() {
            for (key, ingress) in oldest_first(&snapshot.ingresses, |ingress| &ingress.metadata) {
                let Some(refused) = refuse(&rules, key, &mut budget) else { continue };
                within = false;
                close_paths(&mut gateway.routing, key, &refused, &mut closed);
                let generation = ingress.metadata.generation.unwrap_or_default();
                if let Some(status) = ingresses.get_mut(key) {
                    let why = text(&refused, "http.paths", "503");
                    add(
                        &mut status.conditions,
                        RESOLVED_REFS,
                        false,
                        "TooManyPatterns",
                        "",
                        &why,
                        generation,
                    );
                }
            }
        }
        // After those of all routes: they are wider than the user intended.
        for route in closed {
            let vhost = gateway.routing.vhosts.or_default(&route.hostname);
            if !vhost.routes.contains(&route) {
                vhost.routes.push(route);
            }
        }
        budgets.insert((*gateway_key).clone(), within.then_some(budget));
    }
    budgets
}

/// Takes the rules of a routing out of a budget that has them. The bytes of their patterns stay.
pub(crate) fn give_back(routing: &Routing, budget: &mut Budget) {
    for kind in [RouteKind::HttpRoute, RouteKind::GrpcRoute] {
        for rule in with_patterns(routing, kind).values().flat_map(BTreeMap::values) {
            let hosts: Vec<&str> = rule.hosts.iter().map(String::as_str).collect();
            let matches: Vec<_> = rule.matches.iter().map(conditions).collect();
            budget.remove(&hosts, &matches);
        }
    }
}

/// Adds the rules of these HTTPRoutes or GRPCRoutes to a budget. False: one does not fit.
pub(crate) fn fits(routing: &Routing, routes: &BTreeSet<Key>, kind: RouteKind, budget: &mut Budget) -> bool {
    let rules = with_patterns(routing, kind);
    routes.iter().all(|key| refuse(&rules, key, budget).is_none())
}

fn conditions(route: &Route) -> Conditions<'_> {
    Conditions { path: route.path_match.as_ref(), headers: &route.headers, query_params: &route.query_params }
}

fn has_patterns(route: &Route) -> bool {
    conditions(route).patterns().next().is_some()
}

fn with_patterns(routing: &Routing, kind: RouteKind) -> Rules {
    let mut rules = Rules::new();
    for (host, vhost) in &routing.vhosts {
        for route in vhost.routes.iter().filter(|route| route.kind == kind && has_patterns(route)) {
            let of_route = rules.entry(route.route_name.clone()).or_default();
            let rule = of_route.entry(route.rule_index).or_default();
            rule.hosts.insert(host.clone());
            rule.listeners.extend(route.listener_names.iter().cloned());
            let same = |known: &Route| {
                (&known.path_match, &known.method, &known.headers, &known.query_params)
                    == (&route.path_match, &route.method, &route.headers, &route.query_params)
            };
            if rule.hosts.len() == 1 && !rule.matches.iter().any(same) {
                rule.matches.push(route.clone());
            }
        }
    }
    rules
}

/// The rules of a route that exceed the budget, and why. `None`: there are none.
fn refuse(rules: &Rules, key: &Key, budget: &mut Budget) -> Option<BTreeMap<u32, String>> {
    let mut refused = BTreeMap::new();
    for (index, rule) in rules.get(&key.to_string())? {
        let hosts: Vec<&str> = rule.hosts.iter().map(String::as_str).collect();
        let matches: Vec<_> = rule.matches.iter().map(conditions).collect();
        if let Err(excess) = budget.add(&hosts, &matches) {
            refused.insert(*index, excess.to_string());
        }
    }
    (!refused.is_empty()).then_some(refused)
}

/// Removes rules of an HTTPRoute from the routing: their requests get 500, as far as they can be recognised without patterns. Returns
/// whether another rule of the route is left.
fn close(
    routing: &mut Routing,
    kind: RouteKind,
    key: &Key,
    refused: &BTreeMap<u32, String>,
    all_hosts: bool,
    closed: &mut Vec<Route>,
) -> bool {
    let name = key.to_string();
    let is_of_route = |route: &Route| route.kind == kind && route.route_name == name;
    let is_refused = |route: &Route| is_of_route(route) && refused.contains_key(&route.rule_index);
    let mut served = false;
    for (host, vhost) in routing.vhosts.iter_mut() {
        served |= vhost.routes.iter().any(|route| is_of_route(route) && !is_refused(route));
        let rough = vhost.routes.iter().filter(|route| is_refused(route) && has_patterns(route));
        closed.extend(rough.filter_map(|route| without_patterns(host, route, all_hosts)));
        vhost.routes.retain(|route| !is_refused(route) || !has_patterns(route));
        for route in vhost.routes.iter_mut().filter(|route| is_refused(route)) {
            *route = without_backend(route);
        }
    }
    served
}

/// The same for paths of an Ingress, which get 503. Each of them stands for itself, so those without patterns are left.
fn close_paths(routing: &mut Routing, key: &Key, refused: &BTreeMap<u32, String>, closed: &mut Vec<Route>) {
    let name = key.to_string();
    let is_refused = |route: &Route| {
        route.kind == RouteKind::Ingress
            && route.route_name == name
            && refused.contains_key(&route.rule_index)
            && has_patterns(route)
    };
    for (host, vhost) in routing.vhosts.iter_mut() {
        let rough = vhost.routes.iter().filter(|route| is_refused(route));
        closed.extend(rough.filter_map(|route| without_patterns(host, route, host == ANY_HOST)));
        vhost.routes.retain(|route| !is_refused(route));
    }
}

/// What is left of an entry when its conditions are only a path without a pattern. `None`: it would be every path of
/// every host, and these requests belong to other routes, too.
fn without_patterns(host: &str, route: &Route, all_hosts: bool) -> Option<Route> {
    let path = match &route.path_match {
        Some(path) if path.kind == PathMatchType::RegularExpression => beginning(&path.value),
        Some(path) => path.clone(),
        None => PathMatch::everything(),
    };
    (!all_hosts || path != PathMatch::everything()).then(|| Route {
        hostname: host.to_owned(),
        path_match: Some(path),
        method: None,
        headers: Vec::new(),
        query_params: Vec::new(),
        ..without_backend(route)
    })
}

/// All paths that a pattern can match: the whole elements that they begin with.
fn beginning(pattern: &str) -> PathMatch {
    let beginning = check(pattern).map(|cost| cost.prefix.to_vec()).unwrap_or_default();
    let end = beginning.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
    match std::str::from_utf8(&beginning[..end]) {
        Ok(value) if value.starts_with('/') => {
            PathMatch { kind: PathMatchType::PathPrefix, value: value.to_owned() }
        }
        _ => PathMatch::everything(),
    }
}

fn without_backend(route: &Route) -> Route {
    Route { filters: None, backends: Box::default(), ..route.clone() }
}

/// The route is no longer accepted by the Gateway.
fn detach(gateway: &mut Gateway<'_>, rules: &Rules, key: &Key) {
    let matches = rules.get(&key.to_string()).into_iter().flat_map(BTreeMap::values);
    let names: BTreeSet<&str> = matches.flat_map(|rule| &rule.listeners).map(String::as_str).collect();
    for listener in
        gateway.listeners.iter_mut().filter(|listener| names.contains(listener.routing_name().as_str()))
    {
        listener.attached_routes -= 1;
    }
}

fn text(refused: &BTreeMap<u32, String>, field: &str, status: &str) -> String {
    let one = |(index, why): (&u32, &String)| {
        format!(
            "spec.rules[{index}].{field}: {why} (requests that the rule can be seen to be for get {status})"
        )
    };
    refused.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Returns whether the Gateway had accepted the route.
fn tell_route(
    status: &mut RouteStatus,
    route: &Key,
    gateway: &Key,
    snapshot: &Snapshot,
    refused: &BTreeMap<u32, String>,
    served: bool,
    generation: i64,
) -> bool {
    let why = text(refused, "matches", "500");
    let mut was_accepted = false;
    for parent in &mut status.parents {
        let reference = &parent.parent_ref;
        if gateway_of(reference, &route.namespace, snapshot).as_ref() != Some(gateway) {
            continue;
        }
        let conditions = &mut parent.conditions;
        let is_accepted = |condition: &Condition| condition.kind == ACCEPTED && condition.status;
        let Some(accepted) = conditions.iter_mut().find(|condition| is_accepted(condition)) else { continue };
        was_accepted = true;
        if served {
            let before = "Dropped Rule(s): ";
            add(conditions, PARTIALLY_INVALID, true, "UnsupportedValue", before, &why, generation);
        } else {
            let message = format!("No rule can be served: {why}");
            *accepted = Condition::new(ACCEPTED, false, "UnsupportedValue", message, generation);
            conditions.retain(|condition| condition.kind != PARTIALLY_INVALID);
        }
    }
    was_accepted
}

/// Adds a condition, or to the message of one that is there.
pub(crate) fn add(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: bool,
    reason: &str,
    before: &str,
    why: &str,
    generation: i64,
) {
    match conditions.iter_mut().find(|condition| condition.kind == kind && condition.status == status) {
        Some(known) => {
            let message = format!("{}; {why}", known.message);
            *known = Condition::new(kind, status, &known.reason.clone(), message, generation);
        }
        None => {
            conditions.retain(|condition| condition.kind != kind);
            // Where the Gateway API's own conditions are expected: right behind Accepted.
            let at = conditions.len().min(1);
            conditions.insert(at, Condition::new(kind, status, reason, format!("{before}{why}"), generation));
        }
    }
}
