//! The rules of one HTTPRoute, as entries of routing.json that only lack host and listeners.

use gateway_api::experimental::httproutes::{
    HttpRoute, HttpRouteRules, HttpRouteUseDefaultGateways as DefaultGateways,
};
use model::filters::Filters;
use model::routing::{self, Route};

use super::backends::{self, Backend};
use super::filters::{self, Asked, FilterFault};
use super::matches::{self, Match, Matches};
use super::upstream::{self, Upstream};
use crate::backend_tls_policy::Policies;
use crate::grants::Grants;
use crate::listener::{Fault, RouteKind};
use crate::patterns::{MOST_BYTES_OF_ROUTES, Meter};
use crate::refused;
use crate::snapshot::{Key, Snapshot};

/// What all rules of all routes share.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) grants: &'a Grants<'a>,
    pub(super) backend_tls: &'a Policies<'a>,
    pub(super) patterns: Meter,
    /// The route that is being read.
    route: Key,
    pub(super) kind: RouteKind,
}

impl<'a> Context<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, grants: &'a Grants<'a>, backend_tls: &'a Policies<'a>) -> Self {
        Self {
            snapshot,
            grants,
            backend_tls,
            patterns: Meter::new(MOST_BYTES_OF_ROUTES),
            route: Key::default(),
            kind: RouteKind::HttpRoute,
        }
    }

    pub(super) fn begin(&mut self, route: &Key, kind: RouteKind) {
        self.route = route.clone();
        self.kind = kind;
    }

    /// What clients get for a request that cannot be served.
    fn failure(&self) -> &'static str {
        if self.kind == RouteKind::GrpcRoute { "UNAVAILABLE" } else { "500" }
    }

    /// Can ghost use this regular expression?
    pub(super) fn check_pattern(&mut self, pattern: &str) -> Result<(), String> {
        self.patterns.check(&self.route, pattern)
    }
}

/// A route's rules, whichever parents it has.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// In order of rule and match.
    pub(super) entries: Vec<Route>,
    /// 500 for matches that cannot be read, as far as they are known. They may be wider than what was meant, so any other
    /// entry that is as specific goes before them.
    pub(super) rough: Vec<Route>,
    /// The route is a stand-in: no rule of it is served.
    pub(super) refused: Option<Fault>,
    /// One for each rule that cannot be served as it stands.
    pub(super) dropped: Vec<Fault>,
    /// One for each invalid reference.
    pub(super) unresolved: Vec<Fault>,
    /// Paths of fields that are set and not carried out.
    pub(super) unsupported_fields: Vec<String>,
    /// Paths of sessions, which only the front can keep.
    pub(super) sessions: Vec<String>,
    count: usize,
}

impl Rules {
    pub(super) fn new(key: &Key, route: &HttpRoute, context: &mut Context<'_>) -> Self {
        if let Some(why) = refused::why(&route.metadata) {
            return Self::refused(key, route, why, context);
        }
        // The API server's default: one rule for everything, without a backend.
        let default = [HttpRouteRules::default()];
        let specs = route.spec.rules.as_deref().filter(|rules| !rules.is_empty()).unwrap_or(&default);
        let mut rules = Self { count: specs.len(), ..Self::default() };
        if route.spec.use_default_gateways.as_ref().is_some_and(|scope| *scope != DefaultGateways::None) {
            rules.unsupported_fields.push("spec.useDefaultGateways".to_owned());
        }
        for (index, spec) in specs.iter().enumerate() {
            rules.add(key, index, spec, context);
        }
        rules
    }

    /// 500 for all requests of a stand-in, as far as they are known.
    fn refused(key: &Key, route: &HttpRoute, why: &str, context: &mut Context<'_>) -> Self {
        let failure = context.failure();
        let message = format!(
            "The route cannot be used, so the requests that it can be seen to be for get {failure}: {why}"
        );
        let mut rules =
            Self { refused: Some(Fault { reason: "UnsupportedValue", message }), ..Self::default() };
        for (index, spec) in route.spec.rules.iter().flatten().enumerate() {
            let matches = matches::read("", spec.matches.as_deref().unwrap_or_default(), context);
            rules.close(&Rule::new(key, index, spec, context.kind), &matches);
        }
        rules
    }

    /// A rule that cannot be served answers its requests with 500: they must not fall to a wider rule.
    fn close(&mut self, rule: &Rule, matches: &Matches) {
        let close = |m: &Match| rule.entry(m, &Asked::default(), &Upstream::default(), &[]);
        self.entries.extend(matches.exact.iter().map(close));
        self.rough.extend(matches.rough.iter().map(close));
    }

    pub(super) fn none_is_valid(&self) -> bool {
        self.dropped.len() == self.count
    }

    pub(super) fn dropped_text(&self) -> String {
        self.dropped.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("; ")
    }

    fn add(&mut self, key: &Key, index: usize, spec: &HttpRouteRules, context: &mut Context<'_>) {
        let path = format!("spec.rules[{index}]");
        // References are judged also where the rule is dropped, so that one look shows all that must be corrected.
        let mut backends = backends::resolve(key, &path, spec, context, &mut self.unresolved);

        let rule = Rule::new(key, index, spec, context.kind);
        let matches = matches::read(&path, spec.matches.as_deref().unwrap_or_default(), context);
        if let Some(fault) = &matches.fault {
            self.close(&rule, &matches);
            let message =
                format!("{fault} (requests that the rule can be seen to be for get {})", context.failure());
            self.dropped.push(Fault { reason: "UnsupportedValue", message });
            return;
        }
        let asked =
            filters::read(key, &path, spec, &matches.exact, &mut backends, context, &mut self.unresolved)
                .and_then(|asked| {
                    let upstream =
                        upstream::read(key, &path, index, spec).map_err(FilterFault::unsupported)?;
                    Ok((asked, upstream))
                });
        match asked {
            Ok((asked, upstream)) => {
                if upstream.session.is_some() {
                    self.sessions.push(format!("{path}.sessionPersistence"));
                }
                let entry = |m| rule.entry(m, &asked, &upstream, &backends);
                self.entries.extend(matches.exact.iter().map(entry));
            }
            Err(fault) => {
                // A filter must not be skipped.
                self.close(&rule, &matches);
                let message = format!("{} (its requests get {})", fault.message, context.failure());
                self.dropped.push(Fault { reason: fault.reason, message });
                self.unresolved.extend(fault.unresolved);
            }
        }
    }
}

/// What the entries of one rule have in common.
struct Rule {
    kind: RouteKind,
    route_name: String,
    rule_name: Option<String>,
    rule_index: u32,
}

impl Rule {
    fn new(key: &Key, index: usize, spec: &HttpRouteRules, kind: RouteKind) -> Self {
        Self {
            kind,
            route_name: key.to_string(),
            rule_name: spec.name.clone(),
            rule_index: u32::try_from(index).unwrap_or(u32::MAX),
        }
    }

    /// Without backends it redirects, or answers 500.
    fn entry(&self, m: &Match, asked: &Asked, upstream: &Upstream, backends: &[Backend]) -> Route {
        Route {
            path_match: Some(m.path.clone()),
            method: m.method.map(str::to_owned),
            headers: m.headers.clone(),
            query_params: m.query_params.clone(),
            filters: set(&asked.filters),
            backends: backends.iter().map(written).collect(),
            mirrors: asked.mirrors.clone(),
            timeouts: upstream.timeouts,
            retry: upstream.retry.clone().map(Box::new),
            session_persistence: upstream.session.clone().map(Box::new),
            kind: self.kind,
            route_name: self.route_name.clone(),
            rule_name: self.rule_name.clone(),
            rule_index: self.rule_index,
            ..Route::default()
        }
    }
}

/// As routing.json has it: one that is not valid has its weight alone.
fn written(backend: &Backend) -> routing::Backend {
    let mut new = routing::Backend { weight: Some(backend.weight), ..routing::Backend::default() };
    if let Some(target) = &backend.target {
        new.service = Some(target.service.name.as_str().into());
        new.namespace = Some(target.service.namespace.as_str().into());
        new.port = Some(target.port);
        new.port_name = Some(target.port_name.as_str().into());
        new.protocol = target.protocol;
        new.filters = set(&backend.filters);
        new.mirrors.clone_from(&backend.mirrors);
    }
    new
}

/// Most rules have none: they are not written.
fn set(filters: &Filters) -> Option<Box<Filters>> {
    (*filters != Filters::default()).then(|| Box::new(filters.clone()))
}
