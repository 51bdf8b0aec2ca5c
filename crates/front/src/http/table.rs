//! The router's table, with what the front adds to each rule: counters, and header values that requests share.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use model::MissFor;
use model::stats::Stats;
use router::counters::{Counters, FlowCounters, Registry, RouteCounters};
use router::{Decision, Listener, Router, Rule};

use super::health::{self, Health};
use super::origin::{Patience, Target};
use super::upstream::session::{SessionKey, Sessions};

#[derive(Debug)]
pub(crate) struct Table {
    upper: Arc<Layer>,
    base: Option<Arc<Layer>>,
    /// For CDN-Loop.
    pub(crate) gateway_id: Option<HeaderValue>,
    /// Of the router.
    pub(crate) digest: u64,
    /// How long origins may take.
    pub(crate) patience: Patience,
}

/// The rules of one router, without those of its base.
#[derive(Debug)]
struct Layer {
    router: Arc<Router>,
    counters: RouteCounters,
    /// `namespace/name` of each rule's route.
    routes: Box<[HeaderValue]>,
    /// What is known about the endpoints of each rule's groups.
    health: Box<[Box<[Arc<health::Group>]>]>,
    /// And of those that get copies of its requests.
    mirrors: Box<[Box<[Arc<health::Group>]>]>,
    /// The same for backendRefs with mirrors of their own, by rule and group.
    backend_mirrors: HashMap<(u32, usize), Box<[Arc<health::Group>]>>,
    /// Of the rules that have them; empty where none has.
    sessions: Box<[Option<Box<Sessions>>]>,
    /// Rules that need the front for misses, by identity and host.
    by_identity: HashMap<(Box<str>, Box<str>), u32>,
}

/// A rule of a [`Table`], to be found again after the router's own borrow has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RuleId {
    id: u32,
    of_base: bool,
}

impl RuleId {
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        decision.rule_id().map(|id| Self { id, of_base: decision.is_of_base() })
    }
}

/// Whose mirrors: those of a rule, or those of one of its groups alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MirrorsOf {
    pub(crate) rule: RuleId,
    pub(crate) group: Option<usize>,
}

/// A listener of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenerId {
    id: usize,
    of_base: bool,
}

impl Layer {
    fn new(router: Arc<Router>, registry: &Registry, health: &Health, key: &SessionKey) -> Self {
        let counters = RouteCounters::new(&router, registry);
        let mut routes: Vec<HeaderValue> = Vec::with_capacity(router.rules().len());
        for rule in router.rules() {
            // Rules of one route stand together, and share its name.
            let name = rule.route_name();
            let value = match routes.last().filter(|last| last.as_bytes() == name.as_bytes()) {
                Some(last) => last.clone(),
                None => HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("")),
            };
            routes.push(value);
        }
        let groups =
            |rule: &Rule| rule.groups().iter().map(|group| health.group(rule.route_name(), group)).collect();
        let copies = |rule: &Rule, mirrors: &[router::Mirror]| -> Box<[Arc<health::Group>]> {
            mirrors.iter().map(|mirror| health.mirror(rule.route_name(), mirror.group())).collect()
        };
        let mirrors = router.rules().iter().map(|rule| copies(rule, rule.mirrors())).collect();
        let of_groups = router.rules().iter().zip(0..).flat_map(|(rule, id)| {
            let groups = rule.groups().iter().enumerate().filter(|(_, group)| !group.mirrors().is_empty());
            groups.map(move |(at, group)| ((id, at), copies(rule, group.mirrors())))
        });
        let backend_mirrors = of_groups.collect();
        let health = router.rules().iter().map(groups).collect();
        let needs_front = |rule: &&Rule| (0..rule.groups().len()).any(|group| rule.needs_front(group));
        let by_identity = router.rules().iter().zip(0..).filter(|(rule, _)| needs_front(rule));
        let by_identity =
            by_identity.map(|(rule, id)| ((rule.identity().into(), rule.hostname().into()), id)).collect();
        let session = |rule: &Rule| Sessions::new(rule, key).map(Box::new);
        let sessions = if router.rules().iter().any(|rule| rule.session().is_some()) {
            router.rules().iter().map(session).collect()
        } else {
            Box::default()
        };
        Self {
            router,
            counters,
            routes: routes.into(),
            health,
            mirrors,
            backend_mirrors,
            sessions,
            by_identity,
        }
    }
}

impl Table {
    /// A base that `old` has is taken over.
    pub(crate) fn new(
        router: Arc<Router>,
        registry: &Registry,
        health: &Health,
        key: &SessionKey,
        old: Option<&Self>,
    ) -> Self {
        let base = router.base().map(|base| {
            let known =
                old.and_then(|old| old.base.as_ref()).filter(|known| Arc::ptr_eq(&known.router, base));
            known.cloned().unwrap_or_else(|| Arc::new(Layer::new(Arc::clone(base), registry, health, key)))
        });
        let gateway_id = router.gateway_id().and_then(|id| HeaderValue::from_str(id).ok());
        let digest = router.digest();
        let patience = Patience::from(router.timeouts());
        Self {
            upper: Arc::new(Layer::new(router, registry, health, key)),
            base,
            gateway_id,
            digest,
            patience,
        }
    }

    pub(crate) fn router(&self) -> &Router {
        &self.upper.router
    }

    fn layer(&self, of_base: bool) -> &Layer {
        match &self.base {
            Some(base) if of_base => base,
            _ => &self.upper,
        }
    }

    pub(crate) fn rule(&self, at: RuleId) -> Option<&Rule> {
        self.layer(at.of_base).router.rules().get(at.id as usize)
    }

    /// One group of a rule.
    pub(crate) fn target(&self, at: RuleId, group: usize) -> Option<Target<'_>> {
        let health = self.layer(at.of_base).health.get(at.id as usize)?.get(group)?;
        Some(Target { group: self.rule(at)?.groups().get(group)?, health })
    }

    /// The mirrors of a rule, or of one of its groups.
    pub(crate) fn mirrors(&self, of: MirrorsOf) -> &[router::Mirror] {
        let Some(rule) = self.rule(of.rule) else { return &[] };
        match of.group {
            None => rule.mirrors(),
            Some(group) => rule.groups().get(group).map_or(&[], |group| group.mirrors()),
        }
    }

    /// The Service that gets copies by one of these mirrors.
    pub(crate) fn mirror(&self, of: MirrorsOf, at: usize) -> Option<Target<'_>> {
        let (layer, id) = (self.layer(of.rule.of_base), of.rule.id);
        let known = match of.group {
            None => layer.mirrors.get(id as usize)?,
            Some(group) => layer.backend_mirrors.get(&(id, group))?,
        };
        Some(Target { group: self.mirrors(of).get(at)?.group(), health: known.get(at)? })
    }

    /// The sessions of a rule that has them.
    pub(crate) fn sessions(&self, at: RuleId) -> Option<&Sessions> {
        self.layer(at.of_base).sessions.get(at.id as usize)?.as_deref()
    }

    pub(crate) fn route_name(&self, at: RuleId) -> Option<&HeaderValue> {
        self.layer(at.of_base).routes.get(at.id as usize).filter(|name| !name.is_empty())
    }

    /// The group that ghost means by these names.
    pub(crate) fn find(&self, miss: MissFor<'_>) -> Option<(RuleId, usize)> {
        let name = (Box::from(miss.rule), Box::from(miss.host));
        let upper = self.upper.by_identity.get(&name).map(|id| RuleId { id: *id, of_base: false });
        let below = || {
            let id = self.base.as_ref()?.by_identity.get(&name)?;
            Some(RuleId { id: *id, of_base: true })
        };
        let rule = upper.or_else(below)?;
        let groups = self.rule(rule)?.groups();
        let is_named = |at: &usize| groups.get(*at).is_some_and(|group| group.name() == miss.group);
        let group = Some(miss.position).filter(is_named).or_else(|| (0..groups.len()).find(is_named))?;
        (!groups.get(group)?.endpoints().is_empty()).then_some((rule, group))
    }

    /// Looks through all of them: for requests that are logged.
    pub(crate) fn listener(&self, decision: &Decision<'_>) -> Option<ListenerId> {
        let (of_base, listener) = (decision.is_of_base(), decision.listener()?);
        let mut all = self.layer(of_base).router.listeners();
        all.position(|one| std::ptr::eq(one, listener)).map(|id| ListenerId { id, of_base })
    }

    pub(crate) fn listener_name(&self, at: ListenerId) -> Option<&str> {
        self.layer(at.of_base).router.listeners().nth(at.id).map(Listener::name)
    }

    pub(crate) fn counters(&self, at: Option<RuleId>) -> Option<&Arc<Counters>> {
        self.layer(at.is_some_and(|at| at.of_base)).counters.of(at.map(|at| at.id))
    }

    /// What counts a request by its way: for its socket, and for the Service that it is for.
    pub(crate) fn flows(
        &self,
        socket: &str,
        rule: Option<RuleId>,
        group: Option<usize>,
    ) -> impl Iterator<Item = &FlowCounters> {
        let of_base = || self.base.as_ref().and_then(|base| base.counters.socket(socket));
        let of_socket = self.upper.counters.socket(socket).or_else(of_base);
        let of_service = rule
            .zip(group)
            .and_then(|(rule, group)| self.layer(rule.of_base).counters.service(rule.id, group));
        of_socket.into_iter().chain(of_service)
    }

    pub(crate) fn stats(&self) -> Stats {
        let below = self.base.as_ref().map(|base| (&base.counters, &*base.router));
        self.upper.counters.read(&self.upper.router, below)
    }
}
