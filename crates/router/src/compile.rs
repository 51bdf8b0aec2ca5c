//! ghost.json into tables.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use model::ghost::{Config, Route};
use model::host::HostPattern;
use model::names::ANY_HOST;
use model::{CachePolicy, RouteKind, WrongVersion, check_version};

use crate::budget::{Budget, Conditions, Excess};
use crate::cache::Cache;
use crate::certificates::Certificates;
use crate::digest::Digests;
use crate::forwarded::TrustedProxies;
use crate::group::Turns;
use crate::host::{Covered, HostTable, listener_pattern, normal_hostname};
use crate::path;
use crate::rule::Rule;
use crate::table::{Base, HostRules, Listener, ListenerTable, Router};

/// A router, and what had to be left out of it.
#[derive(Debug)]
pub struct Compiled {
    pub router: Router,
    pub problems: Vec<Problem>,
}

/// One entry that cannot be carried out. All others keep working.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `HTTPRoute default/shop, rule 2`, or the part of the file that is meant.
    pub object: String,
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.object, self.message)
    }
}

impl Router {
    /// Refuses a file of another version; leaves out single entries that are not valid.
    pub fn compile(config: &Config) -> Result<Compiled, WrongVersion> {
        check_version("ghost.json", config.version)?;
        let mut problems = Vec::new();
        let trusted_proxies = TrustedProxies::parse(&config.trusted_proxies).unwrap_or_else(|e| {
            problems.push(Problem { object: "trusted_proxies".to_owned(), message: e.to_string() });
            TrustedProxies::default()
        });
        let mut building = Building::new(config);
        let shared: HashSet<&str> = config.vhosts.values().filter_map(|v| v.same_as.as_deref()).collect();
        let mut ids: HashMap<&str, Vec<(u32, &Route)>> = HashMap::new();
        for (host, vhost) in &config.vhosts {
            let first = building.rules.len();
            for route in &vhost.routes {
                let id = building.add(host, route, &mut problems, |hosts, id| hosts.rules.push(id));
                if let Some(id) = id.filter(|_| shared.contains(host.as_str())) {
                    ids.entry(host).or_default().push((id, route));
                }
            }
            if let Some(route) = &vhost.default_route {
                building.add(host, route, &mut problems, |hosts, id| hosts.default_rule = Some(id));
            }
            let (_, of_host) = building.rules.split_at_mut(first);
            decide_who_invalidates(of_host);
        }
        for (host, vhost) in &config.vhosts {
            let Some(other) = vhost.same_as.as_deref() else { continue };
            for (id, route) in ids.get(other).into_iter().flatten() {
                building.place(host, route, *id, &mut |hosts, id| hosts.rules.push(id));
            }
        }
        if let Some(route) = &config.default {
            let first = building.rules.len();
            building.add_default(route, &mut problems);
            let (_, default) = building.rules.split_at_mut(first);
            decide_who_invalidates(default);
        }
        let mut router = building.finish(config.timeouts.unwrap_or_default(), trusted_proxies);
        router.gateway_id = config.gateway_id.as_deref().filter(|id| is_token(id)).map(Into::into);
        router.cache_status = config.cache_status_header.unwrap_or(true);
        router.route_metrics = config.route_metrics.unwrap_or(true);
        router.request_log = config.request_log.unwrap_or(false);
        router.trace_sampling = config.trace_sampling;
        router.front_trace_sampling = config.front_trace_sampling;
        router.path_settings = config.paths.unwrap_or_default();
        router.frame = Arc::new(config.frame());
        router.digests = Digests::of(config);
        router.tls_names = tls_names(config);
        Ok(Compiled { router, problems })
    }

    /// The same for a file with a base that is compiled already: what is in the base is not looked at again. `None` where
    /// the two differ by more than hosts, or by wildcards of Ingresses; then the caller compiles both as one.
    pub fn compile_over(config: &Config, base: &Arc<Self>) -> Result<Option<Compiled>, WrongVersion> {
        check_version("ghost.json", config.version)?;
        let hosts = || config.vhosts.keys().chain(&config.removed);
        let exact = |host: &String| !host.is_empty() && !host.starts_with('*');
        let knows = |host: &String| config.vhosts.contains_key(host);
        // Files of the seeds' form have no listeners: there routes make the sockets.
        let near = base.base.is_none()
            && !config.listeners.is_empty()
            && *base.frame == config.frame()
            && hosts().all(|host| !host.is_empty() && !base.mixes(config, host))
            && config.listeners.iter().zip(&base.listeners).all(|(new, below)| {
                let Some(tls) = &new.tls else { return true };
                let mut names = tls.hosts.keys().chain(&tls.removed);
                match &below.certificates {
                    Some(below) => {
                        names.all(exact) && (!tls.hosts.is_empty() || tls.removed.len() < below.names())
                    }
                    None => names.next().is_none(),
                }
            })
            && config.vhosts.values().filter_map(|host| host.same_as.as_ref()).all(knows);
        if !near {
            return Ok(None);
        }
        let names: Vec<String> = hosts().map(|host| normal_hostname(host)).collect();
        let covered = Covered::new(names.iter().map(String::as_str));
        let mut compiled = Self::compile(config)?;
        compiled.router.digests.lay_over(&base.digests, names.iter().map(|name| name.as_bytes()));
        let tables = compiled.router.listeners.iter_mut().zip(&base.listeners);
        for ((table, below), listener) in tables.zip(&config.listeners) {
            let tls = listener.tls.as_ref();
            table.certificates = tls.zip(below.certificates.as_ref()).map(|(tls, below)| below.under(tls));
        }
        compiled.router.base = Some(Base { router: Arc::clone(base), covered });
        Ok(Some(compiled))
    }

    /// Is it a wildcard of an Ingress, in this router or in the file? Names of one label more get rules of both of its tables, which
    /// two layers cannot give.
    fn mixes(&self, config: &Config, host: &str) -> bool {
        let host = normal_hostname(host);
        let HostPattern::Wildcard { parent, .. } = HostPattern::new(&host) else { return false };
        let of_file = config.vhosts.get(&host).into_iter().flat_map(|vhost| {
            let shared = vhost.same_as.as_ref().and_then(|of| config.vhosts.get(of));
            vhost
                .routes
                .iter()
                .chain(&vhost.default_route)
                .chain(shared.into_iter().flat_map(|of| &of.routes))
        });
        self.listeners.iter().any(|listener| listener.hosts.has_one_label(parent))
            || of_file.into_iter().any(|route| route.kind == RouteKind::Ingress)
    }
}

/// May it stand in CDN-Loop as it is?
fn is_token(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':'))
}

/// Ours and TLS listeners by their hostnames, for sockets that have both. Of two with the same hostname ours counts.
fn tls_names(config: &Config) -> HashMap<Box<[u8]>, HostTable<bool>, RandomState> {
    let mut sockets: BTreeMap<&str, BTreeMap<HostPattern, bool>> = BTreeMap::new();
    for listener in &config.tls_listeners {
        sockets.entry(&listener.socket).or_default().insert(listener_pattern(listener), true);
    }
    for listener in &config.listeners {
        if let Some(names) = sockets.get_mut(listener.socket.as_str()) {
            names.insert(listener_pattern(listener), false);
        }
    }
    let table = |names: BTreeMap<HostPattern, bool>| {
        HostTable::new(names.iter().map(|(name, is_tls)| (name.borrowed(), *is_tls)))
    };
    sockets.into_iter().map(|(socket, names)| (socket.as_bytes().into(), table(names))).collect()
}

/// The rules of one listener while they are collected.
#[derive(Debug)]
struct ListenerRoutes {
    listener: Listener,
    certificates: Option<Certificates>,
    hosts: BTreeMap<HostPattern, HostRoutes>,
    default_rule: Option<u32>,
}

impl ListenerRoutes {
    /// Names of one label more are those of the wide wildcard, too: its rules count there as well. And hosts of Ingresses
    /// get the default.
    fn complete(&mut self) {
        let is_narrow = |host: &&HostPattern| matches!(host, HostPattern::Wildcard { one_label: true, .. });
        let narrow: Vec<HostPattern> = self.hosts.keys().filter(is_narrow).cloned().collect();
        for narrow in narrow {
            let wide = narrow.clone().of_any_depth();
            let Some((rules, default)) = self.hosts.get(&wide).map(|r| (r.rules.clone(), r.default_rule))
            else {
                continue;
            };
            if let Some(narrow) = self.hosts.get_mut(&narrow) {
                narrow.rules.extend(rules);
                narrow.rules.sort_unstable();
                narrow.default_rule = narrow.default_rule.or(default);
            }
        }
        let default = self.default_rule;
        for routes in self.hosts.values_mut().filter(|routes| routes.falls_back) {
            routes.default_rule = routes.default_rule.or(default);
        }
    }
}

#[derive(Debug, Default)]
struct HostRoutes {
    rules: Vec<u32>,
    default_rule: Option<u32>,
    /// What no rule fits goes to the listener's default.
    falls_back: bool,
}

#[derive(Debug, Default)]
struct Building {
    rules: Vec<Rule>,
    listeners: Vec<ListenerRoutes>,
    by_name: HashMap<String, u32>,
    /// By socket, then by hostname.
    sockets: BTreeMap<String, BTreeMap<HostPattern, u32>>,
    /// The listener for sockets that no route names, in files of the seeds' form.
    other: Option<u32>,
    turns: Turns,
    policies: Policies,
    path_settings: model::Paths,
    budget: Budget,
}

/// Policies that were compiled last: a Gateway's is that of thousands of rules.
#[derive(Debug, Default)]
struct Policies(VecDeque<(CachePolicy, Arc<Cache>)>);

impl Policies {
    const REMEMBERED: usize = 16;

    fn compile(&mut self, policy: &CachePolicy, budget: &mut Budget) -> Result<Arc<Cache>, Excess> {
        if let Some((_, known)) = self.0.iter().find(|(known, _)| known == policy) {
            return Ok(Arc::clone(known));
        }
        let patterns = policy.bypass_headers.iter().filter_map(|header| header.value_regex.as_deref());
        let cache = Arc::new(Cache::compile(policy)?);
        budget.add_bypass(patterns)?;
        self.0.truncate(Self::REMEMBERED - 1);
        self.0.push_front((policy.clone(), Arc::clone(&cache)));
        Ok(cache)
    }
}

/// Among the rules of one hostname.
fn decide_who_invalidates(rules: &mut [Rule]) {
    let by_policy = |rule: &Rule| rule.cache().is_some_and(Cache::invalidates_on_unsafe);
    let namespaces: BTreeSet<Box<str>> =
        rules.iter().filter(|rule| by_policy(rule)).map(|rule| rule.namespace().into()).collect();
    for rule in rules {
        let is_beside_one = || rule.kind() != RouteKind::GrpcRoute && namespaces.contains(rule.namespace());
        rule.invalidates = if rule.cache.is_some() { by_policy(rule) } else { is_beside_one() };
    }
}

fn policy_problem(route: &Route, error: &Excess) -> Problem {
    let object = format!("HTTPRoute {}, rule {}", route.route_name, route.rule_index);
    let message =
        format!("its cache policy is left out, so its requests bypass the cache: bypass_headers: {error}");
    Problem { object, message }
}

impl Building {
    fn new(config: &Config) -> Self {
        let mut new = Self { path_settings: config.paths.unwrap_or_default(), ..Self::default() };
        for listener in &config.listeners {
            let id = new.add_listener(&listener.name, &listener.socket, Certificates::new(listener));
            new.by_name.insert(listener.name.clone(), id);
            new.sockets.entry(listener.socket.clone()).or_default().insert(listener_pattern(listener), id);
        }
        if config.listeners.is_empty() {
            let routes = config.vhosts.values().flat_map(|v| v.routes.iter().chain(&v.default_route));
            let sockets: BTreeSet<_> = routes.chain(&config.default).flat_map(|r| &r.listeners).collect();
            for socket in sockets {
                let id = new.add_listener(socket, socket, None);
                new.sockets.insert(socket.clone(), BTreeMap::from([(HostPattern::Any, id)]));
            }
            new.other = Some(new.add_listener("", "", None));
        }
        new
    }

    fn add_listener(&mut self, name: &str, socket: &str, certificates: Option<Certificates>) -> u32 {
        let listener = Listener::new(name, socket);
        let hosts = BTreeMap::new();
        self.listeners.push(ListenerRoutes { listener, certificates, hosts, default_rule: None });
        self.listeners.len() as u32 - 1
    }

    /// Which listeners a route is attached to: by name, else by socket, else all. A name may come twice in the file.
    fn listeners_of(&self, route: &Route) -> BTreeSet<u32> {
        if !route.listener_names.is_empty() {
            route.listener_names.iter().filter_map(|name| self.by_name.get(name).copied()).collect()
        } else if !route.listeners.is_empty() {
            let sockets = route.listeners.iter().filter_map(|socket| self.sockets.get(socket));
            sockets.flat_map(|listeners| listeners.values().copied()).collect()
        } else {
            (0..self.listeners.len() as u32).collect()
        }
    }

    fn add(
        &mut self,
        host: &str,
        route: &Route,
        problems: &mut Vec<Problem>,
        mut place: impl FnMut(&mut HostRoutes, u32),
    ) -> Option<u32> {
        let id = self.compile(host, route, problems)?;
        self.place(host, route, id, &mut place);
        Some(id)
    }

    fn place(&mut self, host: &str, route: &Route, id: u32, place: &mut impl FnMut(&mut HostRoutes, u32)) {
        let of_ingress = route.kind == RouteKind::Ingress;
        let host = HostPattern::new(&normal_hostname(host)).owned();
        let host = if of_ingress { host.of_one_label() } else { host };
        for listener in self.listeners_of(route) {
            let hosts = &mut self.listeners[listener as usize].hosts;
            if !hosts.contains_key(&host) {
                hosts.insert(host.clone(), HostRoutes::default());
            }
            let Some(routes) = hosts.get_mut(&host) else { continue };
            routes.falls_back |= of_ingress;
            place(routes, id);
        }
    }

    fn add_default(&mut self, route: &Route, problems: &mut Vec<Problem>) {
        let Some(id) = self.compile(ANY_HOST, route, problems) else { return };
        for listener in self.listeners_of(route) {
            self.listeners[listener as usize].default_rule = Some(id);
        }
    }

    fn compile(&mut self, host: &str, route: &Route, problems: &mut Vec<Problem>) -> Option<u32> {
        let conditions = Conditions {
            path: route.path_match.as_ref(),
            headers: &route.headers,
            query_params: &route.query_params,
        };
        let rule = Rule::compile(route, host, self.path_settings, &mut self.turns).map_err(Excess::from);
        let compiled = rule.and_then(|rule| self.budget.add(&[host], &[conditions]).map(|()| rule));
        match compiled {
            Ok(mut rule) => {
                rule.cache = route.cache_policy.as_ref().and_then(|policy| {
                    let compiled = self.policies.compile(policy, &mut self.budget);
                    compiled.map_err(|e| problems.push(policy_problem(route, &e))).ok()
                });
                self.rules.push(rule);
                Some(self.rules.len() as u32 - 1)
            }
            Err(e) => {
                let object = format!("{} {}, rule {}", route.kind.name(), route.route_name, route.rule_index);
                problems.push(Problem { object, message: e.to_string() });
                None
            }
        }
    }

    fn finish(self, timeouts: model::Timeouts, trusted_proxies: TrustedProxies) -> Router {
        let Self { rules, mut listeners, sockets, other, turns, .. } = self;
        listeners.iter_mut().for_each(ListenerRoutes::complete);
        let mut paths = path::Building::new(&rules);
        // Hosts with the same rules share their paths.
        let mut known: HashMap<Vec<u32>, path::HostPaths> = HashMap::new();
        let mut paths_of = |rules: &Vec<u32>| match known.get(rules) {
            Some(paths) => *paths,
            None => *known.entry(rules.clone()).or_insert(paths.add(rules)),
        };
        let mut host_rules = |routes: &HostRoutes| HostRules {
            paths: paths_of(&routes.rules),
            default_rule: routes.default_rule,
        };
        let listeners = listeners.into_iter().map(|of_listener| {
            let ListenerRoutes { listener, certificates, hosts, default_rule } = of_listener;
            let hosts =
                HostTable::new(hosts.iter().map(|(host, routes)| (host.borrowed(), host_rules(routes))));
            ListenerTable { listener, hosts, certificates, default_rule }
        });
        let listeners = listeners.collect();
        let sockets = sockets.iter().map(|(socket, listeners)| {
            let listeners = listeners.iter().map(|(hostname, id)| (hostname.borrowed(), *id));
            (socket.as_bytes().into(), HostTable::new(listeners))
        });
        let (sockets, paths) = (sockets.collect(), paths.finish());
        Router {
            rules: rules.into(),
            paths,
            listeners,
            sockets,
            tls_names: HashMap::default(),
            other,
            timeouts,
            trusted_proxies,
            turns,
            gateway_id: None,
            cache_status: true,
            route_metrics: true,
            request_log: false,
            trace_sampling: None,
            front_trace_sampling: None,
            path_settings: model::Paths::default(),
            frame: Arc::default(),
            digests: Digests::default(),
            base: None,
        }
    }
}
