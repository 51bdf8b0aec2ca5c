//! ghost.json into tables.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::ghost::{Config, Route};
use model::names::ANY_HOST;
use model::{WrongVersion, check_version};

use crate::forwarded::TrustedProxies;
use crate::host::HostTable;
use crate::path;
use crate::rule::Rule;
use crate::table::{HostRules, Listener, ListenerTable, Router, SocketTable};

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
        for (host, vhost) in &config.vhosts {
            for route in &vhost.routes {
                building.add(host, route, &mut problems, |hosts, id| hosts.rules.push(id));
            }
            if let Some(route) = &vhost.default_route {
                building.add(host, route, &mut problems, |hosts, id| hosts.default_rule = Some(id));
            }
        }
        if let Some(route) = &config.default {
            building.add_default(route, &mut problems);
        }
        let router = building.finish(config.timeouts.unwrap_or_default(), trusted_proxies);
        Ok(Compiled { router, problems })
    }
}

/// The rules of one host on one listener while they are collected.
#[derive(Debug, Default)]
struct HostRoutes {
    rules: Vec<u32>,
    default_rule: Option<u32>,
}

#[derive(Debug)]
struct Building {
    rules: Vec<Rule>,
    listeners: Vec<(Listener, HostTable<HostRoutes>, Option<u32>)>,
    by_name: HashMap<String, u32>,
    by_socket: BTreeMap<String, Vec<u32>>,
    sockets: HashMap<Box<[u8]>, SocketTable, foldhash::fast::RandomState>,
    /// The listener for sockets that no route names, in files of the seeds' form.
    other: Option<u32>,
}

impl Building {
    fn new(config: &Config) -> Self {
        let mut new = Self {
            rules: Vec::new(),
            listeners: Vec::new(),
            by_name: HashMap::new(),
            by_socket: BTreeMap::new(),
            sockets: HashMap::default(),
            other: None,
        };
        for listener in &config.listeners {
            new.add_listener(
                &listener.name,
                &listener.socket,
                listener.hostname.as_deref().unwrap_or(ANY_HOST),
            );
        }
        if config.listeners.is_empty() {
            let routes = config.vhosts.values().flat_map(|v| v.routes.iter().chain(&v.default_route));
            for socket in routes.chain(&config.default).flat_map(|r| &r.listeners) {
                if !new.by_socket.contains_key(socket) {
                    new.add_listener(socket, socket, ANY_HOST);
                }
            }
            new.listeners.push((Listener::new("", ""), HostTable::default(), None));
            new.other = Some(new.listeners.len() as u32 - 1);
        }
        new
    }

    fn add_listener(&mut self, name: &str, socket: &str, hostname: &str) {
        let id = self.listeners.len() as u32;
        self.listeners.push((Listener::new(name, socket), HostTable::default(), None));
        self.by_name.insert(name.to_owned(), id);
        self.by_socket.entry(socket.to_owned()).or_default().push(id);
        *self.sockets.entry(socket.as_bytes().into()).or_default().entry(hostname) = id;
    }

    /// Which listeners a route is attached to: by name, else by socket, else all. A name may come twice in the file.
    fn listeners_of(&self, route: &Route) -> BTreeSet<u32> {
        if !route.listener_names.is_empty() {
            route.listener_names.iter().filter_map(|name| self.by_name.get(name).copied()).collect()
        } else if !route.listeners.is_empty() {
            route.listeners.iter().filter_map(|socket| self.by_socket.get(socket)).flatten().copied().collect()
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
    ) {
        let Some(id) = self.compile(host, route, problems) else { return };
        for listener in self.listeners_of(route) {
            place(self.listeners[listener as usize].1.entry(host), id);
        }
    }

    fn add_default(&mut self, route: &Route, problems: &mut Vec<Problem>) {
        let Some(id) = self.compile(ANY_HOST, route, problems) else { return };
        for listener in self.listeners_of(route) {
            self.listeners[listener as usize].2 = Some(id);
        }
    }

    fn compile(&mut self, host: &str, route: &Route, problems: &mut Vec<Problem>) -> Option<u32> {
        match Rule::compile(route, host) {
            Ok(rule) => {
                self.rules.push(rule);
                Some(self.rules.len() as u32 - 1)
            }
            Err(e) => {
                let object = format!("HTTPRoute {}, rule {}", route.route_name, route.rule_index);
                problems.push(Problem { object, message: e.to_string() });
                None
            }
        }
    }

    fn finish(self, timeouts: model::Timeouts, trusted_proxies: TrustedProxies) -> Router {
        let Self { rules, listeners, sockets, other, .. } = self;
        let with_rules = listeners.iter().filter(|(_, hosts, default)| hosts.iter().count() > 0 || default.is_some());
        let several_listeners = with_rules.count() > 1;
        let mut paths = path::Building::default();
        let listeners = listeners
            .into_iter()
            .map(|(listener, hosts, default_rule)| ListenerTable {
                listener,
                hosts: hosts.map(|routes| HostRules {
                    keyed_by_rule: several_listeners
                        || routes.rules.iter().any(|id| rules[*id as usize].looks_beyond_the_path()),
                    default_rule: routes.default_rule,
                    paths: paths.add(&rules, routes.rules),
                }),
                default_rule,
            })
            .collect();
        let other_sockets = other.map(|id| {
            let mut table = SocketTable::default();
            *table.entry(ANY_HOST) = id;
            table
        });
        Router {
            listeners,
            rules: rules.into(),
            paths: paths.finish(),
            sockets,
            other_sockets,
            timeouts,
            trusted_proxies,
        }
    }
}
