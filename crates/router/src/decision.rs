//! The decision about one request.

use model::RouteKind;

use crate::Request;
use crate::cache::Cache;
use crate::cors;
use crate::group::by_weight;
use crate::normalize::Refusal;
use crate::rule::{Fate, Rule};
use crate::table::Listener;

/// The answer to one request. It borrows from the router and holds nothing of the request.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'r> {
    listener: Option<&'r Listener>,
    rule: Option<(u32, &'r Rule)>,
    action: Action,
    /// The group whose share the request is, with endpoints or without.
    group: Option<usize>,
    /// Listener and rule are those of [`crate::Router::base`].
    of_base: bool,
    /// Origins may read the path otherwise: it must not meet the cache.
    is_ambiguous: bool,
}

/// What the carrier of the request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To an endpoint of this group of the rule, of which there is at least one.
    Forward { group: usize },
    /// Answer with the rule's redirect.
    Redirect,
    /// Answer a browser's preflight request by the rule's [`Rule::cors`].
    Preflight,
    /// 404: no listener, host or rule fits.
    NotFound,
    /// 400: the path has more than one reading, or none.
    Refused(Refusal),
    /// 421: the connection was made for another listener.
    Misdirected,
    /// 414 or 431: a pattern decides, and what it would have to match is too long.
    TooLong(TooLong),
    /// 500: the share of an empty or invalid group, or nothing has weight.
    NoBackend,
    /// 508: the request has been through this Gateway before.
    Loop,
    /// 503: an Ingress's Service has no endpoints, or there is no Ingress at all.
    Unavailable,
}

/// What of a request is longer than [`crate::budget::LONGEST_VALUE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// Its path, or a query parameter.
    Url,
    /// All values of one header.
    Header,
}

fn no_backend(rule: &Rule) -> Action {
    match rule.kind().status_without_backend() {
        500 => Action::NoBackend,
        _ => Action::Unavailable,
    }
}

impl<'r> Decision<'r> {
    pub(crate) fn not_found(listener: Option<&'r Listener>) -> Self {
        Self::without_rule(listener, Action::NotFound)
    }

    pub(crate) fn misdirected(listener: Option<&'r Listener>) -> Self {
        Self::without_rule(listener, Action::Misdirected)
    }

    pub(crate) fn refused(listener: Option<&'r Listener>, why: Refusal) -> Self {
        Self::without_rule(listener, Action::Refused(why))
    }

    fn without_rule(listener: Option<&'r Listener>, action: Action) -> Self {
        Self { listener, rule: None, action, group: None, of_base: false, is_ambiguous: false }
    }

    pub(crate) fn too_long(listener: &'r Listener, what: TooLong) -> Self {
        Self { action: Action::TooLong(what), ..Self::not_found(Some(listener)) }
    }

    pub(crate) fn of_rule(listener: &'r Listener, id: u32, rule: &'r Rule, fate: Fate, random: u64) -> Self {
        let group = match fate {
            Fate::Redirect => None,
            Fate::Forward => Some(0),
            Fate::NoBackend | Fate::Pick => by_weight(rule.groups(), random),
        };
        let action = match (fate, group) {
            (Fate::Redirect, _) => Action::Redirect,
            (Fate::Forward | Fate::Pick, Some(group)) if !rule.groups()[group].endpoints().is_empty() => {
                Action::Forward { group }
            }
            _ => no_backend(rule),
        };
        Self {
            listener: Some(listener),
            rule: Some((id, rule)),
            action,
            group,
            of_base: false,
            is_ambiguous: false,
        }
    }

    /// Preflight requests are answered without backend and cache.
    pub(crate) fn or_preflight(self, request: &impl Request) -> Self {
        match self.rule {
            // The method goes first: the rule is not looked at for other requests.
            Some((_, rule))
                if request.method() == b"OPTIONS" && rule.cors().is_some() && cors::is_preflight(request) =>
            {
                Self { action: Action::Preflight, group: None, ..self }
            }
            _ => self,
        }
    }

    pub(crate) fn by_the_base(self) -> Self {
        Self { of_base: true, ..self }
    }

    /// The same for a request that has been through this Gateway before: it goes nowhere.
    pub fn looped(self) -> Self {
        Self { action: Action::Loop, group: None, ..self }
    }

    pub(crate) fn ambiguous(self) -> Self {
        Self { is_ambiguous: true, ..self }
    }

    /// Has the path encoded separators or dot segments, so that the request bypasses the cache?
    pub fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// Is it one rule that decides both? An HTTPRoute's rule may have several matches.
    pub(crate) fn is_of_same_rule(&self, other: &Self) -> bool {
        match (self.rule, other.rule) {
            (None, None) => true,
            (Some((id, rule)), Some((other_id, other_rule))) => {
                (id, self.of_base) == (other_id, other.of_base) || rule.is_match_of_same_rule(other_rule)
            }
            _ => false,
        }
    }

    /// Did the base decide? Then the rule is one of its.
    pub fn is_of_base(&self) -> bool {
        self.of_base
    }

    pub fn action(&self) -> Action {
        self.action
    }

    /// The Gateway's listener, where the request fits one.
    pub fn listener(&self) -> Option<&'r Listener> {
        self.listener
    }

    pub fn rule(&self) -> Option<&'r Rule> {
        self.rule.map(|(_, rule)| rule)
    }

    /// The rule's position in [`crate::Router::rules`], of the router or of its base.
    pub fn rule_id(&self) -> Option<u32> {
        self.rule.map(|(id, _)| id)
    }

    /// The position of the group whose share the request is, with endpoints or without.
    pub fn group(&self) -> Option<usize> {
        self.group
    }

    /// The rule's cache policy; `None` where the request bypasses the cache. A Service that has lost its endpoints
    /// may have left something in the cache; a reference that is not valid may not be served by it.
    pub fn cache(&self) -> Option<&'r Cache> {
        // Calls of gRPC are no documents: no cache answers them.
        let rule = self.rule().filter(|rule| !self.is_ambiguous && rule.kind() != RouteKind::GrpcRoute)?;
        match self.action {
            Action::Forward { .. } => rule.cache(),
            Action::NoBackend | Action::Unavailable if !rule.groups()[self.group?].name().is_empty() => {
                rule.cache()
            }
            _ => None,
        }
    }

    /// Does the cache answer the request, if it can? Ghost and its VCL come to the same result, with the user's VCL between.
    pub fn asks_cache(&self, request: &impl Request, has_body: bool) -> bool {
        let Some(cache) = self.cache() else { return false };
        let has = |name| request.any_header(name, &mut |_| true);
        let is_query = has_body && cache.keeps_query(request);
        let passes = has_body && !is_query
            || !cache.shares_authorized() && has("authorization")
            || cache.cookies_pass() && has("cookie")
            || cache.is_bypassed_by(request);
        (is_query || matches!(request.method(), b"GET" | b"HEAD")) && !passes
    }

    /// What belongs into the cache key beside host and URL: the rule; and, where chance chose it, the group by its Service and its
    /// filters.
    pub fn cache_key(&self) -> (Option<&'r str>, Option<(&'r str, u64)>) {
        let Some((_, rule)) = self.rule else { return (None, None) };
        let group = self.group.filter(|_| rule.splits()).map(|group| &rule.groups()[group]);
        (Some(rule.identity()), group.map(|group| (group.name(), group.filters())))
    }
}
