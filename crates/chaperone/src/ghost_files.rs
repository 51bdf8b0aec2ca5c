//! The files of ghost: `(routing.json, endpoints) → ghost.json`, for `serve`, pods and the standalone chaperone.
//!
//! Takes whole configurations, one after the other. Guarantees that a change costs what changed: a Gateway with many hosts has
//! a large file, the base, which is written and compiled once, and a small one with the hosts that differ since. The cost of
//! both is kept low by a new base once in a while. Never reads what it wrote.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

use model::SharedMap;
use model::ghost::Config;
use model::notice::{Notice, each_once};
use model::routing::{Route, Routing, Vhost};
use resolve::{EndpointIndex, Resolved, resolve_hosts};
use router::Router;
use sha2::{Digest, Sha256};

/// Fewer hosts are written as a whole: the file is small.
const LEAST_HOSTS: usize = 64;

/// The file that ghost reads, and the router that is made of it, for the front and for `explain`.
#[derive(Debug, Clone)]
pub struct Ghost {
    /// Of ghost.json.
    pub bytes: Arc<[u8]>,
    /// The file that ghost.json names as its base, if it does.
    pub base: Option<GhostBase>,
    pub router: Arc<Router>,
}

/// A file that lies beside ghost.json, and is named by what it holds.
#[derive(Debug, Clone)]
pub struct GhostBase {
    pub name: Arc<str>,
    pub bytes: Arc<[u8]>,
    pub router: Arc<Router>,
}

impl PartialEq for GhostBase {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The name of the base is in the bytes.
impl PartialEq for Ghost {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes) || self.bytes == other.bytes
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum GhostError {
    #[error("ghost.json: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Version(#[from] model::WrongVersion),
    #[error("ghost.json needs the base {0}, which is not there")]
    NoBase(String),
}

impl GhostBase {
    pub(crate) const PREFIX: &str = "ghost-base-";

    fn new(bytes: Arc<[u8]>, router: Arc<Router>) -> Self {
        let hash: String = Sha256::digest(&bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}{hash}.json", Self::PREFIX);
        Self { name: name.into(), bytes, router }
    }
}

impl Ghost {
    /// Of files that were written before we started: `base` with its name.
    pub fn read(bytes: Arc<[u8]>, base: Option<(&str, Arc<[u8]>)>) -> Result<Self, GhostError> {
        let config: Config = serde_json::from_slice(&bytes)?;
        let Some(name) = &config.base else {
            return Ok(Self { bytes, base: None, router: Arc::new(Router::compile(&config)?.router) });
        };
        let Some((_, below)) = base.filter(|(known, _)| known == name) else {
            return Err(GhostError::NoBase(name.clone()));
        };
        let of_base: Config = serde_json::from_slice(&below)?;
        let base = Arc::new(Router::compile(&of_base)?.router);
        let router = match Router::compile_over(&config, &base)? {
            Some(upper) => upper.router,
            None => Router::compile(&config.clone().over(of_base))?.router,
        };
        let base = GhostBase { name: name.as_str().into(), bytes: below, router: base };
        Ok(Self { bytes, base: Some(base), router: Arc::new(router) })
    }

    /// ghost.json with its base, as one; `None` where it cannot be read.
    pub fn config(&self) -> Option<Config> {
        let head: Config = serde_json::from_slice(&self.bytes).ok()?;
        match &self.base {
            Some(base) => Some(head.over(serde_json::from_slice(&base.bytes).ok()?)),
            None => Some(head),
        }
    }

    /// The same object in memory; the bytes are not compared.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }
}

/// Of all hosts, in their order.
fn prints(hosts: &SharedMap<String, Vhost>, hasher: &RandomState) -> Box<[u64]> {
    hosts.values().map(|host| print(host, hasher)).collect()
}

/// A hash of the host's configuration. The hasher has random keys, so users cannot construct two hosts with the same hash.
fn print(host: &Vhost, hasher: &RandomState) -> u64 {
    struct Hashing<H>(H);
    impl<H: std::hash::Hasher> io::Write for Hashing<H> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hashing = Hashing(hasher.build_hasher());
    // It fails for maps with odd keys alone, which there are not.
    let _ = serde_json::to_writer(&mut hashing, host);
    std::hash::Hasher::finish(&hashing.0)
}

/// A base, and what it was made of.
#[derive(Debug)]
struct Written {
    file: GhostBase,
    /// All but hosts.
    frame: Config,
    endpoints: EndpointIndex,
    prints: HashMap<Box<str>, u64>,
    /// Of hosts that have some.
    notices: BTreeMap<String, Vec<Notice>>,
}

/// Makes the files of one Gateway, one configuration after the other.
#[derive(Debug, Default)]
pub(crate) struct GhostFiles {
    hasher: RandomState,
    written: Option<Written>,
    /// The newest.
    last: Option<Ghost>,
    /// Of the base's routing.json, as long as it is the same.
    below: Option<(Arc<Routing>, Box<[u64]>)>,
    wants_base: bool,
}

/// Hosts by name, each with its print.
type Hosts<'a> = BTreeMap<&'a str, (&'a Vhost, u64)>;

impl GhostFiles {
    /// Too many hosts differ from the base: with `idle`, the next call makes another one.
    pub(crate) fn wants_base(&self) -> bool {
        self.wants_base
    }

    /// The files for this configuration: `routing` is the whole, or what has changed since `below`; `frame` is both as one, and
    /// its hosts do not matter. `finish` adds what routing.json does not have. With `idle` a new base is made where that makes
    /// later changes cheaper.
    pub(crate) fn make(
        &mut self,
        routing: &Routing,
        below: Option<&Arc<Routing>>,
        frame: &Routing,
        endpoints: &EndpointIndex,
        idle: bool,
        finish: impl Fn(&mut Config),
    ) -> Result<(Ghost, Vec<Notice>), GhostError> {
        self.know(below);
        let own = prints(&routing.vhosts, &self.hasher);
        let mut hosts: Hosts<'_> = BTreeMap::new();
        let below_prints = std::mem::take(&mut self.below);
        if let Some((below, prints)) = &below_prints {
            let removed: HashSet<&String> = routing.removed.iter().collect();
            hosts.extend(
                below
                    .vhosts
                    .iter()
                    .zip(prints)
                    .filter(|((name, _), _)| !removed.contains(name))
                    .map(|((name, host), print)| (name.as_str(), (host, *print))),
            );
        }
        let above = routing.vhosts.iter().zip(&own);
        hosts.extend(above.map(|((name, host), print)| (name.as_str(), (host, *print))));
        let made = self.make_of(frame, &hosts, endpoints, idle, finish);
        drop(hosts);
        self.below = below_prints;
        made
    }

    fn know(&mut self, below: Option<&Arc<Routing>>) {
        let known = self.below.as_ref().map(|(known, _)| known);
        if known.map(Arc::as_ptr) != below.map(Arc::as_ptr) {
            self.below = below.map(|below| (Arc::clone(below), prints(&below.vhosts, &self.hasher)));
        }
    }

    fn make_of(
        &mut self,
        frame: &Routing,
        hosts: &Hosts<'_>,
        endpoints: &EndpointIndex,
        idle: bool,
        finish: impl Fn(&mut Config),
    ) -> Result<(Ghost, Vec<Notice>), GhostError> {
        self.wants_base = false;
        let written = self.written.take();
        // Files without listeners have no bases: there routes make the sockets.
        if hosts.len() < LEAST_HOSTS || frame.listeners.is_empty() {
            let mut resolved =
                resolve_hosts(frame, hosts.iter().map(|(name, (host, _))| (*name, *host)), endpoints);
            finish(&mut resolved.config);
            let bytes = serde_json::to_vec(&resolved.config)?;
            let ghost = self.take(bytes, None, || Ok(Router::compile(&resolved.config)?.router))?;
            return Ok((ghost, each_once(resolved.notices())));
        }
        if let Some(written) = written
            && let Some(changes) = written.changes(hosts, endpoints)
            && !changes.is_more_than(if idle { SOFT } else { HARD }, hosts.len())
        {
            self.wants_base = changes.is_more_than(SOFT, hosts.len());
            let made = self.upper(&written, &changes, frame, hosts, endpoints, &finish)?;
            if let Some(made) = made {
                self.written = Some(written);
                return Ok(made);
            }
        }
        self.wants_base = false;
        self.whole(frame, hosts, endpoints, finish)
    }

    /// What has changed since the base. `None` where that is more than hosts.
    fn upper(
        &mut self,
        written: &Written,
        changes: &Changes<'_>,
        frame: &Routing,
        hosts: &Hosts<'_>,
        endpoints: &EndpointIndex,
        finish: impl Fn(&mut Config),
    ) -> Result<Option<(Ghost, Vec<Notice>)>, GhostError> {
        // A host that shares the routes of one that has not changed gets them as its own.
        let lent: BTreeMap<&str, Vhost> = changes
            .hosts
            .iter()
            .filter_map(|name| {
                let (host, _) = hosts.get(*name)?;
                let of = host.same_as.as_ref().filter(|of| !changes.hosts.contains(of.as_str()))?;
                let routes = hosts.get(of.as_str()).map(|(of, _)| of.routes.clone()).unwrap_or_default();
                Some((*name, Vhost { routes, same_as: None, ..(*host).clone() }))
            })
            .collect();
        let changed = changes.hosts.iter().filter_map(|name| {
            let host = lent.get(*name).or_else(|| hosts.get(*name).map(|(host, _)| *host))?;
            Some((*name, host))
        });
        let mut resolved = resolve_hosts(frame, changed, endpoints);
        finish(&mut resolved.config);
        let head = std::mem::take(&mut resolved.config);
        let head = head.since(&written.frame, &written.file.name, changes.removed.clone());
        let bytes = serde_json::to_vec(&head)?;
        let Some(upper) = self.known(&bytes) else {
            let Some(upper) = Router::compile_over(&head, &written.file.router)? else { return Ok(None) };
            let ghost = self.take(bytes, Some(&written.file), || Ok(upper.router))?;
            return Ok(Some((ghost, written.notices_with(&resolved, changes))));
        };
        Ok(Some((upper, written.notices_with(&resolved, changes))))
    }

    /// A new base, with nothing changed since.
    fn whole(
        &mut self,
        frame: &Routing,
        hosts: &Hosts<'_>,
        endpoints: &EndpointIndex,
        finish: impl Fn(&mut Config),
    ) -> Result<(Ghost, Vec<Notice>), GhostError> {
        let all = hosts.iter().map(|(name, (host, _))| (*name, *host));
        let mut resolved = resolve_hosts(frame, all, endpoints);
        finish(&mut resolved.config);
        let bytes: Arc<[u8]> = serde_json::to_vec(&resolved.config)?.into();
        let mut base = Router::compile(&resolved.config)?.router;
        if let Some(last) = &self.last {
            base.take_over(&last.router);
        }
        let file = GhostBase::new(bytes, Arc::new(base));
        let notices = each_once(resolved.notices());
        let Resolved { mut config, of_hosts, .. } = resolved;
        // Large, and compiled.
        config.vhosts = BTreeMap::new();
        let written = Written {
            endpoints: endpoints.clone(),
            prints: hosts.iter().map(|(name, (_, print))| ((*name).into(), *print)).collect(),
            notices: of_hosts,
            frame: config,
            file,
        };
        let head = written.frame.clone().since(&written.frame, &written.file.name, Vec::new());
        let bytes = serde_json::to_vec(&head)?;
        let ghost = self.take(bytes, Some(&written.file), || {
            let upper = Router::compile_over(&head, &written.file.router)?;
            // The two agree in all but hosts.
            Ok(upper.map(|upper| upper.router).unwrap_or_else(|| (*written.file.router).clone()))
        })?;
        self.written = Some(written);
        Ok((ghost, notices))
    }

    /// The newest, where it has these bytes.
    fn known(&self, bytes: &[u8]) -> Option<Ghost> {
        self.last.as_ref().filter(|last| *last.bytes == *bytes).cloned()
    }

    /// The newest from now on.
    fn take(
        &mut self,
        bytes: Vec<u8>,
        base: Option<&GhostBase>,
        compile: impl FnOnce() -> Result<Router, GhostError>,
    ) -> Result<Ghost, GhostError> {
        if let Some(known) = self.known(&bytes) {
            return Ok(known);
        }
        let mut router = compile()?;
        if let Some(last) = &self.last {
            router.take_over(&last.router);
        }
        let new = Ghost { bytes: bytes.into(), base: base.cloned(), router: Arc::new(router) };
        self.last = Some(new.clone());
        Ok(new)
    }
}

/// How many hosts may differ from the base: the square of their number is at most so many times the number of all. By the
/// first number a change costs as much by its own hosts as by its share of the next base.
const SOFT: usize = 2;
const HARD: usize = 32;

/// Hosts that differ from those of the base.
#[derive(Debug)]
struct Changes<'a> {
    hosts: BTreeSet<&'a str>,
    removed: Vec<String>,
}

impl Changes<'_> {
    fn is_more_than(&self, times: usize, of: usize) -> bool {
        (self.hosts.len() + self.removed.len()).pow(2) > times * of
    }
}

impl Written {
    /// `None` if all hosts must be compared again.
    fn changes<'a>(&self, hosts: &Hosts<'a>, endpoints: &EndpointIndex) -> Option<Changes<'a>> {
        if !endpoints.has_same_own_ports(&self.endpoints) {
            return None;
        }
        let services = endpoints.differing(&self.endpoints);
        let mut changed = BTreeSet::new();
        let (mut known, mut shares) = (0, false);
        for (name, (host, print)) in hosts {
            let before = self.prints.get(*name);
            known += usize::from(before.is_some());
            shares |= host.same_as.is_some();
            if before != Some(print) || (!services.is_empty() && leads_to(host, &services)) {
                changed.insert(*name);
            }
        }
        let gone = || self.prints.keys().filter(|name| !hosts.contains_key(&***name));
        let removed: Vec<String> = match known == self.prints.len() {
            true => Vec::new(),
            false => gone().map(|name| name.to_string()).collect(),
        };
        if shares {
            let shared = |host: &Vhost| {
                host.same_as.as_ref().is_some_and(|of| changed.contains(of.as_str()) || removed.contains(of))
            };
            let also: Vec<&str> =
                hosts.iter().filter(|(_, (host, _))| shared(host)).map(|(name, _)| *name).collect();
            changed.extend(also);
        }
        Some(Changes { hosts: changed, removed })
    }

    /// The notices of hosts that have not changed, and of those that have.
    fn notices_with(&self, resolved: &Resolved, changes: &Changes<'_>) -> Vec<Notice> {
        let stays = |name: &String| !changes.hosts.contains(name.as_str()) && !changes.removed.contains(name);
        let before = self.notices.iter().filter(|(name, _)| stays(name)).flat_map(|(_, notices)| notices);
        each_once(before.chain(resolved.notices()))
    }
}

/// Does a route of this host, or a mirror of one, lead to one of these Services?
fn leads_to(host: &Vhost, services: &HashSet<(&str, &str)>) -> bool {
    let is_one = |namespace: &str, name: &str| services.contains(&(namespace, name));
    let of_route = |route: &Route| route.services().any(|(namespace, service)| is_one(namespace, service));
    host.routes.iter().chain(&host.default_route).any(of_route)
}

#[cfg(test)]
mod tests;
