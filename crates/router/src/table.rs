//! Sockets, their listeners, and the hosts of each.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use model::names::socket_parts;
use model::{Paths, Timeouts};

use crate::Request;
use crate::certificates::Certificates;
use crate::decision::{Decision, TooLong};
use crate::digest::Digests;
use crate::forwarded::TrustedProxies;
use crate::group::Turns;
use crate::host::{Covered, HostTable, NormalHost};
use crate::normalize::{Normal, Refusal, normalize};
use crate::path::{Entry, HostPaths, PathIndex, split};
use crate::rewrite::Url;
use crate::rule::Rule;

/// One listener of the Gateway.
#[derive(Debug, Clone)]
pub struct Listener {
    name: Box<str>,
    socket: Box<str>,
    scheme: &'static str,
    port: Option<u16>,
}

impl Listener {
    pub(crate) fn new(name: &str, socket: &str) -> Self {
        let parts = socket_parts(socket);
        Self {
            name: name.into(),
            socket: socket.into(),
            scheme: if parts.is_some_and(|(protocol, _)| protocol == "https") { "https" } else { "http" },
            port: parts.map(|(_, port)| port),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// `http-80`
    pub fn socket(&self) -> &str {
        &self.socket
    }

    /// `http` or `https`, as the client speaks it.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

/// The rules of one host on one listener.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostRules {
    pub(crate) paths: HostPaths,
    pub(crate) default_rule: Option<u32>,
}

#[derive(Debug, Clone)]
pub(crate) struct ListenerTable {
    pub(crate) listener: Listener,
    pub(crate) hosts: HostTable<HostRules>,
    /// Of a listener with certificates for single names: which names have the same.
    pub(crate) certificates: Option<Certificates>,
    /// For hosts that are in no table.
    pub(crate) default_rule: Option<u32>,
}

/// A whole configuration, ready to decide.
#[derive(Debug, Clone, Default)]
pub struct Router {
    pub(crate) rules: Box<[Rule]>,
    pub(crate) paths: PathIndex,
    pub(crate) listeners: Box<[ListenerTable]>,
    /// By socket, the positions of its listeners by the hostname that they ask for.
    pub(crate) sockets: HashMap<Box<[u8]>, HostTable<u32>, RandomState>,
    /// By socket with TLS listeners beside: does one of these take the hostname, and not one of ours?
    pub(crate) tls_names: HashMap<Box<[u8]>, HostTable<bool>, RandomState>,
    /// Files of the seeds' form name no listeners: there a route without sockets is for every socket.
    pub(crate) other: Option<u32>,
    pub(crate) timeouts: Timeouts,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) turns: Turns,
    pub(crate) gateway_id: Option<Box<str>>,
    pub(crate) cache_status: bool,
    pub(crate) route_metrics: bool,
    pub(crate) request_log: bool,
    pub(crate) trace_sampling: Option<f64>,
    pub(crate) front_trace_sampling: Option<f64>,
    pub(crate) path_settings: Paths,
    /// All of the file but its hosts.
    pub(crate) frame: Arc<model::ghost::Config>,
    pub(crate) digests: Digests,
    pub(crate) base: Option<Base>,
}

/// The router below one that only says what has changed.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(crate) router: Arc<Router>,
    /// Hosts of which the upper one knows all.
    pub(crate) covered: Covered,
}

/// What becomes of a request as it came.
#[derive(Debug)]
pub struct Routed<'r> {
    pub decision: Decision<'r>,
    /// Takes the place of the request's URL, wherever it goes from here; `None` where that is normal already.
    pub url: Option<Url>,
}

/// A request with another URL.
struct At<'a, R> {
    request: &'a R,
    url: &'a [u8],
}

impl<R: Request> Request for At<'_, R> {
    fn socket(&self) -> &[u8] {
        self.request.socket()
    }

    fn server_name(&self) -> Option<&[u8]> {
        self.request.server_name()
    }

    fn host(&self) -> &[u8] {
        self.request.host()
    }

    fn method(&self) -> &[u8] {
        self.request.method()
    }

    fn url(&self) -> &[u8] {
        self.url
    }

    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.request.any_header(name, seen)
    }
}

impl Router {
    /// Normalises the path of one request, and decides by what comes out. A path that origins may read as another rule's is
    /// refused.
    pub fn route(&self, request: &impl Request, random: u64) -> Routed<'_> {
        let Normal { url, reading, uncacheable } = match self.normalize(request.url()) {
            Ok(normal) => normal,
            Err(why) => return Routed { decision: self.refuse(request, why), url: None },
        };
        let mut decision = match &url {
            Some(url) => self.decide(&At { request, url }, random),
            None => self.decide(request, random),
        };
        if let Some(reading) = reading
            && !decision.is_of_same_rule(&self.decide(&At { request, url: &reading }, random))
            // A rule that asks for a path parameter means it.
            && (uncacheable || !decision.rule().is_some_and(|rule| rule.path.value.contains(';')))
        {
            decision = self.refuse(request, Refusal::Ambiguous);
        }
        if uncacheable {
            decision = decision.ambiguous();
        }
        Routed { decision, url }
    }

    /// The URL by which requests for it are routed, sent and kept.
    pub fn normalize(&self, url: &[u8]) -> Result<Normal, Refusal> {
        normalize(self.path_settings, url)
    }

    fn refuse(&self, request: &impl Request, why: Refusal) -> Decision<'_> {
        let table = self.listener_for(request.socket(), NormalHost::new(request.host()).as_bytes());
        Decision::refused(table.map(|table| &table.listener), why)
    }

    /// Decides one request, whose URL is normal already; `random` makes the weighted pick.
    pub fn decide(&self, request: &impl Request, random: u64) -> Decision<'_> {
        let host = NormalHost::new(request.host());
        if let Some(name) = request.server_name()
            // A client that was let in by this very name is right here.
            && NormalHost::new(name).as_bytes() != host.as_bytes()
            && self.is_a_strangers(request.socket(), host.as_bytes())
        {
            let of_connection = self.listener_for(request.socket(), NormalHost::new(name).as_bytes());
            return Decision::misdirected(of_connection.map(|table| &table.listener));
        }
        let Some(at) = self.position_for(request.socket(), host.as_bytes()) else {
            return Decision::not_found(None);
        };
        let table = &self.listeners[at];
        if let Some(name) = request.server_name() {
            let name = NormalHost::new(name);
            if self.position_for(request.socket(), name.as_bytes()) != Some(at) {
                return Decision::misdirected(Some(&table.listener));
            }
            if let Some(certificates) = &table.certificates {
                // As among listeners: hosts with different certificates must not share a connection.
                let below =
                    self.base.as_ref().and_then(|base| base.router.listeners[at].certificates.as_ref());
                match certificates.set_of(host.as_bytes(), below) {
                    None => return Decision::not_found(Some(&table.listener)),
                    of_host if of_host != certificates.set_of(name.as_bytes(), below) => {
                        return Decision::misdirected(Some(&table.listener));
                    }
                    _ => {}
                }
            }
        }
        let Some(Base { router, covered }) = &self.base else {
            return self.choose(table, request, table.hosts.get(host.as_bytes()), random);
        };
        // Both have the same listeners.
        let below = &router.listeners[at];
        match table.hosts.get_over(&below.hosts, covered, host.as_bytes()) {
            Some((of_host, false)) => self.choose(table, request, Some(of_host), random),
            Some((of_host, true)) => router.choose(below, request, Some(of_host), random).by_the_base(),
            None => router.choose(below, request, None, random).by_the_base(),
        }
    }

    /// Among the rules of this layer.
    fn choose<'r>(
        &'r self,
        table: &'r ListenerTable,
        request: &impl Request,
        of_host: Option<&'r HostRules>,
        random: u64,
    ) -> Decision<'r> {
        let listener = &table.listener;
        let default = |id: Option<u32>| match id.map(|id| (id, &self.rules[id as usize])) {
            Some((id, rule)) => Decision::of_rule(listener, id, rule, rule.fate(), random),
            None => Decision::not_found(Some(listener)),
        };
        let Some(of_host) = of_host else { return default(table.default_rule) };
        let (path, query) = split(request.url());
        let mut too_long = None;
        let found = self.paths.find(&of_host.paths, &self.rules, path, |rule| {
            rule.accepts(request, query).unwrap_or_else(|what| {
                // It is unknown whether it is this rule's: no other one may take it.
                too_long = Some(what);
                true
            })
        });
        let decision = match (found, too_long) {
            (Err(what), _) | (_, Some(what)) => Decision::too_long(listener, what),
            (Ok(Some(Entry { rule: id, fate, .. })), None) => {
                let rule = &self.rules[*id as usize];
                Decision::of_rule(listener, *id, rule, *fate, random)
            }
            (Ok(None), None) => default(of_host.default_rule),
        };
        decision.or_preflight(request)
    }

    /// Among listeners of one socket the most specific hostname takes the request.
    fn position_for(&self, socket: &[u8], host: &[u8]) -> Option<usize> {
        let at = match self.sockets.get(socket) {
            Some(listeners) => listeners.get(host)?,
            None => self.other.as_ref()?,
        };
        Some(*at as usize)
    }

    /// Does a TLS listener take it, whose connections do not come here?
    fn is_a_strangers(&self, socket: &[u8], host: &[u8]) -> bool {
        !self.tls_names.is_empty()
            && self.tls_names.get(socket).and_then(|listeners| listeners.get(host)).is_some_and(|is| *is)
    }

    pub(crate) fn listener_for(&self, socket: &[u8], host: &[u8]) -> Option<&ListenerTable> {
        self.position_for(socket, host).map(|at| &self.listeners[at])
    }

    /// All rules, in the order of the file; those of the base are the base's.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The router whose hosts count beside ours.
    pub fn base(&self) -> Option<&Arc<Self>> {
        self.base.as_ref().map(|base| &base.router)
    }

    pub fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().map(|table| &table.listener)
    }

    /// Goes on where an older configuration is: endpoints that take turns do not start again.
    pub fn take_over(&mut self, older: &Self) {
        let base = self.base().cloned();
        // The base's last: all rules that lead to one Service take the same turns.
        for older in [Some(older), older.base().map(AsRef::as_ref), base.as_deref()].into_iter().flatten() {
            self.turns.take_over(&older.turns);
            self.rules.iter_mut().for_each(|rule| rule.take_over(&older.turns));
        }
    }

    /// One number for all that decides about requests and the cache: all of the file but endpoints. The same in every process, never 0.
    pub fn digest(&self) -> u64 {
        self.digests.digest()
    }

    /// What tells this Gateway from others in CDN-Loop.
    pub fn gateway_id(&self) -> Option<&str> {
        self.gateway_id.as_deref()
    }

    /// Whether answers are to say in X-Cache what the cache did.
    pub fn tells_cache_status(&self) -> bool {
        self.cache_status
    }

    /// Whether requests are counted for each route.
    pub fn counts_routes(&self) -> bool {
        self.route_metrics
    }

    /// Whether varnishd's log is to say what access logs need.
    pub fn logs_requests(&self) -> bool {
        self.request_log
    }

    /// Whether requests are spans, and the share of new traces that is recorded.
    pub fn trace_sampling(&self) -> Option<f64> {
        self.trace_sampling
    }

    /// The same where the front carries HTTP and makes the spans.
    pub fn front_trace_sampling(&self) -> Option<f64> {
        self.front_trace_sampling
    }

    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub fn trusted_proxies(&self) -> &TrustedProxies {
        &self.trusted_proxies
    }
}

impl Rule {
    /// Everything but listener, host and path.
    pub(crate) fn accepts(&self, request: &impl Request, query: &[u8]) -> Result<bool, TooLong> {
        if self.method.as_ref().is_some_and(|method| method.as_bytes() != request.method()) {
            return Ok(false);
        }
        for header in &self.headers {
            if !header.matches_header(request)? {
                return Ok(false);
            }
        }
        for param in &self.query_params {
            if !param.matches_query(query)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
