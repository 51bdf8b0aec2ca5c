//! The rules of one Ingress, as entries of routing.json that only lack listeners.

use std::collections::HashMap;

use api::{HostlessRules, ImplementationSpecific};
use k8s_openapi::api::networking::v1::{HTTPIngressPath, IngressBackend, IngressSpec};
use model::matches::{PathMatch, PathMatchType};
use model::names::ANY_HOST;
use model::routing::{Backend, Route};
use model::{Balancing, CachePolicy, RouteKind};

use super::class::Ours;
use super::options::Options;
use crate::backend_tls_policy;
use crate::hostname;
use crate::listener::Fault;
use crate::patterns::Meter;
use crate::refused;
use crate::service_port::{self, Wanted};
use crate::snapshot::{Key, Snapshot};

/// Where others have the name of a rule.
const DEFAULT_BACKEND: &str = "default backend";

/// What an Ingress asks for, even if others ask for the same.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Each once, in the order of the Ingress.
    pub(super) hosts: Vec<Host>,
    pub(super) default: Option<Route>,
    /// One for each invalid backend (its requests get 503), for a path that is listed twice, and for TLS without a
    /// Secret.
    pub(super) unresolved: Vec<Fault>,
}

/// A host of an Ingress.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    /// One without entries is the default backend's.
    pub(super) entries: Vec<Route>,
    /// Its entries are those of the first host.
    pub(super) is_copy: bool,
}

/// To another backend. (The name of a port follows from its Service and number.)
pub(super) fn leads_elsewhere(one: &Route, other: &Route) -> bool {
    fn target(route: &Route) -> Option<(Option<&str>, Option<u16>)> {
        route.backends.first().map(|backend| (backend.service.as_deref(), backend.port))
    }
    target(one) != target(other)
}

/// An entry whose path another Ingress has first.
pub(super) fn twice(here: &str, entry: &Route, whose: &str) -> Option<Fault> {
    let path = entry.path_match.as_ref()?.value.as_str();
    // As it was written: see `path_match`.
    let path = path.strip_prefix("(?:").and_then(|path| path.strip_suffix(").*")).unwrap_or(path);
    let host = &entry.hostname;
    Some(Fault {
        reason: "DuplicatePath",
        message: format!(
            "{here} is never asked: {whose} has {path} of {host} before it, for another backend; remove one of them"
        ),
    })
}

/// The rules; or why the Ingress as a whole cannot be taken in. `shares`: may this host have its entries from another, or lend
/// them? Most Ingresses with many hosts say the same of all.
pub(super) fn read(
    ours: &Ours<'_>,
    options: &Options,
    snapshot: &Snapshot,
    shares: impl Fn(&str) -> bool,
    patterns: &mut Meter,
) -> Result<Rules, Fault> {
    let empty = IngressSpec::default();
    let spec = ours.object.spec.as_ref().unwrap_or(&empty);
    let mut reader = Reader {
        key: ours.key,
        route_name: ours.key.to_string(),
        is_refused: refused::why(&ours.object.metadata).is_some(),
        options,
        snapshot,
        patterns,
        rules: Rules::default(),
        positions: HashMap::new(),
        seen: HashMap::new(),
    };
    let rules = spec.rules.as_deref().unwrap_or_default();
    if let Some(backend) = &spec.default_backend {
        // It is no rule: one behind the last.
        let entry = reader.entry(|| "spec.defaultBackend".to_owned(), backend, None, rules.len())?;
        reader.rules.default = Some(Route { rule_name: Some(DEFAULT_BACKEND.to_owned()), ..entry });
    }
    if rules.is_empty() && spec.default_backend.is_none() {
        return Err(Fault {
            reason: "NoRules",
            message: "It has neither rules nor a default backend: write one of them".to_owned(),
        });
    }
    // How often each host comes decides who may share: one that comes again has more than its first rule.
    let first_once = |host: &str| {
        let of_host =
            rules.iter().filter(|rule| hostname::normal(rule.host.as_deref()).as_deref() == Some(host));
        of_host.take(2).count() == 1
    };
    let mut lender: Option<bool> = None;
    for (index, rule) in rules.iter().enumerate() {
        let host = reader.host(index, rule.host.as_deref())?;
        if index > 0
            && rule.http.is_some()
            && rule.http == rules[0].http
            && reader.rules.unresolved.is_empty()
            && !reader.positions.contains_key(&host)
            && shares(&host)
            && *lender.get_or_insert_with(|| {
                let first = reader.rules.hosts.first();
                first.is_some_and(|first| {
                    !first.entries.is_empty() && shares(&first.name) && first_once(&first.name)
                })
            })
            && !rules[index + 1..]
                .iter()
                .any(|other| hostname::normal(other.host.as_deref()).as_ref() == Some(&host))
        {
            reader.positions.insert(host.clone(), reader.rules.hosts.len());
            reader.rules.hosts.push(Host { name: host, entries: Vec::new(), is_copy: true });
            continue;
        }
        let at = reader.position(&host);
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        for (number, path) in paths.enumerate() {
            reader.path(index, number, path, &host, at)?;
        }
    }
    let mut rules = reader.rules;
    for Host { entries, .. } in &mut rules.hosts {
        // Of regular expressions the first that fits counts: the longest first, as for prefixes.
        entries.sort_by_key(|entry| match &entry.path_match {
            Some(path) if path.kind == PathMatchType::RegularExpression => usize::MAX - path.value.len(),
            _ => 0,
        });
    }
    Ok(rules)
}

struct Reader<'a> {
    key: &'a Key,
    route_name: String,
    /// It is a stand-in: what it is for gets 503.
    is_refused: bool,
    options: &'a Options,
    snapshot: &'a Snapshot,
    patterns: &'a mut Meter,
    rules: Rules,
    /// Of hosts.
    positions: HashMap<String, usize>,
    /// Host and path: what stands there twice goes to the first backend.
    seen: HashMap<(usize, PathMatch), usize>,
}

impl Reader<'_> {
    fn host(&self, index: usize, host: Option<&str>) -> Result<String, Fault> {
        match hostname::normal(host) {
            Some(host) => Ok(host),
            None if self.options.hostless_rules == HostlessRules::Allow => Ok(ANY_HOST.to_owned()),
            None => Err(Fault {
                reason: "HostMissing",
                message: format!(
                    "spec.rules[{index}] has no host: name one, or set ingress.hostlessRules: allow in \
                     GatewayClassParameters"
                ),
            }),
        }
    }

    fn position(&mut self, host: &str) -> usize {
        if let Some(at) = self.positions.get(host) {
            return *at;
        }
        let at = self.rules.hosts.len();
        self.rules.hosts.push(Host { name: host.to_owned(), entries: Vec::new(), is_copy: false });
        self.positions.insert(host.to_owned(), at);
        at
    }

    fn path(
        &mut self,
        index: usize,
        number: usize,
        path: &HTTPIngressPath,
        host: &str,
        at: usize,
    ) -> Result<(), Fault> {
        let here = || format!("spec.rules[{index}].http.paths[{number}]");
        let path_match = self.path_match(path).map_err(|message| Fault {
            reason: "InvalidPath",
            message: format!("{}.path: {message}", here()),
        })?;
        let mut entry =
            self.entry(|| format!("{}.backend", here()), &path.backend, Some(path_match.clone()), index)?;
        entry.hostname = host.to_owned();
        let Some(of_host) = self.rules.hosts.get_mut(at) else { return Ok(()) };
        let first = *self.seen.entry((at, path_match)).or_insert(of_host.entries.len());
        match of_host.entries.get(first) {
            None => of_host.entries.push(entry),
            Some(older) if leads_elsewhere(older, &entry) => {
                self.rules.unresolved.extend(twice(&here(), &entry, "this Ingress"));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn path_match(&mut self, path: &HTTPIngressPath) -> Result<PathMatch, String> {
        let value = path.path.as_deref().filter(|path| !path.is_empty());
        let kind = match path.path_type.as_str() {
            "Exact" => PathMatchType::Exact,
            "Prefix" => PathMatchType::PathPrefix,
            "ImplementationSpecific" => match self.options.implementation_specific {
                ImplementationSpecific::Prefix => PathMatchType::PathPrefix,
                ImplementationSpecific::RegularExpression if value.is_none() => PathMatchType::PathPrefix,
                ImplementationSpecific::RegularExpression => PathMatchType::RegularExpression,
            },
            other => return Err(format!("pathType {other} is not known: use Prefix or Exact")),
        };
        let value = value.unwrap_or("/");
        if !value.starts_with('/') && kind != PathMatchType::RegularExpression {
            return Err(format!("`{value}` does not begin with `/`: correct it"));
        }
        if kind == PathMatchType::RegularExpression {
            // From the beginning on, and then whatever follows.
            let and_more = format!("(?:{value}).*");
            // By itself first: `a)|(b` would compile once it stands in parentheses.
            router::pattern::check_matches_bytes(value)
                .map_err(|error| error.to_string())
                .and_then(|()| self.patterns.check(self.key, &and_more))
                .map_err(|error| format!("{error}: correct it"))?;
            return Ok(PathMatch { kind, value: and_more });
        }
        Ok(PathMatch { kind, value: value.to_owned() })
    }

    fn entry(
        &mut self,
        here: impl Fn() -> String,
        backend: &IngressBackend,
        path_match: Option<PathMatch>,
        index: usize,
    ) -> Result<Route, Fault> {
        if self.is_refused {
            return Ok(Route {
                path_match,
                kind: RouteKind::Ingress,
                route_name: self.route_name.clone(),
                rule_index: u32::try_from(index).unwrap_or(u32::MAX),
                ..Route::default()
            });
        }
        if let Some(resource) = &backend.resource {
            return Err(Fault {
                reason: "ResourceBackend",
                message: format!(
                    "{} names the resource {} {}, which cannot be a backend here: name a service",
                    here(),
                    resource.kind,
                    resource.name
                ),
            });
        }
        let Some(service) = &backend.service else {
            return Err(Fault {
                reason: "InvalidBackend",
                message: format!("{} names no service: name it and its port", here()),
            });
        };
        let key = Key::new(self.key.namespace.as_str(), service.name.as_str());
        let wanted = service.port.as_ref().and_then(|port| match (port.number, &port.name) {
            (Some(number), _) if number != 0 => Some(Wanted::Number(number)),
            (_, Some(name)) if !name.is_empty() => Some(Wanted::Name(name)),
            _ => None,
        });
        let port = service_port::find(&key, wanted, self.snapshot)
            .and_then(|port| {
                let has_policy = backend_tls_policy::is_for(&key, &port, self.snapshot);
                let protocol = service_port::check_protocol(&key, &port, has_policy)?;
                Ok((port, protocol))
            })
            .map_err(|fault| {
                let message = format!("{}: {} (its requests get 503)", here(), fault.message);
                self.rules.unresolved.push(Fault { message, ..fault });
            })
            .ok();
        let backend = port.map(|(port, protocol)| Backend {
            service: Some(key.name.into()),
            namespace: Some(key.namespace.into()),
            port: u16::try_from(port.port).ok(),
            port_name: Some(port.name.as_deref().unwrap_or_default().into()),
            protocol,
            balancing: Some(Balancing::RoundRobin),
            ..Backend::default()
        });
        Ok(Route {
            path_match,
            kind: RouteKind::Ingress,
            backends: backend.into_iter().collect(),
            route_name: self.route_name.clone(),
            rule_index: u32::try_from(index).unwrap_or(u32::MAX),
            // As the origin says, and as Varnish does by itself: a client with a Cookie gets no page of other
            // clients, and they get none of its pages.
            cache_policy: Some(Box::new(CachePolicy { cookies_pass: true, ..CachePolicy::default() })),
            ..Route::default()
        })
    }
}
