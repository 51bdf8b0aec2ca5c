//! A configuration inside varnishd: the compiled router, with a director for every place a request can go to.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::ghost::Config;
use model::names::{LISTENER_HEADER, ROUTE_HEADER, socket_parts};
use model::{Version, check_version};
use router::{Action, Compiled, Decision, Router};

use crate::answer::Answer;
use crate::backend::{Backend, BackendKey, Cluster};
use crate::error::Error;
use crate::ffi::{Ctx, Director, OwnedDirector, c_string};
use crate::index;
use crate::stats::{ENDPOINTS_ADDED, ENDPOINTS_REMOVED, RouteCounters};
use crate::target::Target;

pub(crate) struct Table {
    router: Arc<Router>,
    /// By rule: the position of its first director.
    first: Box<[u32]>,
    /// A rule's redirect, or one for each of its groups; none for a group without endpoints, unless there is a cache policy.
    directors: Box<[Option<OwnedDirector>]>,
    backends: HashMap<BackendKey, Arc<Backend>>,
    /// Header lines that requests borrow, by rule.
    route_lines: Box<[CString]>,
    /// A few: looking at each is faster than a hash.
    sockets: Box<[(Box<[u8]>, SocketLines)]>,
    counters: RouteCounters,
    /// Entries that had to be left out.
    pub(crate) problems: Vec<String>,
}

/// ghost.json, compiled; nothing of varnishd in it yet.
pub(crate) fn read(path: &Path) -> Result<Compiled, Error> {
    let at = || path.to_owned();
    let text = std::fs::read(path).map_err(|source| Error::Read { path: at(), source })?;
    let parse = |source| Error::Parse { path: at(), source };
    // The version first: what another version means by the rest is not ours to guess.
    let Version { version } = serde_json::from_slice(&text).map_err(parse)?;
    check_version("ghost.json", version).map_err(|source| Error::Version { path: at(), source })?;
    let config: Config = serde_json::from_slice(&text).map_err(parse)?;
    Router::compile(&config).map_err(|source| Error::Version { path: at(), source })
}

/// [`read`] on a thread of its own: the stacks of varnishd's workers are small, and a panic ends here.
pub(crate) fn read_aside(path: &Path) -> Result<Compiled, Error> {
    let at: PathBuf = path.to_owned();
    let reader = std::thread::Builder::new().name("ghost-read".into()).stack_size(8 << 20);
    let running =
        reader.spawn(move || read(&at)).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    running.join().unwrap_or_else(|_| Err(Error::Panic { path: path.to_owned() }))
}

impl Table {
    /// Makes the directors. Backends that `old` has already are shared with it, and so are their connections.
    /// `front` is the unix socket by which backends with TLS are reached.
    pub(crate) fn new(
        ctx: *const Ctx,
        compiled: Compiled,
        front: &Path,
        old: Option<&Self>,
    ) -> Result<Self, Error> {
        let mut router = compiled.router;
        if let Some(old) = old {
            router.take_over(&old.router);
        }
        let router = Arc::new(router);
        let backends = backends(ctx, &router, front, old)?;
        let counters = RouteCounters::new(&router);
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
                        Some(Target::director(ctx, &router, id, at as u32, some, counted)?)
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
        index::learn(router.rules().iter().filter_map(|rule| rule.cache()?.parameters()));
        Ok(Self {
            sockets: sockets.collect(),
            counters,
            route_lines: router.rules().iter().map(line).collect(),
            first: first.into(),
            directors: directors.into(),
            backends,
            problems: compiled.problems.iter().map(ToString::to_string).collect(),
            router,
        })
    }

    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    /// Where a decision of this table's router leads. `None` where it ends at once: 404 or 500.
    pub(crate) fn director(&self, decision: &Decision<'_>) -> Option<Director> {
        let first = self.first[decision.rule_id()? as usize] as usize;
        let at = match decision.action() {
            Action::Forward { group } => first + group,
            Action::Redirect => first,
            Action::NoBackend | Action::Unavailable => first + decision.group()?,
            Action::NotFound | Action::Misdirected => return None,
        };
        self.directors.get(at)?.as_ref().map(OwnedDirector::raw)
    }

    pub(crate) fn counters(&self) -> &RouteCounters {
        &self.counters
    }

    /// `X-Gateway-Route: …` of a rule.
    pub(crate) fn route_line(&self, rule: u32) -> &CString {
        &self.route_lines[rule as usize]
    }

    /// The lines of a socket; of any, where only files of the seeds' form know it.
    pub(crate) fn socket_lines(&self, socket: &[u8]) -> Option<&SocketLines> {
        self.sockets.iter().find(|(name, _)| **name == *socket).map(|(_, lines)| lines)
    }

    pub(crate) fn backend_count(&self) -> usize {
        self.backends.len()
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
    old: Option<&Table>,
) -> Result<HashMap<BackendKey, Arc<Backend>>, Error> {
    let groups = router.rules().iter().flat_map(|r| r.groups());
    let endpoints = groups.flat_map(|g| g.endpoints().iter().map(|a| (*a, g.tls())));
    let wanted: HashSet<_> =
        endpoints.map(|(address, tls)| BackendKey::new(address, tls, router.timeouts())).collect();
    let front = c_string(&front.to_string_lossy());
    let known = |key: &BackendKey| old.and_then(|t| t.backends.get(key)).cloned();
    let missing = wanted.iter().filter(|key| known(key).is_none()).count();
    if let Some(old) = old {
        let kept = wanted.len() - missing;
        ENDPOINTS_ADDED.fetch_add(missing as u64, Ordering::Relaxed);
        ENDPOINTS_REMOVED.fetch_add(old.backends.len().saturating_sub(kept) as u64, Ordering::Relaxed);
    }
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
