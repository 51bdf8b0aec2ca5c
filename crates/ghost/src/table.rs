//! A configuration inside varnishd: the compiled router, with a director for every place a request can go to.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::ghost::Config;
use model::names::{LISTENER_HEADER, ROUTE_HEADER, socket_parts};
use model::stats::Stats;
use model::{Version, check_version};
use router::cache::Parameters;
use router::counters::{FlowCounters, RouteCounters};
use router::{Action, Compiled, Decision, Router};

use crate::answer::Answer;
use crate::backend::{Backend, BackendKey, Cluster};
use crate::error::Error;
use crate::ffi::{Ctx, Director, OwnedDirector, c_string};
use crate::index;
use crate::stats::{self, Counters, ENDPOINTS_ADDED, ENDPOINTS_REMOVED, REGISTRY};
use crate::target::{Target, Ways};

pub(crate) struct Table {
    router: Arc<Router>,
    /// What the file has changed since. Its rules and directors are its own.
    base: Option<Arc<Self>>,
    /// The file that this was made of is the base of others by this name.
    name: Option<String>,
    /// By rule: the position of its first director.
    first: Box<[u32]>,
    /// A rule's redirect, or one for each of its groups; none for a group without endpoints, unless there is a cache policy.
    directors: Box<[Option<OwnedDirector>]>,
    backends: HashMap<BackendKey, Arc<Backend>>,
    /// What policies of its rules say of query parameters, each once.
    parameters: HashSet<Parameters>,
    /// How many of the backends are endpoints.
    endpoint_count: usize,
    /// Header lines that requests borrow, by rule.
    route_lines: Box<[CString]>,
    /// A few: looking at each is faster than a hash.
    sockets: Box<[(Box<[u8]>, SocketLines)]>,
    counters: RouteCounters,
    /// Entries that had to be left out.
    problems: Vec<String>,
}

/// ghost.json, compiled; nothing of varnishd in it yet.
pub(crate) enum Read {
    Whole(Compiled),
    /// What has changed since a base that is there.
    Upper(Compiled),
    /// A base that is new. The file that names it must be read again.
    Base {
        name: String,
        compiled: Compiled,
    },
}

/// `known`: the base that is there, by its name.
fn read(path: &Path, known: Option<(&str, &Arc<Router>)>) -> Result<Read, Error> {
    let version = |source| Error::Version { path: path.to_owned(), source };
    let config = parse(path)?;
    let Some(name) = config.base.clone() else {
        return Ok(Read::Whole(Router::compile(&config).map_err(version)?));
    };
    if Path::new(&name).components().count() != 1 {
        return Err(Error::Base { path: path.to_owned(), base: name });
    }
    match known.filter(|(known, _)| *known == name) {
        None => {
            let compiled = Router::compile(&parse(&path.with_file_name(&name))?).map_err(version)?;
            Ok(Read::Base { name, compiled })
        }
        Some((_, base)) => match Router::compile_over(&config, base).map_err(version)? {
            Some(compiled) => Ok(Read::Upper(compiled)),
            None => {
                let whole = config.over(parse(&path.with_file_name(&name))?);
                Ok(Read::Whole(Router::compile(&whole).map_err(version)?))
            }
        },
    }
}

fn parse(path: &Path) -> Result<Config, Error> {
    let at = || path.to_owned();
    let text = std::fs::read(path).map_err(|source| Error::Read { path: at(), source })?;
    let parse = |source| Error::Parse { path: at(), source };
    // The version first: what another version means by the rest is not ours to guess.
    let version = Version::at_start(&text).map_or_else(|| serde_json::from_slice(&text).map_err(parse), Ok);
    let Version { version } = version?;
    check_version("ghost.json", version).map_err(|source| Error::Version { path: at(), source })?;
    serde_json::from_slice(&text).map_err(parse)
}

/// [`read`] on a thread of its own: the stacks of varnishd's workers are small, and a panic ends here.
pub(crate) fn read_aside(path: &Path, known: Option<&Arc<Table>>) -> Result<Read, Error> {
    let at: PathBuf = path.to_owned();
    let known = known.and_then(|table| Some((table.name.clone()?, Arc::clone(&table.router))));
    let reader = std::thread::Builder::new().name("ghost-read".into()).stack_size(8 << 20);
    let running = reader
        .spawn(move || read(&at, known.as_ref().map(|(name, router)| (name.as_str(), router))))
        .map_err(|source| Error::Read { path: path.to_owned(), source })?;
    running.join().unwrap_or_else(|_| Err(Error::Panic { path: path.to_owned() }))
}

impl Table {
    /// The file as it is now, beside the table that is in use.
    pub(crate) fn load(
        ctx: *const Ctx,
        path: &Path,
        front: &Path,
        old: Option<&Arc<Self>>,
    ) -> Result<Self, Error> {
        // The base of the table in use; or the table itself, which may become one.
        let mut base = old.and_then(|old| old.base.clone());
        let mut read = read_aside(path, base.as_ref())?;
        if let Read::Base { name, compiled } = read {
            let mut table = Self::new(ctx, compiled, front, old, None)?;
            table.name = Some(name);
            base = Some(Arc::new(table));
            read = read_aside(path, base.as_ref())?;
        }
        let new = match read {
            Read::Whole(compiled) => Self::new(ctx, compiled, front, old, None)?,
            Read::Upper(compiled) => Self::new(ctx, compiled, front, old, base)?,
            // It was replaced in between: its writer asks again.
            Read::Base { name, .. } => return Err(Error::Base { path: path.to_owned(), base: name }),
        };
        if let Some(old) = old {
            ENDPOINTS_ADDED.fetch_add(new.endpoints_beside(old), Ordering::Relaxed);
            ENDPOINTS_REMOVED.fetch_add(old.endpoints_beside(&new), Ordering::Relaxed);
        }
        Ok(new)
    }

    /// How many endpoints this one has, in both layers, that the other one has not. A base that both have is not looked at.
    fn endpoints_beside(&self, other: &Self) -> u64 {
        let is_new = |key: &&BackendKey| key.is_endpoint() && !other.has_backend(key);
        let own = self.backends.keys().filter(is_new).count();
        let below = match (&self.base, &other.base) {
            (Some(base), Some(known)) if Arc::ptr_eq(base, known) => None,
            (base, _) => base.as_ref(),
        };
        let below = below.map_or(0, |base| {
            base.backends.keys().filter(is_new).filter(|key| !self.backends.contains_key(key)).count()
        });
        (own + below) as u64
    }

    /// In one of both layers.
    fn has_backend(&self, key: &BackendKey) -> bool {
        self.backends.contains_key(key)
            || self.base.as_ref().is_some_and(|base| base.backends.contains_key(key))
    }

    /// Makes the directors. Backends that `old` has already are shared with it, and so are their connections.
    /// `front` is the unix socket by which backends with TLS are reached.
    fn new(
        ctx: *const Ctx,
        compiled: Compiled,
        front: &Path,
        old: Option<&Arc<Self>>,
        base: Option<Arc<Self>>,
    ) -> Result<Self, Error> {
        let mut router = compiled.router;
        match (old, &base) {
            (Some(old), _) => router.take_over(&old.router),
            (None, Some(base)) => router.take_over(&base.router),
            (None, None) => {}
        }
        let router = Arc::new(router);
        let counters = RouteCounters::new(&router, &REGISTRY);
        let layers = |table: &Arc<Self>| [Some(Arc::clone(table)), table.base.clone()];
        let known = base.iter().chain(old).flat_map(layers).flatten();
        let known: Vec<Arc<Self>> = known.collect();
        let backends = backends(ctx, &router, front, &known)?;
        let mut first = Vec::with_capacity(router.rules().len());
        let mut directors = Vec::with_capacity(router.rules().len());
        for (id, rule) in router.rules().iter().enumerate() {
            let id = id as u32;
            first.push(directors.len() as u32);
            if rule.redirects() {
                let name = format!("{}.{}.redirect", rule.route_name(), rule.rule_index());
                let answer = Answer::Redirect { router: Arc::clone(&router), rule: id };
                directors.push(Some(answer.director(ctx, &name)?));
                continue;
            }
            for (at, group) in rule.groups().iter().enumerate() {
                let key = |address| BackendKey::new(address, group.tls(), router.timeouts());
                let of_group: Option<Box<[_]>> =
                    group.endpoints().iter().map(|a| backends.get(&key(*a)).cloned()).collect();
                directors.push(match of_group {
                    Some(some) if !some.is_empty() => {
                        let counted = counters.of(Some(id)).cloned();
                        let by_front = BackendKey::by_front(rule, at).and_then(|key| backends.get(&key));
                        let of_kept = BackendKey::of_kept(rule, at).and_then(|key| backends.get(&key));
                        let ways = Ways { endpoints: some, front: by_front.cloned(), kept: of_kept.cloned() };
                        Some(Target::director(ctx, &router, id, at as u32, ways, counted)?)
                    }
                    _ if rule.cache().is_some() => {
                        let name = format!("{}.{}.{at}.empty", rule.route_name(), rule.rule_index());
                        Some(
                            Answer::EmptyGroup { router: Arc::clone(&router), rule: id }
                                .director(ctx, &name)?,
                        )
                    }
                    _ => None,
                });
            }
        }
        let line = |rule: &router::Rule| c_string(&format!("{ROUTE_HEADER}: {}", rule.route_name()));
        let sockets =
            router.listeners().map(|l| (l.socket().as_bytes().into(), SocketLines::new(l.socket())));
        let of_rules = router.rules().iter().filter_map(|rule| rule.cache()?.parameters());
        let parameters: HashSet<Parameters> = of_rules.collect::<HashSet<_>>().into_iter().cloned().collect();
        index::learn(parameters.iter().chain(base.iter().flat_map(|base| &base.parameters)));
        Ok(Self {
            base,
            parameters,
            name: None,
            sockets: sockets.collect(),
            counters,
            route_lines: router.rules().iter().map(line).collect(),
            first: first.into(),
            directors: directors.into(),
            endpoint_count: backends.keys().filter(|key| key.is_endpoint()).count(),
            backends,
            problems: compiled.problems.iter().map(ToString::to_string).collect(),
            router,
        })
    }

    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// Where a decision of this table's router leads. `None` where it ends at once: 400, 404 or 500.
    pub(crate) fn director(&self, decision: &Decision<'_>) -> Option<Director> {
        let table = self.layer(decision);
        let first = table.first[decision.rule_id()? as usize] as usize;
        let at = match decision.action() {
            Action::Forward { group } => first + group,
            Action::Redirect => first,
            Action::NoBackend | Action::Unavailable => first + decision.group()?,
            Action::NotFound
            | Action::Preflight
            | Action::Misdirected
            | Action::Loop
            | Action::Refused(_)
            | Action::TooLong(_) => return None,
        };
        table.directors.get(at)?.as_ref().map(OwnedDirector::raw)
    }

    /// What counts a request of this decision.
    pub(crate) fn counters_of(&self, decision: Option<&Decision<'_>>) -> Option<&Arc<Counters>> {
        let table = decision.map_or(self, |decision| self.layer(decision));
        table.counters.of(decision.and_then(Decision::rule_id))
    }

    /// What counts a request by its way: for its socket, and for its Service unless ghost answers itself.
    pub(crate) fn flows_of(
        &self,
        decision: &Decision<'_>,
        is_own: bool,
    ) -> impl Iterator<Item = &FlowCounters> {
        let counters = &self.layer(decision).counters;
        let socket = decision.listener().and_then(|listener| counters.socket(listener.socket()));
        let service = decision.rule_id().zip(decision.group()).filter(|_| !is_own);
        let service = service.and_then(|(rule, group)| counters.service(rule, group));
        socket.into_iter().chain(service)
    }

    /// What was counted until now, in both layers.
    pub(crate) fn stats(&self) -> Stats {
        let below = self.base.as_ref().map(|base| (&base.counters, &*base.router));
        stats::read(&self.counters, &self.router, below)
    }

    /// Whose rule it is.
    fn layer(&self, decision: &Decision<'_>) -> &Self {
        match &self.base {
            Some(base) if decision.is_of_base() => base,
            _ => self,
        }
    }

    /// `X-Gateway-Route: …` of the rule that was chosen.
    pub(crate) fn route_line(&self, decision: &Decision<'_>) -> Option<&CString> {
        self.layer(decision).route_lines.get(decision.rule_id()? as usize)
    }

    /// The lines of a socket; of any, where only files of the seeds' form know it.
    pub(crate) fn socket_lines(&self, socket: &[u8]) -> Option<&SocketLines> {
        self.sockets.iter().find(|(name, _)| **name == *socket).map(|(_, lines)| lines)
    }

    /// Of both layers.
    pub(crate) fn backend_count(&self) -> usize {
        let Some(base) = &self.base else { return self.endpoint_count };
        let is_new = |key: &&BackendKey| key.is_endpoint() && !base.backends.contains_key(*key);
        base.endpoint_count + self.backends.keys().filter(is_new).count()
    }

    /// Entries that had to be left out, of both layers.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &String> {
        self.problems.iter().chain(self.base.iter().flat_map(|base| &base.problems))
    }

    /// Of both layers.
    pub(crate) fn rule_count(&self) -> usize {
        self.router.rules().len() + self.base.as_ref().map_or(0, |base| base.router.rules().len())
    }
}

/// Header lines that all requests of one socket share.
pub(crate) struct SocketLines {
    pub(crate) listener: CString,
    pub(crate) forwarded_proto: CString,
    pub(crate) forwarded_port: Option<CString>,
}

impl SocketLines {
    fn new(socket: &str) -> Self {
        let (protocol, port) = socket_parts(socket).unzip();
        let scheme = if protocol == Some("https") { "https" } else { "http" };
        Self {
            listener: c_string(&format!("{LISTENER_HEADER}: {socket}")),
            forwarded_proto: c_string(&format!("X-Forwarded-Proto: {scheme}")),
            forwarded_port: port.map(|port| c_string(&format!("X-Forwarded-Port: {port}"))),
        }
    }
}

fn backends(
    ctx: *const Ctx,
    router: &Router,
    front: &Path,
    known: &[Arc<Table>],
) -> Result<HashMap<BackendKey, Arc<Backend>>, Error> {
    let groups = router.rules().iter().flat_map(|r| r.groups());
    let endpoints = groups.flat_map(|g| g.endpoints().iter().map(|a| (*a, g.tls())));
    let endpoints = endpoints.map(|(address, tls)| BackendKey::new(address, tls, router.timeouts()));
    let by_front = router.rules().iter().flat_map(|rule| {
        let keys = |group| [BackendKey::by_front(rule, group), BackendKey::of_kept(rule, group)];
        (0..rule.groups().len()).flat_map(keys).flatten()
    });
    let wanted: HashSet<_> = endpoints.chain(by_front).collect();
    let front = c_string(&front.to_string_lossy());
    let known = |key: &BackendKey| known.iter().find_map(|table| table.backends.get(key)).cloned();
    let missing = wanted.iter().filter(|key| known(key).is_none()).count();
    let cluster = (missing > 0).then(|| Cluster::new(ctx, missing));
    let mut all = HashMap::with_capacity(wanted.len());
    for key in wanted {
        let backend = match (known(&key), &cluster) {
            (Some(backend), _) => backend,
            (None, Some(cluster)) => Arc::new(Backend::new(ctx, &key, &front, Arc::clone(cluster))?),
            (None, None) => continue,
        };
        all.insert(key, backend);
    }
    Ok(all)
}
