//! One match of one rule, compiled.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use model::matches::{self, PathMatch, PathMatchType};
use model::{Paths, RouteKind, ghost};

use crate::cache::Cache;
use crate::cors::Cors;
use crate::edit::Edits;
use crate::group::{Group, Turns};
use crate::header::ValueMatcher;
use crate::normalize::normalize_rule;
use crate::pattern::{self, Pattern};
use crate::redirect::Redirect;
use crate::upstream::Upstream;

/// What a request must be, and what becomes of it.
#[derive(Debug, Clone)]
pub struct Rule {
    kind: RouteKind,
    route_name: Box<str>,
    rule_name: Option<Box<str>>,
    rule_index: u32,
    /// The route's hostname under which this rule stands.
    pub(crate) hostname: Box<str>,
    pub(crate) path: PathMatch,
    path_pattern: Option<Pattern>,
    pub(crate) method: Option<Box<str>>,
    pub(crate) headers: Box<[ValueMatcher]>,
    pub(crate) query_params: Box<[ValueMatcher]>,
    groups: Box<[Group]>,
    /// Most rules have none.
    pub(crate) edits: Option<Box<Edits>>,
    pub(crate) redirect: Option<Box<Redirect>>,
    /// Without one every request bypasses the cache.
    pub(crate) cache: Option<Arc<Cache>>,
    /// See [`Self::invalidates_on_unsafe`].
    pub(crate) invalidates: bool,
    pub(crate) upstream: Option<Box<Upstream>>,
    cors: Option<Box<Cors>>,
    identity: Box<str>,
}

/// What becomes of the requests of a rule. Small, because the index holds it for every rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Redirect,
    NoBackend,
    /// All go to the first group.
    Forward,
    /// The groups must be asked.
    Pick,
}

/// What a rule is known by in cache keys. Not its position: a rule that is put before others would give them each other's
/// objects.
fn identity(from: &ghost::Route) -> String {
    // Routes of several kinds may have the same name.
    let kind = match from.kind {
        RouteKind::HttpRoute => String::new(),
        other => format!("{} ", other.name()),
    };
    if let Some(name) = &from.rule_name {
        return format!("{kind}{}#{name}", from.route_name);
    }
    let mut hasher = DefaultHasher::new();
    (&from.path_match, &from.method, &from.headers, &from.query_params).hash(&mut hasher);
    format!("{kind}{}#{:016x}", from.route_name, hasher.finish())
}

impl Rule {
    pub(crate) fn compile(
        from: &ghost::Route,
        hostname: &str,
        paths: Paths,
        turns: &mut Turns,
    ) -> Result<Self, pattern::Error> {
        let mut path = from.path_match.clone().unwrap_or_else(PathMatch::everything);
        if !matches!(path.kind, PathMatchType::RegularExpression)
            && let Some(normal) = normalize_rule(paths, &path.value)
        {
            path.value = normal;
        }
        let path_pattern = match path.kind {
            PathMatchType::RegularExpression => Some(Pattern::compile(&path.value)?),
            PathMatchType::Exact | PathMatchType::PathPrefix => None,
        };
        let values = |list: &[matches::ValueMatch]| {
            list.iter().map(ValueMatcher::compile).collect::<Result<Box<[_]>, _>>()
        };
        let filters = from.filters.as_deref();
        let prefix = matches!(path.kind, PathMatchType::PathPrefix).then_some(path.value.as_str());
        Ok(Self {
            kind: from.kind,
            route_name: from.route_name.as_str().into(),
            rule_name: from.rule_name.as_deref().map(Into::into),
            rule_index: from.rule_index,
            hostname: hostname.into(),
            path_pattern,
            method: from.method.as_deref().map(Into::into),
            headers: values(&from.headers)?,
            query_params: values(&from.query_params)?,
            groups: from.backends.iter().map(|group| Group::new(group, prefix, turns)).collect(),
            edits: filters.map(|filters| Box::new(Edits::new(filters, prefix))),
            redirect: filters
                .and_then(|filters| filters.request_redirect.as_ref())
                .map(|redirect| Box::new(Redirect::new(redirect, prefix))),
            cache: None,
            invalidates: false,
            upstream: Upstream::compile(from, turns),
            cors: filters.and_then(|filters| filters.cors.as_ref()).map(|cors| Box::new(Cors::new(cors))),
            identity: identity(from).into(),
            path,
        })
    }

    pub fn kind(&self) -> RouteKind {
        self.kind
    }

    /// `namespace/name` of the route.
    pub fn route_name(&self) -> &str {
        &self.route_name
    }

    /// The namespace of the route: its tenant.
    pub fn namespace(&self) -> &str {
        self.route_name.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn rule_name(&self) -> Option<&str> {
        self.rule_name.as_deref()
    }

    pub fn rule_index(&self) -> u32 {
        self.rule_index
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub(crate) fn take_over(&mut self, older: &Turns) {
        self.groups.iter_mut().for_each(|group| group.take_over(older));
        self.upstream.iter_mut().for_each(|upstream| upstream.take_over(older));
    }

    /// Who may read its responses, where the rule says so.
    pub fn cors(&self) -> Option<&Cors> {
        self.cors.as_deref()
    }

    pub fn redirects(&self) -> bool {
        self.redirect.is_some()
    }

    /// What its cache policy says.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_deref()
    }

    /// Whether a response to an unsafe method invalidates what is stored of its URL: by the rule's own cache policy. A rule without one
    /// invalidates if another rule of its hostname and namespace has a policy that does: that rule may have stored the same URL.
    pub fn invalidates_on_unsafe(&self) -> bool {
        self.invalidates
    }

    /// Does a header of this name choose the rule, or is it part of the cache key?
    pub fn looks_at_header(&self, name: &[u8]) -> bool {
        let key_headers = self.cache.iter().flat_map(|cache| cache.key_headers());
        let mut names = self.headers.iter().map(|header| &*header.name).chain(key_headers);
        names.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The route's hostname under which this rule stands.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Tells this rule's cached objects from those of others with the same host and URL.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// More than one group can answer, and their answers may differ.
    pub(crate) fn splits(&self) -> bool {
        self.groups.iter().filter(|g| g.weight > 0).count() > 1
    }

    pub(crate) fn fate(&self) -> Fate {
        let mut weighted = self.groups.iter().enumerate().filter(|(_, group)| group.weight > 0);
        match (weighted.next(), weighted.next()) {
            _ if self.redirects() => Fate::Redirect,
            (None, _) => Fate::NoBackend,
            (Some((_, only)), None) if only.endpoints().is_empty() => Fate::NoBackend,
            (Some((0, _)), None) => Fate::Forward,
            _ => Fate::Pick,
        }
    }

    /// More than host and path decide.
    pub(crate) fn looks_beyond_the_path(&self) -> bool {
        self.method.is_some() || !self.headers.is_empty() || !self.query_params.is_empty()
    }

    /// Another match of the same rule of an HTTPRoute. Each path of an Ingress has a backend of its own.
    pub(crate) fn is_match_of_same_rule(&self, other: &Self) -> bool {
        self.kind == RouteKind::HttpRoute
            && other.kind == RouteKind::HttpRoute
            && (&self.route_name, self.rule_index) == (&other.route_name, other.rule_index)
    }

    pub(crate) fn path_pattern_matches(&self, path: &[u8]) -> bool {
        self.path_pattern.as_ref().is_some_and(|p| p.is_match(path))
    }
}

/// For people.
impl Rule {
    /// `PathPrefix /shop, method GET, header x-version`
    pub fn conditions(&self) -> String {
        let headers = self.headers.iter().map(|header| header.name.to_string());
        let query_params = self.query_params.iter().map(|param| param.name.to_string());
        matches::in_words(&self.path, self.method.as_deref(), headers, query_params)
    }
}
